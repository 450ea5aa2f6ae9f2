"""A DuckDB database in memory with the tables of one run: sealed files in place, plus raw parts."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sonde.analysis import exits
from sonde.analysis.ledger.processes import Ledgers
from sonde.analysis.parts.tables import PartTables
from sonde.analysis.records import schema
from sonde.analysis.records.enumerated import KIND, SUFFIX, enumerate_texts
from sonde.analysis.records.gaps import Gaps, measured, record_gaps
from sonde.analysis.records.load import ArgumentReader, Loaded, ThreadRecords, notes_text
from sonde.analysis.records.locate import EVENTS_FILE, LEDGER_TABLE, PROCESSES_FILE, is_plain
from sonde.analysis.records.owners import owners
from sonde.analysis.sqlparser import named_tables, refuse_writing
from sonde.analysis.tables import (
    activations,
    batches,
    fields,
    files,
    gradients,
    hosts,
    items,
    itemvalues,
    layers,
    memory,
    metrics,
    phases,
    reads,
    samples,
    steps,
    system,
    waits,
)
from sonde.analysis.training import losses
from sonde.analysis.training.named import NamedTime, named_time
from sonde.analysis.training.source import RecordSource, SealedEvents
from sonde.errors import IncompleteRun, RunUnreadable
from sonde.lazy import numpy as np
from sonde.store import probe
from sonde.store.file import RegularFile, why
from sonde.store.filesystem import has_working_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from sonde.analysis.parts.manifest import Parts
    from sonde.analysis.records.columns import PackedRows
    from sonde.analysis.records.locate import Folder
    from sonde.store.process import Info

MOST_SPILLED = 4_000_000_000  # bytes of temporary files of a query
ALL = schema.PROCESSES + schema.MORE
OLD = tuple(column for column in ALL if column[0] != "attempt")  # what the sealed files of earlier versions have
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
    ("owner_process", "VARCHAR"),
)


class Database:
    """The tables of one run. `rows` has one entry per process, `notes` is what was wrong.

    `folders` come with what stands before the names of their processes, and with their sealed parts. `owners`: for each loader
    worker the process that it loads for, if that is known. `memory`: bytes that queries may use, and `spill` the folder for what
    does not fit.
    """

    def __init__(
        self,
        folders: Sequence[tuple[Folder, str, Parts]],
        *,
        files: bool,
        threads: int | None = None,
        thrifty: bool = False,
        memory: int | None = None,
        spill: Path | None = None,
        output: Path | None = None,
        owners: Mapping[str, str] | None = None,
    ) -> None:
        import duckdb

        self._closed = False
        self._owners = owners
        self._arguments: ArgumentReader | None = None
        self._sealed: list[str] = []
        self._raw: list[str] = []
        self._rest: Callable[[], list[PackedRows]] | None = None
        self._files = files
        self._made: set[str] = set()
        self._kept = 0
        self.rows: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.infos: Sequence[Info] = ()  # what the processes say of themselves, with their clocks
        # Nothing is fetched from the network behind the user's back.
        self.connection = duckdb.connect(
            config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}
        )
        ((bar,),) = self.connection.execute("SELECT current_setting('enable_progress_bar')").fetchall()
        if bar:  # commands draw their own. In Jupyter without ipywidgets there is none, and to set it is an error
            self.connection.execute("SET enable_progress_bar = false")
        if threads is not None:
            self.connection.execute(f"SET threads = {threads}")
        if memory is not None:  # a query that needs more writes temporary files to `spill`, or is refused
            place = schema.quoted("" if spill is None else str(spill))
            self.connection.execute(f"SET memory_limit = '{memory}B'; SET temp_directory = {place}")
            if spill is not None and not files:
                self.connection.execute(f"SET max_temp_directory_size = '{MOST_SPILLED}B'")
        if thrifty:  # what a query has freed is not kept for the next one
            self.connection.execute("SET allocator_bulk_deallocation_flush_threshold = '256KB'")
        self.ledgers = Ledgers()
        self.source = RecordSource(self.connection)
        self.parts = PartTables()
        # Of processes in parts: what they saw of the ends of others, what a record cost, and time in the program's own spans.
        self._exits: list[tuple[Any, ...]] = []
        self._gaps: Gaps = {}
        self._named: dict[str, list[NamedTime]] = {}
        for folder, prefix, parts in folders:
            self._add_parts(folder, prefix, parts)
        self._allow([folder for folder, _, _ in folders], output)
        for folder, prefix, parts in folders:
            if folder.sealed:
                self._add_sealed(folder, prefix, parts.processes)

    def add(self, loaded: Loaded) -> None:
        """Add raw processes, and make the tables of all that is there."""
        self.take(loaded)
        if self._exits or (probe.PROCESS, probe.EXIT) in loaded.names:
            exits.add_ends(self.rows, self._seen_exits())
        exits.mark_finished(self.rows, self._busy(loaded))
        exits.mark_unwritten(self.rows)
        _number_attempts(self.rows)
        self.write_processes()
        self.connection.execute(f"CREATE VIEW processes AS SELECT {schema.names(schema.PROCESSES)} FROM process_rows")
        if not self._files:
            self.connection.execute("SET lock_configuration = true")

    def take(self, loaded: Loaded) -> None:
        """Add raw processes, without what can only be said of them when all are known: how they ended."""
        self.notes += loaded.notes
        self.rows += [row | {"folder": None} for row in loaded.rows]
        self.rows.sort(key=lambda row: str(row["process"]))
        for row, recording in zip(loaded.rows, loaded.recordings, strict=True):
            self.ledgers.add_raw(row["process"], recording.folder, row["notes"])
        for row, recording, seen in zip(loaded.rows, loaded.recordings, loaded.seen, strict=True):
            self.source.add_raw(row["process"], recording, row["offset_ns"], seen)
        self._register(loaded)
        self._rest = loaded.rest
        self._see(schema.LOOSE, [])
        self._see(schema.BESIDE, ["beside"])
        if self._rest is None:
            self._see("events", ["beside", "events"])

    def _seen_exits(self) -> list[tuple[Any, ...]]:
        """What processes saw of the ends of others, in the order of time."""
        found = self.connection.execute(exits.MARKS).fetchall()
        return sorted([*self._exits, *found], key=lambda mark: (mark[exits.MOMENT], mark[exits.TELLER]))

    def _busy(self, loaded: Loaded) -> set[str]:
        """The processes that ended in the middle of something."""
        named = {row["process"]: seen.named for row, seen in zip(loaded.rows, loaded.seen, strict=True)}
        named |= {process: self.source.name_counts[process] for process in self.parts.processes}
        return {process for process, some in named.items() if any(one.open and one.cat == probe.PROBE for one in some)}

    def take_rest(self) -> list[str]:
        """Load all raw events, and make tables of all of them; queries for those beside the others, and for the others."""
        beside = list(self._raw)
        self.make("events")
        self._see(schema.LOOSE, [])
        enumerate_texts(self.connection)
        some = (beside, self._raw[len(beside) :])
        return [schema.raw_events(rows, SUFFIX, KIND) if rows else "" for rows in some]

    @property
    def raw(self) -> list[str]:
        """The queries that select the raw rows that are loaded, as numbers."""
        return self._raw

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
            self._add_rows(self._rest())
            self._rest = None
            self._see("events", ["beside", "events"])
        if table in self._made or table not in schema.MADE:
            return
        if not self._made:
            owner = owners(self.rows) if self._owners is None else self._owners
            self._create("process_numbers", NUMBERS, _numbers(self.rows, owner))
        self._made.add(table)
        if table in ("phases", "memory", "waits", "hosts"):
            self.make("steps")
        if table in ("items", "item_values", "fields", "reads"):
            self.make("batches")
        if table == "files" or (table == "items" and self._watched_files()):
            self.make("reads")
        if table == "samples" and samples.sampled(self.source.name_counts):
            self.make("events")
            self.make("phases")
        if table == "steps":
            steps.create(self.connection, self.source, self.rows, self.parts)
        elif table == "losses":
            losses.create(self.connection, self.source, self.rows, self.parts)
        elif table == "batches":
            self.ledgers.register(self.connection)
            batches.create(self.connection, self.source, self.rows, self.parts)
        elif table == "items":
            items.create(self.connection, self.parts, watched=self._watched_files())
        elif table == "item_values":
            itemvalues.create(self.connection, self.ledgers)
        elif table == "hosts":
            self._see(hosts.MEETINGS, ["beside", "events"])
            hosts.create(self.connection, self.rows, self.infos, self.source.name_counts)
        elif table == "samples":
            samples.create(self.connection, self.source.name_counts)
        elif table == "layers":
            layers.create(self.connection, self.parts)
        else:
            _VIEWS[table](self.connection)

    def _watched_files(self) -> bool:
        """Was a process recorded with `--io`?"""
        return any(one.cat == probe.IO for named in self.source.name_counts.values() for one in named)

    def record_gaps(self) -> list[tuple[float, int]]:
        """What a record cost in each process that trained: the median in ns, and of how many it is."""
        loose = [
            (row["process"], row["events"]) for row in measured(self.rows) if row["process"] not in self.parts.processes
        ]
        found = {**self._gaps, **record_gaps(self.connection, schema.BESIDE, loose)}
        return [gap for process in sorted(found) for gap in found[process]]

    def named_time(self, process: str) -> list[NamedTime]:
        """The program's own spans of a process outside of phases, and the time in them, the largest first."""
        if process in self.parts.processes:
            return self._named.get(process, [])
        names = self.source.name_counts[process]
        return named_time(self.connection, schema.BESIDE, [process], names).get(process, [])

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
        names = (EVENTS_FILE, PROCESSES_FILE, LEDGER_TABLE)
        found = [folder.path.resolve() / name for folder in folders for name in names]
        paths = [str(path) for path in (*found, *self.parts.files()) if is_plain(path)]
        paths += [] if output is None else [str(output)]
        if not has_working_folder():  # DuckDB would look for a place for temporary files in it
            self.connection.execute("SET temp_directory = ''")
        self.connection.execute(f"SET allowed_paths = [{', '.join(map(schema.quoted, paths))}]")
        self.connection.execute("SET enable_external_access = false")

    def _add_parts(self, folder: Folder, prefix: str, parts: Parts) -> None:
        self.parts.add(parts.whole, prefix)
        self.notes += parts.notes
        for note in parts.notes:
            warnings.warn(f"{folder.path.name}: {note}", IncompleteRun, stacklevel=2)
        for part in parts.whole:
            self.source.add_part(part.summary, prefix)
            self._exits += [(*mark[:-1], prefix + mark[-1]) for mark in part.summary.exits]
            self._gaps |= {prefix + process: gaps for process, gaps in part.summary.gaps.items()}
            self._named |= {prefix + process: named for process, named in part.summary.named.items()}
            ledger = part.file("ledger")
            for row in part.summary.rows:
                process = str(row["process"])
                self.rows.append(
                    {**row, "process": prefix + process, "notes": [*row["notes"]], "folder": str(folder.path)}
                )
                if ledger is not None:
                    self.ledgers.add_sealed(prefix + process, ledger, process, self.notes)

    def _add_sealed(self, folder: Folder, prefix: str, but: Collection[str]) -> None:
        """Add the processes of the sealed files that versions before the first release wrote, one for a whole run."""
        found = [row for row in self._read_sealed(folder, PROCESSES_FILE, OLD) if row[_PROCESS] not in but]
        self._read_sealed(folder, EVENTS_FILE, schema.EVENTS, limit=" LIMIT 0")
        events = schema.quoted(str(folder.path.resolve() / EVENTS_FILE))
        for values in found:
            row = {"attempt": None, **dict(zip((name for name, _ in OLD), values, strict=True))}
            row["process"] = prefix + row["process"]
            row["notes"] = _listed(row["notes"])
            self.rows.append(row | {"folder": str(folder.path)})
            if is_plain(folder.path / LEDGER_TABLE):
                self.ledgers.add_sealed(
                    row["process"], folder.path.resolve() / LEDGER_TABLE, str(values[_PROCESS]), self.notes
                )
        listed = [str(values[_PROCESS]) for values in found]
        self._sealed.append(_sealed_events(events, prefix, listed))
        self.source.add_sealed(SealedEvents(self._sealed[-1], events, [prefix + process for process in listed], prefix))

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
        self._add_rows(loaded.parts)

    def _add_rows(self, some: Sequence[PackedRows]) -> None:
        for number, rows in enumerate(some, len(self._raw)):
            self.connection.register(f"raw_{number}", rows.arrays)
            self._raw.append(rows.select(f"raw_{number}"))

    def _see(self, view: str, sealed: Sequence[str]) -> None:
        """Make a view of all events that are there now, and of those of some files of sealed parts."""
        raw = [schema.raw_events(self._raw)] if self._raw else []
        columns = [name for name, _ in schema.EVENTS]
        parts = [select for table in sealed for select in self.parts.selects(table, columns)]
        self.connection.execute(f"CREATE OR REPLACE VIEW {view} AS {schema.joined(self._sealed + raw + parts)}")

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
    "gradients": gradients.create,
    "activations": activations.create,
    "fields": fields.create,
    "files": files.create,
    "reads": reads.create,
    "metrics": metrics.create,
    "memory": memory.create,
    "system": system.create,
    "waits": waits.create,
}
_PROCESS = [name for name, _ in OLD].index("process")


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


def _number_attempts(rows: Sequence[dict[str, Any]]) -> None:
    """Number the attempts of the job from 0: Slurm's count a thousand each, and the first may not be recorded."""
    known = sorted({row["attempt"] for row in rows if row["attempt"] is not None})
    numbers = {attempt: number for number, attempt in enumerate(known)}
    for row in rows:
        row["attempt"] = numbers.get(row["attempt"])


def _numbers(rows: Sequence[dict[str, Any]], owner: Mapping[str, str]) -> list[tuple[object, ...]]:
    places = {row["process"]: number for number, row in enumerate(rows)}
    owned = [owner.get(row["process"], row["process"]) for row in rows]
    return [
        (
            number, places[whose], row["host"], row["rank"], row["pid"], row["worker"], exits.began(row), row["process"], whose,
        )
        for number, (row, whose) in enumerate(zip(rows, owned, strict=True))
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
