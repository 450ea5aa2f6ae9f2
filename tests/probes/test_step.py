"""Where a step of training ends: accumulation, several optimizers, closures, scalers, a second fit, what fails."""

from __future__ import annotations

import itertools
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
import torch
from tests.probes.training import loss_of, model, phases, sgd, train, updates

from sonde import ai, hooks
from sonde.analysis.run import open_run
from sonde.events import core
from sonde.hooks.torch.status import native
from sonde.probes import step
from sonde.probes.phases import optimizer as optimizers_probe
from sonde.store.probe import UPDATE_ABORTED, UPDATE_LATE, UPDATE_SKIPPED
from sonde.testing import record


def test_a_step_ends_with_the_update_of_the_optimizer() -> None:
    """Forward, loss, backward and optimizer carry the step that they work for, and so does the mark at its end."""
    net = model()
    with record() as recorded:
        train(net, sgd(net), 4)
    one = ["forward", "forward", "backward", "optimizer", "update"]
    assert phases(recorded) == [(name, number) for number in range(4) for name in one]
    assert updates(recorded) == [(number, 0) for number in range(4)]


def closure(net: Any, optimizer: Any) -> Any:
    """What LBFGS calls for each of its looks."""
    optimizer.zero_grad()
    loss = loss_of(net)
    loss.backward()
    return loss


def test_what_a_handler_of_a_signal_raises_reaches_the_program() -> None:
    """It may be called inside of our own code, which then lets its exception pass."""
    net = model()
    optimizer = sgd(net)

    def interrupt() -> None:
        raise SystemExit(9)

    with record():
        train(net, optimizer, 3)
        leave = step.at_update(interrupt)
        time.sleep(0.02)  # they are told every few milliseconds
        with pytest.raises(SystemExit):
            train(net, optimizer, 1)
        leave()


def test_micro_batches_share_the_step_of_their_update() -> None:
    """Gradients that are accumulated over three batches are one step."""
    net = model()
    optimizer = sgd(net)
    with record() as recorded:
        for batch in range(6):
            loss_of(net).backward()
            if batch % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
    assert [event["step"] for event in recorded.named("backward")] == [0, 0, 0, 1, 1, 1]
    assert updates(recorded) == [(0, 0), (1, 0)]


def test_of_two_optimizers_the_first_ends_the_step() -> None:
    """As in adversarial training; the key tells them apart."""
    nets = model(), model()
    optimizers = [sgd(net) for net in nets]
    with record() as recorded:
        for _ in range(5):
            for net, optimizer in zip(nets, optimizers, strict=True):
                loss_of(net).backward()
                optimizer.step()
    assert [number for number, _ in updates(recorded)] == [0, 1, 2, 3, 4]
    assert [event["key"] for event in recorded.named("optimizer")] == [0, 1] * 5


def test_an_optimizer_that_steps_more_often_ends_the_steps() -> None:
    """A generator that is trained twice for each step of its critic: known from its second update on."""
    nets = model(), model()
    critic, generator = (sgd(net) for net in nets)
    with record() as recorded:
        for _ in range(6):
            loss_of(nets[0]).backward()
            critic.step()
            for _ in range(2):
                loss_of(nets[1]).backward()
                generator.step()
    assert len(updates(recorded)) == 1 + 6 * 2


def test_a_second_fit_goes_on_counting() -> None:
    """Another optimizer, after the first one is gone."""
    with record() as recorded:
        for _ in range(2):
            net = model()
            train(net, sgd(net), 3)
    assert [number for number, _ in updates(recorded)] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("steps", [1, 2, 5, 40])
def test_each_update_of_a_second_fit_beside_the_first_optimizer_is_a_step(steps: int) -> None:
    """The first one is still there, and steps no more; also where it has stepped only once."""
    kept = []
    with record() as recorded:
        for _ in range(3):
            net = model()
            kept.append(sgd(net))
            train(net, kept[-1], steps)
    assert updates(recorded) == [(number, 0) for number in range(3 * steps)]
    for name, times in (("forward", 2), ("backward", 1), ("optimizer", 1), ("loss", 1)):
        assert [event["step"] for event in recorded.named(name)] == [n for n in range(3 * steps) for _ in range(times)]
    assert {event["key"] for event in recorded.named("optimizer")} == {0, 1, 2}


