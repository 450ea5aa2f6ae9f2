"""Where every thread is, as text in the run folder: on demand, and when a training program makes no progress for long.

On demand: send the process `stacks_signal()` (`kill -61 PID` on Linux). It is answered in C (faulthandler), so a program that
hangs inside a library answers too. No thread waits for it: the other case is a timer of the kernel, set back when the program
comes by, which sends the same signal. Linux only.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from sonde import config
from sonde.errors import FolderRefused
from sonde.events import core
from sonde.guard import guard, pass_on
from sonde.hooks import finder
from sonde.store import folder
from sonde.store.probe import PROBE, STACKS, stacks_signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

AFTER_NS = 120 * 10**9  # without progress, and at least PATIENCE times the longest that it ever took
PATIENCE = 5
MOST_FILES = 10  # of one process: a program that executes another keeps its number

_SIGEV_SIGNAL = 0
_CLOCK_MONOTONIC = 1


class _StackFile:
    """What is open: the file, and the timer."""

    def __init__(self) -> None:
        self.fd = -1
        self.path = ""
        self.identity: tuple[int, int] | None = None
        self.written = 0  # bytes that have been reported
        self.pid = 0
        self.timer: Any = None
        self.timed = True  # the kernel has given a timer, or was not asked yet
        self.seen = 0  # when the program came by
        self.longest = 0

    def is_ours(self) -> bool:
        """Is the descriptor still that of our file? A program may have closed all, and opened others."""
        return self.fd >= 0 and self.identity == _identity(self.fd)


_watch = _StackFile()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: setattr(_watch, "timer", None))  # it is the parent's


def install(_settings: Settings) -> Callable[[], None]:
    """Be ready, as soon as the program has imported torch."""
    ends = finder.when_imported("torch", lambda _torch: _open())

    def leave() -> None:
        ends()
        _close()

    return leave


def alive() -> None:
    """The program comes by: whatever it does next may again take its time."""
    if _watch.fd < 0 or _watch.pid != os.getpid():
        return
    now = monotonic_ns()
    if _watch.seen:
        _watch.longest = max(_watch.longest, now - _watch.seen)
    _watch.seen = now
    if not _watch.is_ours():
        _close()
        return
    _announce()
    if _watch.timed:
        _watch.timed = False
        _set_timer(max(AFTER_NS, PATIENCE * _watch.longest))
        _watch.timed = True


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@guard("preparing to write thread stacks")
def _open() -> None:
    run = config.peek("run")
    number = stacks_signal()
    if run is None or _watch.fd >= 0 or number is None or not _free(number):
        return
    import faulthandler

    _watch.__init__()  # type: ignore[misc]
    _watch.path, _watch.fd = _new_file(run)
    _watch.identity, _watch.pid = _identity(_watch.fd), os.getpid()
    faulthandler.register(number, file=_watch.fd, all_threads=True)
    atexit.register(_close)


def _free(number: int) -> bool:
    """Does nobody use this signal?"""
    import signal

    return signal.getsignal(number) == signal.SIG_DFL


def _new_file(run: str) -> tuple[str, int]:
    with folder.opened(run) as here:
        for number in range(MOST_FILES):
            name = f"stacks-{folder.host()}-{os.getpid()}" + (f"-{number}" if number else "") + ".txt"
            with suppress(FolderRefused):
                return os.path.join(run, name), folder.open_new(here, name)
    raise FolderRefused(f"{run} already has {MOST_FILES} stack files of process {os.getpid()}.")


def _identity(fd: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(fd)
    except OSError as error:
        pass_on(error)
        return None
    return found.st_dev, found.st_ino


def _announce() -> None:
    """Say in the run that there is something new in the file."""
    size = os.fstat(_watch.fd).st_size
    if size > _watch.written:
        _watch.written = size
        core.mark(STACKS, PROBE, args={"file": os.path.basename(_watch.path)})


@guard("turning thread stacks off")
def _close() -> None:
    """Nothing is written any more; an empty file goes."""
    import faulthandler

    atexit.unregister(_close)
    fd, _watch.fd = _watch.fd, -1
    if fd < 0 or _watch.pid != os.getpid():
        return
    if _watch.timer is not None:
        _library().timer_delete(_watch.timer)
        _watch.timer = None
    faulthandler.unregister(stacks_signal() or 0)
    if _identity(fd) == _watch.identity:
        empty = os.fstat(fd).st_size == 0
        os.close(fd)
        if empty:
            with suppress(OSError):
                os.unlink(_watch.path)


# ── the timer of the kernel, which Python does not offer ─────────────────────────────────────────────────────────────


def _library() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def _set_timer(after_ns: int) -> None:
    import ctypes

    if _watch.timer is None:
        _watch.timer = _new_timer()
    value = (ctypes.c_long * 4)(0, 0, *divmod(after_ns, 10**9))  # no repetition; seconds and nanoseconds
    if _library().timer_settime(_watch.timer, 0, value, None):
        raise OSError(ctypes.get_errno(), "the timer could not be set")


def _new_timer() -> Any:
    import ctypes

    # struct sigevent: a pointer, the signal, how to notify, and room for what we do not use.
    event = (ctypes.c_int * 16)()
    event[2], event[3] = stacks_signal() or 0, _SIGEV_SIGNAL
    timer = ctypes.c_void_p()
    if sys.maxsize < 2**32 or _library().timer_create(_CLOCK_MONOTONIC, event, ctypes.byref(timer)):
        raise OSError(ctypes.get_errno(), "the kernel provides no timer")
    return timer
