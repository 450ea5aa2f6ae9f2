"""The batch that training is at, as the watch knows it: the same whether C or Python was told of it."""

from __future__ import annotations

import sys
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
from sonde.nonfinite import batches as arrivals, check
from sonde.nonfinite.batches import ID_FIELDS, MOST_FOUND
from sonde.testing import record

pytestmark = pytest.mark.skipif(check.native is None, reason="the C part was not built")
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


def told(key: int | None, data: Any, recent: Any) -> list[Any]:
    """Tell C of a batch; what Python was told."""
    slow: list[Any] = []
    call = check.native.arriving(recent, ID_FIELDS, MOST_FOUND, lambda *given: slow.append(given))
    call(BATCH, key, data)
    return slow


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_batch_is_known_as_python_knows_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which it is, its key, and its ids."""
    python, c = arrivals._Recent(), check.native.recent()
    monkeypatch.setattr(arrivals._state, "recent", python)
    arrivals._arrived(BATCH, 7, PLAIN[name])
    assert told(7, PLAIN[name], c) == []
    assert c.rows() == python.rows()
    assert c.count == python.count == 1


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_batch_is_python_s_business(name: str) -> None:
    """As it came."""
    recent = check.native.recent()
    assert told(7, OTHERS[name], recent) == [(BATCH, 7, OTHERS[name])]
    assert recent.rows() == []


def test_a_batch_of_which_only_a_look_can_tell_is_python_s_business() -> None:
    """One without a key, and any when enough was told of others."""
    recent = check.native.recent()
    assert told(None, [x], recent) == [(BATCH, None, [x])]
    recent.told = MOST_FOUND
    assert told(7, [x], recent) == [(BATCH, 7, [x])]
    assert recent.count == 0


def test_a_failure_leaves_the_batch_to_python() -> None:
    """As where a dictionary cannot be asked for its ids."""

    class Odd:
        def __hash__(self) -> int:
            return hash(ID_FIELDS[0])

        def __eq__(self, _: object) -> bool:
            raise ValueError

    data = {Odd(): x}
    assert told(7, data, check.native.recent()) == [(BATCH, 7, data)]


@pytest.mark.parametrize("count", [1, 4, 9])
def test_the_last_batches_are_known_in_their_order(count: int) -> None:
    """Whether C or Python has looked at them."""
    python, c = arrivals._Recent(), check.native.recent()
    for number in range(count):
        row = (BATCH, number, None, (), (weakref.ref(x),))
        python.add(row)
        if number % 2:
            c.add(row)
        else:
            told(number, [x], c)
    assert c.rows() == python.rows()
    assert c.count == python.count == count


def test_a_batch_is_not_kept_alive() -> None:
    """Its tensors go when the program lets them go."""
    recent = check.native.recent()
    data = [torch.ones(3)]
    told(7, data, recent)
    (reference,) = recent.rows()[0][4]
    assert reference() is data[0]
    data.clear()
    assert reference() is None


def test_nothing_is_left_behind() -> None:
    """Of many batches only the newest is known."""
    recent = check.native.recent()
    call = check.native.arriving(recent, ID_FIELDS, MOST_FOUND, print)

    def tell(count: int) -> int:
        for number in range(count):
            call(Batch(0, number, (number,), None, 0), number, {"x": x, "id": [str(number)]})
        return sys.getallocatedblocks()

    before = tell(100)
    assert tell(5000) - before < 200
    assert recent.count == 5100


@pytest.mark.parametrize("kind", [dict, UserDict])
@pytest.mark.parametrize(("exclude", "known"), [("", "row 5"), ("id", None), ("patient,id", None)])
def test_ids_in_a_field_that_is_excluded_are_not_looked_at(tmp_path: Path, kind: Any, exclude: str, known: Any) -> None:
    """The certificate has the number of the item only, whether C or Python was told of the batch, also without a black box."""
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
