"""A DuckDB database in memory that holds the tables of one run: sealed files where they lie, raw parts beside them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sonde.analysis import exits
from sonde.analysis.ledger.processes import Ledgers
from sonde.analysis.records import schema
from sonde.analysis.records.load import ArgumentReader, Loaded, ThreadRecords, notes_text
from sonde.analysis.records.locate import EVENTS_FILE, LEDGER_TABLE, PROCESSES_FILE, STEPS_TABLE, is_plain
from sonde.analysis.select import named_tables, refuse_writing
from sonde.analysis.tables import batches, items, layers, memory, phases, steps, system
from sonde.analysis.training import losses
from sonde.analysis.training.source import RecordSource, SealedEvents
from sonde.analysis.training.trainers import owners
from sonde.errors import RunUnreadable
from sonde.lazy import numpy as np
from sonde.store import probe
from sonde.store.file import RegularFile, why
from sonde.store.filesystem import has_working_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sonde.analysis.records.columns import PackedRows
    from sonde.analysis.records.locate import Folder

ALL = schema.PROCESSES + schema.MORE
LANES = (
    ("id", "UINTEGER"),
    ("number", "BIGINT"),
    ("ordinal", "BIGINT"),
    ("host", "VARCHAR"),
    ("rank", "BIGINT"),
    ("pid", "BIGINT"),
    ("tid", "BIGINT"),
    ("thread", "VARCHAR"),
    ("process", "VARCHAR"),
)
NAMES = (("id", "UINTEGER"), ("cat", "VARCHAR"), ("name", "VARCHAR"))
NUMBERS = (
    ("number", "BIGINT"),
    ("owner", "BIGINT"),  # the process that it works for: its own number, but for loader workers
    ("host", "VARCHAR"),
    ("rank", "BIGINT"),
    ("pid", "BIGINT"),
    ("worker", "BIGINT"),
    ("from_ns", "BIGINT"),
    ("process", "VARCHAR"),
)


class Database:
    """The tables of one run. `rows` has one entry per process, `notes` is what was wrong."""

    def __init__(
        self,
        folders: Sequence[Folder],
        prefixes: Sequence[str],
        *,
        files: bool,
        threads: int | None = None,
        thrifty: bool = False,
        output: Path | None = None,
    ) -> None:
        import duckdb

        self._closed = False
        self._arguments: ArgumentReader | None = None
        self._sealed: list[str] = []
        self._parts: list[str] = []
        self._rest: Callable[[], list[PackedRows]] | None = None
        self._files = files
        self._made: set[str] = set()
        self._kept = 0
        self.rows: list[dict[str, Any]] = []
        self.notes: list[str] = []
        # Nothing is fetched from the network behind the user's back.
        self.connection = duckdb.connect(
            config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}
        )
        self.connection.execute("SET enable_progress_bar = false")  # commands draw their own
        if threads is not None:
            self.connection.execute(f"SET threads = {threads}")
        if thrifty:  # what a query has freed is not kept for the next one
            self.connection.execute("SET allocator_bulk_deallocation_flush_threshold = '256KB'")
        self.ledgers = Ledgers()
        self.source = RecordSource(self.connection)
        self._allow(folders, output)
        for folder, prefix in zip(folders, prefixes, strict=True):
            if folder.sealed:
                self._add_sealed(folder, prefix)

    def add(self, loaded: Loaded) -> None:
        """Add raw processes, and make the tables of all that is there."""
        self.notes += loaded.notes
        self.rows += [row | {"folder": None} for row in loaded.rows]
        self.rows.sort(key=lambda row: str(row["process"]))
        for row, recording in zip(loaded.rows, loaded.recordings, strict=True):
            self.ledgers.add_raw(row["process"], recording.folder, row["notes"])
        for row, recording, seen in zip(loaded.rows, loaded.recordings, loaded.seen, strict=True):
            self.source.add_raw(row["process"], recording, row["offset_ns"], seen)
        self._register(loaded)
        self._see(schema.BESIDE)
        self._rest = loaded.rest
        if self._rest is None:
            self._see("events")
        if (probe.PROCESS, probe.EXIT) in loaded.names:
            exits.add_ends(self.rows, self.connection.execute(exits.MARKS).fetchall())
        busy = {
            row["process"]
            for row, seen in zip(loaded.rows, loaded.seen, strict=True)
            if any(one.open and one.cat == probe.PROBE for one in seen.named)
        }
        exits.mark_finished(self.rows, busy)
        exits.mark_unwritten(self.rows)
        self.write_processes()
        self.connection.execute(f"CREATE VIEW processes AS SELECT {schema.names(schema.PROCESSES)} FROM process_rows")
        if not self._files:
            self.connection.execute("SET lock_configuration = true")

    def write_processes(self) -> None:
        """Write the table of processes as it is known now."""
        self._create("process_rows", ALL, [_process_row(row) for row in self.rows])

    def prepare(self, query: str) -> None:
        """Make the tables that a query names. Unless other files are allowed, it must be a SELECT, or it is refused."""
        if not self._files:
            refuse_writing(self.connection, query)
        for table in named_tables(self.connection, query, schema.TABLES):
            self.make(table)

    def beside(self, query: str) -> list[tuple[Any, ...]]:
        """The answer to a query of ours whose table `events` lacks those of the steps: so they need not be loaded."""
        for table in named_tables(self.connection, query, schema.MADE):
            self.make(table)
        events = f"WITH events AS NOT MATERIALIZED (SELECT * FROM {schema.BESIDE})"
        return self.connection.execute(f"{events} {query}").fetchall()

    def make(self, table: str) -> None:
        """Make a table of those that are made when they are first asked for."""
        if table == "events" and self._rest is not None:
            self._add_parts(self._rest())
            self._rest = None
            self._see("events")
        if table in self._made or table not in schema.MADE:
            return
        if not self._made:
            self._create("process_numbers", NUMBERS, _numbers(self.rows))
        self._made.add(table)
        if table in ("phases", "memory"):
            self.make("steps")
        if table == "items":
            self.make("batches")
        if table == "steps":
            steps.create(self.connection, self.source, self.rows)
        elif table == "losses":
            losses.create(self.connection, self.source, self.rows)
        elif table == "batches":
            self.ledgers.register(self.connection, [str(row["process"]) for row in self.rows])
            batches.create(self.connection, self.source, self.rows)
        else:
            _VIEWS[table](self.connection)

    def keep(self, names: Sequence[str], types: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
        """Make a table of these rows, for one answer; its name."""
        self._kept += 1
        table = f"kept_{self._kept}"
        self._create(table, tuple(zip(names, types, strict=True)), rows)
        return table

    def close(self) -> None:
        """Close everything; harmless when done already."""
        if not self._closed:
            self._closed = True
            self.connection.close()
            if self._arguments is not None:
                self._arguments.close()

    # ── sealed files ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _allow(self, folders: Sequence[Folder], output: Path | None) -> None:
        """SQL may read the sealed files of the run, and nothing else, unless the user wants more; no link leads out."""
        if self._files:
            return
        names = (EVENTS_FILE, PROCESSES_FILE, LEDGER_TABLE, STEPS_TABLE)
        found = [folder.path.resolve() / name for folder in folders for name in names]
        paths = [str(path) for path in found if is_plain(path)]
        paths += [] if output is None else [str(output)]
        if not has_working_folder():  # DuckDB would look for a place for temporary files in it
            self.connection.execute("SET temp_directory = ''")
        self.connection.execute(f"SET allowed_paths = [{', '.join(map(schema.quoted, paths))}]")
        self.connection.execute("SET enable_external_access = false")

    def _add_sealed(self, folder: Folder, prefix: str) -> None:
        found = self._read_sealed(folder, PROCESSES_FILE, ALL)
        self._read_sealed(folder, EVENTS_FILE, schema.EVENTS, limit=" LIMIT 0")
        events = schema.quoted(str(folder.path.resolve() / EVENTS_FILE))
        for values in found:
            row = dict(zip((name for name, _ in ALL), values, strict=True))
            row["process"] = prefix + row["process"]
            row["notes"] = _listed(row["notes"])
            self.rows.append(row | {"folder": str(folder.path)})
            if is_plain(folder.path / LEDGER_TABLE):
                self.ledgers.add_sealed(
                    row["process"], folder.path.resolve() / LEDGER_TABLE, str(values[_PROCESS]), self.notes
                )
        listed = [str(values[_PROCESS]) for values in found]
        self._sealed.append(_sealed_events(events, prefix, listed))
        self.source.add_sealed(
            SealedEvents(self._sealed[-1], events, [prefix + process for process in listed], prefix, folder.path)
        )

    def _read_sealed(
        self, folder: Folder, name: str, columns: schema.Columns, limit: str = ""
    ) -> list[tuple[Any, ...]]:
        """The rows of a sealed table, whose columns must be those that it was written with."""
        import duckdb

        path = folder.path.resolve() / name
        source = f"read_parquet({schema.quoted(str(path))})"
        try:
            wrong = schema.misfit(self.connection, source, columns)
            if wrong is None:
                return self.connection.execute(f"SELECT {schema.names(columns)} FROM {source}{limit}").fetchall()
            fault = f"{name} is damaged (it has no column {wrong!r} of the right type)"
        except (duckdb.Error, UnicodeDecodeError) as error:
            fault = _fault(path, str(error))
        raise RunUnreadable(
            f"Cannot read the sealed tables of {folder.path}: {fault}. Restore the folder from a backup."
        )

    # ── raw parts ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _register(self, loaded: Loaded) -> None:
        """Register what was loaded."""
        if not loaded.recordings:
            return
        self._arguments = ArgumentReader(loaded.recordings)
        self.connection.create_function("sonde_args", _reader(self._arguments), ["BIGINT", "BIGINT"], "VARCHAR")
        self._create("lanes", LANES, [_thread_row(id, lane) for id, lane in enumerate(loaded.lanes)])
        self._create("names", NAMES, [(0, None, None), *((id, *name) for id, name in enumerate(loaded.names, 1))])
        self._add_parts(loaded.parts)

    def _add_parts(self, parts: Sequence[PackedRows]) -> None:
        for number, part in enumerate(parts, len(self._parts)):
            self.connection.register(f"part_{number}", part.arrays)
            self._parts.append(part.select(f"part_{number}"))

    def _see(self, view: str) -> None:
        """Make a view of all events that are there now."""
        raw = [schema.raw_events(self._parts)] if self._parts else []
        self.connection.execute(f"CREATE VIEW {view} AS {schema.joined(self._sealed + raw)}")

    def _create(self, table: str, columns: schema.Columns, rows: Sequence[Sequence[object]]) -> None:
        arrays = {name: np.empty(len(rows), dtype=object) for name, _ in columns}
        for place, row in enumerate(rows):
            for (name, _), value in zip(columns, row, strict=True):
                arrays[name][place] = value
        self.connection.register("given", arrays)
        made = ", ".join(f'"{name}"::{type} AS "{name}"' for name, type in columns)
        self.connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT {made} FROM given")
        self.connection.unregister("given")


_VIEWS = {
    "phases": phases.create,
    "items": items.create,
    "layers": layers.create,
    "memory": memory.create,
    "system": system.create,
}
_PROCESS = [name for name, _ in ALL].index("process")


def _sealed_events(file: str, prefix: str, listed: list[str]) -> str:
    """The events of the processes that the sealed list names. The file may hold more, if sealing was interrupted."""
    columns = [
        f'{schema.quoted(prefix)} || "process" AS "process"' if name == "process" and prefix else f'"{name}"'
        for name, _ in schema.EVENTS
    ]
    names = ", ".join(map(schema.quoted, listed)) or "NULL"
    return f'SELECT {", ".join(columns)} FROM read_parquet({file}) WHERE "process" IN ({names})'


def _fault(path: Path, said: str) -> str:
    """What is wrong with a sealed table, in one line. `said`: what DuckDB said, with the query below it."""
    try:
        with RegularFile(path) as file:
            if not file.size():
                return f"{path.name} is empty"
    except OSError as error:
        return f"{path.name} {why(error)}"
    reason = said.partition("\n")[0].partition(": ")[2].replace(f" in file '{path}'", "").replace(f" '{path}'", "")
    return f"{path.name} is truncated or damaged ({reason})"


def _numbers(rows: Sequence[dict[str, Any]]) -> list[tuple[object, ...]]:
    places = {row["process"]: number for number, row in enumerate(rows)}
    owner = owners(rows)
    return [
        (
            number, places[owner.get(row["process"], row["process"])], row["host"], row["rank"], row["pid"],
            row["worker"], exits.began(row), row["process"],
        )
        for number, row in enumerate(rows)
    ]  # fmt: skip


def _listed(notes: str | None) -> list[str]:
    return [str(note) for note in json.loads(notes)] if notes else []


def _reader(arguments: ArgumentReader) -> Callable[[int, int], str]:
    def sonde_args(number: int, id: int) -> str:
        return arguments.text(number, id) or ""  # DuckDB takes no None from a function

    return sonde_args


def _thread_row(id: int, lane: ThreadRecords) -> tuple[object, ...]:
    tid, thread = lane.thread or (None, None)
    info = lane.info
    return id, lane.number, lane.ordinal or None, info.host, info.rank, info.pid, tid, thread, lane.process


def _process_row(row: dict[str, Any]) -> list[object]:
    return [notes_text(row[name]) if name == "notes" else row[name] for name, _ in ALL]
