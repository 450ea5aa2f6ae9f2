"""What is recorded of a step: forward, backward, loss, checkpoints, collections; and that the program computes the same."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.probes.training import Module, loss_of, model, sgd, train

from sonde import flow, guard, probes
from sonde.hooks.torch.module import module_call
from sonde.store.probe import FORWARD_GRAD, FORWARD_LEARNED, FORWARD_LOSS, FORWARD_TRAINING
from sonde.testing import record


def test_the_key_of_a_forward_tells_the_state_of_the_module() -> None:
    """Training mode, gradients, and whether it is a loss; on the fast path and without it."""
    net = model()
    with record() as recorded:
        for _ in range(2):
            net.train()
            loss_of(net)
            net.eval()
            net(torch.ones(1, 4))
            with torch.no_grad():
                net(torch.ones(1, 4))
                net.train()(torch.ones(1, 4))
    training = FORWARD_TRAINING | FORWARD_GRAD
    one = [training, training | FORWARD_LOSS, FORWARD_GRAD, FORWARD_LEARNED, FORWARD_TRAINING | FORWARD_LEARNED]
    assert [event["key"] for event in recorded.named("forward")] == one * 2


@pytest.mark.parametrize("steps", [0, 2])  # the fast path begins after the first step
def test_the_key_of_a_forward_tells_a_teacher_from_a_model_that_learns(steps: int) -> None:
    """Both are in evaluation mode and without gradients."""
    net, teacher = model(), model().eval()
    with record() as recorded:
        train(net, sgd(net), steps)
        with torch.no_grad():
            teacher(torch.ones(1, 4))
        loss_of(net)
        with torch.no_grad():
            net.eval()(torch.ones(1, 4))
            teacher(torch.ones(1, 4))
    alone = [event["key"] for event in recorded.named("forward") if event["key"] in (0, FORWARD_LEARNED)]
    assert alone == [0, FORWARD_LEARNED, 0]


def test_modules_that_transform_the_data_are_no_forward() -> None:
    """They run while a batch is made, here or in a worker."""

    class Data(torch.utils.data.Dataset[Any]):
        double = torch.nn.Identity()

        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> Any:
            return self.double(torch.ones(4))

    net = model()
    for workers in (0, 1):
        with record() as recorded:
            for batch in torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=workers):
                net(batch)
        assert len(recorded.named("forward")) == 4
        assert all(event["depth"] == 0 for event in recorded.named("forward"))


def test_activation_checkpointing_shows_one_forward() -> None:
    """What is computed again in the backward pass belongs to that."""
    net = model()
    with record() as recorded:
        for _ in range(3):
            torch.utils.checkpoint.checkpoint(net, torch.ones(2, 4), use_reentrant=False).sum().backward()
    assert len(recorded.named("forward")) == 3
    assert len(recorded.named("backward")) == 3


def test_a_loss_is_noted_if_it_is_one_number() -> None:
    """In a list too; not several, not a gradient that is given."""
    start: Any = torch.ones(3, requires_grad=True)
    before = guard.counts()
    with record() as recorded:
        for _ in range(2):
            (start * 2).sum().backward()
            torch.autograd.backward([(start * 3).sum()])
            (start * 4).backward(torch.ones(3))
            torch.autograd.backward(tensors=(start * 5).sum())
    assert [event["value"] for event in recorded.named("loss")] == [6.0, 9.0, 15.0] * 2
    assert guard.counts() == before


def test_errors_pass_and_mark_their_phase() -> None:
    """Those of a model, a backward pass; and the next call is seen again."""
    net = model()
    with record() as recorded:
        for _ in range(2):
            with pytest.raises(RuntimeError):
                net(torch.ones(1, 3))
            loss = net(torch.ones(1, 4)).sum()
            loss.backward()
            with pytest.raises(RuntimeError, match="second time"):
                loss.backward()
    assert [event["error"] for event in recorded.named("forward")] == [True, False] * 2
    assert [event["error"] for event in recorded.named("backward")] == [False, True] * 2


def test_flow_and_probes_see_the_same_calls() -> None:
    """One patch serves both; while a trace runs, and after it."""
    net = model()
    optimizer = sgd(net)
    with record() as recorded:
        train(net, optimizer, 4)
        with flow.trace() as trace:
            train(net, optimizer, 2)
        train(net, optimizer, 2)
    assert len(recorded.named("forward")) == 16
    assert len(recorded.named("optimizer")) == 8
    assert "forward" in str(trace)


def test_results_are_the_same_bit_by_bit() -> None:
    """Parameters after training, with and without."""

    def trained() -> Any:
        net = model()
        train(net, torch.optim.Adam(net.parameters()), 20)
        return [parameter.detach().clone() for parameter in net.parameters()]

    plain = trained()
    with record():
        recorded = trained()
    assert all(torch.equal(one, other) for one, other in zip(plain, recorded, strict=True))


def test_steps_use_up_no_references() -> None:
    """Python 3.11 counts those of None, and ends the program when there are none left."""
    net = model()
    with record():
        train(net, sgd(net), steps=10)
        before = sys.getrefcount(None)
        train(net, sgd(net), steps=500)
        assert sys.getrefcount(None) > before - 500


def test_models_are_saved_and_copied_without_a_trace_of_us(tmp_path: Path) -> None:
    """And saving is a checkpoint."""
    net = model()
    with record() as recorded:
        train(net, sgd(net), 4)
        buffer = io.BytesIO()
        torch.save(net, buffer)
        torch.serialization.save(net.state_dict(), str(tmp_path / "state.pt"))
        copied = copy.deepcopy(net)
        assert pickle.loads(pickle.dumps(torch.save)) is torch.save
    assert b"sonde" not in buffer.getvalue()
    assert torch.equal(copied[0].weight, net[0].weight)
    assert len(recorded.named("checkpoint")) == 2


class Hooked(Module):
    """A model with a hook on a part of it."""

    def __init__(self) -> None:
        super().__init__()
        self.part = torch.nn.Linear(4, 4)
        self.part.register_forward_hook(lambda module, args, output: output + 1)

    def forward(self, batch: Any) -> Any:
        """The part, hook included."""
        return self.part(batch).sum()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_models_with_hooks_stay_one_graph() -> None:
    """The compiler reads through what stands in the place of `Module.__call__`; forward and steps are seen."""
    torch._dynamo.reset()
    net = Hooked()
    expected = net(torch.ones(2, 4))
    with record() as recorded:
        compiled = torch.compile(net, backend="eager", fullgraph=True)
        optimizer = sgd(net)
        results = []
        for _ in range(4):
            loss = compiled(torch.ones(2, 4))
            results.append(loss.detach().clone())
            loss.backward()
            optimizer.step()
    torch._dynamo.reset()
    assert torch.equal(results[0], expected)
    assert len(recorded.named("forward")) == len(recorded.named("update")) == 4


def test_a_collection_is_a_span_once_training_has_begun() -> None:
    """With the generation as its key."""
    net = model()
    with record() as recorded:
        gc.collect()
        net(torch.ones(1, 4))
        gc.collect()
        gc.collect(1)
    assert [event["key"] for event in recorded.named("gc")][-2:] == [2, 1]
    assert all(event["step"] == 0 for event in recorded.named("gc"))
    assert not any("sonde" in getattr(callback, "__module__", "") for callback in gc.callbacks)


def test_a_model_in_another_thread_is_recorded_there() -> None:
    """Which of them trains is settled when reading."""
    net = model()
    with record() as recorded:
        thread = threading.Thread(target=net, args=(torch.ones(1, 4),))
        thread.start()
        thread.join()
        net(torch.ones(1, 4))
    assert len({event["tid"] for event in recorded.named("forward")}) == 2


@pytest.mark.parametrize(
    ("settings", "seen"),
    [
        ({"mode": "manual"}, set()),
        ({"mode": "selective", "patch_forward": True}, {"forward"}),
        ({"mode": "selective", "patch_backward": True}, {"backward", "loss"}),
        ({"mode": "selective", "patch_optimizer": True}, {"lr", "optimizer", "update"}),
        ({"mode": "auto"}, {"forward", "backward", "loss", "lr", "optimizer", "update"}),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else None,
)
def test_only_what_the_mode_says_is_patched(settings: dict[str, Any], seen: set[str]) -> None:
    """And everything is put back."""
    original = torch.nn.Module.__call__
    net = model()
    with record(**settings) as recorded:
        train(net, sgd(net), 3)
    assert {event["name"] for event in recorded.events if event["cat"] == "probe"} - {"gc"} == seen
    assert torch.nn.Module.__call__ is original


def test_a_probe_that_cannot_be_installed_is_off_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go on, and so does the program."""

    def install(_settings: object) -> Callable[[], None]:
        raise RuntimeError("no such thing")

    broken = tuple(one._replace(install=install) if one.name == "backward" else one for one in probes.PROBES)
    monkeypatch.setattr(probes, "PROBES", broken)
    net = model()
    with record() as recorded:
        train(net, sgd(net), 3)
    (off,) = [event for event in recorded.events if event["cat"] == "probe.off"]
    assert (off["name"], off["args"]["reason"]) == ("backward", "RuntimeError: no such thing")
    assert len(recorded.named("update")) == 3
    assert [event["cat"] for event in recorded.named("backward")] == ["probe.off"]


def test_without_the_c_part_the_same_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By Python alone."""
    for name in ("status", "outermost", "optimizer"):
        monkeypatch.setattr(import_module(f"sonde.hooks.torch.{name}"), "native", None)
    for name in ("phases.forward", "phases.backward", "step"):
        monkeypatch.setattr(import_module(f"sonde.probes.{name}"), "native", None)
    monkeypatch.setattr(import_module("sonde.hooks.torch.optimizer").optimizer_step, "_hooks", None)
    net = model()
    with record() as recorded:
        train(net, sgd(net), 5)
        assert type(torch.nn.Module.__call__).__name__ == "function"
    assert [event["step"] for event in recorded.named("update")] == [0, 1, 2, 3, 4]
    assert len(recorded.named("forward")) == 10
    assert module_call.subscribers == ()
