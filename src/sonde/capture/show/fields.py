"""What the pages of a trace share: fields of calls, one scale for all items of a field, and what a finding is about."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

from sonde.capture.definition import dotted_name
from sonde.values import note as kinds
from sonde.values.note import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sonde.capture.call import About, TraceCall
    from sonde.finding import Finding
    from sonde.values.note import CapturedValue, Item, Note

Scale = tuple[float, float]
MAX_DEPTH = 50


def scales_of(stages: Mapping[str, list[TraceCall]]) -> dict[str, Scale]:
    """For each field, from the least to the greatest number that any item has there."""
    scales: dict[str, Scale] = {}
    for calls in stages.values():
        for call in calls:
            for way, kept in captured_of(call.about):
                for path, low, high in _ranges(kept.note, field_of(call.about, way, kept.name)):
                    least, most = scales.get(path, (low, high))
                    scales[path] = min(least, low), max(most, high)
    return scales


def captured_of(call: About) -> list[tuple[str, CapturedValue]]:
    """What was captured of a call, in the order in which it is shown: what went in, what it left changed, what came out."""
    outputs = [] if call.output is None else [call.output]
    ways = {"in": call.inputs, "left": call.changed, "out": outputs}
    return [(way, kept) for way, captured in ways.items() for kept in captured]


def field_of(call: About, way: str, name: str) -> str:
    """A field; what a call left of an input belongs to that input."""
    return f"{call.stage_name} {call.disp_name} {'out' if way == 'out' else 'in'} {name}"


def _ranges(note: Note, path: str, depth: int = 0) -> Iterator[tuple[str, float, float]]:
    if note.kind == kinds.ARRAY and note.low is not None and note.high is not None and isfinite(note.high - note.low):
        yield path, note.low, note.high
    for name, child in note.children if depth < MAX_DEPTH else ():
        yield from _ranges(child, part_field(path, note, name), depth + 1)


def part_field(path: str, note: Note, name: str) -> str:
    """A part of a field; the parts of a list are items, which belong to one field."""
    return f"{path}[*]" if note.kind == kinds.SEQUENCE else f"{path}.{name}"


class FindingTarget(NamedTuple):
    """What a finding is about: a call, and the item in it, if it is about one."""

    seq: int
    words: str
    item: int | str | None = None


def item_name(item: Item) -> int | str:
    """What stands for an item in a list of items: its index, its id, or its row."""
    return item.index if item.index is not None else item.position if item.id is None else item.id


def targets_of(finding: Finding, stages: Mapping[str, list[TraceCall]]) -> list[FindingTarget]:
    """The calls that a finding is about, one for each of its items; the one that it was seen in, if it names none."""
    where = finding.evidence
    wanted = set(where.get("items", ()))
    found: dict[object, FindingTarget] = {}
    calls = [call.about for call in stages.get(where.get("stage", ""), ()) if call.disp_name == where.get("function")]
    for call in sorted(calls, key=lambda one: one.seq != where.get("call")):
        for item in call.items:
            name = item_name(item)
            if name in wanted:
                found.setdefault(name, FindingTarget(call.seq, f"item {name}", name))
    only = [
        FindingTarget(call.seq, dotted_name(call.disp_name, call.func_name))
        for call in calls
        if call.seq == where.get("call")
    ]
    return list(found.values()) or only


def parts_of(value: object, count: int) -> list[object]:
    """The parts of a copied container, in the order of its description; what is not known is missing."""
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, list | tuple):
        parts = list(value)
    else:
        parts = []
    return parts[:count] + [MISSING] * (count - len(parts))


def count_bad(note: Note, depth: int = 0) -> int:
    """How many numbers in a container are not finite."""
    inside = sum(count_bad(child, depth + 1) for _, child in note.children) if depth < MAX_DEPTH else 0
    return (note.nonfinite or 0) + inside
