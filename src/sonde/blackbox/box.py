"""The black box: the last batches before it went wrong, written into the run when it does.

    sonde.flow.blackbox(batches=3)        or `sonde run --blackbox train.py`, or the setting `blackbox`

It is written (`dump`) on an exception that nobody catches, here or in a loader worker, a loss that is not finite, a lack of
memory, SIGTERM, and on demand: when a file `dump` appears in the run folder (`touch RUN/dump`, `sonde dump RUN`). Batches are held
by reference, not copied; a digest taken at the delivery tells whether they were changed since. Of a program without loaders there
are no batches, and all the rest. Loader workers keep nothing: they tell which item it was that raised.
"""

from __future__ import annotations

import atexit
import json
import mmap
import os
import threading
from contextlib import suppress
from itertools import chain
from pathlib import Path
from time import monotonic_ns, sleep
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde import config
from sonde.blackbox import dump, fingerprint, sigterm, workers
from sonde.blackbox.batches import MOST_IDS, Kept, Ring
from sonde.blackbox.losses import Losses
from sonde.events import core
from sonde.events.recorder import at_failure, is_launcher, parent_pid, serving
from sonde.guard import guard, pass_on
from sonde.hooks.torch.loader import start_in_workers
from sonde.nonfinite import alarm, batches as arrivals
from sonde.probes import step
from sonde.probes.loader import ledger, wait as loader
from sonde.probes.phases import loss
from sonde.store import folder
from sonde.store.file import read_small
from sonde.store.probe import DUMP, PROBE
from sonde.store.record import ESSENTIAL
from sonde.values.registry import find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sonde.events.recorder import Recorder
    from sonde.hooks.torch.loader import Batch
    from sonde.native import fingerprint as native

REQUEST = "dump"  # the file that asks for it
FAILED = ".failed-"  # how the files begin in which workers say what failed
LOOK_NS = 250_000_000  # between two looks for a request
MOST_DUMPS = 20  # of one process
MOST_FAILED = 8  # failures that a worker remembers
MOST_BYTES = 1 << 16  # of its file
MOST_CAUSES = 20  # exceptions behind an exception
RESERVE = 16 << 20  # bytes of address space that are given back when there is no memory to write it
WAIT_SECONDS = 30.0  # for the dump of another thread
DYING_NS = 1_000_000_000  # the longest that a killed worker is given to be gone
LOOK_AGAIN = 0.005  # seconds between two looks whether it is

_ALLOCATORS = ("can't allocate memory", "not enough memory", "out of memory")
_BROKEN = (ConnectionError, EOFError, FileNotFoundError)  # what reading from a process that is killed ends with


class _Unseen(NamedTuple):
    """A wait for a batch that ended with an exception, known by its address: holding it would hold all its frames."""

    error: int
    batch: Batch | None
    key: int | None


_State: Any = (
    object if fingerprint.native is None else fingerprint.native.State
)  # C reads `due`, `suspect` and `ring` for each batch


