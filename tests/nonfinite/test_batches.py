"""The batch that training is at, as the watch knows it."""

from __future__ import annotations

import weakref
from collections import UserDict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from tests.flow.boxes import Rows, loader, train
from torch.utils.data import default_collate

from sonde.flow import watch_nonfinite
from sonde.hooks.torch.loader import Batch
from sonde.nonfinite import batches as arrivals
from sonde.nonfinite.batches import MOST_FOUND, RECENT
from sonde.testing import record

x = torch.ones(2)
BATCH = Batch(0, 3, (6, 7), None, 0)
DATA: dict[str, tuple[Any, Any]] = {
    "a list": ([x, x], None),
    "a tuple": ((x, x), None),
    "one tensor": (x, None),
    "a dictionary": ({"x": x}, None),
    "ids": ({"x": x, "ids": ["a", "b"], "id": ["c", "d"]}, ["c", "d"]),
    "like a dictionary": (UserDict(x=x, object_id=[1, 2]), [1, 2]),
}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch has come yet."""
    monkeypatch.setattr(arrivals, "_state", arrivals._State())


def arrive(key: int | None, data: Any) -> arrivals.Arrival:
    """A batch comes; what is known of it."""
    arrivals._arrived(BATCH, key, data)
    newest = arrivals.newest()
    assert newest is not None
    return newest


@pytest.mark.parametrize("name", DATA)
def test_a_batch_is_known_by_its_key_its_ids_and_its_tensors(name: str) -> None:
    """Whatever holds them."""
    data, ids = DATA[name]
    known = arrive(7, data)
    assert (known.batch, known.key, known.ids, known.tensors) == (BATCH, 7, ids, ())
    assert {reference() for reference in known.held} == {x}


def test_a_batch_without_a_key_is_to_be_looked_at() -> None:
    """And so is any when enough batches were reported."""
    assert arrive(None, [x]).tensors == (weakref.ref(x),)
    arrivals._state.reported = MOST_FOUND
    assert arrive(7, [x]).tensors == (weakref.ref(x),)


def test_of_an_object_that_is_not_looked_into_nothing_is_known() -> None:
    """Not even whether it is finite."""
    assert arrive(7, object()).tensors is None
    assert arrive(7, 5).tensors == ()


@pytest.mark.parametrize("count", [1, 4, 9])
def test_the_last_batches_are_known_in_their_order(count: int) -> None:
    """And all of them are counted."""
    for number in range(count):
        arrive(number, [x])
    assert [one.key for one in arrivals._state.recent] == list(range(count))[-RECENT:]
    assert arrivals.count() == count


def test_a_batch_is_not_kept_alive() -> None:
    """Its tensors go when the program lets them go."""
    data = [torch.ones(3)]
    (reference,) = arrive(7, data).held
    assert reference() is data[0]
    data.clear()
    assert reference() is None


@pytest.mark.parametrize("kind", [dict, UserDict])
@pytest.mark.parametrize(("exclude", "known"), [("", "row 5"), ("id", None), ("patient,id", None)])
def test_ids_in_a_field_that_is_excluded_are_not_looked_at(tmp_path: Path, kind: Any, exclude: str, known: Any) -> None:
    """The certificate has the number of the item only, also without a black box."""
    batches = loader(Rows(odd=5), collate_fn=lambda items: kind(default_collate(items)))
    with record(dir=str(tmp_path), exclude=exclude), watch_nonfinite() as watch:
        train(batches, most=3)
    assert watch.birth is not None
    assert [(item["index"], item["id"]) for item in watch.birth["items"]] == [(5, known)]


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
