"""Optimizers and their learning rates, as they are recorded."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.probes.training import loss_of, model, sgd, train  # noqa: E402

from sonde.testing import Recorded, record  # noqa: E402


def rates(recorded: Recorded) -> list[tuple[int, float, int]]:
    """Step, rate and key of each record."""
    return [(event["step"], round(event["value"], 9), event["key"]) for event in recorded.named("lr")]


def test_a_constant_rate_is_recorded_once(expected: set[str]) -> None:
    """It holds until the next record."""
    with record() as recorded:
        net = model()
        train(net, sgd(net), 5)
    assert rates(recorded) == [(0, 0.1, 0)]


def test_a_schedule_is_recorded_step_by_step(expected: set[str]) -> None:
    """With the step that used the rate."""
    with record() as recorded:
        net = model()
        optimizer = sgd(net)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
        for _ in range(5):
            train(net, optimizer, 1)
            schedule.step()
    assert rates(recorded) == [(0, 0.1, 0), (2, 0.05, 0), (4, 0.025, 0)]


def test_a_rate_that_changes_after_many_plain_steps_is_recorded(expected: set[str]) -> None:
    """Also in a group that was added, and in groups that were put back whole."""
    with record() as recorded:
        net, more = model(), torch.nn.Parameter(torch.zeros(1))
        optimizer = sgd(net)
        train(net, optimizer, 5)
        optimizer.param_groups[0]["lr"] = 0.2
        train(net, optimizer, 5)
        optimizer.add_param_group({"params": [more], "lr": 0.3})
        train(net, optimizer, 5)
        state = optimizer.state_dict()
        state["param_groups"][1]["lr"] = 0.4
        optimizer.load_state_dict(state)
        train(net, optimizer, 5)
    assert rates(recorded) == [(0, 0.1, 0), (5, 0.2, 0), (10, 0.3, 1), (15, 0.4, 1)]


def test_groups_have_their_own_rates(expected: set[str]) -> None:
    """The key says which."""
    with record() as recorded:
        net = model()
        optimizer = torch.optim.SGD(
            [{"params": net[0].parameters()}, {"params": net[2].parameters(), "lr": 0.5}], lr=0.1
        )
        train(net, optimizer, 3)
    assert rates(recorded) == [(0, 0.1, 0), (0, 0.5, 1)]


def test_a_rate_that_is_a_tensor_is_read(expected: set[str]) -> None:
    """On the host."""
    with record() as recorded:
        net = model()
        optimizer = torch.optim.Adam(net.parameters(), lr=torch.tensor(0.25))
        train(net, optimizer, 3)
    assert rates(recorded) == [(0, 0.25, 0)]


def test_a_group_without_a_rate_is_left_alone(expected: set[str]) -> None:
    """An optimizer need not have one."""

    class Fixed(torch.optim.Optimizer):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {})

        def step(self, closure: Any = None) -> None:
            pass

    with record() as recorded:
        net = model()
        train(net, Fixed(net.parameters()), 3)
    assert rates(recorded) == []
    assert len(recorded.named("update")) == 3


def test_what_an_optimizer_is_is_recorded_when_it_first_steps(expected: set[str]) -> None:
    """Its type, its settings, and the size of what it optimizes."""
    with record() as recorded:
        net = model()
        train(net, torch.optim.AdamW(net.parameters(), lr=0.01, betas=(0.8, 0.9)), 3)
    (mark,) = recorded.named("optimizer.settings")
    facts = mark["args"]
    assert (facts["type"], facts["settings"]["lr"], facts["settings"]["betas"]) == ("AdamW", 0.01, [0.8, 0.9])
    assert (facts["parameters"], facts["dtypes"], facts["devices"]) == (49, {"float32": 49}, ["cpu"])


def test_an_optimizer_is_not_kept_alive(expected: set[str]) -> None:
    """Nor is its model."""
    import gc
    import weakref

    with record():
        net = model()
        optimizer = sgd(net)
        train(net, optimizer, 3)
        alive = weakref.ref(optimizer)
        del optimizer
        gc.collect()
        assert alive() is None
        loss_of(net).backward()


def test_a_rate_that_cannot_be_read_does_not_end_the_training() -> None:
    """The failure is counted, and steps go on."""

    class Rude(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:
            raise ValueError(name)

    with record() as recorded:
        net = model()
        optimizer = sgd(net)
        optimizer.param_groups[0] = Rude(optimizer.param_groups[0])
        train(net, optimizer, 3)
    assert len(recorded.named("update")) == 3
