"""The ledgers of a run: which items went into which batch, from the files of processes or from the sealed table.

Read when they are first asked for. A batch is a few rows: the number of an item, and how many follow it one by one. That is
one row for each item of a shuffled dataset, and one for each batch of a loop in order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.analysis.records.schema import misfit, quoted
from sonde.errors import RunUnreadable
from sonde.lazy import numpy as np
from sonde.store import ledger, probe
from sonde.store.folder import LEDGER_FILE
from sonde.store.reading.ledger import LedgerEntry, read_entries

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

FUNCTION = "sonde_indices"
NO_DIGEST, SAMPLE, WHOLE = 0, 1, 2  # how much of a batch its digest is of
CONFIG: dict[str, Any] = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
PIECE = 1 << 16  # batches that are taken together
HIGHEST = 2**63 - 1
MOST_LISTED = 1 << 22  # items of one batch; a count beyond it is damage


class LedgerBatch(NamedTuple):
    """One batch of a ledger. Of items whose keys are no numbers, `indices` is None.

    Both are None if an earlier version sealed it as a place in an order: its items are not available any more.
    """

    indices: list[int] | None
    keys: list[Any] | None
    worker: int | None
    flags: int
    size: int
    digest: int | None
    digest_of: int

    @property
    def stream(self) -> bool:
        """Is it from an iterable dataset?"""
        return bool(self.flags & ledger.STREAM)

    @property
    def alone(self) -> bool:
        """Was it made without a collate of several items?"""
        return bool(self.flags & ledger.ALONE)


class Ledger:
    """What one process wrote down: arrays with one entry per batch, and `first` and `run` with one per row.

    Where `shuffle` is not 0, an earlier version kept the batch as a place in an order, which nobody makes again.
    """

    def __init__(
        self,
        heads: dict[str, NDArray[Any]],
        start: Ints,
        first: NDArray[Any],
        run: NDArray[Any],
        texts: dict[int, str],
    ) -> None:
        """`start` has one more entry: where the rows end."""
        self.key, self.worker, self.flags = heads["key"], heads["worker"], heads["flags"]
        self.digest, self.digest_of, self.shuffle = heads["digest"], heads["digest_of"], heads["shuffle"]
        self.start, self.first, self.run, self.texts = start, first, run, texts
        self._places: dict[int, int] | None = None

    def __len__(self) -> int:
        return len(self.key)

    def __eq__(self, other: object) -> bool:
        names = ("key", "worker", "flags", "digest", "digest_of", "shuffle", "start", "first", "run")
        return (
            isinstance(other, Ledger)
            and self.texts == other.texts
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)
        )

    __hash__ = None  # type: ignore[assignment]

    def batch(self, key: int) -> LedgerBatch | None:
        """The batch with this key; None if there is none, or more than one."""
        place = self.places.get(key, -1)
        if place < 0:
            return None
        text = self.texts.get(place)
        indices = self._indices(place) if text is None else None
        size = sum(self.run[self.start[place] : self.start[place + 1]].tolist())
        worker, of = int(self.worker[place]), int(self.digest_of[place])
        return LedgerBatch(
            indices,
            None if text is None else _keys(text, size),
            None if worker < 0 else worker,
            int(self.flags[place]),
            size,
            int(self.digest[place]) if of else None,
            of,
        )

    def indices(self, key: int) -> list[int] | None:
        """The numbers of the items of a batch; None: not known."""
        place = self.places.get(key, -1)
        return None if place < 0 or place in self.texts else self._indices(place)

    def largest(self, loader: int) -> int:
        """How many items the largest batch of a loader has."""
        total = np.append(0, np.cumsum(self.run, dtype=np.int64))
        sizes = np.diff(total[self.start])[probe.loader_of(self.key) == loader]
        return int(sizes.max(initial=0))

    @property
    def places(self) -> dict[int, int]:
        """For each key its place; -1 for one that stands there twice."""
        if self._places is None:
            keys = self.key.tolist()
            self._places = dict(zip(keys, range(len(keys)), strict=True))
            if len(self._places) < len(keys):
                seen: set[int] = set()
                twice = {key for key in keys if key in seen or seen.add(key)}  # type: ignore[func-returns-value]
                self._places |= dict.fromkeys(twice, -1)
        return self._places

    def _indices(self, place: int) -> list[int] | None:
        low, high = int(self.start[place]), int(self.start[place + 1])
        begin, count = int(self.first[low]), int(self.run[low])
        if self.shuffle[place]:
            return None
        if high - low == 1 and count != 1:
            return list(range(begin, begin + count)) if count <= MOST_LISTED else None
        return self.first[low:high].tolist()  # type: ignore[no-any-return]


class Ledgers:
    """The ledgers of all processes of a run."""

    def __init__(self) -> None:
        self._raw: dict[str, tuple[Path, list[str]]] = {}
        self._sealed: dict[str, tuple[str, str, list[str]]] = {}
        self._books: dict[str, Ledger | None] = {}
        self._numbered: list[str] = []

    def add_raw(self, process: str, folder: Path, notes: list[str]) -> None:
        """A process whose files are there; what is wrong with its ledger becomes a note."""
        self._raw[process] = (folder / LEDGER_FILE, notes)

    def add_sealed(self, process: str, file: Path, name: str, notes: list[str]) -> None:
        """A process that is in the sealed table, under this name."""
        self._sealed[process] = (str(file), name, notes)

    def book(self, process: str) -> Ledger | None:
        """The ledger of a process; None if it has none."""
        if process not in self._books:
            self._books[process] = self._read(process)
        return self._books[process]

    def books(self) -> list[tuple[str, Ledger]]:
        """All there are, by the names of their processes."""
        found = [(process, self.book(process)) for process in sorted({*self._raw, *self._sealed})]
        return [(process, book) for process, book in found if book is not None]

    def register(self, connection: duckdb.DuckDBPyConnection, processes: Sequence[str]) -> None:
        """Make the function `sonde_indices(number, key)`, where a number is that of a process in this list."""
        self._numbered = list(processes)
        connection.create_function(FUNCTION, self._answer, ["BIGINT", "BIGINT"], "BIGINT[]")

    def _answer(self, number: int, key: int) -> list[int]:
        book = self.book(self._numbered[number])
        return (book.indices(key) if book is not None else None) or []  # DuckDB takes no None from a function

    def _read(self, process: str) -> Ledger | None:
        import duckdb

        if process in self._raw:
            path, notes = self._raw[process]
            return read_book(path, notes)
        if process not in self._sealed:
            return None
        file, name, notes = self._sealed[process]
        try:
            # A database of its own: that of the run may be in the middle of a query that asks for this.
            with duckdb.connect(config=CONFIG) as aside:
                return _read_sealed(aside, file, name, notes)
        except (duckdb.Error, UnicodeDecodeError, RunUnreadable) as error:
            notes.append(f"Cannot read the ledger of {process}: {error}")
            return None


def _keys(text: str, size: int) -> list[Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return found[:size] if isinstance(found, list) else []


# ── raw ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_book(path: Path, notes: list[str]) -> Ledger | None:
    """The ledger in a file; None if there is none, or nothing in it."""
    taken = _Taken()
    for entry in read_entries(path, notes):
        taken.add(entry)
    return taken.book() if taken.count else None


class _Taken:
    """Takes entries, and keeps them in narrow arrays."""

    def __init__(self) -> None:
        self._types: dict[int, Any] = {
            ledger.U16: np.dtype("<u2"),
            ledger.U32: np.dtype("<u4"),
            ledger.I64: np.dtype("<i8"),
        }
        self.count = 0
        self._heads: list[tuple[int, int, int, int]] = []  # key, worker, flags, rows
        self._rows: list[NDArray[Any]] = []
        self._runs: list[tuple[int, int]] = []  # how many rows have a run of how many
        self._done: list[dict[str, NDArray[Any]]] = []
        self._texts: dict[int, str] = {}
        self._digests: dict[int, tuple[int, int]] = {}

    def add(self, entry: LedgerEntry) -> None:
        if entry.code == ledger.DIGEST:
            of = WHOLE if entry.flags & ledger.WHOLE else SAMPLE
            self._digests[entry.key] = (ledger.HASH.unpack(entry.content)[0], of)
            return
        if entry.code == ledger.RECIPE:
            return
        rows = entry.count
        if rows and entry.code in self._types:
            self._rows.append(np.frombuffer(entry.content, self._types[entry.code]))
            self._runs.append((rows, 1))
        else:
            rows = 1
            first = ledger.FIRST.unpack(entry.content)[0] if entry.code == ledger.RANGE else 0
            self._rows.append(np.array([min(first, HIGHEST - entry.count)], np.int64))  # beyond it is damage
            self._runs.append((1, entry.count))
        if entry.code == ledger.TEXT:
            self._texts[self.count] = json.dumps(entry.keys())
        self._heads.append((entry.key, -1 if entry.worker is None else entry.worker, entry.flags, rows))
        self.count += 1
        if len(self._heads) >= PIECE:
            self._close()

    def book(self) -> Ledger:
        self._close()
        whole = {name: np.concatenate([piece[name] for piece in self._done]) for name in self._done[0]}
        rows, first, run = whole.pop("rows"), whole.pop("first"), whole.pop("run")
        start = np.append(0, np.cumsum(rows))
        whole["digest"], whole["digest_of"] = self._digest_columns(whole["key"])
        whole["shuffle"] = np.zeros(len(rows), np.uint32)
        return Ledger(whole, start, first, run, self._texts)

    def _digest_columns(self, keys: Ints) -> tuple[NDArray[Any], NDArray[Any]]:
        found = [self._digests.get(key, (0, NO_DIGEST)) for key in keys.tolist()] if self._digests else []
        if not found:
            return np.zeros(len(keys), np.uint64), np.zeros(len(keys), np.uint8)
        return np.array([one for one, _ in found], np.uint64), np.array([of for _, of in found], np.uint8)

    def _close(self) -> None:
        if not self._heads:
            return
        heads = np.array(self._heads, np.int64)
        counts, runs = np.array(self._runs, np.int64).T
        self._done.append(
            {
                "key": heads[:, 0].copy(),
                "worker": heads[:, 1].astype(np.int16),
                "flags": heads[:, 2].astype(np.uint8),
                "rows": heads[:, 3].copy(),
                "first": _narrow(np.concatenate(self._rows)),
                "run": np.repeat(_narrow(runs), counts),
            }
        )
        self._heads, self._rows, self._runs = [], [], []


def _narrow(column: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in as few bytes as they need."""
    low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    fitting = (type for type, limit in ((np.uint8, 2**8), (np.uint16, 2**16), (np.uint32, 2**32)) if high < limit)
    return column.astype(np.int64 if low < 0 else next(fitting, np.int64), copy=False)


