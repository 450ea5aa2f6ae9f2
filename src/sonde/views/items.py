"""What a page shows of the arrays in a dump: for each item of the last batches a picture, a curve or its numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sonde import units
from sonde.lazy import numpy
from sonde.picture import as_image, png, shrunk
from sonde.views.blackbox import BatchLine, culprits, item_names

if TYPE_CHECKING:
    from sonde.analysis.postmortem.blackbox import BlackBox
    from sonde.analysis.postmortem.dumps import Dump, DumpedBatch, Value
    from sonde.views.blackbox import Page

    Array = numpy.ndarray[Any, Any]

SIDE = 192  # pixels of a picture
MOST_ITEMS = 12  # of a batch, before one opens the rest
MOST_OPENED = 128  # of a batch altogether
BESIDE = 8  # items beside those that went wrong, to compare them with
FEW_ITEMS = 6  # of an earlier batch in which nothing is known to be wrong
MOST_PICTURE_BYTES = 6_000_000  # of all pictures; further ones are left out, and that is said
MOST_SCANNED = 32 << 20  # bytes that are searched for items with non-finite values
MOST_NUMBERS = 8  # that are written out
TOO_LARGE = "Some pictures are left out to limit the size of the page."
POINTS = 96  # of a curve
BINS = 24  # of a histogram


@dataclass(frozen=True)
class Curve:
    """Numbers in a row, drawn from left to right: the least and the most of each piece; None: nothing finite in it."""

    low: list[float | None]
    high: list[float | None]
    bad: list[int]  # pieces that hold non-finite values
    bins: list[int]  # how many values are how large


@dataclass(frozen=True)
class ItemValue:
    """One value of one item: its picture, its curve, or its numbers."""

    path: str
    shape: tuple[int, ...]
    picture: bytes | None
    curve: Curve | None
    numbers: list[str]
    low: float | None  # of what is finite
    high: float | None
    nonfinite: int


@dataclass(frozen=True)
class Exhibit:
    """One item of a batch."""

    name: str
    position: int
    guilty: bool
    sights: list[ItemValue]


@dataclass(frozen=True)
class Case:
    """One batch: its line on the page, items at once and others to open, how many are not there, what could not be shown."""

    batch: BatchLine
    exhibits: list[Exhibit]
    rest: list[Exhibit]
    more: int
    notes: list[str]


def cases(page: Page, dump: Dump | None, box: BlackBox) -> list[Case]:
    """The batches of a page, the newest first."""
    if dump is None or not dump.batches:
        return [Case(line, [], [], 0, []) for line in reversed(page.batches)]
    room = [MOST_PICTURE_BYTES]
    newest = dump.batches[-1]
    found = []
    for line, batch in reversed(list(zip(page.batches, dump.batches, strict=True))):
        found.append(_case(line, batch, dump, culprits(batch, dump, box), room, batch is newest))
    return found


def _case(line: BatchLine, batch: DumpedBatch, dump: Dump, guilty: list[int], room: list[int], newest: bool) -> Case:
    size = batch.size if batch.size is not None else len(batch.indices)
    notes: list[str] = []
    values = [value for value in batch.values if value.file is not None and value.shape and value.shape[0] == size]
    guilty = guilty or _suspects(dump, values, size, notes)
    most = min(MOST_ITEMS, len(guilty) + BESIDE) if guilty else MOST_ITEMS if newest else FEW_ITEMS
    others = [place for place in range(min(size, MOST_OPENED + len(guilty))) if place not in guilty]
    wanted = [*guilty, *others][:MOST_OPENED]
    sights: dict[int, list[ItemValue]] = {place: [] for place in wanted}
    for value in values:
        rows = kept_rows(dump, value, wanted, notes)
        scale = common_scale([row for place, row in rows.items() if place not in guilty] or list(rows.values()))
        for place, row in rows.items():
            sights[place].append(item_value(value.path, row, scale, room, notes))
    names = item_names(line)
    exhibits = [
        Exhibit(names[place] if place < len(names) else f"#{place}", place, place in guilty, found)
        for place, found in sights.items()
        if found
    ]
    return Case(line, exhibits[:most], exhibits[most:], size - len(exhibits) if exhibits else 0, notes)


def common_scale(rows: list[Array]) -> tuple[float, float] | None:
    """From the least to the most finite value of the items: all are drawn with one mapping, the one that went wrong too."""
    finite = [row[numpy.isfinite(row)] if row.dtype.kind == "f" else row for row in rows if row.dtype.kind in "fiub"]
    known = [row for row in finite if row.size]
    return (min(float(row.min()) for row in known), max(float(row.max()) for row in known)) if known else None


def kept_rows(dump: Dump, value: Value, wanted: list[int], notes: list[str]) -> dict[int, Array]:
    """Some rows of an array of a dump. What cannot be read becomes a note."""
    try:
        return dump.rows(value, wanted)
    except (OSError, ValueError) as error:
        note = f"{value.path}: cannot show {value.file}: {getattr(error, 'strerror', None) or error}"
        if note not in notes:
            notes.append(note)
        return {}


def _suspects(dump: Dump, values: list[Value], size: int, notes: list[str]) -> list[int]:
    """Items that hold non-finite values, if nobody has said which ones went wrong."""
    for value in values:
        each = math.prod(value.shape or ()) // max(size, 1) * 8
        if not value.nonfinite or each == 0:
            continue
        rows = kept_rows(dump, value, list(range(min(size, MOST_SCANNED // each))), notes)
        found = [place for place, row in rows.items() if row.dtype.kind == "f" and not numpy.isfinite(row).all()]
        if found:
            return found[:MOST_ITEMS]
    return []


def item_value(
    path: str, row: Array, scale: tuple[float, float] | None, room: list[int], notes: list[str]
) -> ItemValue:
    """What is shown of one value. `room`: bytes that pictures may still have; `scale`: what black and white stand for."""
    finite = row[numpy.isfinite(row)] if row.dtype.kind == "f" else row.reshape(-1)
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    picture = _picture(row, scale, room, notes)
    small = row.size <= MOST_NUMBERS
    return ItemValue(
        path=path,
        shape=tuple(row.shape),
        picture=picture,
        curve=None if picture is not None or small else _curve(row.reshape(-1), low, high),
        numbers=[_number(one) for one in row.reshape(-1).tolist()] if small else [],
        low=low,
        high=high,
        nonfinite=int(row.size - finite.size),
    )


def _picture(row: Array, scale: tuple[float, float] | None, room: list[int], notes: list[str]) -> bytes | None:
    image = as_image(row)
    if image is None:
        return None
    made = png(shrunk(image, SIDE, scale))
    if len(made) > room[0]:
        if TOO_LARGE not in notes:
            notes.append(TOO_LARGE)
        return None
    room[0] -= len(made)
    return made


def _number(value: object) -> str:
    return units.brief(value) if isinstance(value, float) else str(value)


def _curve(flat: Array, low: float | None, high: float | None) -> Curve:
    pieces = numpy.array_split(flat.astype(numpy.float64), min(POINTS, len(flat)))
    kept = [piece[numpy.isfinite(piece)] for piece in pieces]
    bins = [0] * BINS
    if low is not None and high is not None and high > low and math.isfinite(high - low):
        counts, _ = numpy.histogram(numpy.concatenate(kept), bins=BINS, range=(low, high))
        bins = [int(count) for count in counts]
    return Curve(
        low=[float(piece.min()) if piece.size else None for piece in kept],
        high=[float(piece.max()) if piece.size else None for piece in kept],
        bad=[place for place, (piece, good) in enumerate(zip(pieces, kept, strict=True)) if good.size < piece.size],
        bins=bins,
    )