def test_a_second_fit_whose_optimizer_was_there_from_the_start() -> None:
    """What it is gets clear with its second update: then the first one is noted as the end of a step, too."""
    nets = model(), model()
    one, two = (sgd(net) for net in nets)
    with record() as recorded:
        train(nets[0], one, 4)
        train(nets[1], two, 4)
    assert updates(recorded) == [(0, 0), (1, 0), (2, 0), (3, 0), (4, UPDATE_LATE), (5, 0), (6, 0), (7, 0)]
    assert [event["key"] for event in recorded.named("optimizer")] == [0, 0, 0, 0, 1, 1, 1, 1]
    times = [event["start_ns"] for event in recorded.named("update")]
    ends = [event["start_ns"] + event["dur_ns"] for event in recorded.named("optimizer")]
    begins = [event["start_ns"] for event in recorded.named("forward")][::2]
    assert times == sorted(times)
    assert all(end <= time for end, time in zip(ends, times, strict=True))
    assert all(time <= begin for time, begin in zip(times, begins[1:], strict=False))


def test_the_table_has_a_step_for_each_update_of_such_a_fit(tmp_path: Path) -> None:
    """With its own loss and phases, although the number in the records was that of the step before."""
    nets = model(), model()
    one, two = (sgd(net) for net in nets)
    with record(dir=tmp_path) as recorded:
        train(nets[0], one, 4)
        train(nets[1], two, 4)
    with open_run(recorded.path) as run:
        rows = run.sql("SELECT step, loss, forward_ns, backward_ns, optimizer_ns FROM steps ORDER BY step").fetchall()
    assert [row[0] for row in rows] == list(range(8))
    assert [row[1] for row in rows[:4]] == [row[1] for row in rows[4:]]  # the models are the same
    assert len({row[1] for row in rows}) == 4
    assert all(None not in row for row in rows)


@pytest.mark.parametrize("steps", [2, 20, 31])
@pytest.mark.parametrize("kept", [True, False])
def test_a_training_that_ends_soon_after_the_one_step_of_another_optimizer_has_all_its_steps(
    steps: int, kept: bool, tmp_path: Path
) -> None:
    """Both optimizers were made before: what they are is known only at the end, when they may be gone."""
    nets = model(), model()
    optimizers = [sgd(net) for net in nets]
    with record(dir=tmp_path) as recorded:
        train(nets[0], optimizers[0], 1)
        train(nets[1], optimizers[1], steps)
        if not kept:
            optimizers.clear()
    assert [number for number, _ in updates(recorded)] == list(range(1 + steps))
    with open_run(recorded.path) as run:
        rows = run.sql("SELECT loss, forward_ns, backward_ns, optimizer_ns FROM steps ORDER BY step").fetchall()
    assert len(rows) == 1 + steps
    assert all(None not in row for row in rows)


@pytest.mark.parametrize("kept", [True, False])
def test_such_a_training_keeps_its_steps_when_another_one_follows(kept: bool) -> None:
    """With optimizers of its own, whether the first ones are still there or not."""
    keep = []
    with record() as recorded:
        for _ in range(2):
            nets = model(), model()
            optimizers = [sgd(net) for net in nets]
            train(nets[0], optimizers[0], 1)
            train(nets[1], optimizers[1], 10)
            keep += optimizers if kept else []
            optimizers.clear()
    assert [number for number, _ in updates(recorded)] == list(range(22))


def test_a_pair_that_goes_on_with_one_of_its_optimizers_has_its_last_steps() -> None:
    """Longer than any round before."""
    nets = model(), model()
    optimizers = [sgd(net) for net in nets]
    with record() as recorded:
        for _ in range(6):
            for net, optimizer in zip(nets, optimizers, strict=True):
                train(net, optimizer, 1)
        train(nets[1], optimizers[1], 20)
    assert [number for number, _ in updates(recorded)] == list(range(6 + 21))


