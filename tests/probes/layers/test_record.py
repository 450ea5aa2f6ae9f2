"""Layers: what is recorded of each, forward and backward, in models of many kinds; and that the model is left alone."""

from __future__ import annotations

import copy
import gc
import io
import logging
import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.integration.conftest import Programs, programs
from tests.probes.training import Module, model, sgd, train
from torch import nn
from torch._dynamo.testing import CompileCounter

import sonde
from sonde import guard
from sonde.errors import WrapRefused
from sonde.hooks.torch.module import module_call
from sonde.probes.layers import backward as graph, record as layers
from sonde.probes.layers.record import trace_model_instance
from sonde.testing import Recorded, record

pytestmark = pytest.mark.skipif(graph.native is None, reason="the C part was not built")

__all__ = ["programs"]


@pytest.fixture(autouse=True)
def _no_failures() -> Iterator[None]:
    """No test may end with a failure that was swallowed."""
    before = guard.counts()
    yield
    assert guard.counts() == before


def forwards(recorded: Recorded) -> list[str]:
    """The layers that were called, in their order."""
    return [event["name"] for event in recorded.events if event["cat"] == "layer"]


def backwards(recorded: Recorded) -> list[str]:
    """The layers that a backward pass came through, in its order."""
    return [event["name"] for event in recorded.events if event["cat"] == "layer.backward"]


def spans(recorded: Recorded, cat: str = "layer") -> dict[str, dict[str, Any]]:
    """The newest event of each layer."""
    return {event["name"]: event for event in recorded.events if event["cat"] == cat}


class Slow(torch.autograd.Function):
    """Passes on what it gets, and takes its time on the way back, which is recorded as `slow`."""

    @staticmethod
    def forward(_ctx: Any, value: Any) -> Any:
        return value.clone()

    @staticmethod
    def backward(_ctx: Any, gradient: Any) -> Any:
        with sonde.span("slow"):
            time.sleep(0.002)
        return gradient


slow: Any = Slow.apply


def holding_slow(recorded: Recorded) -> list[str]:
    """The layers whose ways back have a part of a `slow` in them."""
    ways = [event for event in recorded.events if event["cat"] == "layer.backward"]
    return [
        one["name"]
        for own in recorded.named("slow")
        for one in ways
        if one["start_ns"] < own["start_ns"] + own["dur_ns"] and own["start_ns"] < one["start_ns"] + one["dur_ns"]
    ]


def train_once(net: Any) -> None:
    """Forward and backward, without gradients of an earlier pass."""
    net.zero_grad()
    net(torch.ones(2, 4)).sum().backward()


class Block(Module):
    """Two layers, and a sum that is its own."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Tanh()

    def forward(self, value: Any) -> Any:
        return self.b(self.a(value)) + 1


# ── deep mode ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_deep_mode_records_each_leaf_of_each_model() -> None:
    """Without an edit: the model and the loss, forward and backward, in each step."""
    net = model()
    with record(deep=True) as recorded:
        train(net, sgd(net), 2)
    assert forwards(recorded) == ["0", "1", "2", "MSELoss"] * 2
    assert backwards(recorded) == ["MSELoss", "2", "1", "0"] * 2
    assert [event["step"] for event in recorded.events if event["cat"] == "layer"] == [0] * 4 + [1] * 4


def test_without_the_c_part_deep_mode_records_forwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of modules without children, with the memory of what they give; an exception marks its layer."""
    monkeypatch.setattr(graph, "native", None)
    net = nn.Sequential(nn.Linear(4, 4), Block())
    with record(deep=True) as recorded:
        train_once(net)
        with pytest.raises(RuntimeError):
            net(torch.ones(2, 5))
    assert forwards(recorded) == ["0", "1.a", "1.b", "0"]
    assert [event["key"] for event in recorded.events if event["cat"] == "layer"] == [32, 32, 32, None]
    assert [event["error"] for event in recorded.events if event["cat"] == "layer"] == [False, False, False, True]
    assert not backwards(recorded)


def test_without_deep_nothing_is_recorded_of_layers() -> None:
    """And nothing stands in the way of the modules."""
    net = model()
    with record() as recorded:
        train(net, sgd(net), 2)
    assert not [event for event in recorded.events if event["cat"].startswith("layer")]


def test_spans_lie_in_their_phases() -> None:
    """A layer in the forward pass, its backward in the backward pass."""
    net = model()
    with record(deep=True) as recorded:
        train(net, sgd(net), 2)
    for phase, cat in (("forward", "layer"), ("backward", "layer.backward")):
        parents = {event["seq"] for event in recorded.events if event["name"] == phase and event["cat"] == "probe"}
        found = [event for event in recorded.events if event["cat"] == cat]
        assert found
        assert all(event["parent"] in parents and event["depth"] == 1 for event in found)