# ── sealed ───────────────────────────────────────────────────────────────────────────────────────────────────────────

# Of parts of one byte each a dictionary and zstd make fewer bits than of numbers of two bytes, which no dictionary holds.
_FIRST = "low::BIGINT + high::BIGINT * 256 + rest * 65536"
# A page of a column with more values than this would not use a dictionary, in larger groups it needs fewer of them.
_FORMAT = "FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION v2, ROW_GROUP_SIZE 1048576, DICTIONARY_SIZE_LIMIT 256"
_COLUMNS = (
    ("process", "VARCHAR"),
    ("key", "BIGINT"),
    ("position", "UINTEGER"),
    ("worker", "SMALLINT"),
    ("flags", "UTINYINT"),
    ("low", "UTINYINT"),
    ("high", "UTINYINT"),
    ("rest", "BIGINT"),
    ("length", "UINTEGER"),
    ("digest", "UBIGINT"),
    ("digest_of", "UTINYINT"),
    ("keys", "VARCHAR"),
    ("shuffle", "UINTEGER"),
)
_TYPES = ((2**8, "UTINYINT"), (2**16, "USMALLINT"), (2**32, "UINTEGER"))


def _read_sealed(connection: duckdb.DuckDBPyConnection, file: str, process: str, notes: list[str]) -> Ledger | None:
    table = _sealed_rows(connection, file)
    wrong = misfit(connection, table, _COLUMNS)
    if wrong is not None:
        raise RunUnreadable(f"its table is damaged (it has no column {wrong!r} of the right type)")
    rows = f"FROM {table} WHERE process = {quoted(process)}"
    ((count, lowest, highest, longest),) = connection.execute(
        f"SELECT count(*), min({_FIRST}), max({_FIRST}), max(length) {rows}"
    ).fetchall()
    if not count:
        return None
    first = "BIGINT" if lowest < 0 else _type_for(highest)
    found: dict[str, Any] = connection.execute(
        f"SELECT ({_FIRST})::{first} AS first, length::{_type_for(longest)} AS run, position = 0 AS head {rows}"
    ).fetchnumpy()
    heads: dict[str, Any] = connection.execute(
        f"SELECT key, worker, flags, coalesce(digest, 0) AS digest, digest_of, shuffle {rows} AND position = 0"
    ).fetchnumpy()
    texts = connection.execute(
        f"SELECT place, keys FROM (SELECT row_number() OVER () - 1 AS place, keys {rows} AND position = 0) "
        "WHERE keys IS NOT NULL"
    ).fetchall()
    gone = int(np.count_nonzero(heads["shuffle"]))
    if gone:
        notes.append(
            f"The items of {gone} batches of {process} are no longer available: an earlier version of Sonde sealed "
            "this run and stored their orders as recipes."
        )
    start = np.append(np.flatnonzero(found["head"]), count)
    return Ledger(heads, start, found["first"], found["run"], dict(texts))


