"""The results of a run on disk: one Lance table with the ids and one column for each output.

A batch is copied into a chunk; full chunks go to a thread that streams them into the table, so that neither the model nor
memory waits for the disk. What is in the table is committed now and then: a program that is killed loses the last part.
"""

from __future__ import annotations

import queue
import time
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from sonde.errors import FolderRefused, MissingExtra, ResultsError, nearest
from sonde.pipeline.results.columns import ID, ResultColumn, column, decoded, described, encoded, schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    import pyarrow

TABLE = "results.lance"
CHUNK_BYTES = 4 << 20
CHUNK_ROWS = 1 << 15
WAITING = 2  # full chunks between the two threads
LONGEST_FILL = 10.0  # seconds until a chunk that is not full goes too
FIRST_COMMIT = 30.0  # seconds; later commits come after a quarter of the time that has passed, so that they stay few
PATIENCE = 0.2  # seconds between two looks at the thread


def library() -> Any:
    """Lance, which is loaded only when there are results."""
    try:
        import lance
    except ImportError as error:
        raise MissingExtra.of("pylance", "pipeline", "Writing and reading results") from error
    # It warns at each fork of a program that has loaded it, such as that of loader workers; it does work in them.
    warnings.filterwarnings("ignore", message="lance is not fork-safe", category=UserWarning)
    return lance


