"""Sends what is new of a run to a URL: packs first, then the manifest, so that a reader never sees half of it.

What was sent stands in a file of the run folder, after each pack: an upload that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import fcntl
import os
import time
import zlib
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.errors import RemoteError, RunNotFound
from sonde.remote.changes import HEAD, Changes, FileRange, Sent, Stamp, changes, pieces_of
from sonde.remote.manifest import MANIFEST, Manifest, identity_of, prefix_of, read_manifest
from sonde.remote.pack import FRESH, GONE, KEEP, PIECE, Builder, PackEntry, entry_of
from sonde.remote.storage import RemoteFolder
from sonde.store.alive import outcome, state_of
from sonde.store.folder import FILE_MODE, RUN_FILE, host, opened, slug, write_json
from sonde.store.process import Info, is_ours, read_object
from sonde.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MAX_ID = 120
WASTE = 16 * 2**20  # bytes at the place that nothing refers to, beyond as many as count: then everything is sent anew
TRAINS = ("main", "trainer")  # the roles of processes that are a rank; others may have inherited its number
PROCESSES = "processes.parquet"  # a run that has this list is sealed, or was in an earlier version
PARTS = "parts/"  # the same of one that has such files


class Pushed(NamedTuple):
    """What a push has done: where the run is now, objects and bytes that were sent, processes that still run."""

    url: str
    objects: int
    bytes: int
    running: int
    notes: list[str]


@dataclass
class PushState:
    """What a place has of a run, as this machine knows it."""

    token: str
    push: int = 0  # how many there were
    number: int = 0  # of the last pack
    packs: list[PackEntry] = field(default_factory=list)
    now: PackEntry | None = None
    files: dict[str, Sent] = field(default_factory=dict)
    over: dict[str, Stamp] = field(default_factory=dict)
    live: int = 0  # bytes sent of files that are still there
    dead: int = 0

    def take(self, change: FileRange, at: int, content: bytes) -> None:
        """A piece was packed."""
        key = change.path + HEAD if change.what == KEEP and change.stamp else change.path
        before = self.files.get(key, Sent())
        if change.what == GONE or (change.what == FRESH and at == change.begin):
            self.live, self.dead = self.live - before.bytes, self.dead + before.bytes
            before = Sent(at)
        if change.what == GONE:
            self.files.pop(key, None)
            self.files.pop(key + HEAD, None)
            return
        self.live += len(content)
        self.files[key] = Sent(at + len(content), zlib.crc32(content, before.crc if at else 0), change.stamp)

    def text(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def run_id(run: Path) -> str:
    """What a run is called at a URL: the id of its job, or the name of its folder."""
    job = read_object(run / RUN_FILE, []).get("job")
    return slug(job, MAX_ID) if isinstance(job, str) and job else run.resolve().name


def push(
    run: Path,
    url: str,
    id: str | None = None,
    *,
    only: str | None = None,
    describe: Callable[[Iterable[tuple[Info, str]]], object] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Pushed:
    """Send what is new of a run to URL/<id>. Raises RemoteError if the place does not take it, or holds another run there.

    `only`: processes of this host; for several hosts that share a disk. `describe` says how a run ended.
    """
    notes: list[str] = []
    meta = read_object(run / RUN_FILE, notes)
    if not is_ours(meta):
        raise RunNotFound(f"{run} is not a run: it has no {RUN_FILE} of Sonde.")
    root = RemoteFolder(url).below(slug(id or run_id(run), MAX_ID))
    return _Push(run, meta, root, bool(id), only, describe, progress).do()


class _Push:
    def __init__(
        self,
        run: Path,
        meta: dict[str, Any],
        root: RemoteFolder,
        given: bool,
        only: str | None,
        describe: Any,
        progress: Any,
    ) -> None:
        self._run, self._meta, self._root, self._given, self._only = run, meta, root, given, only
        self._describe, self._progress = describe, progress
        self._file = f".push-{host()}-{sha256(root.shown.encode()).hexdigest()[:16]}.json"
        self._notes: list[str] = []
        self._objects = self._bytes = 0
        self._unused: list[str] = []

    def do(self) -> Pushed:
        """Send what is new."""
        with _alone(self._run, f"{self._file}.lock"):
            return self._do()

    def _do(self) -> Pushed:
        state = self._known()
        new = changes(self._run, state.files, state.over, self._only)
        if _is_waste(state, new):  # as after sealing: what lies there is mostly of no use any longer
            self._unused += [one.name for one in state.packs]
            state = PushState(state.token, state.push, state.number)
            new = changes(self._run, {}, {}, self._only)
        place = self._root.below(prefix_of(host(), state.token))
        self._send(place, state, new)
        moved = self._send_moving(place, state, new)
        if self._objects or moved or not state.push:
            state.push += 1
            place.write(MANIFEST, self._manifest(state, new).text())
            self._save(state)
            place.remove(self._unused)
        return Pushed(self._root.shown, self._objects, self._bytes, new.running, self._notes)

    # ── what is there already ────────────────────────────────────────────────────────────────────────────────────────

    def _known(self) -> PushState:
        """What the place has; nothing if this machine does not know, or the place has lost it."""
        state = self._loaded()
        content = None if state is None else self._root.below(prefix_of(host(), state.token)).read(MANIFEST)
        if state is not None and (state.push == 0 or content is not None):
            there = None if content is None else read_manifest(content, self._root.shown)
            if there is None or there.push == state.push:
                return state
        self._refuse_others()
        if state is not None and content is None:
            self._notes.append(f"{self._root.shown} has lost what was pushed before. Everything was sent again.")
        return PushState(os.urandom(4).hex())

    def _refuse_others(self) -> None:
        """Another run may be there already: found out before anything is sent."""
        mine = self._identity()
        for name in self._root.folders():
            content = self._root.below(name).read(MANIFEST)
            other = None if content is None else read_manifest(content, f"{self._root.shown}/{name}")
            if other is not None and other.identity != mine:
                raise RemoteError(
                    f"{self._root.shown} already holds another run: {other.run} of {other.host}"
                    f"{f' (job {other.job})' if other.job else ''}. Choose another name with --id."
                )

    def _identity(self) -> str:
        return identity_of(self._job(), self._given, self._name(), self._run.resolve().name)

    def _name(self) -> str:
        name = self._meta.get("name")
        return name if isinstance(name, str) else ""

    def _job(self) -> str | None:
        job = self._meta.get("job")
        return job if isinstance(job, str) and job else None

    def _loaded(self) -> PushState | None:
        fields = read_object(self._run / self._file, [])
        try:
            return PushState(
                token=fields["token"],
                push=fields["push"],
                number=fields["number"],
                packs=[PackEntry(*one) for one in fields["packs"]],
                now=None if fields["now"] is None else PackEntry(*fields["now"]),
                files={path: Sent(**one) for path, one in fields["files"].items()},
                over=fields["over"],
                live=fields["live"],
                dead=fields["dead"],
            )
        except (KeyError, TypeError, AttributeError):  # not there, or damaged: then everything is sent again
            return None

    def _save(self, state: PushState) -> None:
        try:
            with opened(str(self._run)) as folder:
                write_json(folder, self._file, state.text())
        except OSError as error:
            note = (
                f"Cannot note what was pushed in {self._run} ({error.strerror}): the next push sends everything again."
            )
            if note not in self._notes:
                self._notes.append(note)

    # ── sending ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, place: RemoteFolder, state: PushState, new: Changes) -> None:
        whole = sum(one.end - one.begin for one in new.lasting)
        done, pack = 0, Builder()
        for change in new.lasting:
            with suppress(OSError):  # the file has gone since: the next push says so
                for at, content in pieces_of(change, PIECE):
                    pack.add(change.path, at, content, change.what if at == change.begin else KEEP)
                    state.take(change, at, content)
                    done += len(content)
                    if pack.full:
                        self._close(place, state, pack)
                        pack = Builder()
                        self._report(done, whole)
        if pack.pieces:
            self._close(place, state, pack)
        state.over = new.over
        self._report(whole, whole)

    def _close(self, place: RemoteFolder, state: PushState, pack: Builder) -> None:
        """Send a full pack, and note it."""
        state.number += 1
        state.packs.append(self._put(place, f"{state.number:06d}.pack", pack.content()))
        self._save(state)

    def _send_moving(self, place: RemoteFolder, state: PushState, new: Changes) -> bool:
        """Send what changes all the time. True: the manifest has to say so."""
        pack = Builder()
        for change in new.moving:
            for at, content in pieces_of(change, PIECE):
                pack.add(change.path, at, content, change.what if at == change.begin else KEEP)
        before, content = state.now, pack.content()
        if before is not None and new.moving and entry_of("", content).digest == before.digest:
            return False
        state.now = None
        if new.moving:
            state.number += 1
            state.now = self._put(place, f"{state.number:06d}.now.pack", content)
        if before is not None:
            self._unused.append(before.name)
        return before is not None

    def _put(self, place: RemoteFolder, name: str, content: bytes) -> PackEntry:
        place.write(name, content)
        self._objects += 1
        self._bytes += len(content)
        return entry_of(name, content)

    def _report(self, done: int, whole: int) -> None:
        if self._progress is not None:
            self._progress(done, whole)

    def _manifest(self, state: PushState, new: Changes) -> Manifest:
        known = [(info, state_of(info)) for info in new.infos.values()]
        start = self._meta.get("start")
        wall = start.get("wall_ns") if isinstance(start, dict) else None
        ends = [info.end.wall_ns for info, _ in known if info.end is not None]
        sizes: dict[str, int] = dict.fromkeys(new.infos, 0)
        for path, sent in state.files.items():
            process = path.partition("/")[0]
            if process in sizes:
                sizes[process] += sent.bytes
        return Manifest(
            host=host(),
            token=state.token,
            run=self._run.resolve().name,
            job=self._job(),
            given=self._given,
            name=self._name(),
            started_ns=wall if isinstance(wall, int) else None,
            ended_ns=max(ends, default=None) if not new.running else None,
            pushed_ns=time.time_ns(),
            push=state.push,
            sealed=PROCESSES in new.found or any(path.startswith(PARTS) for path in new.found),
            running=new.running,
            world_size=max((info.world_size for info, _ in known if info.world_size), default=None),
            packs=state.packs,
            now=state.now,
            processes={
                one: (sizes[one], info.rank if info.role in TRAINS else None, info.attempt or 0)
                for one, info in new.infos.items()
            },
            state="recording" if new.running else outcome(known),
            ended="running" if new.running else str(self._describe(known)) if self._describe else "unknown",
            sonde=__version__,
        )


def _is_waste(state: PushState, new: Changes) -> bool:
    """Whether more bytes would lie at the place that count for nothing than those that do."""
    replaced = [one.path for one in new.lasting if one.what in (GONE, FRESH)]
    lost = sum(state.files[path].bytes for path in replaced if path in state.files)
    fresh = sum(one.end - one.begin for one in new.lasting)
    return state.dead + lost > state.live - lost + fresh + WASTE


@contextmanager
def _alone(run: Path, name: str) -> Iterator[None]:
    """Only one process of a host pushes a run to a place at a time; others wait. Where files cannot be locked, nobody waits."""
    lock = -1
    try:
        with suppress(OSError):
            lock = os.open(run / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        if lock >= 0:
            os.close(lock)
