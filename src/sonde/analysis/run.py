"""Opens a run, whether running, killed or sealed, and runs SQL over it."""

from __future__ import annotations

import html
import os
import shutil
import tempfile
import weakref
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sonde import units
from sonde.analysis.database import Database
from sonde.analysis.drops import NO_FOLDER, Drops, ProcessDrops, drops_of
from sonde.analysis.exits import Ending, ending
from sonde.analysis.ledger.items import step_items
from sonde.analysis.parts.manifest import checked, has_parts, read_parts, stamps
from sonde.analysis.records import schema
from sonde.analysis.records.load import Offsets, load, offsets_of
from sonde.analysis.records.locate import PROCESSES_FILE, Folder, id_of, locate, size_of, stamp
from sonde.analysis.seal import seal
from sonde.analysis.sealing.cluster import on_dask
from sonde.analysis.sealing.scheduler import LOCAL
from sonde.analysis.sqlparser import inside
from sonde.analysis.ui import RunPage
from sonde.errors import RunBusy, SettingError, UnknownName
from sonde.remote.cache import fetch
from sonde.remote.storage import is_url
from sonde.store.alive import outcome, resolve_replaced, running, state_of
from sonde.store.process import Info, read_info
from sonde.store.usage import homeless

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    import duckdb

RECORDING = "recording"
TRIES = 3  # to read a run that is being sealed meanwhile


