"""The functions `wrap_...`: what they record in the mode manual, what they leave alone, what they refuse."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.probes.training import model, sgd, train, updates

from sonde.analysis.run import open_run
from sonde.errors import WrapRefused
from sonde.probes.tracestep import trace_step
from sonde.probes.wrap import wrap_backward, wrap_dataloader, wrap_forward, wrap_h2d, wrap_optimizer
from sonde.store.probe import read_batch_key
from sonde.testing import record


def loop(net: Any, optimizer: Any) -> None:
    """A loop by hand."""
    forward, stepping = wrap_forward(net), wrap_optimizer(optimizer)
    for batch in wrap_dataloader([torch.ones(2, 4)] * 3):
        moved = wrap_h2d(batch).to("cpu")
        loss = forward(moved).sum()
        wrap_backward(loss).backward()
        stepping.step()
        stepping.zero_grad()


def test_a_loop_by_hand_has_all_its_phases() -> None:
    """In the mode manual, where nothing is patched."""
    net = model()
    with record(mode="manual") as recorded:
        loop(net, sgd(net))
    names = ["input_wait", "h2d", "forward", "loss", "backward", "optimizer", "update"]
    found = [(event["name"], event["step"]) for event in recorded.events if event["cat"] == "probe"]
    steps = [(name, number) for number in range(3) for name in names]
    assert [pair for pair in found if pair[0] != "gc"] == [*steps, ("iter_end", 3)]
    assert [event["key"] for event in recorded.named("h2d")] == [32] * 3


def test_nothing_is_recorded_twice() -> None:
    """In the mode auto the wrappers pass on what is seen anyway."""
    net = model()
    with record() as recorded:
        loop(net, sgd(net))
    counted = {name: len(recorded.named(name)) for name in ("forward", "backward", "optimizer", "update", "input_wait")}
    assert set(counted.values()) == {3}
    assert updates(recorded) == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.parametrize(
    ("size", "expected"), [(2, [2, 2, 2]), (len, [3, 3, 1]), (None, []), (lambda batch: batch.none, [])]
)
def test_samples_are_counted_if_somebody_can(size: Any, expected: list[int]) -> None:
    """By a number or a function; one that fails costs the program nothing."""
    batches = ["abc", "def", "g"]
    with record(mode="manual") as recorded:
        found = list(wrap_dataloader(batches, size=size))
        list(wrap_dataloader(iter(batches), size=size))
    assert found == batches
    assert [event["value"] for event in recorded.named("samples")] == expected * 2
    assert [event["key"] for event in recorded.named("samples")] == [
        event["key"] for event in recorded.named("input_wait")
    ][: 2 * len(expected)]


def test_batches_have_loader_round_and_number() -> None:
    """Each loop over it is a round; `break` and exceptions pass."""
    batches = wrap_dataloader(range(2))
    assert len(batches) == 2

    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("theirs")

    with record(mode="manual") as recorded:
        assert list(batches) == [0, 1]
        assert next(iter(batches)) == 0
        with pytest.raises(ValueError, match="theirs"):
            list(wrap_dataloader(failing()))
    keys = [read_batch_key(event["key"]) for event in recorded.named("input_wait")]
    assert [(key.round, key.number) for key in keys] == [(0, 0), (0, 1), (1, 0), (0, 0), (0, 1)]
    assert [event["error"] for event in recorded.named("input_wait")] == [False] * 4 + [True]


def test_an_iterator_stays_one() -> None:
    """It may be asked for the next batch, and goes on after an exception of its own."""

    class Stream:
        given = 0

        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            self.given += 1
            if self.given == 2:
                raise ValueError("theirs")
            if self.given == 4:
                raise StopIteration
            return self.given

    with record(mode="manual") as recorded:
        stream = wrap_dataloader(Stream())
        assert next(stream) == 1
        with pytest.raises(ValueError, match="theirs"):
            next(stream)
        assert list(stream) == [3]
    assert [event["error"] for event in recorded.named("input_wait")] == [False, True, False]


def test_what_is_wrapped_is_as_true_as_before() -> None:
    """`if loader:` asks for a length only where there is one."""
    assert wrap_dataloader(iter([1]))
    assert not wrap_dataloader([])


def test_a_loader_of_torch_is_left_as_it_is() -> None:
    """It is recorded without an edit; in the mode manual it is wrapped."""
    loader: Any = torch.utils.data.DataLoader(range(4))  # type: ignore[arg-type]
    with record():
        assert wrap_dataloader(loader) is loader
    with record(mode="manual") as recorded:
        assert [int(batch) for batch in wrap_dataloader(loader)] == [0, 1, 2, 3]
    assert len(recorded.named("input_wait")) == 4


def test_a_wrapped_object_is_otherwise_itself() -> None:
    """Its attributes, its text, its copies."""
    net = model()
    wrapped, optimizer = wrap_forward(net), wrap_optimizer(sgd(net))
    assert wrapped.training is True
    wrapped.note = 3
    assert net.note == 3
    assert repr(wrapped) == repr(net)
    assert isinstance(copy.deepcopy(wrapped), torch.nn.Sequential)
    assert isinstance(pickle.loads(pickle.dumps(wrapped)), torch.nn.Sequential)
    assert optimizer.param_groups[0]["lr"] == 0.1
    train(wrapped, optimizer, 1)


def test_functions_can_be_wrapped() -> None:
    """A forward pass, a backward pass or a copy that is a function of the program."""
    with record(mode="manual") as recorded:
        assert wrap_forward(lambda value: value + 1)(2) == 3
        assert wrap_backward(lambda: 4)() == 4
        assert wrap_h2d(lambda batch: batch)([5]) == [5]
    found = [event["name"] for event in recorded.events if event["name"] not in ("gc", "environment", "startup")]
    assert found == ["forward", "backward", "h2d"]


def test_the_loss_of_a_wrapped_backward_is_recorded() -> None:
    """But not what a gradient scaler made of it, nor what is no single number."""
    net, scaler = model(), torch.amp.GradScaler("cpu")
    with record(mode="manual") as recorded:
        loss = net(torch.ones(2, 4)).sum()
        wrap_backward(loss).backward()
        wrap_backward(scaler.scale(net(torch.ones(2, 4)).sum())).backward()
        wrap_backward(net(torch.ones(2, 4))).backward(torch.ones(2, 1))
    assert [event["value"] for event in recorded.named("loss")] == [loss.item()]
    assert len(recorded.named("backward")) == 3


@pytest.mark.parametrize("mode", ["auto", "manual"])
def test_gradients_that_no_backward_made_are_one_if_they_are_wrapped(mode: str, tmp_path: Path) -> None:
    """Nothing else sees `torch.autograd.grad`."""
    net = model()
    optimizer = wrap_optimizer(sgd(net))
    forward, grad = wrap_forward(net), wrap_backward(torch.autograd.grad)
    with record(mode=mode, dir=str(tmp_path)) as recorded:
        for batch in wrap_dataloader([torch.ones(2, 4)] * 3):
            loss = forward(batch).sum()
            for parameter, found in zip(net.parameters(), grad(loss, list(net.parameters())), strict=True):
                parameter.grad = found
            optimizer.step()
    with open_run(recorded.path) as run:
        assert run.sql("SELECT step, calls FROM phases WHERE phase = 'backward' ORDER BY 1").fetchall() == [
            (0, 1), (1, 1), (2, 1),
        ]  # fmt: skip


def test_a_wrapped_function_in_which_a_backward_is_seen_is_no_second_one(tmp_path: Path) -> None:
    """In the mode auto."""
    net = model()
    optimizer, batch = sgd(net), torch.ones(2, 4)
    with record(dir=str(tmp_path)) as recorded:
        for _ in range(3):
            wrap_backward(lambda: net(batch).sum().backward())()
            optimizer.step()
    with open_run(recorded.path) as run:
        assert run.sql("SELECT DISTINCT calls FROM phases WHERE phase = 'backward'").fetchall() == [(1,)]


def test_a_wrapped_optimizer_ends_no_step_inside_of_an_explicit_one() -> None:
    """The block does."""
    net = model()
    with record(mode="manual") as recorded, trace_step(net):
        train(net, wrap_optimizer(sgd(net)), 2)
    assert len(updates(recorded)) == 1


@pytest.mark.parametrize(
    ("wrap", "wrong"),
    [(wrap_dataloader, 3), (wrap_forward, 3), (wrap_backward, 3), (wrap_optimizer, 3), (wrap_h2d, 3)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_cannot_be_wrapped_is_refused(wrap: Any, wrong: object) -> None:
    """The message says what was given and what to give."""
    with pytest.raises(WrapRefused, match=r"cannot wrap int\. Give it"):
        wrap(wrong)
    assert issubclass(WrapRefused, TypeError)


class Batch(dict[str, Any]):
    """A batch that can be moved, as those of tokenizers."""

    def to(self, device: str) -> Batch:
        return Batch({name: value.to(device) for name, value in self.items()})


@pytest.mark.parametrize("mode", ["auto", "manual", None])
def test_what_is_wrapped_stays_what_it_was(mode: str | None) -> None:
    """Schedulers, containers, indexing and arithmetic take it, also where nothing is recorded."""
    with record(mode=mode) if mode else nullcontext():
        net = model()
        optimizer = sgd(net)
        assert wrap_optimizer(optimizer) is optimizer
        assert wrap_optimizer(optimizer) is optimizer
        torch.optim.lr_scheduler.StepLR(optimizer, 1)
        torch.amp.GradScaler("cpu", enabled=False).step(optimizer)
        assert wrap_forward(net) is net
        assert torch.nn.Sequential(net, torch.nn.ReLU())(torch.ones(2, 4)).shape == (2, 1)
        tensor, batch = torch.ones(3), Batch(a=torch.ones(2))
        assert wrap_h2d(tensor) is tensor
        assert (tensor + 1).tolist() == [2, 2, 2]
        assert wrap_h2d(batch)["a"] is batch["a"]
        assert [*dict(**wrap_h2d(batch))] == ["a"]
        loss = net(torch.ones(2, 4)).sum()
        (wrap_backward(loss) / 2).backward()
        assert isinstance(wrap_backward(loss), torch.Tensor)


def test_a_method_is_recorded_once_however_often_it_is_wrapped() -> None:
    """And that of a copy is the copy's."""
    net = model()
    wrap_forward(wrap_forward(net))
    other = copy.deepcopy(net)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    with record(mode="manual") as recorded:
        assert net(torch.ones(1, 4)).item() != 0
        assert other(torch.ones(1, 4)).item() == 0
    assert len(recorded.named("forward")) == 2