@pytest.mark.parametrize("steps", [2, 5, 17, 50])
@pytest.mark.parametrize("folds", [2, 3])
def test_optimizers_that_train_in_turn_have_each_update_as_a_step(folds: int, steps: int) -> None:
    """Some steps of one, some of the next, and again: k-fold, ensembles, a policy and its value function."""
    nets = [model() for _ in range(folds)]
    optimizers = [sgd(net) for net in nets]
    with record() as recorded:
        for _ in range(3):
            for net, optimizer in zip(nets, optimizers, strict=True):
                train(net, optimizer, steps)
    assert [number for number, _ in updates(recorded)] == list(range(3 * folds * steps))


def test_a_first_training_that_goes_on_after_a_second_one() -> None:
    """Each update of both is a step."""
    first = model()
    one = sgd(first)
    with record() as recorded:
        train(first, one, 4)
        second = model()
        two = sgd(second)
        for _ in range(3):
            train(second, two, 4)
            train(first, one, 4)
    assert [number for number, _ in updates(recorded)] == list(range(28))


@pytest.mark.parametrize(
    ("critics", "generators", "steps"), [(1, 1, 6), (2, 1, 12), (5, 1, 30), (1, 2, 13), (1, 5, 31), (5, 3, 48)]
)
def test_a_pair_of_optimizers_has_the_steps_of_the_one_that_updates_several_times(
    critics: int, generators: int, steps: int
) -> None:
    """Where both update once in a round, those of the first; where both update several times, all."""
    nets = model(), model()
    optimizers = [sgd(net) for net in nets]
    with record() as recorded:
        for _ in range(6):
            for net, optimizer, times in zip(nets, optimizers, (critics, generators), strict=True):
                train(net, optimizer, times)
    assert [number for number, _ in updates(recorded)] == list(range(steps))


def test_an_optimizer_that_joins_a_training_counts_inside_of_its_steps() -> None:
    """It is made between two updates of the first one, and steps behind it."""
    nets = model(), model()
    one = sgd(nets[0])
    with record() as recorded:
        train(nets[0], one, 4)
        two = sgd(nets[1])
        for _ in range(4):
            train(nets[0], one, 1)
            train(nets[1], two, 1)
    assert [number for number, _ in updates(recorded)] == list(range(8))


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.*:UserWarning")
def test_a_second_fit_with_a_scaler_whose_first_update_is_skipped() -> None:
    """It is a step with a flag, as in the first one."""
    scaler = torch.amp.GradScaler("cpu")
    kept = []
    with record() as recorded:
        for _ in range(2):
            net = model()
            kept.append(sgd(net))
            for number in range(3):
                kept[-1].zero_grad()
                scaler.scale(loss_of(net)).backward()
                if number == 0:
                    net[0].weight.grad.fill_(float("inf"))
                scaler.step(kept[-1])
                scaler.update()
    assert updates(recorded) == [(0, UPDATE_SKIPPED), (1, 0), (2, 0), (3, UPDATE_SKIPPED), (4, 0), (5, 0)]


def test_a_second_fit_with_accumulation_and_a_closure() -> None:
    """Micro-batches share a step in both; the second one is of LBFGS."""
    first, second = model(), model()
    one = sgd(first)
    with record() as recorded:
        for batch in range(6):
            loss_of(first).backward()
            if batch % 2:
                one.step()
                one.zero_grad()
        two: Any = torch.optim.LBFGS(second.parameters(), max_iter=2)
        for _ in range(3):
            two.step(partial(closure, second, two))
    assert updates(recorded) == [(number, 0) for number in range(6)]
    assert [event["step"] for event in recorded.named("backward")][:6] == [0, 0, 1, 1, 2, 2]


@pytest.mark.skipif(native is None, reason="there is none without C")
def test_the_quick_way_comes_back_beside_an_old_optimizer() -> None:
    """One that steps no more costs the next training nothing."""
    kept = []
    seen = Mock(side_effect=optimizers_probe._optimizers.updated)
    with record(), patch.object(optimizers_probe._optimizers, "updated", seen):
        for _ in range(2):
            net = model()
            kept.append(sgd(net))
            train(net, kept[-1], 5)
    assert seen.call_count == 4