class _Box(_State, loader.Failures):  # type: ignore[misc]  # which class it is is known when it runs
    """The black box of this process."""

    def __init__(self) -> None:
        self.leave: list[Callable[[], None]] = []
        self.worker = False
        self.told = False  # that nothing is recorded
        self.forget()

    def forget(self) -> None:
        """Nothing has happened."""
        self.ring: Ring | None = None
        self.losses = Losses(self.in_use)  # if C was built, a `Latest`, which writes them too
        self.renew()
        self.request: tuple[int, int] | None = None  # the one that was answered last
        self.reserve: mmap.mmap | None = None

    def renew(self) -> None:
        """In a process that has just begun to use it, or was just forked."""
        self.lock = threading.RLock()
        self.writing = False
        self.dumps = 0
        self.due = 0
        self.done: set[int] = set()  # exceptions that were written, by their addresses
        self.unmade_here: list[loader.Failed] = []
        self.told_by: dict[int, list[loader.Failed]] = {}  # the same of workers, by their processes
        self.waits: list[_Unseen] = []
        self.suspect = False  # a loss was not finite, and nobody has written so yet
        self.judged = False  # it was written

    def in_child(self) -> None:
        """After a fork: the batches are the parent's."""
        self.renew()
        if self.ring is not None:
            self.ring.kept.clear()

    # ── what the probes tell ──

    def deliver(self, batch: Batch | None, key: int | None, data: Any) -> None:
        """A batch was delivered. Of usual ones C does the same (`delivery` in `native/fingerprint.c`)."""
        if self.suspect or monotonic_ns() >= self.due:
            self.come_by()
        ring = self.ring
        if ring is not None:
            ring.assign(self.losses.settled(True))
            ring.keep(batch, key, data)
            self.losses.came(key)

    def come_by(self) -> None:
        """The program is at a place where there is time to look around."""
        if self.suspect:
            self.judge()
        now = monotonic_ns()
        if now >= self.due:
            self.due = now + LOOK_NS
            look()

    def settle(self) -> None:
        """Let batches know the losses that came of them."""
        if self.ring is not None:
            self.ring.assign(self.losses.settled(False))

    def note_loss(self, value: float, number: int | None) -> None:
        """A loss goes into its backward pass, or has come from a device, late. Those on the host `Latest` notes, if it can."""
        if self.ring is not None and number is not None and number != core.get_context()[0]:
            self.ring.note_late(value, number)
        else:
            self.losses.note(value)
        if value - value != 0:
            self.doubt(value)

    def doubt(self, _value: float) -> None:
        """A loss is not finite."""
        self.suspect = self.suspect or not self.judged

    @guard("finding the batch of a loss")
    def in_use(self, newest: int, unused: int) -> int | None:
        """How many batches before the newest is the one that the program has in hand, of some; the oldest, if it has several."""
        wanted = range(newest - unused + 1, newest + 1)
        kept = [one for one in self.ring.kept if one.key in wanted] if self.ring is not None else []
        owners = {arrivals.address(part): one.key for one in kept for _, part in one.parts}
        for group in arrivals.in_hand():
            keys = [key for one in group if (key := owners.get(arrivals.address(one))) is not None]
            if keys:
                return newest - min(keys)
        return None

    def judge(self) -> None:
        """A loss was not finite: write it, unless the watch, which knows more, has done it meanwhile."""
        if self.suspect and not self.judged:
            trigger("nonfinite")
        self.suspect = False

    def unmade(self, failed: loader.Failed) -> None:
        """A batch could not be made, here or, if this is a worker, for the process that started it."""
        self.unmade_here = [*self.unmade_here[-MOST_FAILED + 1 :], failed]
        if self.worker:
            _write_failed(self.unmade_here)

    def unseen(self, batch: Batch | None, key: int | None, error: BaseException) -> None:
        """A batch was waited for, and this came instead."""
        self.waits = [*self.waits[-MOST_FAILED + 1 :], _Unseen(id(error), batch, key)]


_box = _Box()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_box.in_child)


# ── on and off ───────────────────────────────────────────────────────────────────────────────────────────────────────


def blackbox(batches: int = 3) -> None:
    """Keep the last `batches` batches from now on, and write them into the run when training fails; 0: no longer.

    For a program that is recorded; another call changes the number. What is kept of values is up to the settings `values`,
    `values_limit` and `exclude`. Raises SettingError for a number that is not allowed.
    """
    given: object = batches
    wanted = config.settle(blackbox="none" if given is None else given)[0].blackbox  # an argument None would not count
    if not wanted:
        stop()
    elif serving() is not None:
        start(wanted)
    elif not _box.told:
        _box.told = True
        _say(
            "sonde.flow.blackbox() keeps nothing, since this program is not recorded. Call sonde.init() before it, or start the "
            "program with: sonde run --blackbox"
        )


