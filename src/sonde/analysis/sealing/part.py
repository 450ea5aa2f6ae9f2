"""Seals one part of a run: reads the raw records of some processes, writes their tables, and reads these back.

A part is written beside its place and renamed when it is whole, so it can be killed at any moment, and several may work on the
same one. It needs nothing but its arguments and the run folder: it runs in this process, in another one, or on another host.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sonde.analysis import exits
from sonde.analysis.database import Database
from sonde.analysis.ledger.sealed import write_sealed
from sonde.analysis.parts.manifest import PARTS, SUMMARY, UNFINISHED, whole_part
from sonde.analysis.parts.summary import COLUMNS, LaneSpans, PartSummary, TableFile, text_of
from sonde.analysis.records import schema
from sonde.analysis.records.gaps import measured, record_gaps
from sonde.analysis.records.load import load
from sonde.analysis.sealing.pyramid import build_pyramid
from sonde.analysis.tables import batches, steps
from sonde.analysis.training.named import named_time
from sonde.errors import FolderRefused, RunUnreadable, SondeError
from sonde.store.file import RegularFile
from sonde.store.folder import FILE_MODE, FOLDER_MODE

if TYPE_CHECKING:
    from sonde.analysis.parts.partition import Part
    from sonde.analysis.records.load import Loaded

# Version 2 of the format writes whole numbers as differences, unless a column has few values: then as a dictionary.
_FORMAT = "FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION v2, ROW_GROUP_SIZE 262144, DICTIONARY_SIZE_LIMIT 4096"
_PYRAMID_FORMAT = _FORMAT.replace("262144", "16384")  # a window reads a small piece of each level
_EVENTS = ", ".join(f'"{name}"::{type}' for name, type in schema.EVENTS)
# What is written of the tables that are made of events.
_MADE = {
    "steps": f"SELECT {', '.join(steps.SEALED[1:])} FROM {steps.ROWS}",
    "losses": f"SELECT {schema.names(schema.LOSSES)} FROM losses",
    "batches": f"SELECT {', '.join(batches.SEALED[1:])} FROM {batches.ROWS}",
    "items": f"SELECT {schema.names(schema.ITEMS)} FROM items",
    "layers": f"SELECT {schema.names(schema.LAYERS)} FROM layers",
}


def seal_part(source: str, part: Part, memory: int | None = None) -> list[str]:
    """Seal a part of the run folder `source`; its files. A part that is there and whole is not made again.

    `memory`: bytes that its database may use; what does not fit lies in temporary files beside the part. Raises RunUnreadable if what was written cannot be read back, and FolderRefused if
    it cannot be written.
    """
    place = Path(source) / PARTS / part.name
    if whole_part(place, part.run, part.processes) is None:
        _make(Path(source), part, place, memory)
    done = whole_part(place, part.run, part.processes)
    return [] if done is None else [str(place / name) for name in (*done.summary.files, SUMMARY)]


def _make(source: Path, part: Part, place: Path, memory: int | None) -> None:
    """Make a part beside its place, and put it there; or leave nothing behind."""
    import duckdb

    beside = spill = None
    try:
        beside = Path(tempfile.mkdtemp(prefix=f"{UNFINISHED}{part.name}-", dir=_folder(place.parent)))
        spill = Path(tempfile.mkdtemp(prefix=f"{UNFINISHED}spill-", dir=place.parent))
        if _write(source, part, beside, spill, memory):
            _put(beside, place, part)
    except (duckdb.OutOfMemoryException, MemoryError):
        raise SondeError(
            f"There is too little memory to seal part {part.name} of {source}. Its records are unchanged. Seal again with "
            "fewer --workers, or more --workers-memory."
        ) from None
    except (duckdb.IOException, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0].rpartition(": ")[2].partition('"')[0]
        raise FolderRefused(
            f"Cannot write the tables of {source}: {reason}. Its records are unchanged. Free disk space or copy the "
            "run to another disk, then seal again."
        ) from None
    finally:
        for one in (beside, spill):
            if one is not None:
                shutil.rmtree(one, ignore_errors=True)


def _folder(path: Path) -> Path:
    path.mkdir(mode=FOLDER_MODE, exist_ok=True)
    return path


def _put(beside: Path, place: Path, part: Part) -> None:
    """Put a finished part into its place; somebody may have been faster, and what is not whole there gives way."""
    sync(beside)
    with suppress(OSError):
        os.rename(beside, place)
        sync(place.parent)
        return
    if whole_part(place, part.run, part.processes) is None:
        shutil.rmtree(place, ignore_errors=True)
        os.rename(beside, place)
        sync(place.parent)


def _write(source: Path, part: Part, beside: Path, spill: Path, memory: int | None) -> bool:
    """Write all files of a part; False: there is nothing that could be read."""
    loaded = load([(source / name, name) for name in part.processes], part.offsets, ordered=True)
    if not loaded.rows:
        return False
    database = Database([], files=True, threads=1, memory=memory, spill=spill, owners=part.owners)
    try:
        database.take(loaded)
        writer = _PartWriter(database, beside)
        writer.events()
        writer.ledger()
        writer.pyramid()
        for table, query in _MADE.items():
            database.make(table)
            writer.copy(table, query)
        write_text(beside / SUMMARY, text_of(_summary(part, database, loaded, writer)))
    finally:
        database.close()
    return True


class _PartWriter:
    """Writes the tables of one part into a folder, and reads each back. `files`: what was written; `lanes`: those of the pyramid."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._connection = database.connection
        self._folder = folder
        self.files: dict[str, TableFile] = {}
        self.lanes: list[LaneSpans] | None = None

    def events(self) -> None:
        """The events: those that tables are made of apart, so that questions about the others need not read them."""
        for table, query in zip(("beside", "events"), self._database.take_rest(), strict=True):
            path = self.copy(table, query) if query else None
            if path is not None:
                self._compare(query, path)

    def ledger(self) -> None:
        """Which items went into which batch."""
        ledgers = self._database.ledgers.all()
        if ledgers:
            path = self._folder / "ledger.parquet"
            create(path)
            write_sealed(self._connection, ledgers, path)
            ((rows,),) = self._connection.execute(f"SELECT count(*) FROM {_parquet(path)}").fetchall()
            self._note(path, rows)

    def pyramid(self) -> None:
        """What a timeline shows of many events."""
        self.lanes, query = build_pyramid(self._connection, self._database.raw)
        if query:
            self.copy("pyramid", query, _PYRAMID_FORMAT)

    def copy(self, table: str, query: str, form: str = _FORMAT) -> Path | None:
        """Write the rows of a query; None: there are none."""
        path = self._folder / f"{table}.parquet"
        create(path)
        ((rows,),) = self._connection.execute(
            f"COPY ({query}) TO {_quoted(path)} ({form}, USE_TMP_FILE false)"
        ).fetchall()
        if not rows:
            path.unlink()
            return None
        ((found,),) = self._connection.execute(f"SELECT count(*) FROM {_parquet(path)}").fetchall()
        if found != rows:
            raise RunUnreadable(f"{path.name} has {found} instead of {rows} rows after reading it back. {_UNCHANGED}")
        self._note(path, rows)
        return path

    def _compare(self, query: str, path: Path) -> None:
        """Every value of every row goes into a sum; any difference shows in it."""
        check = f"SELECT count(*), sum(hash({_EVENTS})) FROM "
        expected = self._connection.execute(f"{check}({query})").fetchall()
        found = self._connection.execute(f"{check}{_parquet(path)}").fetchall()
        if found != expected:
            raise RunUnreadable(
                f"{path.name} differs after reading it back ({found} instead of {expected}). {_UNCHANGED}"
            )

    def _note(self, path: Path, rows: int) -> None:
        sync(path)
        with RegularFile(path) as file, open(file.fd, "rb", closefd=False) as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            self.files[path.name] = TableFile(rows, file.size(), digest)


