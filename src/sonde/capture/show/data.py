"""Traces as plain data, for programs that draw them: `sonde ui` gets a `TraceFiles` and knows nothing else of traces.

Each value says what it is, has small pictures of what looks like an image, and the place of its whole array: `0.1` is part 1
of the captured value number 0 of its call.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from math import isfinite
from threading import Lock
from typing import TYPE_CHECKING, Any

from sonde.capture.definition import dotted_name
from sonde.capture.result import TraceResult, load
from sonde.capture.show.fields import (
    MAX_DEPTH,
    captured_of,
    count_bad,
    field_of,
    item_name,
    part_field,
    parts_of,
    scales_of,
    targets_of,
)
from sonde.capture.show.text import shown_children, value_text
from sonde.errors import UnknownName
from sonde.picture import as_image, png, shrunk
from sonde.values import note as kinds
from sonde.values.note import MISSING
from sonde.values.npy import as_array

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sonde.capture.call import About, TraceCall
    from sonde.capture.show.fields import Scale
    from sonde.lazy import numpy
    from sonde.values.note import Note

    Array = numpy.ndarray[Any, Any]

KEPT = 3  # traces that stay loaded
SIDE = 160  # pixels of a picture
MOST_ROWS = 16  # of a batch, that have a picture
MOST_CHILDREN = 50
MOST_CALLS = 200  # of a stage
MOST_ITEMS = 64  # that a call names
MOST_KNOWN = 2000  # items that one can choose
MOST_NUMBERS = 8  # that are written out
PICTURE_BYTES = 4_000_000
_DRAWN = "buif"  # kinds of numbers that can be drawn


class TraceFiles:
    """Trace files as plain data. The last few stay loaded."""

    def __init__(self) -> None:
        self._loaded: OrderedDict[tuple[str, int], TraceResult] = OrderedDict()
        self._lock = Lock()

    def document(self, file: Path, item: str | None = None, beside: Path | None = None) -> dict[str, Any]:
        """A whole trace, or the path of one item. `beside`: another trace, whose pictures have the same scale."""
        result = self._get(file)
        others = [result] if beside is None else [result, self._get(beside)]
        return _document(result, item, scales_of(_together(others)))

    def array(self, file: Path, call: int, place: str, item: str | None = None, row: int | None = None) -> Array:
        """A whole array. Raises UnknownName if there is none."""
        result = self._get(file)
        found = next((one for one in _calls(result, item) if one.about.seq == call), None)
        value = None if found is None else _at(found.about, place)
        array = None if value is MISSING or value is None else as_array(value)
        if (
            array is None
            or array.dtype.kind not in _DRAWN
            or (row is not None and not (array.ndim and 0 <= row < len(array)))
        ):
            raise UnknownName("This trace has no such array, or kept no copy of it.")
        return array if row is None else array[row]

    def diff(self, a: Path, b: Path) -> dict[str, Any]:
        """Where two traces differ, as `sonde flow diff` says it."""
        found = self._get(a).diff(self._get(b))
        return {
            "same": not found,
            "text": str(found),
            "compared": found.compared,
            "differences": [one._asdict() for one in found.differences[:MOST_CALLS]],
            "total": len(found.differences),
            "only_a": found.only_a[:MOST_CALLS],
            "only_b": found.only_b[:MOST_CALLS],
        }

    def values_of(self, file: Path, index: int | None, id: str | None) -> Iterator[dict[str, Any]]:
        """The arrays of one item in the calls that were about it: stage, function, field, step, place, and the array."""
        result = self._get(file)
        item = next((one for one in result.known_items() if _is(one, index, id)), None)
        if item is None:
            return
        name = str(item_name(item))
        for call in _calls(result, name):
            for number, (way, kept) in enumerate(captured_of(call.about)):
                for place, field, array in _arrays(kept.note, kept.value, str(number), kept.name):
                    yield {
                        "stage": call.stage_name,
                        "function": dotted_name(call.disp_name, call.func_name),
                        "way": way,
                        "field": field,
                        "step": call.about.step,
                        "call": call.about.seq,
                        "place": place,
                        "item": name,
                        "array": array,
                    }

    def _get(self, file: Path) -> TraceResult:
        key = (str(file), file.stat().st_mtime_ns)
        with self._lock:
            found = self._loaded.pop(key, None) or load(file)
            self._loaded[key] = found
            while len(self._loaded) > KEPT:
                self._loaded.popitem(last=False)
            return found


def _is(item: Any, index: int | None, id: str | None) -> bool:
    return item.id == id if id is not None else index is not None and str(item.index) == str(index)


def _together(results: list[TraceResult]) -> dict[str, list[TraceCall]]:
    names = dict.fromkeys(name for result in results for name in result.stages)
    return {name: [call for result in results if name in result for call in result[name]] for name in names}


def _calls(result: TraceResult, item: str | None) -> list[TraceCall]:
    """All calls, or those of an item, reduced to it."""
    if item is None:
        return result.calls()
    known = {str(one.index): one.index for one in result.known_items() if one.index is not None}
    path = result.item(index=known[item]) if item in known else result.item(id=item)
    return [path.values(number) for number in range(len(path))]


def _at(call: About, place: str) -> object:
    """The part of a captured value at a place."""
    captured = captured_of(call)
    number, *path = (int(part) if part.isdecimal() else -1 for part in place.split("."))
    if not 0 <= number < len(captured):
        return MISSING
    note, value = captured[number][1].note, captured[number][1].value
    for part in path:
        children = shown_children(note)
        if not 0 <= part < len(children) or value is MISSING:
            return MISSING
        note, value = children[part][1], parts_of(value, len(children))[part]
    return value if note.kind == kinds.ARRAY else MISSING


def _arrays(note: Note, value: object, place: str, field: str, depth: int = 0) -> Iterator[tuple[str, str, Array]]:
    if note.kind == kinds.ARRAY:
        array = None if value is MISSING else as_array(value)
        if array is not None and array.dtype.kind in _DRAWN:
            yield place, field, array
        return
    children = shown_children(note) if depth < MAX_DEPTH else []
    for number, ((name, child), part) in enumerate(zip(children, parts_of(value, len(children)), strict=True)):
        yield from _arrays(child, part, f"{place}.{number}", f"{field}.{name}", depth + 1)


# ── a document ──


def _document(result: TraceResult, item: str | None, scales: dict[str, Scale]) -> dict[str, Any]:
    stages: dict[str, list[TraceCall]] = {name: [] for name in result.stages}
    for call in _calls(result, item):
        stages[call.stage_name].append(call)
    drawing = _Pictures(scales)
    known = result.known_items()
    return {
        "item": item,
        "items": [{"index": one.index, "id": one.id, "name": str(item_name(one))} for one in known[:MOST_KNOWN]],
        "notes": result.notes,
        "findings": [
            {
                "kind": one.kind,
                "severity": one.severity,
                "why": one.why,
                "next": one.next,
                "targets": [{"call": to.seq, "words": to.words, "item": to.item} for to in targets_of(one, stages)],
            }
            for one in result.findings()
        ],
        "stages": [
            {
                "name": name,
                "calls": [drawing.call(call.about) for call in calls[:MOST_CALLS]],
                "left_out": max(len(calls) - MOST_CALLS, 0),
            }
            for name, calls in stages.items()
        ],
        "pictures_left_out": drawing.left_out,
    }


class _Pictures:
    """Makes the pictures of one document, as long as there is room for them."""

    def __init__(self, scales: dict[str, Scale]) -> None:
        self.scales = scales
        self.room = PICTURE_BYTES
        self.left_out = 0

    def call(self, call: About) -> dict[str, Any]:
        facts = ("seq", "parent", "duration_ns", "phase", "epoch", "step", "batch", "worker", "pid", "error")
        items = [{"position": one.position, "index": one.index, "id": one.id} for one in call.items[:MOST_ITEMS]]
        values = [
            {"way": way, **self.value(kept.note, kept.value, kept.name, field_of(call, way, kept.name), str(number))}
            for number, (way, kept) in enumerate(captured_of(call))
        ]
        return {
            **{name: getattr(call, name) for name in facts},
            "function": dotted_name(call.disp_name, call.func_name),
            "result": call.result_name,
            "items": items,
            "items_total": len(call.items),
            "values": values,
        }

    def value(self, note: Note, value: object, name: str, field: str, place: str, depth: int = 0) -> dict[str, Any]:
        if note.kind == kinds.ARRAY:
            return {"name": name, **self.array(note, value, field, place)}
        children = shown_children(note) if depth < MAX_DEPTH else []
        parts = zip(children[:MOST_CHILDREN], parts_of(value, len(children)), strict=False)
        return {
            "name": name,
            "kind": note.kind,
            "type": note.type,
            "text": "" if children else value_text(note),
            "length": note.length,
            "nonfinite": count_bad(note),
            "children": [
                self.value(child, part, str(key), part_field(field, note, key), f"{place}.{number}", depth + 1)
                for number, ((key, child), part) in enumerate(parts)
            ],
            "left_out": max((note.length or 0) - min(len(children), MOST_CHILDREN), 0) if children else 0,
        }

    def array(self, note: Note, value: object, field: str, place: str) -> dict[str, Any]:
        """An array: what is known of it, and its pictures."""
        kept = None if value is MISSING else as_array(value)
        scale = self.scales.get(field)
        measured = {name: getattr(note, name) for name in ("low", "high", "mean", "std", "nonfinite")}
        return {
            "kind": note.kind,
            "type": note.type,
            "shape": list(note.shape or ()),
            "dtype": note.dtype,
            "device": note.device,
            "digest": None if note.digest is None else f"{note.digest:016x}",
            **measured,
            "cut": note.cut,
            "numbers": _numbers(kept),
            "scale": None if scale is None else list(scale),
            "array": None if kept is None else place,
            "pictures": [] if kept is None else list(self.pictures(kept, scale)),
        }

    def pictures(self, array: Array, scale: Scale | None) -> Iterator[dict[str, Any]]:
        """One of an image, one of each of the first rows of a batch of images."""
        if array.dtype.kind not in _DRAWN or not array.size:
            return
        image = as_image(array)
        if image is not None:
            rows: list[tuple[int | None, Array]] = [(None, image)]
        elif array.ndim in (3, 4) and as_image(array[0]) is not None:
            some = ((row, as_image(array[row])) for row in range(min(len(array), MOST_ROWS)))
            rows = [(row, one) for row, one in some if one is not None]
        else:
            return
        for row, one in rows:
            made = base64.b64encode(png(shrunk(one, SIDE if row is None else SIDE // 2, scale))).decode()
            if len(made) > self.room:
                self.left_out += 1
                continue
            self.room -= len(made)
            yield {"row": row, "picture": f"data:image/png;base64,{made}"}


def _numbers(array: Array | None) -> list[Any]:
    """The numbers of a small array."""
    if array is None or array.size > MOST_NUMBERS or array.dtype.kind not in _DRAWN:
        return []
    numbers = array.reshape(-1).tolist()
    return [one if not isinstance(one, float) or isfinite(one) else str(one) for one in numbers]
