"""Who is told of losses: a listener, or in its place what writes them quickly for it; real losses are in test_phases."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from sonde.events import core  # noqa: E402
from sonde.probes import loss  # noqa: E402
from sonde.testing import record  # noqa: E402


def differentiate(*values: float) -> None:
    """Some backward passes with losses of these values."""
    weight = torch.zeros((), requires_grad=True)
    for value in values:
        (weight + value).backward()


def test_a_listener_gets_each_loss_until_it_leaves() -> None:
    """With the step that it belongs to."""
    told: list[Any] = []
    with record() as recorded:
        leave = loss.at_loss(lambda value, step: told.append((value, step)))
        differentiate(1.0, 2.0)
        leave()
        differentiate(3.0)
    assert told == [(1.0, 0), (2.0, 0)]
    assert [event["value"] for event in recorded.named("loss")] == [1.0, 2.0, 3.0]


def test_the_quick_way_is_taken_while_nobody_else_listens() -> None:
    """Then the listener itself is not called; beside another one it is, and each loss is written once."""
    quick: list[float] = []
    told: list[float] = []
    others: list[float] = []

    def write(span: Any, value: float) -> None:
        core.note(span, value)
        quick.append(value)

    with record() as recorded:
        leave = loss.at_loss(lambda value, _step: told.append(value), write)
        differentiate(1.0)
        end = loss.at_loss(lambda value, _step: others.append(value))
        differentiate(2.0)
        end()
        leave()
        differentiate(3.0)
    assert (quick, told, others) == ([1.0], [2.0], [2.0])
    assert [event["value"] for event in recorded.named("loss")] == [1.0, 2.0, 3.0]