class ResultWriter:
    """Writes the table of a run: `with ResultWriter(folder) as results: results.write(ids, {"data": array})`.

    The first batch decides on the columns. Order and ids are kept, every value bit for bit. A failure of the thread is
    raised by the next `write` or by `close`. When the block ends by an exception, what was written until then is kept.
    """

    def __init__(self, folder: str | Path, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.path = Path(folder) / TABLE
        self.rows = 0
        self.columns: list[ResultColumn] = []
        self._chunk_bytes = chunk_bytes
        self._chunk: _ResultChunk | None = None
        self._queue: queue.Queue[_ResultChunk | None] = queue.Queue(WAITING)
        self._pump: Future[None] | None = None
        if self.path.exists() or self.path.is_symlink():
            raise FolderRefused(f"{self.path} exists, and results are never overwritten. Choose another folder.")

    def write(self, ids: Sequence[str], outputs: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Add one batch. The arrays are copied: what happens to them afterwards does not matter."""
        arrays = {name: np.asarray(value) for name, value in outputs.items()}
        found = [column(name, array) for name, array in arrays.items()]
        if self._pump is None:
            self._begin(found)
        self._check(len(ids), found, arrays)
        start = 0
        while start < len(ids):
            chunk = self._chunk = self._chunk or _ResultChunk(self.columns, self._chunk_bytes)
            start += chunk.take(ids, arrays, start)
            if chunk.due():
                self._hand_over()
        self.rows += len(ids)

    def close(self) -> None:
        """Write what is left, and wait until the table is complete. Harmless if it was done."""
        pump, self._pump = self._pump, None
        if pump is not None:
            if self._chunk is not None:
                self._put(self._chunk, pump)
                self._chunk = None
            self._put(None, pump)
            pump.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def _begin(self, found: list[ResultColumn]) -> None:
        if not found:
            raise ResultsError("Nothing to write: the model returned an empty dict for a batch.")
        if self.rows:
            raise ResultsError(f"{self.path} is closed; nothing can be added.")
        self.columns = found
        pool = ThreadPoolExecutor(1, "sonde-results")
        self._pump = pool.submit(_pump, self.path, found, self._queue)
        pool.shutdown(wait=False)

    def _check(self, count: int, found: list[ResultColumn], arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        if found != self.columns:
            raise ResultsError(_difference(self.columns, found, self.rows))
        for name, array in arrays.items():
            if len(array) != count:
                raise ResultsError(f"The output {name!r} has {len(array)} rows for a batch of {count} items.")

    def _hand_over(self) -> None:
        assert self._chunk is not None
        assert self._pump is not None
        self._put(self._chunk, self._pump)
        self._chunk = None

    def _put(self, chunk: _ResultChunk | None, pump: Future[None]) -> None:
        while True:
            if pump.done():
                pump.result()
                return
            try:
                self._queue.put(chunk, timeout=PATIENCE)
            except queue.Full:
                continue
            return


def _difference(columns: list[ResultColumn], found: list[ResultColumn], rows: int) -> str:
    known = {one.name: one for one in columns}
    for one in found:
        before = known.get(one.name)
        if before is not None and before != one:
            return (
                f"The output {one.name!r} has {one.words()} per item in the batch after item {rows}, but had "
                f"{before.words()} before. All batches must match."
            )
    names = ", ".join(one.name for one in found)
    return f"The batch after item {rows} has the outputs {names}; earlier batches had {', '.join(known)}."


class _ResultChunk:
    """Rows that wait to be written."""

    def __init__(self, columns: list[ResultColumn], size: int) -> None:
        self.columns = columns
        self.rows = max(1, min(CHUNK_ROWS, size // sum(one.nbytes for one in columns)))
        self.since = time.monotonic()
        self.ids: list[str] = []
        self.values: dict[str, Any] = {
            one.name: [] if one.text else np.empty((self.rows, *one.shape), one.dtype) for one in columns
        }

    def take(self, ids: Sequence[str], arrays: Mapping[str, np.ndarray[Any, Any]], start: int) -> int:
        """Copy rows of a batch from `start` on, as many as fit; how many these were."""
        filled = len(self.ids)
        count = min(self.rows - filled, len(ids) - start)
        for one in self.columns:
            part = arrays[one.name][start : start + count]
            if one.text:
                self.values[one.name] += part.tolist()
            else:
                self.values[one.name][filled : filled + count] = part
        self.ids += map(str, ids[start : start + count])
        return count

    def due(self) -> bool:
        """Is it full, or has it waited long enough?"""
        return len(self.ids) == self.rows or time.monotonic() - self.since > LONGEST_FILL

    def batch(self, layout: pyarrow.Schema) -> pyarrow.RecordBatch:
        """The same for Arrow."""
        import pyarrow

        count = len(self.ids)
        values = [encoded(one, self.values[one.name][:count]) for one in self.columns]
        return pyarrow.record_batch([pyarrow.array(self.ids, pyarrow.string()), *values], schema=layout)


# ── the thread ──


def _pump(path: Path, columns: list[ResultColumn], chunks: queue.Queue[_ResultChunk | None]) -> None:
    """Write chunks until None comes; each commit is one file of the table."""
    import pyarrow

    lance, layout = library(), schema(columns)
    begun = time.monotonic()
    first, mode = chunks.get(), "create"
    while first is not None:
        part = _ResultPart(first, chunks, time.monotonic() + max(FIRST_COMMIT, (time.monotonic() - begun) / 4))
        reader = pyarrow.RecordBatchReader.from_batches(layout, part.batches(layout))
        try:
            lance.write_dataset(reader, str(path), mode=mode)
        except (OSError, ValueError, RuntimeError) as error:
            raise ResultsError(
                f"Cannot write the results to {path}: {error}. Batches committed earlier are saved."
            ) from error
        first, mode = part.next, "append"


class _ResultPart:
    """The chunks of one commit: those that come before the deadline. `next` is the one after it, or None at the end."""

    def __init__(self, first: _ResultChunk, chunks: queue.Queue[_ResultChunk | None], deadline: float) -> None:
        self.next: _ResultChunk | None = first
        self.chunks = chunks
        self.deadline = deadline

    def batches(self, layout: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
        """One Arrow batch for each chunk."""
        while self.next is not None:
            yield self.next.batch(layout)
            self.next = self.chunks.get()
            if time.monotonic() > self.deadline:
                return


# ── reading ──


class Results:
    """A table of results: `results["data"]` is a whole output, with the shape and dtype that the model gave."""

    def __init__(self, path: Path) -> None:
        """Use `open_results` instead."""
        self.path = path
        self.table = _opened(path)
        fields = [described(field) for field in self.table.schema]
        self.columns = {one.name: one for one in fields if one is not None and one.name != ID}
        self._count: int = self.table.count_rows()

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        outputs = ", ".join(f"{one.name} {one.dtype}{list(one.shape)}" for one in self.columns.values())
        return f"<Results {self.path}: {len(self)} items, {outputs}>"

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        return self.part(name, 0, len(self))

    @property
    def ids(self) -> np.ndarray[Any, Any]:
        """The ids, in the order in which the items were written."""
        return self.part(ID, 0, len(self))

    def part(self, name: str, start: int, stop: int) -> np.ndarray[Any, Any]:
        """The rows from `start` to before `stop` of one column."""
        one = self._column(name)
        values = self.table.to_table(columns=[name], offset=start, limit=max(0, stop - start))[name]
        if values.null_count:
            raise ResultsError(f"The column {name!r} of {self.path} has rows without a value.")
        return decoded(one, values)

    def _column(self, name: str) -> ResultColumn:
        if name == ID and ID in self.table.schema.names:
            return ResultColumn(ID, (), "str")
        if name not in self.columns:
            raise ResultsError(f"{self.path} has no column {name!r}. {nearest(str(name), [ID, *self.columns])}")
        return self.columns[name]


def _opened(path: Path) -> Any:
    try:
        return library().dataset(str(path))
    except (OSError, ValueError, RuntimeError) as error:
        raise ResultsError(f"Cannot read {path} as a Lance table: {error}") from error


def open_results(path: str | Path) -> Results:
    """The results of a run: its folder, or the table in it. Raises ResultsError if there are none."""
    place = Path(path)
    if (place / TABLE).is_dir():
        return Results(place / TABLE)
    if (place / "_versions").is_dir():
        return Results(place)
    if not place.is_dir():
        raise ResultsError(f"No such folder: {place}. Give the folder of a run with results, or a Lance table.")
    held = sorted(one.parent.name for one in place.glob(f"*/{TABLE}"))
    hint = f" It holds runs with results: {', '.join(held[-3:])}." if held else " Did this run finish?"
    raise ResultsError(f"{place} has no results: there is no {TABLE} in it.{hint}")