def start(batches: int) -> None:
    """Switch it on in this process, which is recorded; if it is on, change the number."""
    recorder = serving()
    if recorder is None or is_launcher():
        return
    recorder.add(blackbox=batches)
    if _box.ring is not None:
        ring = Ring(batches, recorder.settings)
        ring.held.extend(_box.ring.kept)
        ring.newer = _box.ring.newer
        _box.ring.held.clear()  # C may still know it
        _box.ring = ring
        return
    _box.forget()
    _box.ring = Ring(batches, recorder.settings)
    with guard("reserving memory for the black box"):
        _box.reserve = mmap.mmap(-1, RESERVE)  # never touched: it takes no memory until then
    latest = None if fingerprint.native is None else fingerprint.native.latest(core.note, _box.doubt, _box.in_use)
    _box.losses = latest or _box.losses
    _box.request = _request(recorder.run)  # an old one is not meant for us
    _box.leave += [
        at_failure(fail),
        loader.at_delivery(_box.deliver, None if fingerprint.native is None else _delivery),
        loader.at_failure(_box),
        loss.at_loss(_box.note_loss, latest),
        step.at_update(_box.come_by),
        alarm.subscribe(_Alarms()),
        start_in_workers(f"{__name__}:begin_worker"),
        sigterm.unwatch,
        lambda: atexit.unregister(_box.judge),
    ]
    atexit.register(_box.judge)  # of the last step of a program that ends without finish()


def _delivery(slow: Callable[..., None]) -> Callable[..., None]:
    """What keeps usual batches in C, and calls `slow` for all others."""
    parts = (_box, core.get_context, Kept, _box.losses, *ledger.quick_parts())
    made: native.Delivery = fingerprint.native.delivery(parts, slow)
    if _box.ring is not None:
        _box.ring.newer = made.newer
    return made


def stop() -> None:
    """Switch it off."""
    with guard("writing the black box"):
        _box.judge()
    recorder = serving()
    if _box.ring is not None and recorder is not None and not _box.worker:
        recorder.add(blackbox=0)
        _of_workers(recorder.run)
    while _box.leave:
        with guard("switching the black box off"):
            _box.leave.pop()()
    if _box.ring is not None:
        with guard("switching the black box off"):
            _box.ring.clear()
    _box.forget()


def begin_worker() -> None:
    """Called in each loader worker: it keeps and writes nothing, and tells what failed."""
    _box.worker = True
    if _box.ring is None:  # one that is not forked, of a process that switched it on by a call
        _box.leave.append(loader.at_failure(_box))
    _box.in_child()


def current() -> Kept | None:
    """The batch that was delivered last in this process; None: none, or the black box is off."""
    ring = _box.ring
    if ring is None or _box.worker:
        return None
    _box.settle()
    return ring.newest()


# ── why it is written ────────────────────────────────────────────────────────────────────────────────────────────────


def trigger(
    reason: str, *, error: BaseException | None = None, certificate: dict[str, Any] | None = None
) -> str | None:
    """Write the black box now; returns the name of its folder, or None if it is off, was written for this, or failed.

    `reason` is one of exception, worker, nonfinite, memory, sigterm, demand. Never raises.
    """
    if _box.ring is None or _box.worker or _box.writing:
        return None
    if not _box.lock.acquire(timeout=WAIT_SECONDS):
        return None
    try:
        with sigterm.later(), guard("writing the black box"):
            return _write(reason, error, certificate)
    finally:
        _box.lock.release()
    return None


class _Alarms(alarm.Listener):
    """Writes the black box when the watch finds a non-finite value."""

    def raised(self, facts: dict[str, Any]) -> str | None:
        return trigger("nonfinite", certificate=facts)

    def retracted(self, dump: str) -> None:
        withdraw(dump)