def test_bytes_of_a_layer() -> None:
    """What it gives, what comes back, its parameters and their gradients."""
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2, bias=False))
    with record(deep=True) as recorded:
        net(torch.ones(3, 4)).sum().backward()
    assert {name: event["key"] for name, event in spans(recorded).items()} == {"0": 3 * 8 * 4, "1": 3 * 2 * 4}
    assert {name: event["key"] for name, event in spans(recorded, "layer.backward").items()} == {"0": 96, "1": 24}
    about = spans(recorded, "layer.info")
    assert about["0"]["key"] == (4 * 8 + 8) * 4
    assert about["0"]["args"] == {
        "type": "Linear",
        "parameters": 160,
        "gradients": 160,
        "compiled": False,
        "model": "Sequential",
    }


def test_gradients_that_are_not_there_are_not_zero() -> None:
    """Before a backward pass they are unknown; of a frozen layer there are none."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[0].requires_grad_(False)
    with record(deep=True) as recorded, torch.no_grad():
        net(torch.ones(1, 4))
    about = spans(recorded, "layer.info")
    assert about["0"]["args"]["gradients"] == 0
    assert about["1"]["args"]["gradients"] is None


def test_the_table_of_layers_fills() -> None:
    """Time, memory and calls for each layer and step."""
    net = model()
    with record(deep=True) as recorded:
        train(net, sgd(net), 3)
        with sonde.open_run(recorded.path) as run:
            rows = run.sql(
                "select step, count(*), min(forward_ns) > 0, min(backward_ns) > 0, sum(calls) from layers "
                "where type <> 'MSELoss' group by step order by step"
            ).fetchall()
            types = run.sql("select distinct layer, type, parameter_bytes from layers order by layer").fetchall()
    assert rows == [(step, 3, True, True, 3) for step in range(3)]
    assert types == [("0", "Linear", 160), ("1", "ReLU", 0), ("2", "Linear", 36), ("MSELoss", "MSELoss", 0)]


def test_only_chosen_steps_have_layers() -> None:
    """As with all phases."""
    net = model()
    with record(deep=True, steps="1:2") as recorded:
        train(net, sgd(net), 3)
    assert {event["step"] for event in recorded.events if event["cat"].startswith("layer.b")} == {1}


# ── where the time goes ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_layer_has_its_own_backward() -> None:
    """Its input needs no gradient, and all of its work is in its span."""

    class First(Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, value: Any) -> Any:
            return slow(value * self.weight)

    net = nn.Sequential(First(), nn.Linear(4, 4))
    with record(deep=True) as recorded:
        net(torch.ones(2, 4)).sum().backward()
    assert backwards(recorded) == ["1", "0"]
    assert holding_slow(recorded) == ["0"]
    assert spans(recorded, "layer.backward")["0"]["dur_ns"] >= recorded.named("slow")[0]["dur_ns"]


def test_work_between_layers_belongs_to_none() -> None:
    """A function that the model calls itself is not charged to the layer before or after it."""

    class Net(Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, value: Any) -> Any:
            return self.two(slow(self.one(value)))

    with record(deep=True) as recorded:
        Net()(torch.ones(2, 4)).sum().backward()
    assert backwards(recorded) == ["two", "one"]
    assert holding_slow(recorded) == []


def test_a_residual_connection_waits_for_nobody() -> None:
    """The span of a layer ends with its own nodes, though its input has another user."""

    class Net(Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.start = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, value: Any) -> Any:
            begun = self.start(value)
            beside = slow(begun)
            return self.inner(begun) + beside

    with record(deep=True) as recorded:
        Net()(torch.ones(2, 4)).sum().backward()
    assert backwards(recorded) == ["inner", "start"]
    assert holding_slow(recorded) == []


# ── results that are views, changed in place ─────────────────────────────────────────────────────────────────────────


class Viewed(Module):
    """Gives a view of what it computes, as a Linear does with three dimensions; its way back is slow."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.weight, self.width = nn.Parameter(torch.ones(4)), width

    def forward(self, value: Any) -> Any:
        return slow(value.flatten(0, 1) * self.weight).view_as(value)[..., : self.width]


@pytest.mark.parametrize("width", [4, 2])
def test_a_view_that_the_next_layer_changes_in_place_keeps_its_backward(width: int) -> None:
    """The node of the view is not part of the pass then; all of it, or a part."""
    net = nn.Sequential(nn.Linear(4, 4), Viewed(width), nn.ReLU(inplace=True), nn.Linear(width, 1))
    with record(deep=True) as recorded:
        for _ in range(2):
            net(torch.ones(2, 3, 4)).sum().backward()
    assert backwards(recorded) == ["3", "2", "1", "0"] * 2
    assert holding_slow(recorded) == ["1", "1"]


