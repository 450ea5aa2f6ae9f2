"""What was seen of each value, in order of time: the leaves of all captured inputs and outputs, with their items."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from sonde.capture.definition import dotted_name
from sonde.values.note import ARRAY, MAPPING, MISSING, SCALAR, SEQUENCE, TEXT, TUPLE, Note

EVALUATION = "evaluation"
COLLATE = "collate"
GETTER = "dataset_getter"
LEAVES = (ARRAY, SCALAR, TEXT)
Place = tuple[str, str, bool, str]  # stage, function, output or not, field
SHOWN = 6  # items that a sentence names


class Who(NamedTuple):
    """An item, as a person would name it."""

    index: int | str | None  # type: ignore[assignment]  # a field, not the method of tuples
    id: str | None = None
    stream: bool = False  # it has no name: `index` is its row, which other batches have too

    def plain(self) -> int | str | None:
        """What stands for it in a list of items."""
        return self.index if self.index is not None else self.id

    def __str__(self) -> str:
        if self.index is None:
            return f"id {self.id!r}"
        return str(self.index) if self.id is None else f"{self.index} (id {self.id!r})"


class Sight(NamedTuple):
    """One array, number or text, seen as (a part of) an input or the output of a call."""

    call: Any  # the facts about the call: an `About`
    output: bool
    field: str  # "image", "batch.image"; in a list of items "samples[*].image"
    who: Who | None  # the item, if it is about a single one
    note: Note
    value: object  # the copy, or MISSING
    left: bool = False  # an input as it was when the call ended, which had changed it

    @property
    def stage(self) -> str:
        return str(self.call.stage_name)

    @property
    def function(self) -> str:
        return dotted_name(self.call.disp_name, self.call.func_name)

    @property
    def name(self) -> str:
        """The last part of the field: what the value itself is called."""
        return self.field.replace("]", "").replace("[", ".").rpartition(".")[2]

    @property
    def array(self) -> bool:
        return self.note.kind == ARRAY

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.note.shape or ())

    @property
    def dtype(self) -> str:
        return (self.note.dtype or "").removeprefix("torch.")

    @property
    def place(self) -> Place:
        """What this has in common with the same value of other items."""
        return self.stage, self.function, self.output, self.field

    def evidence(self, items: Iterable[Who] = (), **more: Any) -> dict[str, Any]:
        """Stage, function, field, call and items, and what else there is."""
        named = [one.plain() for one in items]
        where = {"stage": self.stage, "function": self.call.disp_name, "field": self.field, "call": self.call.seq}
        return {**where, "items": named, **more}

    def __str__(self) -> str:
        side = "output" if self.output else "input"
        return f"{side} `{self.field}` of {self.function} ({self.stage})"


class Sights:
    """Everything that was seen."""

    def __init__(self, calls: list[Any], sights: list[Sight]) -> None:
        self.calls = calls  # the facts about the calls, by seq
        # In order of time: an output stands behind everything that was seen inside its call.
        self.history = [one for one in sights if one.array]  # with inputs as their calls have left them
        self.all = [one for one in sights if not one.left]
        self.arrays = [one for one in self.all if one.array]
        # The same field of different items: for each place, what was seen there last of each item.
        self.series: dict[Place, dict[Who, Sight]] = {}
        self._of: dict[int, list[Sight]] = {}
        for one in self.all:
            if one.who is not None and one.stage != EVALUATION:
                self.series.setdefault(one.place, {})[one.who] = one
            if one.array:
                self._of.setdefault(id(one.call), []).append(one)

    def given(self, call: Any) -> list[Sight]:
        """The arrays among the inputs of a call."""
        return [one for one in self._of.get(id(call), ()) if not one.output]

    def got(self, call: Any) -> list[Sight]:
        """The arrays in the output of a call."""
        return [one for one in self._of.get(id(call), ()) if one.output]


def look(result: Any) -> Sights:
    """All sights of a result: of anything that has stages with calls."""
    calls = sorted((call.about for stage in result.stages.values() for call in stage.calls), key=lambda call: call.seq)
    names = _ObservedNames(calls)
    known = {call.seq for call in calls}
    children: dict[int | None, list[Any]] = {}
    for call in calls:
        children.setdefault(call.parent if call.parent in known else None, []).append(call)
    return Sights(calls, [sight for call in children.get(None, []) for sight in _inside(call, children, names)])


def _inside(call: Any, children: dict[int | None, list[Any]], names: _ObservedNames) -> Iterator[Sight]:
    """Inputs, then what happened inside, then the output. A call below itself would be endless: its children go once."""
    yield from names.inputs(call)
    for child in children.pop(call.seq, []):
        yield from _inside(child, children, names)
    for kept in call.changed:
        yield from (one._replace(left=True) for one in _sights(call, False, kept, names.who(call)))
    yield from names.output(call)


class _ObservedNames:
    """Knows which item a call, or a row of a call, is about."""

    def __init__(self, calls: list[Any]) -> None:
        self.by_seq = {call.seq: call for call in calls}
        self.ids = {(c.loader, item.index): item.id for c in calls for item in c.items if item.id is not None}

    def inputs(self, call: Any) -> Iterator[Sight]:
        who = self.who(call)
        for kept in call.inputs:
            listed = call.stage_name == COLLATE and kept.note.kind in (SEQUENCE, TUPLE)
            yield from self.rows(call, kept, False) if listed else _sights(call, False, kept, who)

    def output(self, call: Any) -> Iterator[Sight]:
        kept = call.output
        if kept is None:
            return
        listed = kept.note.kind == SEQUENCE and 1 < len(call.items) == kept.note.length and call.stage_name == GETTER
        yield from self.rows(call, kept, True) if listed else _sights(call, True, kept, self.who(call))

    def rows(self, call: Any, kept: Any, output: bool) -> Iterator[Sight]:
        """A list with one element for each item."""
        for row, ((_, note), value) in enumerate(parts(kept.note, kept.value)):
            who = self.item(call, call.items[row]) if row < len(call.items) else Who(row)
            for field, leaf, copy in leaves(note, f"{kept.name}[*]", value):
                yield Sight(call, output, field, who, leaf, copy)

    def item(self, call: Any, item: Any) -> Who:
        named = item.id if item.id is not None else self.ids.get((call.loader, item.index))
        nameless = item.index is None and named is None
        return Who(item.position if nameless else item.index, named, nameless)

    def who(self, call: Any) -> Who | None:
        """The one item that a call is about: it says so, its argument says so, or the call says so in which it ran."""
        for _ in range(len(self.by_seq) + 1):
            if call.items:
                return self.item(call, call.items[0]) if len(call.items) == 1 else None
            if call.stage_name in (COLLATE, EVALUATION):
                return None
            first = call.inputs[0].note if call.inputs else None
            if first is not None and first.kind == SCALAR and isinstance(first.value, int):
                return Who(first.value)
            if first is not None and first.kind == TEXT:
                return Who(first.text)
            call = self.by_seq.get(call.parent)
            if call is None:
                break
        return None


def _sights(call: Any, output: bool, kept: Any, who: Who | None) -> Iterator[Sight]:
    for field, note, value in leaves(kept.note, kept.name, kept.value):
        yield Sight(call, output, field, who, note, value)


def leaves(note: Note, field: str, value: object = MISSING) -> Iterator[tuple[str, Note, object]]:
    """The arrays, numbers and texts in a value, each with its path."""
    if note.kind in LEAVES:
        yield field, note, value
    for (name, child), part in parts(note, value):
        below = f"{field}.{name}" if note.kind == MAPPING else f"{field}[{name}]"
        yield from leaves(child, below, part)


def parts(note: Note, value: object) -> Iterator[tuple[tuple[str, Note], object]]:
    """The children of a container, each with its part of the copy."""
    copies: list[object] = []
    if isinstance(value, dict):
        copies = list(value.values())
    elif isinstance(value, list | tuple):
        copies = list(value)
    if len(copies) != len(note.children):
        copies = [MISSING] * len(note.children)
    return zip(note.children, copies, strict=True)


def listed(items: Iterable[Who]) -> str:
    """Items in words: "item 3", "items 3, 7 and 9", "items 0, 1, 2, 3, 4, 5 and 26 more"."""
    words = [str(one) for one in items]
    if len(words) > SHOWN:
        return f"items {', '.join(words[:SHOWN])} and {len(words) - SHOWN} more"
    if len(words) < 2:
        return f"item {words[0]}" if words else "no item"
    return f"items {', '.join(words[:-1])} and {words[-1]}"


def sentence(items: Iterable[Who]) -> str:
    """The words " of item 3", or nothing if nobody knows the item."""
    named = list(items)
    return f" of {listed(named)}" if named else ""


def members(sight: Sight) -> list[Who]:
    """The items that a sight is about: its own, or all of the batch."""
    if sight.who is not None:
        return [sight.who]
    return [
        Who(item.index if item.index is not None or item.id else item.position, item.id) for item in sight.call.items
    ]


def rows(sight: Sight) -> list[tuple[Who, Any]] | None:
    """The rows of a batch with their items; None where they are not known: no copy, a cut one, or another layout."""
    items, value = members(sight), whole(sight)
    if sight.who is not None or value is None or not items or value.shape[0] != len(items):
        return None
    return [(who, value[row]) for row, who in enumerate(items)]


def whole(sight: Sight) -> Any:
    """The copy of an array with dimensions, if all of it was kept; else None."""
    shape: Any = getattr(sight.value, "shape", None)
    return sight.value if shape and not sight.note.cut and tuple(shape) == sight.note.shape else None
