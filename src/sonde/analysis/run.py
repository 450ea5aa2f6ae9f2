"""Opens a run, whether it is still being written, was left behind by a killed program, or is sealed, and answers SQL."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

from sonde.analysis.database import Database
from sonde.analysis.drops import NO_FOLDER, Drops, ProcessDrops, drops_of
from sonde.analysis.exits import Ending, ending
from sonde.analysis.ledger.items import step_items
from sonde.analysis.records import schema
from sonde.analysis.records.load import Offsets, load, offsets_of
from sonde.analysis.records.locate import PROCESSES_FILE, Folder, locate, size_of, stamp
from sonde.analysis.select import inside
from sonde.errors import RunBusy, UnknownName
from sonde.store.alive import outcome, running, settled, state_of
from sonde.store.process import Info, read_info
from sonde.store.usage import homeless

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    import duckdb

RECORDING = "recording"
TRIES = 3  # to read a run that is being sealed meanwhile


class Run:
    """One run. Use `open_run()` to get one.

    What it tells is the state of the moment when it was first asked for records; `refresh()` looks again. Several
    folders (hosts that could not agree on one) are read as one run. `thrifty`: the process is to stay small, for some CPU. `output`: a file that answers may be
    written to.
    """

    def __init__(
        self,
        folders: Sequence[str | Path],
        *,
        files: bool = False,
        ordered: bool = False,
        threads: int | None = None,
        thrifty: bool = False,
        output: Path | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._ordered = ordered
        self._threads = threads
        self._thrifty = thrifty
        self._output = output
        self._paths = list(folders)
        self._files = files
        self._progress = progress
        self._database: Database | None = None
        self._folders: list[Folder] = []
        self._look()

    # ── what it is ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def path(self) -> Path:
        """The run folder; of several, the first."""
        return self._folders[0].path

    @property
    def id(self) -> str:
        """The name of the run folder."""
        return self.path.resolve().name

    @property
    def name(self) -> str:
        """The name that the run was given."""
        name = self.meta.get("name")
        return name if isinstance(name, str) and name else self.id

    @property
    def meta(self) -> dict[str, Any]:
        """What run.json says: command, working folder, versions, host, git commit, settings."""
        return self._folders[0].meta

    @property
    def started(self) -> int | None:
        """When the run began, in wall-clock ns; None is not known."""
        start = self.meta.get("start")
        wall = start.get("wall_ns") if isinstance(start, dict) else None
        if isinstance(wall, int):
            return wall
        return min((info.start.wall_ns for info in self.infos if info.start is not None), default=None)

    @property
    def size(self) -> int:
        """Bytes of all its files, now."""
        return sum(size_of(folder.path) for folder in self._folders)

    @property
    def sealed(self) -> bool:
        """Whether it has sealed tables. Processes that joined later may still lie beside them."""
        return any(folder.sealed for folder in self._folders)

    @property
    def state(self) -> str:
        """recording, ended, died or unknown.

        It is recording while any process runs, or a program whose launcher was killed. After that the processes count that no
        other process of the run started, and those that a launcher did, unless the program that it started ended well: one
        of them that did not end properly makes it died. Of another host it is only known if it ended.
        """
        if any(running(info) is not None for info in self.infos):
            return RECORDING
        return outcome((info, state_of(info)) for info in self.infos)

    @property
    def ending(self) -> Ending:
        """How it ended, in the words that every command uses: finished, crashed, interrupted, killed, running or unknown."""
        return ending((info, state_of(info)) for info in self.infos)

    # ── what it holds ────────────────────────────────────────────────────────────────────────────────────────────────

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Ask with SQL over the tables (docs/reference/tables.md); `.fetchall()`, `.df()`, `.arrow()` or `.pl()` the answer.

        Raises QueryRefused for anything but a SELECT, and for other files than those of the run.
        """
        self.database.prepare(query)
        with inside():
            return self.database.connection.sql(query)

    def table(self, name: str) -> duckdb.DuckDBPyRelation:
        """A whole table: events, processes, steps, phases, losses, batches, items, layers, memory or system."""
        if name not in schema.TABLES:
            raise UnknownName(schema.unknown(name))
        self.database.make(name)
        return self.database.connection.view(name)

    def items(self, step: int, rank: int | None = None) -> duckdb.DuckDBPyRelation:
        """The items that went into a step, micro-batches included: of one rank, or of all.

        Which they are the ledger says; how long each took stands there if it was recorded. Raises UnknownName if there is
        no such step.
        """
        return step_items(self, step, rank)

    @property
    def drops(self) -> Drops:
        """What was lost: total, by reason, by process; `print(run.drops)` says it in words."""
        lost = sum(homeless(folder.path) for folder in self._folders)
        unseen = [ProcessDrops(NO_FOLDER, lost, space=lost)] if lost else []
        return drops_of([_loss(row) for row in self.database.rows] + unseen)

    @property
    def notes(self) -> list[str]:
        """What was wrong with the files, in words; empty if nothing was."""
        found = self.database
        notes = [f"{folder.path.name}: {note}" for folder in self._folders for note in folder.notes]
        notes += found.notes
        return notes + [f"{row['process']}: {note}" for row in found.rows for note in row["notes"]]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What is known of each process, more than the table `processes` has."""
        return self.database.rows

    def batches(self, query: str, size: int = 10_000) -> Iterator[list[tuple[Any, ...]]]:
        """The answer to a query in lists of `size` rows, for answers that do not fit into memory.

        Ask nothing else of this run until they are all read.
        """
        self.database.prepare(query)
        with inside():
            found = self.database.connection.execute(query)
        while rows := found.fetchmany(size):
            yield rows

    def refresh(self) -> None:
        """Look at the files again. Answers that were not fetched yet are lost."""
        self.close()
        self._look()

    def close(self) -> None:
        """Let go of memory and files. The run opens again when it is asked."""
        if self._database is not None:
            self._database.close()
        self._database = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Run {self.name!r} {self.state}, {len(self.infos)} processes, {self.path}>"

    # ── how ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _look(self) -> None:
        self._folders = [locate(path) for path in self._paths]
        infos = [read_info(one, []) for folder in self._folders for one in folder.processes]
        self.infos: list[Info] = settled(infos)  # what each process says of itself

    @property
    def database(self) -> Database:
        """The DuckDB database behind it."""
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
            raise RunBusy(f"{self.path} is being sealed again and again: try later.")
        return database

    def _stamps(self) -> list[tuple[int, int] | None]:
        return [stamp(folder.path / PROCESSES_FILE) for folder in self._folders]

    def _load_once(self) -> Database:
        database = Database(
            self._folders,
            self._prefixes(),
            files=self._files,
            threads=self._threads,
            thrifty=self._thrifty,
            output=self._output,
        )
        sealed = {(row["folder"], row["process"]) for row in database.rows}
        raw = [
            (one, prefix + one.name)
            for folder, prefix in zip(self._folders, self._prefixes(), strict=True)
            for one in folder.processes
            if (str(folder.path), prefix + one.name) not in sealed
        ]
        known: Offsets = {(row["host"], row["boot_id"]): row["offset_ns"] for row in database.rows}
        database.add(load(raw, offsets_of(self.infos, known), self._progress, ordered=self._ordered))
        return database

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
) -> Run:
    """Open a run folder, or several as one run. It may still be recorded, left behind by a killed program, or sealed.

    `files`: let SQL read and write other files too (`COPY ... TO`, `read_csv`). `progress` is called with (done, total)
    while records are loaded. Raises RunNotFound if there is no run.
    """
    folders = [path] if isinstance(path, str | os.PathLike) else list(path)
    return Run(folders, files=files, progress=progress)


def _loss(row: dict[str, Any]) -> ProcessDrops:
    lost = (row["lost_space"], row["lost_cap"], row["lost_ring"], row["lost_args"])
    return ProcessDrops(row["process"], row["drops"], *lost, row["corrupt"])