def test_linear_layers_with_three_dimensions_keep_their_backward() -> None:
    """They give views; a sum in place, and an activation in place."""

    class Net(Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.act = nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU(inplace=True)

        def forward(self, value: Any) -> Any:
            found = self.one(value)
            found += value
            return self.act(self.two(found))

    with record(deep=True) as recorded:
        Net()(torch.ones(2, 3, 4)).sum().backward()
    assert backwards(recorded) == ["act", "two", "one"]
    assert [spans(recorded, "layer.backward")[name]["key"] for name in ("one", "two", "act")] == [96] * 3


def test_the_gradient_of_a_part_that_is_given_is_not_that_of_the_whole() -> None:
    """Both nodes are followed, and one is measured."""
    with record(deep=True) as recorded:
        Viewed(2)(torch.ones(2, 3, 4)).sum().backward()
    assert backwards(recorded) == ["Viewed"]
    assert spans(recorded, "layer.backward")["Viewed"]["key"] == 2 * 3 * 2 * 4


def test_a_view_of_the_input_that_is_changed_in_place_gives_nobody_the_time_of_others() -> None:
    """Flatten has no way back of its own then; what was computed before it is not charged to the layer after it."""

    class Net(Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.flat, self.act = nn.Linear(4, 4), nn.Flatten(), nn.ReLU(inplace=True)

        def forward(self, value: Any) -> Any:
            return self.act(self.flat(slow(self.one(value))))

    with record(deep=True) as recorded:
        Net()(torch.ones(2, 3, 4)).sum().backward()
    assert backwards(recorded) == ["act", "one"]
    assert holding_slow(recorded) == []


def test_the_node_of_a_changed_view_is_not_that_of_the_layer_that_uses_it() -> None:
    """It is made when the view is used, inside of that layer's call."""
    one, two = nn.Linear(4, 4), nn.Linear(4, 4)

    def slowly(_gradients: Any) -> None:
        with sonde.span("slow"):
            time.sleep(0.002)

    with record(deep=True) as recorded:
        between = one(torch.ones(2, 3, 4))
        between += 1
        result = two(between)
        between.grad_fn.register_prehook(slowly)
        result.sum().backward()
    assert backwards(recorded) == ["Linear#2", "Linear"]
    assert holding_slow(recorded) == []


# ── models of many kinds ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_module_that_is_used_twice_is_recorded_twice() -> None:
    """Each call, and each way back."""
    shared = nn.Linear(4, 4)
    net = nn.Sequential(shared, nn.Tanh(), shared)
    with record(deep=True) as recorded:
        net(torch.ones(1, 4)).sum().backward()
    assert forwards(recorded) == ["0", "1", "0"]
    assert backwards(recorded) == ["0", "1", "0"]


def test_a_module_that_works_in_place_is_recorded() -> None:
    """It makes no memory of its own; full backward hooks would raise here."""
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4))
    with record(deep=True) as recorded:
        net(torch.ones(1, 4)).sum().backward()
    assert backwards(recorded) == ["2", "1", "0"]
    assert spans(recorded)["1"]["key"] == 0