def _sealed_rows(connection: duckdb.DuckDBPyConnection, file: str) -> str:
    """The rows of a sealed file; earlier versions called `length` `run`, and had no `shuffle`."""
    table = f"read_parquet({quoted(file)})"
    columns = {row[0] for row in connection.execute(f"DESCRIBE FROM {table}").fetchall()}
    return (
        table
        if "shuffle" in columns or "run" not in columns
        else f"(SELECT *, run AS length, 0::UINTEGER AS shuffle FROM {table})"
    )


def _type_for(highest: int) -> str:
    return next((type for limit, type in _TYPES if highest < limit), "BIGINT")


def write_sealed(connection: duckdb.DuckDBPyConnection, books: Sequence[tuple[str, Ledger]], path: Path) -> None:
    """Fill a file with the rows of ledgers, process by process, and read it back.

    Raises RunUnreadable if that gives something else.
    """
    # So that the rows stay in their order: they are joined with the batches, and not the batches with them.
    connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
    rows = " UNION ALL ".join(_register(connection, number, *one) for number, one in enumerate(books))
    connection.execute(f"COPY ({rows}) TO {quoted(str(path))} ({_FORMAT}, USE_TMP_FILE false)")
    connection.execute("RESET disabled_optimizers")
    for process, book in books:
        if _read_sealed(connection, str(path), process, []) != book:
            raise RunUnreadable(
                f"The ledger of {process} in {path.name} differs after reading it back. The run is unchanged; check "
                "the disk, then seal again."
            )


