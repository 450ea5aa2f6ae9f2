"""Finds a run folder; if there is none, the error says what is there instead."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

from sonde.errors import RunNotFound, nearest
from sonde.store.folder import PACKED_FILE, PROCESS_FILE, PULLED_FILE, RUN_FILE, SEGMENT_FILE
from sonde.store.process import is_ours, read_object
from sonde.store.reading.reader import FILES
from sonde.store.untrusted import Fields

EVENTS_FILE = "events.parquet"
PROCESSES_FILE = "processes.parquet"
LEDGER_TABLE = "ledger.parquet"
MOST_NOTES = 100  # of a run that was pulled
BLOCK = 512  # bytes of a block that stat counts
SHOWN = 10  # entries of a folder that an error message lists


class Folder(NamedTuple):
    """A run folder: what run.json says, the process folders in it, and whether there are sealed tables."""

    path: Path
    meta: dict[str, Any]
    processes: list[Path]
    sealed: bool
    notes: list[str]


def locate(path: str | Path) -> Folder:
    """The run folder at `path`. Raises RunNotFound if there is none."""
    folder = Path(path)
    if not folder.is_dir():
        raise RunNotFound(_absent(folder))
    processes = process_folders(folder)
    sealed = is_plain(folder / PROCESSES_FILE) and is_plain(folder / EVENTS_FILE)
    notes: list[str] = []
    meta = read_object(folder / RUN_FILE, notes)
    if not processes and not sealed and not (is_ours(meta) if meta else is_plain(folder / RUN_FILE)):
        raise RunNotFound(_no_run(folder))
    # Sealing puts the events in place before the list: one that was killed leaves no list without them.
    if is_plain(folder / PROCESSES_FILE) and not sealed:
        what = "is a symbolic link and was not followed" if (folder / EVENTS_FILE).is_symlink() else "is missing"
        notes.append(f"{EVENTS_FILE} {what}: the sealed tables are incomplete; restore it from a backup")
    if is_plain(folder / PULLED_FILE):  # what its hosts have not pushed
        notes += Fields(read_object(folder / PULLED_FILE, [])).texts("notes", MOST_NOTES)
    return Folder(folder, meta, processes, sealed, notes)


def id_of(meta: dict[str, Any]) -> str | None:
    """The id of a run, by what run.json says: the name that its folder got first. None: it does not say."""
    id = meta.get("id")
    return id if isinstance(id, str) and id else None


def process_folders(folder: Path) -> list[Path]:
    """The process folders in a run folder, by name."""
    with os.scandir(folder) as entries:
        inside = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    return sorted(one for one in inside if any(is_plain(one / name) for name in FILES))


def is_plain(path: Path) -> bool:
    """Whether a regular file stands there, and no link."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def stamp(path: Path) -> tuple[int, int] | None:
    """What changes when a file is replaced; None if there is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder, however deep. What is packed of a segment takes no room in it."""
    total = 0
    for place, _, files in os.walk(folder):
        packed = PACKED_FILE in files
        for name in files:
            try:
                status = os.lstat(os.path.join(place, name))
            except OSError:  # it was removed meanwhile
                continue
            holes = packed and name == SEGMENT_FILE
            total += min(status.st_size, status.st_blocks * BLOCK) if holes else status.st_size
    return total


def _absent(path: Path) -> str:
    if path.exists():
        return f"{path} is a file, not a run folder. Give the folder that holds it."
    try:
        names = sorted(entry.name for entry in path.parent.iterdir() if (entry / RUN_FILE).is_file())
    except OSError:
        return f"No run at {path}: neither it nor its parent folder exists."
    if not names:
        return f"No run at {path}, and no other runs in {path.parent}."
    return f"No run at {path}. {nearest(path.name, names)}"


def _no_run(folder: Path) -> str:
    if is_plain(folder / PROCESS_FILE):
        return f"{folder} is one process of a run. Open the run: {folder.resolve().parent}."
    if is_plain(folder / RUN_FILE):
        return f"{folder} is not a run: its {RUN_FILE} was not written by Sonde."
    entries = sorted(entry.name for entry in folder.iterdir())
    runs = [name for name in entries if is_plain(folder / name / RUN_FILE)]
    if runs:
        return f"{folder} is a folder of runs ({len(runs)}). Open one of them, such as {folder / runs[-1]}."
    if not entries:
        return f"{folder} is not a run: the folder is empty."
    more = f" and {len(entries) - SHOWN} more" if len(entries) > SHOWN else ""
    return f"{folder} is not a run: it has no {RUN_FILE}, but {', '.join(entries[:SHOWN])}{more}."