def test_a_view_of_the_input_is_no_new_memory() -> None:
    """Flatten and Identity only pass on."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Flatten(), nn.Identity(), nn.Linear(8, 1))
    with record(deep=True) as recorded:
        net(torch.ones(1, 2, 4)).sum().backward()
    assert [spans(recorded)[name]["key"] for name in "0123"] == [32, 0, 0, 4]
    assert backwards(recorded) == ["3", "1", "0"]


def test_tuples_and_mappings_are_looked_into() -> None:
    """Whichever of the results is used, the way back comes through the layer once."""

    class Two(Module):
        def __init__(self, names: bool) -> None:
            super().__init__()
            self.weight, self.names = nn.Parameter(torch.ones(4)), names

        def forward(self, value: Any) -> Any:
            found = (value * self.weight, [value + self.weight])
            return {"a": found[0], "b": found[1]} if self.names else found

    for names in (False, True):
        for used in (("a",), ("b",), ("a", "b")):
            with record(deep=True) as recorded:
                result = Two(names)(torch.ones(2, 4))
                found = result if names else {"a": result[0], "b": result[1]}
                parts = {"a": found["a"], "b": found["b"][0]}
                sum(parts[name].sum() for name in used).backward()
            assert backwards(recorded) == ["Two"]
            assert spans(recorded)["Two"]["key"] == 64
            assert spans(recorded, "layer.backward")["Two"]["key"] == 32 * len(used)


def test_a_recurrent_layer_gives_a_tuple_in_a_tuple() -> None:
    """Output and state; only the output is used."""
    net = nn.LSTM(4, 8, batch_first=True)
    with record(deep=True) as recorded:
        net(torch.ones(2, 3, 4))[0].sum().backward()
    assert (forwards(recorded), backwards(recorded)) == (["LSTM"], ["LSTM"])
    assert spans(recorded)["LSTM"]["key"] == (2 * 3 * 8 + 2 * 2 * 8) * 4


def test_a_module_that_never_calls_its_children_is_a_layer() -> None:
    """Attention of torch has a child that it does not call; what calls its children is none."""
    net = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with record(deep=True) as recorded:
        for _ in range(2):
            net(torch.ones(2, 3, 8)).sum().backward()
    once = ["self_attn", "dropout1", "norm1", "linear1", "dropout", "linear2", "dropout2", "norm2"]
    assert forwards(recorded) == once * 2
    assert backwards(recorded) == once[::-1] * 2
    described = {event["name"] for event in recorded.events if event["cat"] == "layer.info"}
    assert described == {*once, "self_attn.out_proj"}


def test_two_models_with_the_same_names_are_told_apart() -> None:
    """The second one of a class has that before its names, with a number."""
    nets = [model() for _ in range(3)]
    with record(deep=True) as recorded:
        for net in nets:
            net(torch.ones(1, 4))
    assert sorted(set(forwards(recorded))) == sorted(
        [*"012", *(f"Sequential#2.{n}" for n in range(3)), *(f"Sequential#3.{n}" for n in range(3))]
    )


def test_a_loss_that_is_made_anew_in_each_step_is_one_layer() -> None:
    """The name of one that is gone is free, and what was said of it is not said again."""
    with record(deep=True) as recorded:
        for _ in range(5):
            nn.MSELoss()(torch.ones(2), torch.zeros(2))
            gc.collect()
    assert forwards(recorded) == ["MSELoss"] * 5
    assert len([event for event in recorded.events if event["cat"] == "layer.info"]) == 1


def test_names_are_those_of_the_outermost_model() -> None:
    """A part that is called on its own, then in the whole, and on its own again."""
    part = model()
    whole = nn.Sequential(part, nn.Tanh())
    with record(deep=True) as recorded:
        part(torch.ones(1, 4))
        whole(torch.ones(1, 4))
        part(torch.ones(1, 4))
    assert forwards(recorded) == ["0", "1", "2", "0.0", "0.1", "0.2", "1", "0.0", "0.1", "0.2"]


def test_a_part_of_two_models_has_the_names_of_the_first() -> None:
    """They do not change with each call, and the rest of the second model is told apart."""
    part = nn.Linear(4, 4)
    nets = [nn.Sequential(part, nn.Tanh()) for _ in range(2)]
    with record(deep=True) as recorded:
        for net in nets * 2:
            net(torch.ones(1, 4))
    assert forwards(recorded) == ["0", "1", "0", "Sequential#2.1"] * 2


@pytest.mark.parametrize("late", [False, True])
def test_a_parametrized_layer_is_one_layer(late: bool) -> None:
    """What computes its weight is a part of it, forward and backward; what is read between steps is no layer."""

    class Twice(Module):
        def forward(self, value: Any) -> Any:
            return slow(value * 2)

    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    with record(deep=True) as recorded:
        if late:
            net(torch.ones(2, 4))
        torch.nn.utils.parametrize.register_parametrization(net[0], "weight", Twice())
        net(torch.ones(2, 4)).sum().backward()
        _ = net[0].weight
    assert forwards(recorded) == ["0", "1"] * (1 + late)
    assert backwards(recorded) == ["1", "0"]
    assert holding_slow(recorded) == ["0"]
    about = spans(recorded, "layer.info")["0"]["args"]
    assert (about["type"], about["parameters"], about["gradients"]) == ("ParametrizedLinear", 80, 80)


def test_evaluation_between_steps_is_left_out() -> None:
    """Once there was a backward pass; a program that only infers is recorded."""
    net = model()
    with record(deep=True) as recorded:
        with torch.no_grad():
            net(torch.ones(1, 4))
        train(net, sgd(net), 1)
        with torch.no_grad():
            net(torch.ones(1, 4))
    assert forwards(recorded) == ["0", "1", "2", "0", "1", "2", "MSELoss"]


def test_transforms_of_data_are_no_layers() -> None:
    """Modules that run while a batch is made."""

    class Data(torch.utils.data.Dataset[Any]):
        transform = nn.Hardtanh()

        def __len__(self) -> int:
            return 2

        def __getitem__(self, _index: int) -> Any:
            return self.transform(torch.ones(4))

    net = model()
    with record(deep=True) as recorded:
        for batch in torch.utils.data.DataLoader(Data()):
            net(batch)
    assert set(forwards(recorded)) == {"0", "1", "2"}


def test_activation_checkpointing_keeps_the_layers() -> None:
    """What is computed again belongs to the backward pass of the layer that needs it."""
    net = model()
    with record(deep=True) as recorded:
        checkpoint: Any = torch.utils.checkpoint.checkpoint
        checkpoint(net, torch.ones(2, 4), use_reentrant=False).sum().backward()
    assert forwards(recorded) == ["0", "1", "2"]
    assert backwards(recorded) == ["2", "1", "0"]


def test_gradients_of_inputs_alone() -> None:
    """`torch.autograd.grad` needs but some of the nodes: what stays open ends with the pass."""
    net = model()
    given = torch.ones(1, 4, requires_grad=True)
    with record(deep=True) as recorded:
        for _ in range(2):
            torch.autograd.grad(net(given).sum(), given)
        sonde.mark("after")
    assert backwards(recorded) == ["2", "1", "0"] * 2
    assert not any(event["open"] for event in recorded.events)
    assert recorded.named("after")[0]["depth"] == 0


def test_a_graph_may_be_gone_through_twice() -> None:
    """Each pass is recorded."""
    net = model()
    with record(deep=True) as recorded:
        loss = net(torch.ones(1, 4)).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    assert backwards(recorded) == ["2", "1", "0"] * 2


# ── models that change ───────────────────────────────────────────────────────────────────────────────────────────────


def _by_attribute(net: Any) -> None:
    net.head = nn.Linear(4, 1)


def _by_mapping(net: Any) -> None:
    net._modules["head"] = nn.Linear(4, 1)


def _by_deletion(net: Any) -> None:
    del net.head  # the new one may get the address of the old one
    net.head = nn.Linear(4, 1)


@pytest.mark.parametrize("change", [_by_attribute, _by_mapping, _by_deletion])
@pytest.mark.parametrize("kept", [False, True])
def test_a_layer_that_is_replaced_is_recorded(change: Callable[[Any], None], kept: bool) -> None:
    """Its sizes are those of the new one, also if the old one lives on, which is a model of its own then."""

    class Net(Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 10)

        def forward(self, value: Any) -> Any:
            return self.head(self.body(value))

    net = Net()
    with record(deep=True) as recorded:
        train_once(net)
        old = net.head if kept else None
        change(net)
        for _ in range(2):
            train_once(net)
        if old is not None:
            old(torch.ones(1, 4))
    assert forwards(recorded) == ["body", "head"] * 3 + ["Linear"] * kept
    assert backwards(recorded) == ["head", "body"] * 3
    about = spans(recorded, "layer.info")["head"]["args"]
    assert (about["parameters"], about["gradients"]) == (20, 20)


def test_layers_that_are_put_into_lists_are_recorded() -> None:
    """Appended, put in between, or set in a place; all have the names that they have now."""
    net = nn.Sequential(nn.Linear(4, 4))
    with record(deep=True) as recorded:
        train_once(net)
        net.append(nn.Tanh())
        train_once(net)
        net.insert(0, nn.Sigmoid())
        train_once(net)
        net[0] = nn.ReLU()
        train_once(net)
        del net[0]
        train_once(net)
    assert forwards(recorded) == ["0", *"01", *"012", *"012", *"01"]
    types = [event["args"]["type"] for event in recorded.events if event["cat"] == "layer.info"]
    assert {"Linear", "Tanh", "Sigmoid", "ReLU"} == set(types)


def test_a_layer_that_is_wrapped_in_its_place_gets_the_name_it_has_there() -> None:
    """As adapters do it, after a first evaluation."""

    class Adapter(Module):
        def __init__(self, base: Any) -> None:
            super().__init__()
            self.base, self.beside = base, nn.Linear(4, 4)

        def forward(self, value: Any) -> Any:
            return self.base(value) + self.beside(value)

    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    with record(deep=True) as recorded:
        net(torch.ones(1, 4))
        net[0] = Adapter(net[0])
        train_once(net)
    assert forwards(recorded) == ["0", "1", "0.base", "0.beside", "1"]
    assert backwards(recorded) == ["1", "0.beside", "0.base"]


def test_a_part_that_changes_and_is_called_alone_keeps_its_place_in_the_names() -> None:
    """The new layer is named by the larger model."""
    net: Any = nn.Sequential(nn.Sequential(nn.Linear(4, 4)), nn.Tanh())
    with record(deep=True) as recorded:
        net(torch.ones(1, 4))
        net[0](torch.ones(1, 4))
        net[0].append(nn.Sigmoid())
        net[0](torch.ones(1, 4))
    assert forwards(recorded) == ["0.0", "1", "0.0", "0.0", "0.1"]


def test_a_model_that_changes_in_its_wrapper_keeps_its_names() -> None:
    """It is called through a wrapper for several devices, and by itself."""

    class DistributedDataParallel(Module):
        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module = module

        def forward(self, value: Any) -> Any:
            return self.module(value)

    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    wrapped = DistributedDataParallel(net)
    with record(deep=True) as recorded:
        for each in (net, wrapped):
            each(torch.ones(1, 4))
        net.append(nn.Sigmoid())
        for each in (net, wrapped):
            each(torch.ones(1, 4))
    assert forwards(recorded) == [*"01", *"01", *"012", *"012"]


def test_a_chosen_model_that_changes_is_recorded_as_it_was_chosen() -> None:
    """The names that were wanted of it are those that are wanted of what is new."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    with record() as recorded:
        trace_model_instance(net, exclude_names=["1", "3"])
        for _ in range(2):
            net(torch.ones(1, 4))
            net.append(nn.Sigmoid())
            net.append(nn.ReLU())
        net(torch.ones(1, 4))
    assert forwards(recorded) == ["0", *"02", *"024", "5"]


