"""Seals a finished run in parts: the same tables as Parquet, sorted and small; raw files are deleted only after these were read back.

Each step leaves the run whole, so that sealing can be killed at any moment. A part is put into its place when it is whole. Then
the manifest lists it, and it counts: its processes are read from there, all others from their raw files. Raw files of listed
processes go then.

A part that is listed and missing is no sealing that was killed: it was lost, as in a copy. Such a run is left as it is.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sonde.analysis.database import Database
from sonde.analysis.parts.manifest import (
    MANIFESTS,
    PARTS,
    UNFINISHED,
    Parts,
    SealedPart,
    has_parts,
    listed_by_others,
    manifest_of,
    manifest_text,
    read_parts,
    stamps,
    whole_part,
)
from sonde.analysis.parts.partition import plan
from sonde.analysis.records.load import Offsets, offsets_of
from sonde.analysis.records.locate import EVENTS_FILE, PROCESSES_FILE, id_of, is_plain, locate, process_folders, size_of
from sonde.analysis.sealing.engines import in_loop
from sonde.analysis.sealing.part import sync, write_text
from sonde.errors import FolderRefused, RunBusy, RunUnreadable
from sonde.store.alive import UNKNOWN, resolve_replaced, running, state_of
from sonde.store.folder import (
    ARGS_FILE,
    FOLDER_MODE,
    LEDGER_FILE,
    NAMES_FILE,
    PACKED_FILE,
    RINGS_FILE,
    SEGMENT_FILE,
    host,
)
from sonde.store.process import read_info
from sonde.store.reading.rings import read_rings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sonde.analysis.records.locate import Folder
    from sonde.analysis.sealing.engines import Engine
    from sonde.store.process import Info

RAW_FILES = (RINGS_FILE, SEGMENT_FILE, PACKED_FILE, NAMES_FILE, ARGS_FILE, LEDGER_FILE)


class SealResult(NamedTuple):
    """What sealing found and did: events and processes in the sealed tables, bytes of the folder before and after."""

    events: int
    processes: int
    before: int
    after: int


def seal(
    path: str | Path,
    *,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
    engine: Engine = in_loop,
) -> SealResult:
    """Seal a run. Sealing again takes in processes that joined since, and goes on where an interrupted sealing ended.

    Raises RunBusy while the run is recording. Of a process on another host that did not end properly nobody here can say
    whether it still runs: RunBusy as well, unless `force`. Raises RunUnreadable if one of its parts is missing, and
    FolderRefused if the tables cannot be written, as on a full disk. `progress` is called with (done, total) parts.
    """
    folder = locate(path)
    with _alone(folder.path):
        infos = _refuse_busy(folder.path, force=force)
        _refuse_incomplete(folder)
        parts = read_parts(folder.path, _id(folder))
        if parts.lost:
            raise RunUnreadable(f"{' '.join(parts.notes)} Nothing was changed.")
        _clear_unfinished(folder.path)
        before = size_of(folder.path)
        found = _Sealing(folder, parts)
        if parts.whole:
            found.list_parts()  # again: the list may have been lost
        found.remove_raw(found.sealed)
        found.seal(infos, engine, progress)
        return SealResult(*found.counts(), before, size_of(folder.path))


class _Sealing:
    """A run folder that is being sealed, and the parts that it has so far."""

    def __init__(self, folder: Folder, parts: Parts) -> None:
        self._folder = folder
        self._parts = {part.name: part for part in parts.whole}
        self._others = listed_by_others(folder.path)
        with closing(Database([(folder, "", parts)], files=True)) as database:  # what is sealed, one way or another
            self._rows = database.rows

    @property
    def sealed(self) -> list[str]:
        """The processes that are sealed."""
        return [str(row["process"]) for row in self._rows]

    def seal(self, infos: dict[Path, Info], engine: Engine, progress: Callable[[int, int], None] | None) -> None:
        """Seal what is not sealed yet, and let the raw files of each part go when it is listed."""
        known: Offsets = {(row["host"], row["boot_id"]): row["offset_ns"] for row in self._rows}
        left = [(one, info) for one, info in infos.items() if one.name not in set(self.sealed)]
        wanted = plan(_id(self._folder), left, offsets_of(infos.values(), known), set(self._parts))
        if wanted and not self._parts:
            self.list_parts()  # none: what is not listed then was not finished
        for done, part in enumerate(engine(str(self._folder.path), wanted), 1):
            made = whole_part(self._folder.path / PARTS / part.name, part.run, part.processes)
            if made is not None:
                self._take(made)
            if progress is not None:
                progress(done, len(wanted))

    def remove_raw(self, processes: Iterable[str]) -> None:
        """Remove the raw files of processes that are sealed."""
        for process in processes:
            one = self._folder.path / process
            for path in (*(one / name for name in RAW_FILES), *_rings_elsewhere(one)):
                if is_plain(path):
                    path.unlink()

    def counts(self) -> tuple[int, int]:
        """How many events and processes are sealed."""
        return sum(row["events"] for row in self._rows), len(self._rows)

    def list_parts(self) -> None:
        """Write the manifest."""
        manifest = manifest_of(self._folder.path)
        beside, text = manifest.with_name(f"{UNFINISHED}{manifest.name}"), manifest_text(_id(self._folder), self._own())
        try:
            if is_plain(manifest) and manifest.read_text() == text:
                return
            manifest.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
            write_text(beside, text)
            os.replace(beside, manifest)
            sync(manifest.parent)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise FolderRefused(
                f"Cannot write {manifest}: {error.strerror}. Free disk space, then seal again."
            ) from None

    def _own(self) -> list[SealedPart]:
        """The parts that no other host lists."""
        return [part for part in self._parts.values() if part.name not in self._others]

    def _take(self, part: SealedPart) -> None:
        self._parts[part.name] = part
        self.list_parts()
        self._rows += part.summary.rows
        self.remove_raw(part.summary.processes)


def unsealed(folder: Path) -> int:
    """How many processes of a run folder have raw records."""
    return sum(is_plain(one / RINGS_FILE) or is_plain(one / SEGMENT_FILE) for one in process_folders(folder))


def _id(folder: Folder) -> str:
    return id_of(folder.meta) or ""


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


def _refuse_busy(folder: Path, *, force: bool) -> dict[Path, Info]:
    """Refuse a run that is recording, or may be; what the processes say of themselves."""
    folders = process_folders(folder)
    infos = resolve_replaced([read_info(one, []) for one in folders])
    for one, info in zip(folders, infos, strict=True):
        pid = running(info)
        if pid is not None:
            raise RunBusy(f"{folder} is still recording: process {pid} ({one.name}) is running. Seal it after it ends.")
        if state_of(info) == UNKNOWN and not force:
            raise RunBusy(
                f"Process {info.pid} on {info.host} may still be recording to {folder}. Seal the run on that host, "
                "or use --force if you know that it has ended."
            )
    return dict(zip(folders, infos, strict=True))


def _refuse_incomplete(folder: Folder) -> None:
    """Refuse a run that was sealed, and of which a list of what that was is lost, and raw records too.

    Versions before the first release sealed all processes into one table of events, with a table of the processes.
    """
    lacking = [name for name in (EVENTS_FILE, PROCESSES_FILE) if not is_plain(folder.path / name)]
    if len(lacking) == 2:
        lost = has_parts(folder.path) and not stamps(folder.path)
        lacking = [f"{PARTS}/{MANIFESTS}"] if lost else []
    if lacking and not all(_has_records(one) for one in folder.processes):
        raise RunUnreadable(
            f"The sealed tables of {folder.path} are incomplete: {lacking[0]} is missing. Nothing was changed. Restore the "
            "missing file from a backup, then seal again."
        )


def _has_records(process: Path) -> bool:
    """Whether raw records of a process are still there."""
    return any(is_plain(process / name) for name in (RINGS_FILE, SEGMENT_FILE)) or bool(_rings_elsewhere(process))


def _clear_unfinished(folder: Path) -> None:
    for one in (*folder.glob(f"{UNFINISHED}*"), *(folder / PARTS).glob(f"{UNFINISHED}*")):
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one)
        else:
            one.unlink()


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
