"""The black box: keeps the last batches, and writes them into the run when training fails.

    sonde.flow.blackbox(batches=3)        or `sonde run --blackbox train.py`, or the setting `blackbox`

It is written (`dump`) on an exception that nobody catches, here or in a loader worker, a loss that is not finite, a lack of
memory, SIGTERM, and on demand: when a file `dump` appears in the run folder (`touch RUN/dump`, `sonde dump RUN`). Batches are held
by reference, not copied; a digest taken at the delivery tells whether they were changed since. Of a program without loaders there
are no batches, and all the rest. Loader workers keep nothing: they tell which item it was that raised.
"""

from __future__ import annotations

import atexit
import mmap
import os
import threading
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from sonde import config
from sonde.blackbox import dump, sigterm
from sonde.blackbox.batches import Ring
from sonde.blackbox.trigger import blamed, causes_of, failures, reason_of
from sonde.events import core
from sonde.events.recorder import at_failure, is_launcher, serving
from sonde.guard import guard, pass_on, warn
from sonde.hooks.torch.loader import start_in_workers
from sonde.nonfinite import alarm
from sonde.nonfinite.batches import also_held
from sonde.probes import at_uninstall, step
from sonde.probes.loader import listeners
from sonde.probes.phases import loss
from sonde.store.probe import DUMP, PROBE
from sonde.store.record import ESSENTIAL
from sonde.values.registry import find

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.hooks.torch.loader import Batch

REQUEST = "dump"  # the file that asks for it
CHECK_NS = 250_000_000  # between two looks for a request
MOST_DUMPS = 20  # of one process
RESERVE = 16 << 20  # bytes of address space that are given back when there is no memory to write it
WAIT_SECONDS = 30.0  # for the dump of another thread


class _BoxState:
    """The black box of this process."""

    def __init__(self) -> None:
        self.leave: list[Callable[[], None]] = []
        self.worker = False
        self.warned = False  # that nothing is recorded
        self.forget()

    def forget(self) -> None:
        """Nothing has happened."""
        self.ring: Ring | None = None
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
        failures.clear()
        self.suspect = False  # a loss was not finite, and nobody has written so yet
        self.written = False  # the dump for it

    def in_child(self) -> None:
        """After a fork: the batches are the parent's."""
        self.renew()
        if self.ring is not None:
            self.ring.kept.clear()

    # ── what the probes report ──

    def deliver(self, batch: Batch | None, key: int | None, data: Any) -> None:
        """A batch was delivered."""
        if self.suspect or monotonic_ns() >= self.due:
            self.check()
        if self.ring is not None:
            self.ring.keep(batch, key, data)

    def held(self) -> list[tuple[Any, int]]:
        """The parts of the batches it keeps, each with the key of its batch."""
        kept = [] if self.ring is None else self.ring.kept
        return [(part, one.key) for one in kept if one.key is not None for _, part in one.parts]

    def check(self) -> None:
        """The program is at a place where there is time to look around."""
        if self.suspect:
            self.write_nonfinite()
        now = monotonic_ns()
        if now >= self.due:
            self.due = now + CHECK_NS
            check_requests()

    def note_loss(self, value: float, _step: int | None) -> None:
        """A loss goes into its backward pass, or has come from a device, late."""
        if value - value != 0:  # it is not finite
            self.suspect = self.suspect or not self.written

    def write_nonfinite(self) -> None:
        """A loss was not finite: write it, unless the watch, which knows more, has done it meanwhile."""
        if self.suspect and not self.written:
            trigger("nonfinite")
        self.suspect = False


_box = _BoxState()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_box.in_child)


# ── on and off ───────────────────────────────────────────────────────────────────────────────────────────────────────