def test_a_model_whose_parts_hold_each_other_is_looked_at_once() -> None:
    """A child that knows its parent by an attribute."""
    net: Any = nn.Sequential(nn.Linear(4, 4))
    net[0].parent = net
    with record(deep=True) as recorded:
        for _ in range(2):
            net(torch.ones(1, 4))
    assert forwards(recorded) == ["0", "0"]


# ── compiled, traced, scripted ───────────────────────────────────────────────────────────────────────────────────────


def test_a_compiled_model_is_said_to_be_invisible() -> None:
    """It is recorded as a whole; its layers are known, and have no times."""
    net: Any = torch.compile(model(), backend="eager")
    with record(deep=True) as recorded:
        for _ in range(2):
            net(torch.ones(2, 4)).sum().backward()
        with sonde.open_run(recorded.path) as run:
            rows = run.sql(
                "select layer, compiled, step, forward_ns from layers where layer <> 'Sequential'"
            ).fetchall()
    assert set(forwards(recorded)) == {"Sequential"}
    assert sorted(rows) == [(name, True, None, None) for name in "012"]


@pytest.mark.parametrize("way", ["compile", "torch.compile"])
def test_a_compiled_part_is_recorded_as_a_whole(way: str) -> None:
    """The rest of the model as usual; nothing is compiled again because of us."""
    counter = CompileCounter()
    part: Any = Block()
    if way == "compile":
        part.compile(backend=counter, fullgraph=True)
    else:
        part = torch.compile(part, backend=counter, fullgraph=True)
    net = nn.Sequential(part, nn.Linear(4, 1))
    with record(deep=True) as recorded:
        for _ in range(3):
            net(torch.ones(2, 4)).sum().backward()
    assert forwards(recorded) == ["0", "1"] * 3
    assert backwards(recorded) == ["1", "0"] * 3
    assert counter.frame_count == 1
    about = {name: event["args"]["compiled"] for name, event in spans(recorded, "layer.info").items()}
    assert about == {"0": True, "0.a": True, "0.b": True, "1": False}


