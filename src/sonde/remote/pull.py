"""Makes a run folder of what hosts have pushed to a URL: only what is new, and what is missing is named.

The folder is a run like any other, with the processes of all hosts side by side. `pulled.json` in it says what it was made of.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde import units
from sonde.errors import FolderRefused, RemoteError, RunNotFound
from sonde.remote.manifest import MANIFEST, Manifest, read_manifest
from sonde.remote.pack import FRESH, GONE, PackEntry, unpacked
from sonde.remote.storage import RemoteFolder
from sonde.store.file import RegularFile
from sonde.store.folder import (
    FILE_MODE,
    FOLDER_MODE,
    PACKED_FILE,
    PROCESS_FILE,
    PULLED_FILE,
    RINGS_FILE,
    RUN_FILE,
    USAGE_FILE,
    opened,
    write_json,
)
from sonde.store.packed import open_file
from sonde.store.process import read_object
from sonde.store.reading.reader import read_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_NAMED = 8  # ranks, or names, in a sentence
RETRIES = 3  # of a host that pushes meanwhile
LOCAL = (USAGE_FILE, "outcome.json", PULLED_FILE)  # that every copy has of its own
TABLES = ("processes.parquet", "events.parquet", "parts")
_USAGE = struct.Struct("<QQ")


class Pulled(NamedTuple):
    """A pulled run: its folder, bytes that were fetched, and what is missing in it."""

    path: Path
    bytes: int
    notes: list[str]


@dataclass
class HostPart:
    """What the folder has of one host: packs that were applied, and the files that came from it."""

    packs: list[list[Any]] = field(default_factory=list)
    now: str | None = None
    usage: list[int] = field(default_factory=lambda: [0, 0])
    files: dict[str, int] = field(default_factory=dict)  # names in the run folder, with the pieces that came


def manifests(place: RemoteFolder) -> tuple[dict[str, Manifest], list[str]]:
    """The manifests of a run by prefix, and what is wrong with the others. The place may be that of one host."""
    content = place.read(MANIFEST)
    if content is not None:
        return {"": read_manifest(content, place.shown)}, []
    found: dict[str, Manifest] = {}
    notes = []
    for name in place.folders():
        content = place.below(name).read(MANIFEST)
        if content is None:
            notes.append(f"{name} has no {MANIFEST}: its upload has not finished. Its ranks are missing here.")
            continue
        try:
            found[name] = read_manifest(content, f"{place.shown}/{name}")
        except RemoteError as error:
            notes.append(f"{error} Its ranks are missing here.")
    return found, notes


def pull(url: str, dir: Path, progress: Callable[[int, int], None] | None = None) -> Pulled:
    """Fetch the run at a URL into a folder of `dir`. Raises RunNotFound, RemoteError, or FolderRefused if something else is there."""
    place = RemoteFolder(url)
    found, notes = manifests(place)
    if not found:
        raise RunNotFound(_absent(place, notes))
    _refuse_mixture(place, found)
    path = dir / (place.name if "" not in found else place.shown.split("/")[-2])
    _make(dir)
    with _alone(path, place.shown):
        return _Pull(place, found, path, notes, progress).do()


def _absent(place: RemoteFolder, notes: list[str]) -> str:
    names = place.folders()
    runs = [name for name in names if place.below(name).folders()]
    if runs:
        listed = ", ".join(runs[:MOST_NAMED])
        return f"{place.shown} is a folder of runs, not a run. Give one of them, such as {place.shown}/{runs[-1]} ({listed})."
    return " ".join(
        [f"No run at {place.shown}. List what is there with: sonde runs {place.shown.rpartition('/')[0]}", *notes]
    )


def _refuse_mixture(place: RemoteFolder, found: dict[str, Manifest]) -> None:
    """Two runs at one place are not one run."""
    runs: dict[str, list[str]] = defaultdict(list)
    for prefix, one in found.items():
        runs[one.identity].append(prefix)
    if len(runs) < 2:
        return
    parts = "; ".join(
        f"{found[prefixes[0]].run}{f' (job {identity})' if found[prefixes[0]].job else ''}: {', '.join(prefixes)}"
        for identity, prefixes in sorted(runs.items())
    )
    raise RemoteError(
        f"{place.shown} holds {len(runs)} runs that were pushed to one place: {parts}. Give the URL of one host, such as "
        f"{place.shown}/{next(iter(found))}, and push them apart with --id."
    )


@contextmanager
def _alone(path: Path, shown: str) -> Iterator[None]:
    """One process fills a folder at a time; others wait for it. Raises FolderRefused if it is no folder for this URL."""
    if path.exists() and read_object(path / PULLED_FILE, []).get("url") != shown:
        raise FolderRefused(
            f"{path} exists and was not pulled from {shown}. Pull into another folder: sonde pull {shown} DIR"
        )
    _make(path)
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # not on every file system
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


class _Pull:
    def __init__(
        self, place: RemoteFolder, found: dict[str, Manifest], path: Path, notes: list[str], progress: Any
    ) -> None:
        self._place, self._found, self._path, self._notes, self._progress = place, found, path, notes, progress
        self._parts = _parts(path)
        self._bytes = 0
        self._done, self._whole = 0, 1

    def do(self) -> Pulled:
        """Apply what is new."""
        self._refuse_sealed()
        self._save()  # first: a folder without it would be refused later
        owners = _owners(self._found)
        new = {prefix: self._new(prefix, one) for prefix, one in self._found.items()}
        self._whole = sum(entry.size for entries in new.values() for entry in entries)
        order = sorted(self._found, key=lambda prefix: (self._found[prefix].started_ns or 0, prefix))
        for prefix in set(self._parts) - set(order):
            self._drop(prefix)
        for prefix in order:
            self._host(prefix, owners, order[0])
        self._write_usage()
        self._notes += _missing_ranks(self._found) + _doubled(self._found) + _pushing(self._found)
        self._save()
        return Pulled(self._path, self._bytes, self._notes)

    def _refuse_sealed(self) -> None:
        sealed = any((self._path / name).exists() for name in TABLES)
        if sealed and not any(one.sealed for one in self._found.values()) and self._parts:
            raise FolderRefused(f"{self._path} was sealed after it was pulled. Delete it, or pull into another folder.")

    def _new(self, prefix: str, found: Manifest) -> list[PackEntry]:
        """The packs of a host that were not applied yet."""
        part = self._parts.setdefault(prefix, HostPart())
        applied = [list(one) for one in found.packs[: len(part.packs)]]
        if applied != part.packs:
            self._drop(prefix)
            part = self._parts[prefix] = HostPart()
        now = [found.now] if found.now is not None and found.now.name != part.now else []
        return [*found.packs[len(part.packs) :], *now]

    def _drop(self, prefix: str) -> None:
        """Remove what came from a host: it has begun anew."""
        for name in self._parts.pop(prefix, HostPart()).files:
            path = self._path / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    # ── one host ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _host(self, prefix: str, owners: dict[str, str], first: str) -> None:
        place = self._place.below(prefix) if prefix else self._place
        for _ in range(RETRIES):
            try:
                self._apply(place, prefix, owners, first)
            except _Replaced:  # it has pushed meanwhile
                content = place.read(MANIFEST)
                if content is None:
                    break
                self._found[prefix] = read_manifest(content, place.shown)
            else:
                return
        self._notes.append(f"{prefix} keeps changing: its newest records are missing here. Pull again.")

    def _apply(self, place: RemoteFolder, prefix: str, owners: dict[str, str], first: str) -> None:
        found = self._found[prefix]
        for entry in self._new(prefix, found):
            part = self._parts[prefix]
            content = place.read(entry.name)
            if content is None:
                self._check_current(place, found)
                self._lacks(found, f"{entry.name} is missing at {place.shown}")
                return
            try:
                self._take(entry, content, part, prefix, owners, first)
            except RemoteError as error:
                self._lacks(found, str(error))
                return
            self._bytes += len(content)
            self._done += len(content)
            if entry == found.now:
                part.now = entry.name
            else:
                part.packs.append(list(entry))
            self._save()
            if self._progress is not None:
                self._progress(self._done, self._whole)

    def _check_current(self, place: RemoteFolder, found: Manifest) -> None:
        content = place.read(MANIFEST)
        if content is None or read_manifest(content, place.shown).push != found.push:
            raise _Replaced

    def _lacks(self, found: Manifest, what: str) -> None:
        ranks = f" (ranks {units.listed(found.ranks, MOST_NAMED)})" if found.ranks else ""
        self._notes.append(f"{what}. What {found.host}{ranks} recorded after that is missing here.")

    def _take(
        self, entry: PackEntry, content: bytes, part: HostPart, prefix: str, owners: dict[str, str], first: str
    ) -> None:
        for piece, body in unpacked(entry, content):
            name, _, rest = piece.path.partition("/")
            if piece.path == USAGE_FILE:
                part.usage = list(_USAGE.unpack(body[: _USAGE.size].ljust(_USAGE.size, b"\0")))
            if owners.get(name, prefix) != prefix or (not rest and not self._is_mine(name, prefix, first)):
                continue
            part.files[name] = part.files.get(name, 0) + 1
            _write(self._path, piece.path, piece.at, body, piece.what)

    def _is_mine(self, name: str, prefix: str, first: str) -> bool:
        """Whether a file of the run folder itself comes from this host: what there is only one of, from the first."""
        others = {one for other, part in self._parts.items() if other != prefix for one in part.files}
        return prefix == first if name in (RUN_FILE, USAGE_FILE) else name not in others

    # ── the run folder ───────────────────────────────────────────────────────────────────────────────────────────────

    def _write_usage(self) -> None:
        """What processes without a folder have lost, on all hosts."""
        sums = [sum(part.usage[place] for part in self._parts.values()) for place in (0, 1)]
        _write(self._path, USAGE_FILE, 0, _USAGE.pack(*(min(one, 2**64 - 1) for one in sums)), FRESH)

    def _save(self) -> None:
        content = {
            "url": self._place.shown,
            "notes": self._notes,
            "runs": sorted({one.run for one in self._found.values() if one.run}),
            "hosts": {prefix: vars(part) for prefix, part in self._parts.items()},
        }
        with opened(str(self._path)) as folder:
            write_json(folder, PULLED_FILE, content)


class _Replaced(Exception):
    """A host has pushed since its manifest was read."""


def _parts(path: Path) -> dict[str, HostPart]:
    hosts = read_object(path / PULLED_FILE, []).get("hosts")
    try:
        return {prefix: HostPart(**fields) for prefix, fields in (hosts or {}).items()}
    except (TypeError, AttributeError):
        return {}


def _owners(found: dict[str, Manifest]) -> dict[str, str]:
    """Which host's copy of each process counts: the one that has more of it. A run on a shared disk may be pushed twice."""
    owners: dict[str, str] = {}
    for prefix in sorted(found):
        for process, (size, *_) in found[prefix].processes.items():
            if process not in owners or size > found[owners[process]].processes[process][0]:
                owners[process] = prefix
    return owners