@guard("taking back a dump of the black box")
def withdraw(name: str) -> None:
    """Take a dump back that this process has written: what it was written for has come to nothing."""
    recorder = serving()
    if recorder is not None:
        dump.remove(recorder.run, name)
        _box.judged = False
        _say(f"Sonde has taken back {dump.FOLDER}/{name}: that reached neither the loss nor a gradient.")


def fail(error: BaseException) -> None:
    """Nobody has caught this exception."""
    if _box.ring is None or _box.worker:
        return
    with sigterm.undisturbed(), guard("writing the black box"):
        _box.judge()
        trigger(_reason(error), error=error)


def look() -> None:
    """See whether somebody asks for it, and whether SIGTERM is still told to us."""
    recorder = serving()
    if recorder is None or _box.worker:
        return
    find(object)  # what describes values is loaded now, and not when there is no memory left
    with guard("looking for a request for the black box"):
        request = _request(recorder.run)
        if request is not None and request != _box.request:
            _box.request = request
            trigger("demand")
    with guard("watching for SIGTERM"):
        sigterm.watch(_on_term)


def _on_term() -> None:
    trigger("sigterm")


def _request(run: str) -> tuple[int, int] | None:
    try:
        found = os.stat(os.path.join(run, REQUEST), follow_symlinks=False)
    except OSError as error:
        pass_on(error)
        return None
    return found.st_ino, found.st_mtime_ns


def _reason(error: BaseException) -> str:
    causes = list(_causes(error))
    if any(map(_lacks_memory, causes)):
        return "memory"
    wait = _wait_of(causes)
    if (wait is not None and wait.batch is not None and wait.batch.worker is not None) or any(map(_of_worker, causes)):
        return "worker"
    # Then the wait may end with anything, such as a connection that is closed.
    if wait is not None and _has_dead(causes, wait):
        return "worker"
    return "nonfinite" if type(error).__name__ == "NonFinite" else "exception"