def test_a_compiled_layer_has_the_class_and_the_parameters_of_what_was_compiled() -> None:
    """The wrapper that torch.compile makes has none of its own."""
    part: Any = torch.compile(nn.Linear(4, 2), backend="eager")
    net = nn.Sequential(part, nn.Linear(2, 1))
    with record(deep=True) as recorded:
        for _ in range(2):
            net(torch.ones(2, 4)).sum().backward()
    about = spans(recorded, "layer.info")["0"]["args"]
    assert about == {"type": "Linear", "parameters": 40, "gradients": 40, "compiled": True, "model": "Sequential"}


def test_tracing_and_scripting_see_the_bare_model() -> None:
    """No operation of ours gets into the graph."""
    net = model()

    def operations() -> list[str]:
        trace: Any = torch.jit.trace
        return [node.kind() for node in trace(net, torch.ones(1, 4)).inlined_graph.nodes()]

    bare = operations()
    with record(deep=True):
        net(torch.ones(1, 4))
        assert operations() == bare
        torch.jit.script(net)(torch.ones(1, 4))
        torch.fx.symbolic_trace(net)(torch.ones(1, 4))
        torch.func.grad(lambda given: net(given).sum())(torch.ones(1, 4))


# ── it cannot hurt ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_results_are_the_same_bit_by_bit() -> None:
    """Parameters after training with and without it, dropout included."""

    def trained() -> list[Any]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(inplace=True), nn.Linear(8, 1))
        train(net, torch.optim.Adam(net.parameters()), 5)
        return [*net.parameters()]

    bare = trained()
    with record(deep=True):
        assert all(torch.equal(one, other) for one, other in zip(trained(), bare, strict=True))


