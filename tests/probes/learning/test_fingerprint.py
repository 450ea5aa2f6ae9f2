"""Fingerprints of inputs, layers, gradients and parameters."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.probes.training import loss_of, model, sgd, train  # noqa: E402

from sonde.probes.learning import fingerprint, randomness  # noqa: E402
from sonde.testing import Recorded, record  # noqa: E402


def prints(recorded: Recorded) -> list[tuple[int, str, str]]:
    """Step, direction and name of each, in their order."""
    return [
        (event["step"], event["cat"].removeprefix("fingerprint."), event["name"])
        for event in recorded.events
        if event["cat"].startswith("fingerprint.") and event["kind"] == "counter"
    ]


def test_every_nth_step_has_them_in_the_order_of_computing(expected: set[str]) -> None:
    """Input, leaf layers, the output, gradients, parameters."""
    with record(fingerprint=2) as recorded:
        net = model()
        train(net, sgd(net), 4)
    found = prints(recorded)
    assert {step for step, *_ in found} == {0, 2}
    names = ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert [(direction, name) for step, direction, name in found if step == 2] == [
        ("input", "0"),
        *(("before", name) for name in names),
        *(("forward", name) for name in ("0", "1", "2", "output")),
        *(("backward", name) for name in names),
        *(("update", name) for name in names),
    ]


def test_parameters_are_written_before_a_step_only_if_the_step_before_was_not_due(expected: set[str]) -> None:
    """They are what that one ended with."""
    with record(fingerprint=1) as recorded:
        net = model()
        train(net, sgd(net), 3)
    assert {step for step, direction, _ in prints(recorded) if direction == "before"} == {0}


def test_the_state_of_random_numbers_is_recorded_now_and_then(expected: set[str]) -> None:
    """With it, numbers drawn in the forward are drawn again."""
    with record(fingerprint=1) as recorded:
        net = model()
        train(net, sgd(net), fingerprint.RANDOM_EVERY + 1)
        torch.manual_seed(7)
        marks = recorded.named("state")
        assert [mark["step"] for mark in marks] == [0, fingerprint.RANDOM_EVERY]
    torch.manual_seed(0)
    model()
    assert torch.equal(randomness.unpacked(marks[0]["args"]["state"]), torch.get_rng_state())


@pytest.mark.parametrize("texts", [None, [], ["abc"], ["!!"], [1]])
def test_a_damaged_state_of_random_numbers_is_none(texts: Any) -> None:
    """A run is input like any other."""
    assert randomness.unpacked(texts) is None


def test_a_compiled_model_is_compiled_once(expected: set[str]) -> None:
    """And nothing of Sonde's is."""
    compiled = []

    def backend(graph: Any, _inputs: Any) -> Any:
        compiled.append(1)
        return graph.forward

    torch._dynamo.reset()
    with record(fingerprint=2) as recorded:
        net = torch.compile(model(), backend=backend)
        train(net, sgd(net), 6)
    assert len(compiled) == 1
    assert {name for _, direction, name in prints(recorded) if direction == "update"} == {
        "0.weight", "0.bias", "2.weight", "2.bias",
    }  # fmt: skip


def test_nothing_is_left_on_torch_or_on_the_model(expected: set[str]) -> None:
    """Neither between the steps nor afterwards."""
    hooks = torch.nn.modules.module._global_forward_hooks
    with record(fingerprint=1):
        net = model()
        train(net, sgd(net), 2)
        assert not hooks
        assert not any(module._forward_hooks for module in net.modules())
    assert not hooks


def test_the_numbers_of_a_training_do_not_change(expected: set[str]) -> None:
    """With them and without."""

    def trained() -> list[float]:
        net = model()
        train(net, sgd(net), 5)
        return [value for one in net.parameters() for value in one.flatten().tolist()]

    plain = trained()
    with record(fingerprint=1):
        assert trained() == plain


def test_equal_trainings_have_equal_fingerprints_and_others_have_not(expected: set[str]) -> None:
    """One bit is enough."""

    def keys(change: float) -> list[int]:
        with record(fingerprint=1) as recorded:
            net = model()
            with torch.no_grad():
                net[2].bias += change
            train(net, sgd(net), 1)
        return [event["key"] for event in recorded.events if event["cat"] == "fingerprint.forward"]

    same, again, other = keys(0.0), keys(0.0), keys(1e-7)
    assert same == again
    assert [one == two for one, two in zip(same, other, strict=True)] == [True, True, False, False]