def _has_dead(causes: list[BaseException], wait: _Unseen) -> bool:
    """Has a worker been killed? It loses its connections before it is gone: one that broke is worth a second look."""
    until = monotonic_ns() + (DYING_NS if any(isinstance(cause, _BROKEN) for cause in causes) else 0)
    recorder = serving()
    while not (dead := recorder is not None and bool(_gone(recorder.run, wait))) and monotonic_ns() < until:
        sleep(LOOK_AGAIN)
    return dead


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The exception, and those behind it."""
    for _ in range(MOST_CAUSES):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _lacks_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _ALLOCATORS)


def _of_worker(error: BaseException) -> bool:
    """Does torch say that a worker has died? It says so at any place of the program, not only where a batch is waited for."""
    return isinstance(error, RuntimeError) and "DataLoader worker (pid" in str(error)


def _wait_of(causes: list[BaseException]) -> _Unseen | None:
    addresses = {id(cause) for cause in causes}
    return next((wait for wait in reversed(_box.waits) if wait.error in addresses), None)


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write(reason: str, error: BaseException | None, certificate: dict[str, Any] | None) -> str | None:
    recorder, ring = serving(), _box.ring
    causes = {id(cause) for cause in _causes(error)}
    if recorder is None or ring is None or _box.dumps >= MOST_DUMPS or causes & _box.done:
        return None
    _box.writing = True
    try:
        if reason == "memory" and _box.reserve is not None:
            _box.reserve.close()
        _box.settle()
        _box.dumps += 1
        _box.done |= causes
        _box.judged = _box.judged or reason == "nonfinite"
        last = f"This is the last of {MOST_DUMPS} dumps of this process: later ones are not written."
        item, ended = _blamed(recorder, error)
        cause = dump.Cause(reason, error, item, certificate, ended)
        name = dump.write(recorder, cause, list(ring.kept), last if _box.dumps == MOST_DUMPS else None)
    finally:
        _box.writing = False
    if name is not None:
        core.mark(DUMP, PROBE, args={"folder": name, "reason": reason}, level=ESSENTIAL)
        if reason != "demand":
            _announce(ended or reason, name, recorder.run)
    return name


def _blamed(recorder: Recorder, error: BaseException | None) -> tuple[dict[str, Any] | None, str | None]:
    """The item whose making raised this, or ended the worker that made it, else all items of the batch that never came; and how
    that worker ended.
    """
    causes = list(_causes(error))
    wait = _wait_of(causes)
    told = [*_box.unmade_here, *chain(*_of_workers(recorder.run).values())] if causes else []
    key = None if wait is None else wait.key
    failed = [one for one in told if key is not None and one.key == key and one.position is not None]
    gone = _last_gone(recorder.run, wait) if wait is not None or any(map(_of_worker, causes)) else []
    ended = next((str(one) for one in gone if not failed or one.making == failed[-1]), None)
    failed = failed or [one.making for one in gone if one.making is not None]
    if not failed:
        return _batch_of(wait), ended
    one = failed[-1]
    index = one.index if isinstance(one.index, int) else None
    return {"index": index, "position": one.position, "id": None, "worker": one.worker, "batch": one.key}, ended


def _batch_of(wait: _Unseen | None) -> dict[str, Any] | None:
    """As an item: what collates them has failed, or what makes them all at once."""
    batch = None if wait is None else wait.batch
    if wait is None or batch is None or not batch.indices:
        return None
    numbers = [one if isinstance(one, int) else None for one in batch.indices[:MOST_IDS]]
    return {"index": None, "position": None, "id": None, "worker": batch.worker, "batch": wait.key, "items": numbers}


def _gone(run: str, wait: _Unseen | None) -> list[workers.Gone]:
    """The workers that are gone. What was told of a batch that the program has waited for in vain before is an old story."""
    old = {one.key for one in _box.waits if one is not wait}
    rows = _of_workers(run).items()
    return workers.gone(run, {pid: failed[-1] for pid, failed in rows if failed and failed[-1].key not in old})


def _last_gone(run: str, wait: _Unseen | None) -> list[workers.Gone]:
    """The newest of them, if there is one; it may still be about to end."""
    until = monotonic_ns() + DYING_NS
    while (found := _gone(run, wait)[-1:]) and found[0].code is None and monotonic_ns() < until:
        sleep(LOOK_AGAIN)
    return found


def _write_failed(failures: list[loader.Failed]) -> None:
    """In a worker: say what failed, for the process that started it."""
    recorder = serving()
    if recorder is None:
        return
    box = os.path.join(recorder.run, dump.FOLDER)
    with suppress(FileExistsError):
        os.mkdir(box, folder.FOLDER_MODE)
    rows = [[one.key, one.position, one.index if isinstance(one.index, int) else None, one.worker] for one in failures]
    with folder.opened(box) as here:
        folder.write_json(here, f"{FAILED}{folder.host()}-{os.getpid()}", {"parent": parent_pid(), "failed": rows})


def _of_workers(run: str) -> dict[int, list[loader.Failed]]:
    """What the workers of this process have said of their failures, by process; their files have done their duty then."""
    for path in sorted(Path(run, dump.FOLDER).glob(f"{FAILED}{folder.host()}-*")):
        with guard("reading what a loader worker says of a failure"):
            told = json.loads(read_small(path, MOST_BYTES))
            if told["parent"] == os.getpid():
                _box.told_by[int(path.name.rpartition("-")[2])] = [loader.Failed(*row) for row in told["failed"]]
                path.unlink()
    return _box.told_by


@guard("writing a message to the log")
def _announce(why: str, name: str, run: str) -> None:
    # With its folder: a name alone is looked for in the usual one.
    where = min(run, os.path.relpath(run), key=len)
    _say(f"Sonde has written the last batches ({why}): {dump.FOLDER}/{name}. Look: sonde blackbox {where}")


@guard("writing a message to the log")
def _say(message: str) -> None:
    import logging

    logging.getLogger("sonde").warning("%s", message)