def test_nothing_stays_on_the_model() -> None:
    """It is saved, pickled and copied without a trace of us, while it is being recorded."""
    net = model()
    with record(deep=True):
        train(net, sgd(net), 1)
        file = io.BytesIO()
        torch.save(net, file)
        written = pickle.dumps(net) + file.getvalue()
        copied = copy.deepcopy(net)
        assert "__call__" not in vars(nn.Sequential)
        assert not any(module._forward_hooks or module._backward_hooks for module in net.modules())
    assert b"sonde" not in written
    assert copied(torch.ones(1, 4)).shape == (1, 1)


def test_a_model_that_is_gone_is_let_go() -> None:
    """Nothing keeps it, its graph or its values alive."""
    with record(deep=True):
        net = model()
        train(net, sgd(net), 1)
        before = len(layers._layers.models.calls)
        del net
        gc.collect()
        assert len(layers._layers.models.calls) < before


def test_the_values_of_a_pass_are_freed_with_its_graph() -> None:
    """Our hooks hold no tensor."""
    import weakref

    net = model()
    with record(deep=True):
        result = net(torch.ones(1, 4))
        known = weakref.ref(result)
        del result
        assert known() is None


def test_an_exception_in_a_layer_passes_and_marks_it() -> None:
    """And the next call is recorded as usual."""
    net = model()
    with record(deep=True) as recorded:
        with pytest.raises(RuntimeError):
            net(torch.ones(1, 5))
        net(torch.ones(1, 4))
    assert [(event["name"], event["error"]) for event in recorded.events if event["cat"] == "layer"] == [
        ("0", True), ("0", False), ("1", False), ("2", False),
    ]  # fmt: skip


def test_an_exception_in_a_backward_pass_ends_its_layers() -> None:
    """What is recorded after it does not lie in them."""

    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, value: Any) -> Any:
            return value.clone()

        @staticmethod
        def backward(_ctx: Any, _gradient: Any) -> Any:
            raise ValueError("no way back")

    broken: Any = Broken.apply

    class Layer(Module):
        def forward(self, value: Any) -> Any:
            return broken(value).exp()

    net = nn.Sequential(nn.Linear(4, 4), Layer())
    with record(deep=True) as recorded:
        with pytest.raises(ValueError, match="no way back"):
            net(torch.ones(1, 4)).sum().backward()
        sonde.mark("after")
    assert [(event["name"], event["error"]) for event in recorded.events if event["cat"] == "layer.backward"] == [
        ("1", True)
    ]
    assert recorded.named("after")[0]["depth"] == 0


def test_the_gate_is_as_before_when_the_recording_ends() -> None:
    """No layer is followed any more."""
    net = model()
    with record(deep=True):
        net(torch.ones(1, 4))
    assert module_call.subscribers == ()
    assert not layers._layers.models.calls
    with record() as recorded:
        net(torch.ones(1, 4))
    assert forwards(recorded) == []


def test_the_layer_that_a_program_died_in_is_known(programs: Programs) -> None:
    """The span of the last layer that was entered is open in what `kill -9` leaves; those before it are whole."""
    code = """
        import os, signal
        import torch, sonde

        class Deadly(torch.nn.Module):
            def forward(self, value):
                os.kill(os.getpid(), signal.SIGKILL)

        net = torch.nn.Sequential(torch.nn.Linear(4, 4), Deadly(), torch.nn.Tanh())
        sonde.init()
        from sonde.probes.layers.record import trace_model_instance
        trace_model_instance(net, trace_layer_forward_time=False, trace_layer_forward_memory=False)
        net(torch.ones(1, 4))
    """
    programs.run(code, code_expected=-9)
    assert programs.rows("select name, open from events where cat = 'layer' order by start_ns") == [
        ("0", False), ("1", True),
    ]  # fmt: skip


# ── trace_model_instance ─────────────────────────────────────────────────────────────────────────────────────────────


def test_one_model_is_recorded_without_deep() -> None:
    """That one, and no other."""
    net, other = model(), model()
    with record() as recorded:
        trace_model_instance(net)
        for each in (net, other):
            train(each, sgd(each), 1)
    assert forwards(recorded) == ["0", "1", "2"]
    assert backwards(recorded) == ["2", "1", "0"]