def _missing_ranks(found: dict[str, Manifest]) -> list[str]:
    world = max((one.world_size for one in found.values() if one.world_size), default=0)
    there = {rank for one in found.values() for rank in one.ranks}
    missing = [rank for rank in range(min(world, 100_000)) if rank not in there]
    if not missing:
        return []
    word = "rank" if len(missing) == 1 else "ranks"
    return [
        f"{word} {units.listed(missing, MOST_NAMED)} of {world}: no host has pushed them yet, or the store does not list their host yet"
    ]


def _doubled(found: dict[str, Manifest]) -> list[str]:
    """Ranks that two processes of one attempt say they are: then these are two runs."""
    known: dict[tuple[int, int], dict[str, str]] = defaultdict(dict)
    for one in found.values():
        for process, (_, rank, attempt) in one.processes.items():
            if rank is not None:
                known[rank, attempt][process] = one.host
    hosts = {rank: sorted(set(of.values())) for (rank, _), of in known.items() if len(set(of.values())) > 1}
    if not hosts:
        return []
    rank = min(hosts)
    return [f"rank {rank} was pushed by {' and '.join(hosts[rank][:2])}: two runs may have been pushed to one place"]


def _pushing(found: dict[str, Manifest]) -> list[str]:
    running = sorted(one.host for one in found.values() if one.running)
    return [f"still running when last pushed: {units.listed(running, MOST_NAMED)}"] if running else []