_UNCHANGED = "The run is unchanged; check the disk, then seal again."


def _summary(part: Part, database: Database, loaded: Loaded, writer: _PartWriter) -> PartSummary:
    connection = database.connection
    names = {row["process"]: sorted(seen.named) for row, seen in zip(loaded.rows, loaded.seen, strict=True)}
    trained = measured(loaded.rows)
    return PartSummary(
        run=part.run,
        rows=[{name: row[name] for name, _ in COLUMNS} for row in loaded.rows],
        names=names,
        first_ns=database.source.first_ns(),
        exits=connection.execute(exits.MARKS).fetchall(),
        gaps=record_gaps(connection, "events", [(row["process"], row["events"]) for row in trained]),
        named=named_time(
            connection, "events", [row["process"] for row in trained], [one for some in names.values() for one in some]
        ),
        files=writer.files,
        lanes=writer.lanes,
    )


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _quoted(path: Path) -> str:
    return schema.quoted(str(path))


def _parquet(path: Path) -> str:
    return f"read_parquet({_quoted(path)})"


def create(path: Path) -> None:
    """Make a file with the right mode, which DuckDB only fills."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a small file, for good."""
    create(path)
    path.write_text(text)
    sync(path)


def sync(path: Path) -> None:
    """Wait until a file, or what is in a folder, is on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
