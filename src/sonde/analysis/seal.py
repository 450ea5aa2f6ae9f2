"""Seals a finished run: the same tables as Parquet, sorted and small; raw files go only after those were read back.

Rows come process by process, and within each group of 262,144 rows by start.

Each step leaves the run whole, so that sealing can be killed at any moment: all tables are written beside the old
ones, compared with what was recorded, and renamed, that of the processes last. The list of processes is what counts: a process in
it is read from the sealed events, any other from its raw files. Raw files of listed processes go then. Last come the rows of
steps, which can be made again at any time (`kept`).

So a list without events, or events of which the raw files do not have as many, are no sealing that was killed: a file was
lost, as in a copy. Such a run is left as it is.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sonde.analysis.database import ALL
from sonde.analysis.ledger.sealed import write_sealed
from sonde.analysis.records import schema
from sonde.analysis.records.locate import (
    EVENTS_FILE,
    LEDGER_TABLE,
    PROCESSES_FILE,
    STEPS_FILE,
    STEPS_TABLE,
    is_plain,
    locate,
    process_folders,
    size_of,
)
from sonde.analysis.run import Run
from sonde.analysis.tables import steps
from sonde.analysis.training.cache import describe, read_cached_steps, text_of
from sonde.errors import FolderRefused, RunBusy, RunUnreadable
from sonde.store.alive import UNKNOWN, resolve_replaced, running, state_of
from sonde.store.folder import ARGS_FILE, FILE_MODE, LEDGER_FILE, NAMES_FILE, RINGS_FILE, SEGMENT_FILE, host
from sonde.store.process import read_info
from sonde.store.reading.rings import read_rings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import duckdb

RAW_FILES = (RINGS_FILE, SEGMENT_FILE, NAMES_FILE, ARGS_FILE, LEDGER_FILE)
UNFINISHED = ".sealing-"  # how the names of unfinished files begin

# Version 2 of the format writes whole numbers as differences, unless a column has few values: then as a dictionary.
_FORMAT = "FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION v2, ROW_GROUP_SIZE 262144, DICTIONARY_SIZE_LIMIT 4096"


class SealResult(NamedTuple):
    """What sealing found and did: events and processes in the sealed tables, bytes of the folder before and after."""

    events: int
    processes: int
    before: int
    after: int


def seal(path: str | Path, *, force: bool = False, progress: Callable[[int, int], None] | None = None) -> SealResult:
    """Seal a run. Sealing again takes in processes that joined since, and clears what an interrupted sealing left.

    Raises RunBusy while the run is recording. Of a process on another host that did not end properly nobody here can say
    whether it still runs: RunBusy as well, unless `force`. Raises RunUnreadable if one of its sealed tables is missing, and
    FolderRefused if the tables cannot be written, as on a full disk.
    """
    folder = locate(path).path
    with _alone(folder):
        _refuse_busy(folder, force=force)
        if is_plain(folder / PROCESSES_FILE) and not is_plain(folder / EVENTS_FILE):
            raise RunUnreadable(_incomplete(folder, EVENTS_FILE))
        _clear_unfinished(folder)
        with Run([folder], files=True, ordered=True, progress=progress) as run:
            before = run.size
            if not run.sealed:
                _refuse_loss(run, folder)
            if not run.sealed or any(row["folder"] is None for row in run.rows):
                _write_or_leave(run, folder)
            rows = run.rows
            _remove_raw(folder, [str(row["process"]) for row in rows])
        if read_cached_steps(folder) is None:
            _keep_steps(folder)
        return SealResult(sum(row["events"] for row in rows), len(rows), before, size_of(folder))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Only one may seal a run at a time. The lock goes with the process that holds it."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise RunBusy(f"{folder} is being sealed by another process. Wait for it.") from None
    finally:
        os.close(lock)


def _refuse_busy(folder: Path, *, force: bool) -> None:
    folders = process_folders(folder)
    for one, info in zip(folders, resolve_replaced([read_info(one, []) for one in folders]), strict=True):
        pid = running(info)
        if pid is not None:
            raise RunBusy(f"{folder} is still recording: process {pid} ({one.name}) is running. Seal it after it ends.")
        if state_of(info) == UNKNOWN and not force:
            raise RunBusy(
                f"Process {info.pid} on {info.host} may still be recording to {folder}. Seal the run on that host, "
                "or use --force if you know that it has ended."
            )


def _refuse_loss(run: Run, folder: Path) -> None:
    """Refuse a run without a list of processes, if what lies there of sealed tables has more than the raw files would give."""
    if not any(is_plain(folder / name) for name in (EVENTS_FILE, LEDGER_TABLE, STEPS_TABLE, STEPS_FILE)):
        return
    sealed = _counts(run, folder / EVENTS_FILE)
    raw = {str(row["process"]): int(row["events"]) for row in run.rows}
    if sealed is None:
        lost = any(not _has_records(one) for one in process_folders(folder))
    else:
        lost = any(count > raw.get(process, 0) for process, count in sealed.items())
    if lost:
        lacking = [name for name in (EVENTS_FILE, PROCESSES_FILE) if not is_plain(folder / name)]
        raise RunUnreadable(_incomplete(folder, " and ".join(lacking)))


def _counts(run: Run, events: Path) -> dict[str, int] | None:
    """How many events of each process are in a sealed table; None: it is not there, or cannot be read."""
    import duckdb

    if not is_plain(events):
        return None
    query = f"SELECT process, count(*) FROM read_parquet({schema.quoted(str(events))}) GROUP BY 1"
    try:
        return {str(process): count for process, count in run.database.connection.execute(query).fetchall()}
    except duckdb.Error:
        return None


def _has_records(process: Path) -> bool:
    """Whether raw records of a process are still there."""
    return any(is_plain(process / name) for name in (RINGS_FILE, SEGMENT_FILE)) or bool(_rings_elsewhere(process))


def _incomplete(folder: Path, lacking: str) -> str:
    return (
        f"The sealed tables of {folder} are incomplete: {lacking} {'are' if ' and ' in lacking else 'is'} missing. "
        "Nothing was changed. Restore the missing files from a backup, then seal again."
    )


def _clear_unfinished(folder: Path) -> None:
    for one in folder.glob(f"{UNFINISHED}*"):
        one.unlink()


def _write_or_leave(run: Run, folder: Path) -> None:
    """Write all tables, or leave nothing behind."""
    import duckdb

    try:
        _write(run, folder)
    except (duckdb.IOException, OSError) as error:
        _clear_unfinished(folder)
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0].rpartition(": ")[2].partition('"')[0]
        raise FolderRefused(
            f"Cannot write the tables of {folder}: {reason}. Its records are unchanged. Free disk space or copy the "
            "run to another disk, then seal again."
        ) from None


def _write(run: Run, folder: Path) -> None:
    """Write all tables, compare them with the run, and put them in place."""
    events = folder / f"{UNFINISHED}{EVENTS_FILE}"
    processes = folder / f"{UNFINISHED}{PROCESSES_FILE}"
    database = run.database
    connection = database.connection
    connection.execute("SET threads = 1")  # rows keep their order on the way to the file
    _copy(connection, f"SELECT {schema.names(schema.EVENTS)} FROM events", events)
    ledgers = database.ledgers.all()  # before the processes: what is wrong with them is a note there
    database.write_processes()  # again: reading all arguments may have told more
    _copy(connection, f"SELECT {schema.names(ALL)} FROM process_rows ORDER BY process", processes)
    _compare(connection, schema.EVENTS, "events", events)
    _compare(connection, ALL, "process_rows", processes)
    if ledgers:
        ledger = folder / f"{UNFINISHED}{LEDGER_TABLE}"
        _create(ledger)
        write_sealed(connection, ledgers, ledger)
        _sync(ledger)
        os.replace(ledger, folder / LEDGER_TABLE)
    os.replace(events, folder / EVENTS_FILE)
    os.replace(processes, folder / PROCESSES_FILE)
    _sync(folder)


def _keep_steps(folder: Path) -> None:
    """Write the rows of the steps beside the sealed tables. Where it does not go, they are made anew for each reader."""
    import duckdb

    table, beside = folder / f"{UNFINISHED}{STEPS_TABLE}", folder / f"{UNFINISHED}{STEPS_FILE}"
    try:
        for name in (STEPS_FILE, STEPS_TABLE):  # of other tables, if there are any
            (folder / name).unlink(missing_ok=True)
        with Run([folder], files=True, threads=1) as run:
            run.table("steps")
            connection = run.database.connection
            found = describe(connection, steps.ROWS, steps.COLUMNS, run.database.source.name_counts)
            if found is None:
                return
            query, about = found
            _copy(connection, query, table)
            columns = [(name, type) for name, type in steps.COLUMNS.items() if name not in about["known"]]
            _compare(connection, columns, f"({query})", table)
        _create(beside)
        beside.write_text(text_of(about, folder, table))
        _sync(beside)
        os.replace(table, folder / STEPS_TABLE)
        os.replace(beside, folder / STEPS_FILE)
        _sync(folder)
    except (duckdb.Error, OSError, RunUnreadable):
        _clear_unfinished(folder)


def _create(path: Path) -> None:
    """Make a file with the right mode, which DuckDB only fills."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    os.close(descriptor)