def blackbox(batches: int = 3) -> None:
    """Keep the last `batches` batches from now on, and save them in the run when training fails. 0 turns it off.

    Works only while recording; call it again to change the number. The settings `values`, `values_limit` and `exclude`
    control what is saved. Raises SettingError for an invalid number.
    """
    given: object = batches
    wanted = config.load_leniently(blackbox="none" if given is None else given)[
        0
    ].blackbox  # an argument None would not count
    if not wanted:
        stop()
    elif serving() is not None:
        start(wanted)
    elif not _box.warned:
        _box.warned = True
        _say(
            "sonde.flow.blackbox() has no effect: nothing is being recorded. Call sonde.init() first, or start the "
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
        ring.kept.extend(_box.ring.kept)
        ring.sizes = _box.ring.sizes
        _box.ring = ring
        return
    _box.forget()
    _box.ring = Ring(batches, recorder.settings)
    at_uninstall(stop)
    with guard("reserving memory for the black box"):
        _box.reserve = mmap.mmap(-1, RESERVE)  # never touched: it takes no memory until then
    _box.request = _request(recorder.run)  # an old one is not meant for us
    _box.leave += [
        at_failure(fail),
        listeners.at_delivery(_box.deliver),
        listeners.at_failure(failures),
        loss.at_loss(_box.note_loss),
        step.at_update(_box.check),
        alarm.subscribe(_Alarms()),
        also_held(_box.held),
        start_in_workers(begin_worker),
        sigterm.unwatch,
        lambda: atexit.unregister(_box.write_nonfinite),
    ]
    atexit.register(_box.write_nonfinite)  # of the last step of a program that ends without finish()


def stop() -> None:
    """Switch it off."""
    with guard("writing the black box"):
        _box.write_nonfinite()
    recorder = serving()
    if _box.ring is not None and recorder is not None and not _box.worker:
        recorder.add(blackbox=0)
        failures.read_workers(recorder.run)
    while _box.leave:
        with guard("switching the black box off"):
            _box.leave.pop()()
    _box.forget()


def begin_worker() -> None:
    """Called in each loader worker: it keeps and writes nothing, and tells what failed."""
    _box.worker = failures.in_worker = True
    if _box.ring is None:  # one that is not forked, of a process that switched it on by a call
        _box.leave.append(listeners.at_failure(failures))
    _box.in_child()


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


class _Alarms(alarm.AlarmListener):
    """Writes the black box when the watch finds a non-finite value."""

    def raised(self, facts: dict[str, Any]) -> str | None:
        return trigger("nonfinite", certificate=facts)

    def retracted(self, dump: str) -> None:
        withdraw(dump)


@guard("deleting a dump of the black box")
def withdraw(name: str) -> None:
    """Take a dump back that this process has written: what it was written for has come to nothing."""
    recorder = serving()
    if recorder is not None:
        dump.remove(recorder.run, name)
        _box.written = False
        _say(f"sonde: deleted {dump.FOLDER}/{name}: the NaN or infinity never reached the loss or a gradient.")


def fail(error: BaseException) -> None:
    """Nobody has caught this exception."""
    if _box.ring is None or _box.worker:
        return
    with sigterm.undisturbed(), guard("writing the black box"):
        _box.write_nonfinite()
        trigger(reason_of(error), error=error)


def check_requests() -> None:
    """See whether somebody asks for it, and whether SIGTERM still reaches us."""
    recorder = serving()
    if recorder is None or _box.worker:
        return
    find(object)  # what describes values is loaded now, and not when there is no memory left
    with guard("checking for a black box request"):
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


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write(reason: str, error: BaseException | None, certificate: dict[str, Any] | None) -> str | None:
    recorder, ring = serving(), _box.ring
    causes = {id(cause) for cause in causes_of(error)}
    if recorder is None or ring is None or _box.dumps >= MOST_DUMPS or causes & _box.done:
        return None
    _box.writing = True
    try:
        if reason == "memory" and _box.reserve is not None:
            _box.reserve.close()
        _box.dumps += 1
        _box.done |= causes
        _box.written = _box.written or reason == "nonfinite"
        last = f"This is the last of {MOST_DUMPS} dumps of this process; later ones are not written."
        item, ended = blamed(recorder.run, error)
        cause = dump.Cause(reason, error, item, certificate, ended, ring.earlier())
        name = dump.write(recorder, cause, list(ring.kept), last if _box.dumps == MOST_DUMPS else None)
    finally:
        _box.writing = False
    if name is not None:
        core.mark(DUMP, PROBE, args={"folder": name, "reason": reason}, level=ESSENTIAL)
        if reason != "demand":
            _announce(ended or reason, name, recorder.run)
    return name


@guard("writing a message to the log")
def _announce(why: str, name: str, run: str) -> None:
    # With its folder: a name alone is looked for in the usual one.
    where = min(run, os.path.relpath(run), key=len)
    _say(f"sonde: saved the last batches ({why}) to {dump.FOLDER}/{name}. Show them: sonde blackbox {where}")


@guard("writing a message to the log")
def _say(message: str) -> None:
    warn("%s", message)