def _register(connection: duckdb.DuckDBPyConnection, number: int, process: str, book: Ledger) -> str:
    """Register the arrays of a ledger; the query that gives its rows as they are sealed, in their order."""
    heads, rows = f"ledger_heads_{number}", f"ledger_rows_{number}"
    connection.register(heads, _head_arrays(book))
    connection.register(rows, _row_arrays(book))
    return f"""
        SELECT {quoted(process)} AS process, h.key AS key, r.position::UINTEGER AS position,
               h.worker::SMALLINT AS worker, h.flags::UTINYINT AS flags, (r.first & 255)::UTINYINT AS low,
               ((r.first >> 8) & 255)::UTINYINT AS high, (r.first >> 16)::BIGINT AS rest, r.run::UINTEGER AS length,
               CASE WHEN r.position = 0 AND h.digest_of > 0 THEN h.digest::UBIGINT END AS digest,
               (CASE WHEN r.position = 0 THEN h.digest_of ELSE 0 END)::UTINYINT AS digest_of,
               (CASE WHEN r.position = 0 THEN h.keys END)::VARCHAR AS keys,
               h.shuffle::UINTEGER AS shuffle
        FROM (SELECT first::BIGINT AS first, run, position, entry FROM {rows}) r JOIN {heads} h ON h.entry = r.entry
    """


def _head_arrays(book: Ledger) -> dict[str, Any]:
    keys = np.full(len(book), None, dtype=object)
    for place, text in book.texts.items():
        keys[place] = text
    return {
        "entry": np.arange(len(book), dtype=np.uint32),
        "key": book.key,
        "worker": book.worker,
        "flags": book.flags,
        "digest": book.digest,
        "digest_of": book.digest_of,
        "keys": keys,
        "shuffle": book.shuffle,
    }


def _row_arrays(book: Ledger) -> dict[str, Any]:
    counts = np.diff(book.start)
    entry = np.repeat(np.arange(len(book), dtype=np.uint32), counts)
    # Rows of a batch with several have a run of one each.
    position = np.arange(len(entry), dtype=np.int64)
    position -= np.repeat(book.start[:-1], counts)
    return {"entry": entry, "position": _narrow(position), "first": book.first, "run": book.run}
