"""Describes pandas tables: a frame as its columns, a series and an index as an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas

from sonde.values import digest as digests
from sonde.values.handlers import arrays
from sonde.values.note import MAPPING, MISSING, Note
from sonde.values.walk import Frozen, clean, type_name

if TYPE_CHECKING:
    from sonde.values.walk import Handler, Walk

INDEX = "(index)"


class TableColumn:
    """A column of a frame: a series whose index is shown once, by the frame."""

    __slots__ = ("series",)

    def __init__(self, series: pandas.Series[Any]) -> None:
        self.series = series


def frame(value: pandas.DataFrame, walk: Walk) -> Frozen:
    """A frame: the index, if it says more than the number of the row, and each column."""
    parts: list[tuple[str, object]] = [] if _counts(value.index) else [(INDEX, value.index)]
    names = _distinct([clean(str(name)) for name in value.columns])
    parts += [(name, TableColumn(value.iloc[:, number])) for number, name in enumerate(names)]
    found = walk.children(parts, value)
    digest = None
    if found.digests is not None:
        marks = [digests.of_text("column", name) for name, _ in parts]
        digest = digests.combine("frame", [mark for both in zip(marks, found.digests, strict=True) for mark in both])
    note = Note(
        MAPPING,
        type_name(value),
        length=len(parts),
        shape=tuple(value.shape),
        digest=digest,
        cut=found.cut,
        children=found.notes,
    )
    kept = dict(zip((name for name, _ in parts), found.values, strict=False))
    return Frozen(note, kept if walk.copies else MISSING)


def column(value: TableColumn, walk: Walk) -> Frozen:
    """One column of a frame."""
    return _described(value.series, walk)


def series(value: pandas.Series[Any], walk: Walk) -> Frozen:
    """A series: its values; the index counts for the digest only."""
    note, copy = _described(value, walk)
    if walk.shows and not _counts(value.index) and note.digest is not None:
        where = walk.digest(value.index)
        note = note._replace(digest=digests.combine("series", [note.digest, where]))
    return Frozen(note, copy)


def index(value: pandas.Index[Any], walk: Walk) -> Frozen:
    """The labels of rows or columns."""
    return _described(value, walk)


def _described(value: Any, walk: Walk) -> Frozen:
    return arrays.describe(_values(value), walk, type=type_name(value), dtype=str(value.dtype), of=value)


def _values(value: Any) -> Any:
    """The values as an array, of numbers wherever that loses nothing."""
    dtype = value.dtype
    if isinstance(dtype, pandas.DatetimeTZDtype):
        return value.to_numpy(dtype=f"datetime64[{dtype.unit}]")  # in UTC
    plain = getattr(dtype, "numpy_dtype", None)
    if plain is not None and getattr(plain, "kind", "O") in "biuf" and not value.isna().any():
        return value.to_numpy(dtype=plain)
    return value.to_numpy()


def _counts(labels: Any) -> bool:
    """Are the labels just 0, 1, 2, ...?"""
    return isinstance(labels, pandas.RangeIndex) and labels.start == 0 and labels.step == 1


def _distinct(names: list[str]) -> list[str]:
    """Columns may share a name; the parts of a note do not."""
    seen: dict[str, int] = {INDEX: 1}
    for number, name in enumerate(names):
        seen[name] = seen.get(name, 0) + 1
        names[number] = name if seen[name] == 1 else f"{name}.{seen[name] - 1}"
    return names


HANDLERS: dict[type, Handler] = {
    pandas.DataFrame: frame,
    pandas.Series: series,
    pandas.Index: index,
    TableColumn: column,
}
