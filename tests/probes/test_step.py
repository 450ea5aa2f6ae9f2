"""Where a step of training ends: accumulation, several optimizers, closures, scalers, a second fit, what fails."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
import torch
from tests.probes.training import loss_of, model, phases, sgd, train, updates

from sonde import ai, hooks
from sonde.events import core
from sonde.probes import step
from sonde.store.probe import UPDATE_ABORTED, UPDATE_SKIPPED
from sonde.testing import record


def test_a_step_ends_with_the_update_of_the_optimizer() -> None:
    """Forward, loss, backward and optimizer carry the step that they work for, and so does the mark at its end."""
    net = model()
    with record() as recorded:
        train(net, sgd(net), 4)
    one = ["forward", "forward", "backward", "optimizer", "update"]
    assert phases(recorded) == [(name, number) for number in range(4) for name in one]
    assert updates(recorded) == [(number, 0) for number in range(4)]


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
    """As in adversarial training; the key tells them apart, and the anchor has 0."""
    nets = model(), model()
    optimizers = [sgd(net) for net in nets]
    with record() as recorded:
        for _ in range(5):
            for net, optimizer in zip(nets, optimizers, strict=True):
                loss_of(net).backward()
                optimizer.step()
    assert [number for number, _ in updates(recorded)] == [0, 1, 2, 3, 4]
    assert [event["key"] for event in recorded.named("optimizer")] == [0, 1] * 5


def test_an_optimizer_that_steps_more_often_does_not_take_over() -> None:
    """A generator that is trained twice for each step of its critic."""
    nets = model(), model()
    critic, generator = (sgd(net) for net in nets)
    with record() as recorded:
        for _ in range(6):
            loss_of(nets[0]).backward()
            critic.step()
            for _ in range(2):
                loss_of(nets[1]).backward()
                generator.step()
    assert len(updates(recorded)) == 6


def test_a_second_fit_goes_on_counting() -> None:
    """Another optimizer, after the first one is gone."""
    with record() as recorded:
        for _ in range(2):
            net = model()
            train(net, sgd(net), 3)
    assert [number for number, _ in updates(recorded)] == [0, 1, 2, 3, 4, 5]


def test_a_second_fit_beside_the_first_optimizer_takes_over() -> None:
    """The first one is still there, and steps no more: the second is the anchor from its second step on."""
    first, second = model(), model()
    one, two = sgd(first), sgd(second)
    with record() as recorded:
        train(first, one, 4)
        train(second, two, 4)
    assert [number for number, _ in updates(recorded)] == [0, 1, 2, 3, 4, 5, 6]
    assert [event["key"] for event in recorded.named("optimizer")][4:] == [1, 1, 0, 0]


def test_a_closure_is_inside_of_the_step() -> None:
    """LBFGS calls it several times for one update."""
    net = model()
    optimizer: Any = torch.optim.LBFGS(net.parameters(), max_iter=3)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = loss_of(net)
        loss.backward()
        return loss

    with record() as recorded:
        for _ in range(4):
            optimizer.step(closure)
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
    assert recorded.named("optimizer") == []


@pytest.mark.parametrize("before", [0, 5])
def test_a_step_of_an_optimizer_that_raises_is_aborted(before: int) -> None:
    """It is noticed at the next forward pass, which does not count as a part of it. Also on the quick way."""
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


def test_many_steps_are_all_recorded_on_the_quick_way() -> None:
    """Each with all its phases, whatever was on the way."""
    net = model()
    optimizer = sgd(net)
    with record() as recorded:
        train(net, optimizer, 200)
    assert [number for number, _ in updates(recorded)] == list(range(200))
    for name, times in (("forward", 2), ("backward", 1), ("optimizer", 1), ("loss", 1)):
        assert [event["step"] for event in recorded.named(name)] == [n for n in range(200) for _ in range(times)]