def test_evaluation_has_none(expected: set[str]) -> None:
    """It is not training that goes on there."""
    with record(fingerprint=1) as recorded:
        net = model().eval()
        loss_of(net)
        with torch.no_grad():
            loss_of(net.train())
    assert prints(recorded) == []


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(()),
        torch.ones(0),
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(2, 2, dtype=torch.complex64).conj(),
        torch.arange(6).reshape(2, 3).t(),
        torch.tensor([True, False]),
        torch.ones(3).to_sparse(),
        torch.ones(3, device="meta"),
    ],
    ids=lambda one: f"{one.dtype}-{one.layout}-{one.device}",
)
def test_any_tensor_has_one_or_is_left_out(tensor: Any, expected: set[str]) -> None:
    """Nothing fails."""
    with record() as recorded:
        fingerprint.write(fingerprint.named("forward", "x"), tensor)
    plain = tensor.layout is torch.strided and not tensor.is_meta
    assert len(recorded.named("x")) == plain


@pytest.mark.skipif(fingerprint.native is None, reason="the C parts were not built")
@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 5),
        torch.randn(4, 6, dtype=torch.float64)[:, ::2],
        torch.randn(2, 3, 4).permute(2, 0, 1),
        torch.randn(17).bfloat16(),
        torch.arange(-8, 8, dtype=torch.int8),
        torch.arange(40).reshape(5, 8).t(),
        torch.tensor([True, False, True]),
        torch.tensor(2.5),
        torch.randn(3).expand(4, 3),
    ],
    ids=lambda one: f"{one.dtype}-{tuple(one.shape)}-{one.stride()}",
)
def test_c_and_torch_make_the_same(tensor: Any, expected: set[str]) -> None:
    """A run of a machine without C can be compared with one of a machine that has it."""
    net = model()
    with record(fingerprint=1) as recorded:
        train(net, sgd(net), 1)  # C gets to know torch
        assert fingerprint.quick(fingerprint.named("forward", "c"), tensor)
        fingerprint._write_slowly(fingerprint.named("forward", "torch"), tensor)
    (one,), (other,) = recorded.named("c"), recorded.named("torch")
    assert one["key"] == other["key"]
    assert one["value"] == pytest.approx(other["value"])


@pytest.mark.parametrize("quick", [True, False], ids=["c", "torch"])
def test_a_tensor_can_be_resized_and_freed_afterwards(
    quick: bool, monkeypatch: pytest.MonkeyPatch, expected: set[str]
) -> None:
    """NumPy would forbid it for good; and what was freed has no fingerprint."""
    if not quick:
        monkeypatch.setattr(fingerprint, "quick", fingerprint._never)
    with record(fingerprint=1) as recorded:
        net = model()
        train(net, sgd(net), 1)
        tensor = torch.ones(4)
        fingerprint.write(fingerprint.named("forward", "whole"), tensor)
        tensor.resize_(8)
        tensor.untyped_storage().resize_(0)
        fingerprint.write(fingerprint.named("forward", "freed"), tensor)
    assert len(recorded.named("whole")) == 1
    assert recorded.named("freed") == []


def test_a_part_of_a_model_that_is_called_by_itself_has_them_too(expected: set[str]) -> None:
    """A program may call the encoder of its model directly."""
    net = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.nn.Linear(2, 1))
    optimizer = sgd(net)
    with record(fingerprint=1) as recorded:
        for part in (net, net[0]):
            optimizer.zero_grad()
            part(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert [(step, name) for step, direction, name in prints(recorded) if direction == "forward"] == [
        (0, "0.0"),
        (0, "1"),
        (0, "output"),
        (1, "0.0"),
        (1, "output"),
    ]


def test_a_failure_switches_it_off_and_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark says so."""

    def fail(*_args: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(fingerprint, "write_all", fail)
    with record(fingerprint=1) as recorded:
        net = model()
        train(net, sgd(net), 3)
    assert [event["name"] for event in recorded.events if event["cat"] == "probe.off"] == ["fingerprint"]
    assert len(recorded.named("update")) == 3
    assert not torch.nn.modules.module._global_forward_hooks