def test_a_tensor_can_be_copied_and_saved_between_wrapping_and_use(tmp_path: Path) -> None:
    """A copy moves itself, a saved one can be loaded without Sonde, and a loss that went backward has nothing left of it."""
    tensor = wrap_h2d(torch.ones(3))
    copied = copy.deepcopy(tensor)
    copied += 1
    assert copied.to(torch.float64).tolist() == [2, 2, 2]
    torch.save(tensor, tmp_path / "tensor.pt")
    assert torch.load(tmp_path / "tensor.pt", weights_only=True).tolist() == [1, 1, 1]
    loss = model()(torch.ones(2, 4)).sum()
    wrap_backward(loss).backward()
    assert vars(loss) == {}


def test_a_wrapped_loss_is_freed_with_its_last_reference() -> None:
    """No cycle keeps the graph of a step alive once it went backward."""
    loss = wrap_backward(model()(torch.ones(2, 4)).sum())
    loss.backward()
    gone = weakref.ref(loss)
    gc.disable()
    try:
        del loss
        assert gone() is None
    finally:
        gc.enable()


def test_a_wrapped_model_compiles_whole() -> None:
    """The recording is not part of what is compiled."""
    net = model()
    compiled: Any = torch.compile(wrap_forward(net), backend="eager", fullgraph=True)
    with record(mode="manual"):
        assert torch.equal(compiled(torch.ones(2, 4)), net(torch.ones(2, 4)))
