"""`/traces`: the traces of values that a run holds; one of them, or one item in it; where two differ; whole arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from sonde.analysis.records.locate import is_plain
from sonde.errors import UnknownName
from sonde.views.items import item_value
from sonde.views.itemvalues import looked_at
from sonde.web.endpoints.arrays import packed_array, value_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from sonde.analysis.run import Run
    from sonde.lazy import numpy
    from sonde.web.asking import Ask

    Array = numpy.ndarray[Any, Any]

PATTERN = "*/values/*.sonde"
MOST_VALUES = 24  # of an item, from traces
MOST_FILES = 4  # the newest traces, that are searched for an item
MOST_BYTES = 4_000_000  # of the pictures of an item


class TraceReader(Protocol):
    """Reads trace files: they belong to the recording half, so that whoever starts the server brings it along."""

    def document(self, file: Path, item: str | None = None, beside: Path | None = None) -> dict[str, Any]:
        """A trace as plain data."""
        ...

    def array(self, file: Path, call: int, place: str, item: str | None = None, row: int | None = None) -> Array:
        """A whole array."""
        ...

    def diff(self, a: Path, b: Path) -> dict[str, Any]:
        """Where two traces differ."""
        ...

    def values_of(self, file: Path, index: int | None, id: str | None) -> Iterable[dict[str, Any]]:
        """The arrays of one item."""
        ...


def trace_files(path: Path) -> list[Path]:
    """The files of the traces, the oldest first."""
    return sorted((one for one in path.glob(PATTERN) if is_plain(one)), key=lambda one: one.name)


def traces(run: Run, ask: Ask) -> object:
    """The traces of a run."""
    return {
        "traces": [{"name": one.stem, "file": one.name, "size": one.stat().st_size} for one in trace_files(run.path)]
    }


def trace(run: Run, ask: Ask) -> object:
    """One trace, or the path of one item through it."""
    beside = ask.query.get("beside")
    other = _file(run, beside) if beside else None
    name = ask.path["name"]
    return {"name": name, **_reader(ask).document(_file(run, name), ask.query.get("item") or None, other)}


def diff(run: Run, ask: Ask) -> object:
    """Where two traces differ."""
    return _reader(ask).diff(_file(run, ask.path["name"]), _file(run, ask.path["other"]))


def array(run: Run, ask: Ask) -> object:
    """A whole array of a trace."""
    row, item = ask.optional("row"), ask.query.get("item") or None
    return packed_array(
        looked_at(_reader(ask).array(_file(run, ask.path["name"]), ask.place("call"), ask.path["place"], item, row))
    )


def traced_values(run: Run, ask: Ask, index: int | None, id: str | None) -> Iterator[dict[str, object]]:
    """The values of an item in the newest traces, in the form of `/items/INDEX`."""
    room = [MOST_BYTES]
    left = MOST_VALUES
    for file in reversed(trace_files(run.path)[-MOST_FILES:] if ask.traces is not None else []):
        for one in _reader(ask).values_of(file, index, id):
            if left == 0:
                return
            left -= 1
            yield _value(one, file, room)


def _value(one: dict[str, Any], file: Path, room: list[int]) -> dict[str, object]:
    shown = item_value(one["field"], one["array"], None, room, [])
    where = "" if one["step"] is None else f", step {one['step']}"
    way = {"in": "into", "left": "changed by", "out": "out of"}[one["way"]]
    address = f"/traces/{quote(file.stem, safe='')}/arrays/{one['call']}/{one['place']}"
    return {
        "stage": one["stage"].replace("_", " "),
        "source": f"trace {file.stem}: {way} {one['function']}{where}",
        "step": one["step"],
        "field": one["field"],
        "dtype": str(one["array"].dtype),
        **value_fields(shown),
        "array": f"{address}?item={quote(one['item'], safe='')}",
    }


def _reader(ask: Ask) -> TraceReader:
    if ask.traces is None:
        raise UnknownName("This server shows no traces. Open them with `sonde flow show`.")
    return ask.traces


def _file(run: Run, name: str) -> Path:
    """The file of a trace, by its name: only what is listed can be asked for."""
    found = next((one for one in trace_files(run.path) if one.stem == name), None)
    if found is None:
        raise UnknownName(f"There is no trace {name!r} in this run.")
    return found