def test_a_closure_is_inside_of_the_step() -> None:
    """LBFGS calls it several times for one update."""
    net = model()
    optimizer: Any = torch.optim.LBFGS(net.parameters(), max_iter=3)
    with record() as recorded:
        for _ in range(4):
            optimizer.step(partial(closure, net, optimizer))
    assert updates(recorded) == [(0, 0), (1, 0), (2, 0), (3, 0)]
    spans = {event["seq"]: event for event in recorded.named("optimizer")}
    assert all(event["parent"] in spans for event in recorded.named("backward"))
    assert len(recorded.named("backward")) > 4


@pytest.mark.filterwarnings("ignore:.*GradScaler.*:UserWarning", "ignore:.*lr_scheduler.*:UserWarning")
@pytest.mark.parametrize("fused", [False, True])
def test_an_update_that_a_scaler_skips_is_a_step_with_a_flag(fused: bool) -> None:
    """After an overflow nothing changes; a fused optimizer steps all the same."""
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), fused=fused)
    scaler = torch.amp.GradScaler("cpu")
    with record() as recorded:
        for number in range(4):
            optimizer.zero_grad()
            scaler.scale(loss_of(net)).backward()
            if number == 2:
                net[0].weight.grad.fill_(float("inf"))
            scaler.step(optimizer)
            scaler.update()
    assert updates(recorded) == [(0, 0), (1, 0), (2, UPDATE_SKIPPED), (3, 0)]


def test_a_loss_is_noted_without_the_scale_of_a_scaler() -> None:
    """What the program calls its loss, not what went into the backward pass."""
    net = model()
    optimizer = sgd(net)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with record() as recorded:
        loss = loss_of(net)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
    assert [event["value"] for event in recorded.named("loss")] == [loss.item()]


def test_optimizers_that_step_inside_the_backward_pass() -> None:
    """Then its end is the update, once for all parameters."""
    net = model()
    for parameter in net.parameters():
        inner = torch.optim.SGD([parameter], lr=0.1)
        parameter.register_post_accumulate_grad_hook(lambda _, inner=inner: inner.step())
    with record() as recorded:
        for _ in range(4):
            loss_of(net).backward()
    assert updates(recorded) == [(0, 0), (1, 0), (2, 0), (3, 0)]