def _make(folder: Path) -> None:
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)


def _write(run: Path, path: str, at: int, content: bytes, what: int) -> None:
    """Put a piece where it belongs. Nothing that was pushed leads out of the run folder: paths were checked, links are refused."""
    target = run / path
    for folder in reversed(target.relative_to(run).parents[:-1]):
        _make(run / folder)
        if (run / folder).is_symlink():
            raise FolderRefused(f"{run / folder} is a symbolic link. Delete it, and pull again.")
    if what == GONE:
        target.unlink(missing_ok=True)
        return
    if what == FRESH:  # a reader sees the old file or the new one
        beside = target.with_name(f".{target.name}-{os.getpid()}.part")
        _write_at(beside, content, at, os.O_TRUNC)
        beside.replace(target)
    else:
        _write_at(target, content, at)


def _write_at(path: Path, content: bytes, at: int, more: int = 0) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | more, FILE_MODE)
    try:
        rest, place = memoryview(content), at
        while rest:
            count = os.pwrite(descriptor, rest, place)
            rest, place = rest[count:], place + count
    finally:
        os.close(descriptor)


def missing_in(run: Path, pulled: Path) -> list[str]:
    """The files of a run that a pulled copy lacks, or has otherwise. Of rings, the records count."""
    wrong = []
    for place, _, names in os.walk(run):
        for name in names:
            local = Path(place) / name
            path = local.relative_to(run)
            if name.startswith((".push-", ".sealing-")) or name == PACKED_FILE or path.as_posix() in LOCAL:
                continue
            if not _is_copied(local, pulled / path):
                wrong.append(path.as_posix())
    return wrong


def _is_copied(local: Path, other: Path) -> bool:
    if not other.is_file():
        return False
    if local.name == RINGS_FILE:
        return len(read_process(local.parent)) == len(read_process(other.parent))
    if local.name == PROCESS_FILE:
        return True
    with open_file(local) as here, RegularFile(other) as there:
        return here.read(here.size(), 0) == there.read(there.size(), 0)