def test_names_are_chosen_by_their_parts() -> None:
    """What is not chosen is not a layer, and neither is what calls it."""
    net = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with record() as recorded:
        trace_model_instance(net, include_names=["linear", "norm"], exclude_names=["norm2"])
        net(torch.ones(1, 2, 8))
        trace_model_instance(net, exclude_names=["linear", "norm", "dropout", "attn"])
        net(torch.ones(1, 2, 8))
    assert forwards(recorded) == ["norm1", "linear1", "linear2"]


def test_blocks_are_recorded_if_not_only_leaves_are_wanted() -> None:
    """Each lies in the one that called it, forward and backward."""
    net = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    with record() as recorded:
        trace_model_instance(net, leaf_only=False)
        net(torch.ones(1, 4)).sum().backward()
    assert forwards(recorded) == ["Sequential", "0", "0.0", "0.1", "1", "1.0", "1.1"]
    assert backwards(recorded) == ["Sequential", "1", "1.1", "1.0", "0", "0.1", "0.0"]
    for cat in ("layer", "layer.backward"):
        events = spans(recorded, cat)
        outer = events["Sequential"]["depth"]
        assert {name: event["depth"] - outer for name, event in events.items()} == {
            "Sequential": 0, "0": 1, "0.0": 2, "0.1": 2, "1": 1, "1.0": 2, "1.1": 2,
        }  # fmt: skip


def test_each_part_can_be_left_out() -> None:
    """Memory, backward, or forward."""
    net = model()
    off: dict[str, Any] = {
        "trace_layer_forward_memory": False,
        "trace_layer_backward_memory": False,
        "sample_layer_memory": False,
    }
    with record() as recorded:
        trace_model_instance(net, **off)
        net(torch.ones(1, 4)).sum().backward()
        trace_model_instance(net, trace_layer_backward_time=False, trace_layer_backward_memory=False)
        net(torch.ones(1, 4)).sum().backward()
        trace_model_instance(
            net, trace_layer_forward_time=False, trace_layer_forward_memory=False, trace_execution=False
        )
        net(torch.ones(1, 4)).sum().backward()
    assert forwards(recorded) == ["0", "1", "2"] * 2
    assert backwards(recorded) == ["2", "1", "0"] * 2
    keys = [event["key"] for event in recorded.events if event["cat"] == "layer" and event["name"] == "0"]
    assert keys == [None, 32]
    told = [event["args"]["parameters"] for event in recorded.events if event["cat"] == "layer.info"]
    assert told[0] is None
    assert 160 in told


def test_it_says_once_that_nothing_is_recorded(caplog: pytest.LogCaptureFixture) -> None:
    """Instead of doing nothing without a word."""
    layers._Said.nothing = False
    with caplog.at_level(logging.WARNING, "sonde"):
        trace_model_instance(model())
        trace_model_instance(model())
    (message,) = caplog.messages
    assert "sonde.init()" in message


def test_it_says_that_no_name_fits(caplog: pytest.LogCaptureFixture) -> None:
    """With the one that was probably meant."""
    net = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with record(), caplog.at_level(logging.WARNING, "sonde"):
        trace_model_instance(net, include_names=["linaer1"])
    assert any("Did you mean 'linear1'?" in message for message in caplog.messages)


@pytest.mark.parametrize("given", [3, nn.Linear, None])
def test_what_is_no_model_is_refused(given: object) -> None:
    """A mistake in the call itself."""
    with pytest.raises(WrapRefused, match=r"torch\.nn\.Module"):
        trace_model_instance(given)


def test_names_are_a_list() -> None:
    """A text would be taken for a list of letters."""
    with record(), pytest.raises(WrapRefused, match="include_names"):
        trace_model_instance(model(), include_names="linear")


def test_layers_of_several_models_begin_with_their_models_name(tmp_path: Any) -> None:
    """Also those of the first one, which was alone when it was named; a loss function is no model among these."""

    class Critic(Module):
        def __init__(self) -> None:
            super().__init__()
            self.main = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))

        def forward(self, x: Any) -> Any:
            return self.main(x)

    class Generator(Critic):
        pass

    def names(*models: Any) -> list[tuple[Any, ...]]:
        loss = nn.MSELoss()
        with record(dir=tmp_path / str(len(models)), deep=True) as recorded:
            for net in models:
                for _ in range(2):
                    loss(net(torch.ones(2, 4)), torch.zeros(2, 1)).backward()
        with sonde.open_run(recorded.path) as run:
            return run.sql("select distinct model, layer from layers where type = 'Linear' order by all").fetchall()

    assert names(Critic(), Generator()) == [
        (model, f"{model}.main.{number}") for model in ("Critic", "Generator") for number in (0, 1)
    ]
    assert names(Critic()) == [("Critic", "main.0"), ("Critic", "main.1")]