def in_backward(net: Any, took: float = 0.0, fails: tuple[int, ...] = ()) -> None:
    """An optimizer for each parameter, which steps in the backward pass and takes so many seconds. Some calls of a step fail."""
    calls = itertools.count()

    class Slow(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            time.sleep(took)
            if next(calls) in fails:
                raise ValueError("mine")
            return super().step(closure)

    for parameter in net.parameters():
        inner = Slow([parameter], lr=0.1)
        parameter.register_post_accumulate_grad_hook(lambda _, inner=inner: inner.step())


def test_what_optimizers_take_inside_the_backward_pass_is_optimizer_and_not_backward(tmp_path: Path) -> None:
    """Four parameters, 5 ms each; the pass itself takes next to nothing."""
    net = model()
    in_backward(net, 0.005)
    with record(dir=tmp_path) as recorded:
        for _ in range(4):
            loss_of(net).backward()
    assert [number for number, _ in updates(recorded)] == [0, 1, 2, 3]
    with open_run(recorded.path) as run:
        rows = run.sql("SELECT optimizer_ns, backward_ns, micro_batches FROM steps ORDER BY step").fetchall()
    assert len(rows) == 4
    assert all(optimizer >= 20_000_000 for optimizer, *_ in rows)
    assert min(backward for _, backward, _ in rows) < 15_000_000


def test_a_step_inside_the_backward_pass_that_raises_leaves_nothing_open() -> None:
    """The next pass is told as ever, and its steps are inside of it alone."""
    net = model()
    in_backward(net, fails=(2,))
    with record() as recorded:
        with pytest.raises(ValueError, match="mine"):
            loss_of(net).backward()
        for _ in range(2):
            loss_of(net).backward()
    passes = recorded.named("backward")
    steps = recorded.named("optimizer")
    assert [event["depth"] for event in passes] == [0, 0, 0]
    assert [sum(step["parent"] == one["seq"] for step in steps) for one in passes][1:] == [4, 4]
    assert not any(event["open"] for event in passes)


@pytest.mark.parametrize("before", [0, 5])
def test_a_step_of_an_optimizer_that_raises_is_aborted(before: int) -> None:
    """It is noticed at the next forward pass, which does not count as a part of it. Also on the fast path."""
    net = model()
    optimizer = sgd(net)

    def closure() -> Any:
        raise ValueError("theirs")

    with record() as recorded:
        train(net, optimizer, before)
        loss_of(net).backward()
        with pytest.raises(ValueError, match="theirs"):
            optimizer.step(closure)
        train(net, optimizer, 2)
    assert updates(recorded)[before:] == [(before, UPDATE_ABORTED), (before + 1, 0), (before + 2, 0)]
    assert [event["error"] for event in recorded.named("optimizer")][before:] == [True, False, False]
    assert {event["depth"] for event in recorded.named("forward")} == {0}


def test_a_step_that_the_user_sets_is_left_alone() -> None:
    """`ai.update(step=)` is more explicit than our count."""
    net = model()
    optimizer = sgd(net)
    with record() as recorded:
        for number in (100, 101, 205):
            ai.update(step=number)
            train(net, optimizer, 1)
    assert updates(recorded) == [(100, 0), (101, 0), (205, 0)]
    assert {event["step"] for event in recorded.named("forward")} == {100, 101, 205}


def test_only_chosen_steps_are_recorded_whole() -> None:
    """Of the others only the end is noted."""
    net = model()
    with record(steps="2:7", every=2) as recorded:
        train(net, sgd(net), 9)
    assert [number for number, _ in updates(recorded)] == list(range(9))
    assert [event["step"] for event in recorded.named("optimizer")] == [2, 4, 6]
    assert [event["step"] for event in recorded.named("loss")] == [2, 4, 6]


@pytest.mark.parametrize(("rank", "seen"), [("0", 0), ("3", 3)])
def test_only_chosen_ranks_are_recorded_whole(rank: str, seen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the others only the ends of steps are noted."""
    monkeypatch.setenv("RANK", rank)
    net = model()
    with record(ranks="1,3") as recorded:
        train(net, sgd(net), 3)
    assert len(recorded.named("update")) == 3
    assert len(recorded.named("backward")) == seen


def test_nothing_is_left_when_the_recording_ends() -> None:
    """No patch, no hook, no step; and a second recording starts at 0 again."""
    net = model()
    optimizer = sgd(net)
    for _ in range(2):
        with record() as recorded:
            train(net, optimizer, 3)
        assert [number for number, _ in updates(recorded)] == [0, 1, 2]
        assert hooks.describe() == []
        assert not sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks
        assert step.now.begun is False
    assert core.get_context() == (None, None)
    train(net, optimizer, 1)


def test_what_a_recording_without_training_was_told_ends_with_it() -> None:
    """The step and the epoch are not those of the next recording."""
    with record():
        ai.update(step=7, epoch=2)
    assert core.get_context() == (None, None)
    net = model()
    with record() as recorded:
        train(net, sgd(net), 2)
    assert updates(recorded) == [(0, 0), (1, 0)]


def test_many_steps_are_all_recorded_on_the_quick_way() -> None:
    """Each with all its phases, whatever was on the way."""
    net = model()
    optimizer = sgd(net)
    with record() as recorded:
        train(net, optimizer, 200)
    assert [number for number, _ in updates(recorded)] == list(range(200))
    for name, times in (("forward", 2), ("backward", 1), ("optimizer", 1), ("loss", 1)):
        assert [event["step"] for event in recorded.named(name)] == [n for n in range(200) for _ in range(times)]