class Run:
    """One run. Use `open_run()` to get one.

    It shows the run as it was when records were first read; `refresh()` reads it again. Give several folders, one per host,
    to read them as one run. `thrifty` saves memory at the cost of CPU time; `memory` is what queries may use, in bytes: what needs more
    writes temporary files. Results may be written to the file `output`.
    """

    def __init__(
        self,
        folders: Sequence[str | Path],
        *,
        files: bool = False,
        ordered: bool = False,
        threads: int | None = None,
        thrifty: bool = False,
        memory: int | None = None,
        output: Path | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._ordered = ordered
        self._threads = threads
        self._memory = memory
        self._thrifty = thrifty
        self._output = output
        self._paths = list(folders)
        self._files = files
        self._progress = progress
        self._database: Database | None = None
        self._spill: Path | None = None
        self._end_spill: Callable[[], object] | None = None
        self._folders: list[Folder] = []
        self._look()

    # ── what it is ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def path(self) -> Path:
        """The run folder, or the first of several."""
        return self._folders[0].path

    @property
    def id(self) -> str:
        """The name of the run folder."""
        return self.path.resolve().name

    @property
    def name(self) -> str:
        """The name of the run."""
        name = self.meta.get("name")
        return name if isinstance(name, str) and name else self.id

    @property
    def meta(self) -> dict[str, Any]:
        """The contents of run.json: command, working folder, versions, host, git commit, settings."""
        return self._folders[0].meta

    @property
    def folders(self) -> list[Path]:
        """The process folders, in the order of `infos`."""
        return [one for folder in self._folders for one in folder.processes]

    @property
    def started(self) -> int | None:
        """Start of the run in wall-clock ns; None if unknown."""
        start = self.meta.get("start")
        wall = start.get("wall_ns") if isinstance(start, dict) else None
        if isinstance(wall, int):
            return wall
        return min((info.start.wall_ns for info in self.infos if info.start is not None), default=None)

    @property
    def size(self) -> int:
        """Size of all files in bytes."""
        return sum(size_of(folder.path) for folder in self._folders)

    @property
    def sealed(self) -> bool:
        """Whether the run is sealed. Processes that joined later may still have raw records."""
        return any(folder.sealed or has_parts(folder.path) for folder in self._folders)

    @property
    def state(self) -> str:
        """recording, ended, died or unknown.

        A run is recording while any of its processes is alive. Afterwards its top-level processes decide, and those
        started by a launcher. If one of them did not end properly, the run died, unless the launched program ended
        well. For other hosts, only a recorded end is known.
        """
        if any(running(info) is not None for info in self.infos):
            return RECORDING
        return outcome((info, state_of(info)) for info in self.infos)

    @property
    def ending(self) -> Ending:
        """How the run ended: finished, crashed, interrupted, killed, running or unknown."""
        return ending((info, state_of(info)) for info in self.infos)

    # ── what it holds ────────────────────────────────────────────────────────────────────────────────────────────────

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Query the tables with SQL (docs/reference/tables.md); get the result with `.fetchall()`, `.df()`, `.arrow()`
        or `.pl()`.

        Raises QueryRefused for anything but a SELECT, and for files outside the run.
        """
        self.database.prepare(query)
        with inside():
            return self.database.connection.sql(query)

    def ui(self, *, height: int = 720) -> RunPage:
        """Show this run in a cell of a notebook, `height` pixels high. It is live. Needs the extra `ui`."""
        return RunPage(self.path, framed=True, height=height)

    def table(self, name: str) -> duckdb.DuckDBPyRelation:
        """All rows of a table, such as "steps". docs/reference/tables.md describes the tables."""
        if name not in schema.TABLES:
            raise UnknownName(schema.unknown(name))
        self.database.make(name)
        return self.database.connection.view(name)

    def items(self, step: int, rank: int | None = None) -> duckdb.DuckDBPyRelation:
        """The items of a step, including its micro-batches, for one rank or all.

        Load times are included if they were recorded. Raises UnknownName if there is no such step.
        """
        return step_items(self, step, rank)

    @property
    def drops(self) -> Drops:
        """Lost records: total, by reason, by process. `print(run.drops)` explains them."""
        lost = sum(homeless(folder.path) for folder in self._folders)
        unseen = [ProcessDrops(NO_FOLDER, lost, space=lost)] if lost else []
        return drops_of([_loss(row) for row in self.database.rows] + unseen)

    @property
    def notes(self) -> list[str]:
        """Problems with the files, as sentences; empty if there are none."""
        found = self.database
        notes = [f"{folder.path.name}: {note}" for folder in self._folders for note in folder.notes]
        notes += found.notes
        return notes + [f"{row['process']}: {note}" for row in found.rows for note in row["notes"]]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All facts about each process, including those that the table `processes` leaves out."""
        return self.database.rows

    def batches(self, query: str, size: int = 10_000) -> Iterator[list[tuple[Any, ...]]]:
        """The result of a query in lists of `size` rows, for results that do not fit into memory.

        Do not run other queries on this run until all rows are read.
        """
        self.database.prepare(query)
        with inside():
            found = self.database.connection.execute(query)
        while rows := found.fetchmany(size):
            yield rows

    def refresh(self) -> None:
        """Read the files again. Results that were not fetched yet are lost."""
        self.close()
        self._look()

    def close(self) -> None:
        """Free memory and close files. The next query opens the run again."""
        if self._database is not None:
            self._database.close()
        self._database = None
        if self._end_spill is not None:
            self._end_spill()
        self._spill = self._end_spill = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Run {self.name!r} {self.state}, {len(self.infos)} processes, {self.path}>"

    def _repr_html_(self) -> str:
        facts = {
            "run": self.id,
            "state": f"{self.state}, {self.ending.word}",
            "processes": f"{len(self.infos):,}",
            "size": units.size(self.size),
            "folder": str(self.path),
            "next": "sonde.report(run)",
        }
        rows = (
            f"<tr><th style='text-align: left'>{name}</th><td>{html.escape(fact)}</td></tr>"
            for name, fact in facts.items()
        )
        return f"<table><caption><b>{html.escape(self.name)}</b></caption>{''.join(rows)}</table>"

    # ── how ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _look(self) -> None:
        self._folders = [locate(path) for path in self._paths]
        infos = [read_info(one, []) for folder in self._folders for one in folder.processes]
        self.infos: list[Info] = resolve_replaced(infos)  # what each process says of itself

    @property
    def database(self) -> Database:
        """The underlying DuckDB database."""
        if self._database is None:
            if not self.infos or any(running(info) is not None for info in self.infos):
                self._look()  # processes may have joined since
            # Not closed with the Run: an answer may outlive it, as in `open_run(path).sql(query).fetchall()`.
            self._database = self._load()
        return self._database

    def _load(self) -> Database:
        """Load everything; once more if somebody sealed the run meanwhile."""
        for _ in range(TRIES):
            before = self._stamps()
            database = self._load_once()
            if self._stamps() == before:
                break
            database.close()
            self._look()
        else:
            raise RunBusy(f"{self.path} keeps being sealed. Try again later.")
        return database

    def _stamps(self) -> list[object]:
        return [(stamp(folder.path / PROCESSES_FILE), stamps(folder.path)) for folder in self._folders]

    def _load_once(self) -> Database:
        read = [
            (folder, prefix, checked(read_parts(folder.path, id_of(folder.meta))))
            for folder, prefix in zip(self._folders, self._prefixes(), strict=True)
        ]
        database = Database(
            read,
            files=self._files,
            threads=self._threads,
            thrifty=self._thrifty,
            memory=self._memory,
            spill=self._spilled(),
            output=self._output,
        )
        sealed = {(row["folder"], row["process"]) for row in database.rows}
        lost = {prefix + one for _, prefix, parts in read for one in parts.lost}
        raw = [
            (one, prefix + one.name)
            for folder, prefix in zip(self._folders, self._prefixes(), strict=True)
            for one in folder.processes
            if (str(folder.path), prefix + one.name) not in sealed
        ]
        known: Offsets = {(row["host"], row["boot_id"]): row["offset_ns"] for row in database.rows}
        database.infos = self.infos
        loaded = load(raw, offsets_of(self.infos, known), self._progress, ordered=self._ordered)
        for row in loaded.rows:
            if row["process"] in lost and not row["events"]:
                row["notes"].clear()  # that of its part says it
        database.add(loaded)
        return database

    def _spilled(self) -> Path | None:
        """A folder of our own for temporary files of queries, if they may use little memory; None if none can be made."""
        if self._memory is not None and self._spill is None:
            with suppress(OSError):
                self._spill = Path(tempfile.mkdtemp(prefix="sonde-"))
                self._end_spill = weakref.finalize(self, shutil.rmtree, self._spill, ignore_errors=True)
        return self._spill

    def _prefixes(self) -> list[str]:
        """What stands before the names of the processes of each folder, so that no two are the same."""
        times = Counter(one.name for folder in self._folders for one in folder.processes)
        if all(count == 1 for count in times.values()):
            return [""] * len(self._folders)
        return [f"{folder.path.resolve().name}/" for folder in self._folders]


def open_run(
    path: str | Path | Sequence[str | Path],
    *,
    files: bool = False,
    progress: Callable[[int, int], None] | None = None,
    engine: str | None = None,
    client: Any = None,
) -> Run:
    """Open a run folder, or several as one run. The run may be recording, killed or sealed. A run at a URL is fetched first.

    `files=True` allows SQL to read and write other files (`COPY ... TO`, `read_csv`). `progress` is called with (done,
    total) while records load. Raises RunNotFound if there is no run.

    `engine="dask"` seals the run on a Dask cluster first, unless it is sealed. `client`: a `distributed.Client`, the address of a
    scheduler, or `local:4` for four processes (default: `local`). Raises RunBusy while the run is recording, and
    ClusterError if the cluster fails.
    """
    folders = [path] if isinstance(path, str | os.PathLike) else list(path)
    folders = [fetch(one).path if isinstance(one, str) and is_url(one) else one for one in folders]
    if engine == "dask":
        for one in folders:
            seal(one, progress=progress, engine=on_dask(LOCAL if client is None else client))
    elif engine is not None:
        raise SettingError(f'There is no engine {engine!r}. Use engine="dask", or leave it out.')
    return Run(folders, files=files, progress=progress)


def _loss(row: dict[str, Any]) -> ProcessDrops:
    lost = (row["lost_space"], row["lost_cap"], row["lost_ring"], row["lost_args"])
    return ProcessDrops(row["process"], row["drops"], *lost, row["corrupt"])
