"""Values of items that a run has kept: of one item wherever it is, of the items of one batch, and whole arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sonde import units
from sonde.analysis.postmortem.blackbox import black_box
from sonde.analysis.postmortem.dumps import Dump, DumpedBatch, Value, dump_folders, dumps_of
from sonde.errors import UnknownName
from sonde.lazy import numpy
from sonde.picture import as_image
from sonde.views.blackbox import REASONS, culprits
from sonde.views.items import ItemValue, common_scale, item_value, kept_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sonde.analysis.run import Run

    Array = numpy.ndarray[Any, Any]

MOST_VALUES = 24  # of an item
MOST_BYTES = 4_000_000  # of the pictures of one answer
MOST_NUMBERS = 1 << 18  # of a whole array; of a larger one, each n-th row and column
MOST_ITEMS = 256  # of a batch, that have a picture


@dataclass(frozen=True)
class StoredValue:
    """One value of one item: at which stage, from where, and in which array it is whole."""

    stage: str
    source: str
    step: int | None
    dtype: str | None
    value: ItemValue
    array: ArrayPlace


@dataclass(frozen=True)
class ArrayPlace:
    """Where an array is: the dump, the place of the batch in it, of the value in that, and of the item in that."""

    dump: str
    batch: int
    value: int
    position: int


@dataclass(frozen=True)
class StoredBatch:
    """What was kept of a batch: pictures by position, the positions of items that went wrong, and where it is from."""

    pictures: dict[int, bytes]
    guilty: list[int]
    source: str


@dataclass(frozen=True)
class WholeArray:
    """An array to look at: an image has its colours in the last dimension. `stride`: only each n-th row and column is in it."""

    numbers: Array
    dtype: str
    shape: tuple[int, ...]  # as it was kept
    is_image: bool
    stride: int


def values_of_item(run: Run, index: int | None, id: str | None) -> list[StoredValue]:
    """All values of an item that dumps of the black box have, the newest dump first."""
    found: list[StoredValue] = []
    room = [MOST_BYTES]
    for dump in reversed(_dumps(run)):
        for place, batch in enumerate(dump.batches):
            for position in _positions(batch, index, id):
                found += _values(dump, place, batch, position, room)
        if len(found) >= MOST_VALUES:
            break
    return found[:MOST_VALUES]


def values_of_batch(run: Run, rank: int | None, loader: int, round: int, number: int) -> StoredBatch | None:
    """Pictures of the items of a batch; None if no dump has it."""
    for dump in reversed(_dumps(run)):
        for batch in dump.batches:
            if (dump.rank, batch.loader, batch.round, batch.number) == (rank, loader, round, number):
                guilty = culprits(batch, dump, black_box(run))
                return StoredBatch(_pictures(dump, batch, guilty), guilty, _source(dump))
    return None


def whole_array(run: Run, place: ArrayPlace) -> WholeArray:
    """One array of one item. Raises UnknownName if there is none."""
    dump = next((one for one in _dumps(run) if one.name == place.dump), None)
    batch = dump.batches[place.batch] if dump is not None and place.batch < len(dump.batches) else None
    value = batch.values[place.value] if batch is not None and place.value < len(batch.values) else None
    notes: list[str] = []
    rows = {} if dump is None or value is None else kept_rows(dump, value, [place.position], notes)
    if place.position not in rows:
        raise UnknownName(notes[0] if notes else "There is no such array in the black box of this run.")
    return looked_at(rows[place.position])


def looked_at(array: Array) -> WholeArray:
    """An array as numbers to look at: of a large one, each n-th row and column."""
    image = as_image(array)
    shown = array.reshape(-1) if image is None else image
    stride = 1
    while shown[(slice(None, None, stride),) * min(shown.ndim, 2)].size > MOST_NUMBERS:
        stride += 1
    kept = shown[(slice(None, None, stride),) * min(shown.ndim, 2)]
    return WholeArray(kept.astype(numpy.float64), str(array.dtype), tuple(array.shape), image is not None, stride)


def _dumps(run: Run) -> list[Dump]:
    return dumps_of(run.path, []) if dump_folders(run.path, []) else []


def _positions(batch: DumpedBatch, index: int | None, id: str | None) -> list[int]:
    """Where an item is in a batch: by its index, or by what the dataset calls it."""
    named = batch.indices if id is None else batch.ids
    return [place for place, one in enumerate(named) if one is not None and one == (index if id is None else id)]


def _per_item(batch: DumpedBatch) -> Iterator[tuple[int, Value]]:
    """The values that have a row for each item."""
    size = batch.size if batch.size is not None else len(batch.indices)
    for place, value in enumerate(batch.values):
        if value.file is not None and value.shape and value.shape[0] == size:
            yield place, value


def _values(dump: Dump, place: int, batch: DumpedBatch, position: int, room: list[int]) -> list[StoredValue]:
    found = []
    for number, value in _per_item(batch):
        row = kept_rows(dump, value, [position], []).get(position)
        if row is not None:
            shown = item_value(value.path, row, None, room, [])
            where = ArrayPlace(dump.name, place, number, position)
            found.append(
                StoredValue("batch, as the model got it", _source(dump), batch.step, value.dtype, shown, where)
            )
    return found


def _pictures(dump: Dump, batch: DumpedBatch, guilty: list[int]) -> dict[int, bytes]:
    """A picture of each item: of its first value that looks like one, all with one mapping."""
    room = [MOST_BYTES]
    for _, value in _per_item(batch):
        wanted = list(range(min((value.shape or (0,))[0], MOST_ITEMS)))
        rows = kept_rows(dump, value, wanted, [])
        scale = common_scale([row for place, row in rows.items() if place not in guilty] or list(rows.values()))
        shown = {place: item_value(value.path, row, scale, room, []).picture for place, row in rows.items()}
        pictures = {place: picture for place, picture in shown.items() if picture is not None}
        if pictures:
            return pictures
    return {}


def _source(dump: Dump) -> str:
    why = REASONS.get(dump.reason, dump.reason)
    return f"black box {dump.name} ({why}{'' if dump.step is None else f', step {units.count(dump.step)}'})"
