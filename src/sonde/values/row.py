"""One row of a batch: what a captured value holds of one item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.guard import guard
from sonde.values import note as kinds
from sonde.values.note import MISSING, CapturedValue
from sonde.values.snapshot import freeze

if TYPE_CHECKING:
    from sonde.values.note import Note


def row_of(kept: CapturedValue, row: int, count: int) -> CapturedValue:
    """The part of a captured value that belongs to item `row` of `count`; all of it where it has no such part."""
    with guard("taking one item out of a batch"):
        note, value = _pick(kept.note, kept.value, row, count)
        return CapturedValue(kept.name, note, value)
    return kept


def _pick(note: Note, value: Any, row: int, count: int) -> tuple[Note, object]:
    if note.kind == kinds.ARRAY:
        return _of_array(note, value, row, count)
    if note.kind in (kinds.SEQUENCE, kinds.TUPLE, kinds.MAPPING):
        parts = _parts(note, value)
        if note.kind != kinds.MAPPING and len(parts) == count and not _is_columns(note, count):
            return parts[row]
        return _of_columns(note, value, [_pick(*part, row, count) for part in parts])
    return note, value


def _of_array(note: Note, value: Any, row: int, count: int) -> tuple[Note, object]:
    # Of a copy that was cut, the rows are not where they were.
    if not note.shape or note.shape[0] != count or value is MISSING or note.cut:
        return note, value
    kept = freeze(value[row])
    return kept.note._replace(device=note.device if kept.note.device else None), kept.value


def _is_columns(note: Note, count: int) -> bool:
    """Does a sequence hold one column for each field, and not one entry for each item? [images, labels] of two items."""
    return all(child.kind == kinds.ARRAY and child.shape and child.shape[0] == count for _, child in note.children)


def _parts(note: Note, value: Any) -> list[tuple[Note, object]]:
    """The described parts of a container, each with its copy if there is one."""
    copies = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list | tuple) else []
    copies += [MISSING] * (len(note.children) - len(copies))
    return [(child, copy) for (_, child), copy in zip(note.children, copies, strict=False)]


def _of_columns(note: Note, value: Any, picked: list[tuple[Note, object]]) -> tuple[Note, object]:
    names = [name for name, _ in note.children]
    children = tuple(zip(names, (child for child, _ in picked), strict=True))
    changed = note._replace(children=children, digest=None)
    if isinstance(value, dict):
        return changed, dict(zip(value, (copy for _, copy in picked), strict=False))
    return changed, MISSING if value is MISSING else type(value)(copy for _, copy in picked)
