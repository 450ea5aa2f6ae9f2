"""Finds when processes without a recorded end were last alive, without reading all their records.

Of a sealed one, the list of processes has the moment. Of a raw one, the newest records lie in its rings, which are small.
The times of files are asked only where no record shows them: sealing, copying and unpacking a run change them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.parts.manifest import read_parts
from sonde.analysis.records import schema
from sonde.analysis.records.locate import PROCESSES_FILE, is_plain
from sonde.analysis.records.steponly import FAR, last_of
from sonde.lazy import numpy as np
from sonde.store import record
from sonde.store.folder import ARGS_FILE, LEDGER_FILE, NAMES_FILE, RINGS_FILE, SEGMENT_FILE
from sonde.store.reading.reader import read_newest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sonde.store.process import Info

# What a process writes to while it records.
WRITTEN = (RINGS_FILE, SEGMENT_FILE, NAMES_FILE, ARGS_FILE, LEDGER_FILE)


def last_seen(run: Path, processes: Sequence[tuple[Path, Info]]) -> int | None:
    """The last sign of life of any of these processes of a run, in wall-clock ns; None: nothing shows it."""
    sealed = {row["process"]: row["last_ns"] for part in read_parts(run, None).whole for row in part.summary.rows}
    if is_plain(run / PROCESSES_FILE):
        sealed |= _sealed(run)
    found = [sealed.get(folder.name) or _raw(folder, info) for folder, info in processes]
    return max((moment for moment in found if moment is not None), default=None)


def _sealed(run: Path) -> dict[str, int]:
    """The last moments of the processes in the sealed list."""
    import duckdb

    file = schema.quoted(str(run.absolute() / PROCESSES_FILE))
    try:
        with duckdb.connect() as connection:
            rows = connection.execute(f"SELECT process, last_ns FROM read_parquet({file})").fetchall()
    except duckdb.Error:
        return {}
    return {process: last for process, last in rows if last is not None}


def _raw(folder: Path, info: Info) -> int | None:
    """The last moment of a process that is not in the list; if it recorded nothing, when it began."""
    newest = _newest(folder, info)
    began = None if info.start is None else info.start.wall_ns
    if newest is not None and info.start is not None:
        return newest + info.start.wall_ns - info.start.mono_ns
    return max((one for one in (began, *map(_changed, (folder / name for name in WRITTEN))) if one), default=None)


def _newest(folder: Path, info: Info) -> int | None:
    """The last moment that the rings show, on the monotonic clock."""
    try:
        records = read_newest(folder, info, []).records
    except OSError:  # the folder was removed meanwhile
        return None
    if not len(records):
        return None
    lasting = (records["kind"] & record.KIND_MASK) != record.COUNTER  # a counter has its value there
    last = last_of(records["start"], records["start"] + np.where(lasting, records["dur"], 0).view(np.uint64))
    return last if 0 < last < FAR else None


def _changed(path: Path) -> int | None:
    """When a file was last written to."""
    try:
        return path.lstat().st_mtime_ns
    except OSError:
        return None
