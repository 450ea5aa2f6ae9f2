"""Values for objects, for as long as these live."""

from __future__ import annotations

import gc
import sys

from sonde.weak import WeakTable


class Thing:
    """Something that can be referred to; all of them are equal."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def test_values_belong_to_objects_not_to_equal_ones() -> None:
    """Two equal objects have a value each."""
    table: WeakTable[str] = WeakTable()
    one, two = Thing(), Thing()
    table[one] = "one"
    table[two] = "two"
    assert (table.get(one), table.get(two), table.get(Thing())) == ("one", "two", None)
    assert one in table
    assert Thing() not in table
    assert (table.pop(one), table.pop(one)) == ("one", None)


def test_a_value_goes_with_its_object() -> None:
    """Also when the garbage collector finds it, and also after its value was changed."""
    table: WeakTable[list[int]] = WeakTable()
    one, two = Thing(), Thing()
    two.__dict__["itself"] = two
    value = [1]
    table[one] = []
    table[one] = value
    table[two] = []
    count = sys.getrefcount(value)
    del one
    assert len(table) == 1
    assert sys.getrefcount(value) == count - 1
    del two
    gc.collect()
    assert len(table) == 0


def test_no_python_code_runs_when_an_object_goes() -> None:
    """There a signal handler could raise in vain."""
    table: WeakTable[int] = WeakTable()
    one = Thing()
    table[one] = 1
    calls: list[str] = []
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if event == "call" else None)
    del one
    sys.setprofile(None)
    assert calls == []
    assert len(table) == 0
