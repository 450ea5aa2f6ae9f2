"""The batch that training is at, as the watch knows it: the same whether C or Python was told of it."""

from __future__ import annotations

import sys
import weakref
from collections import UserDict
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from sonde.flow import arrivals, finite, watch_nonfinite
from sonde.flow.arrivals import ID_FIELDS, MOST_FOUND
from sonde.hooks.torch.loader import Batch

pytestmark = pytest.mark.skipif(finite.native is None, reason="the C part was not built")
x = torch.ones(2)
BATCH = Batch(0, 3, (6, 7), None, 0)
PLAIN: dict[str, Any] = {
    "a list": [x, x],
    "a tuple": (x, x),
    "one tensor": x,
    "a dictionary": {"x": x},
    "ids": {"x": x, "ids": ["a", "b"], "id": ["c", "d"]},
}
OTHERS: dict[str, Any] = {"like a dictionary": UserDict(x=x, object_id=[1, 2]), "a number": 5}


@pytest.fixture(autouse=True, scope="module")
def _known() -> None:
    """From now on C knows torch."""
    watch_nonfinite().close()


class State:
    """What is known, of which the rest is Python's business."""

    def __init__(self) -> None:
        self.newest: tuple[Any, ...] | None = None
        self.count = self.told = 0


def told(key: int | None, data: Any, state: State) -> list[Any]:
    """Tell C of a batch; what Python was told."""
    slow: list[Any] = []
    call = finite.native.arriving(state, ID_FIELDS, MOST_FOUND, lambda *given: slow.append(given))
    call(BATCH, key, data)
    return slow


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_batch_is_known_as_python_knows_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which it is, its key, and its ids."""
    python, c = State(), State()
    python.renew = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setattr(arrivals, "_state", python)
    arrivals._arrived(BATCH, 7, PLAIN[name])
    assert told(7, PLAIN[name], c) == []
    assert c.newest == python.newest
    assert c.count == python.count == 1


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_batch_is_python_s_business(name: str) -> None:
    """As it came."""
    state = State()
    assert told(7, OTHERS[name], state) == [(BATCH, 7, OTHERS[name])]
    assert state.newest is None


def test_a_batch_of_which_only_a_look_can_tell_is_python_s_business() -> None:
    """One without a key, and any when enough was told of others."""
    state = State()
    assert told(None, [x], state) == [(BATCH, None, [x])]
    state.told = MOST_FOUND
    assert told(7, [x], state) == [(BATCH, 7, [x])]
    assert state.count == 0


def test_a_failure_leaves_the_batch_to_python() -> None:
    """Whatever is wrong with what is known."""
    state = State()
    state.count = None  # type: ignore[assignment]
    assert told(7, [x], state) == [(BATCH, 7, [x])]


def test_nothing_is_left_behind() -> None:
    """Of many batches only the newest is known."""
    state = State()
    call = finite.native.arriving(state, ID_FIELDS, MOST_FOUND, print)

    def tell(count: int) -> int:
        for number in range(count):
            call(Batch(0, number, (number,), None, 0), number, {"x": x, "id": [str(number)]})
        return sys.getallocatedblocks()

    before = tell(100)
    assert tell(5000) - before < 200
    assert state.count == 5100


def test_looking_for_tensors_in_hand_keeps_no_variable_alive() -> None:
    """What a function had in a variable when it was looked at goes as soon as the function lets it go."""

    def train() -> tuple[bool, Any]:
        batch = torch.ones(3)
        known = weakref.ref(batch)
        seen = any(one is batch for group in arrivals.in_hand() for one in group)
        del batch
        return seen, known()

    assert train() == (True, None)


def test_looking_for_tensors_in_hand_leaves_what_locals_gave() -> None:
    """A dict that the program has from `locals()` stays as it was."""

    def train() -> dict[str, Any]:
        rate, layers = 0.1, 3
        settings = locals()
        list(arrivals.in_hand())
        return settings

    assert {name: train()[name] for name in ("rate", "layers")} == {"rate": 0.1, "layers": 3}