def _copy(connection: duckdb.DuckDBPyConnection, query: str, path: Path) -> None:
    _create(path)
    connection.execute(f"COPY ({query}) TO {schema.quoted(str(path))} ({_FORMAT}, USE_TMP_FILE false)")
    _sync(path)


def _compare(connection: duckdb.DuckDBPyConnection, columns: schema.Columns, table: str, path: Path) -> None:
    """Every value of every row goes into a sum; any difference shows in it."""
    check = f"SELECT count(*), sum(hash({schema.names(columns)})) FROM "
    expected = connection.execute(f"{check}{table}").fetchall()
    found = connection.execute(f"{check}read_parquet({schema.quoted(str(path))})").fetchall()
    if found != expected:
        path.unlink()
        raise RunUnreadable(
            f"{path.name} differs after reading it back ({found} instead of {expected}). The run is unchanged; check "
            "the disk, then seal again."
        )


def _remove_raw(folder: Path, sealed: list[str]) -> None:
    """Remove the raw files of processes that are in the sealed list."""
    for process in sealed:
        one = folder / process
        for path in (*(one / name for name in RAW_FILES), *_rings_elsewhere(one)):
            if is_plain(path):
                path.unlink()


def _rings_elsewhere(process: Path) -> list[Path]:
    """The rings of a process, if they lie outside of its folder, on this host, and belong to the same user."""
    info = read_info(process, [])
    if info.rings is None or not info.rings.startswith("/") or info.host != host():
        return []
    path = Path(info.rings)
    try:
        same = path.lstat().st_uid == process.lstat().st_uid
    except OSError:
        return []
    return [path] if same and read_rings(path, path.lstat().st_uid, []).header is not None else []


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
