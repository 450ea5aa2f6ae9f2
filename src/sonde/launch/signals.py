"""Forwards signals to the program: each reaches it once, whichever process it was sent to."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from sonde.errors import SondeError
from sonde.guard import guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sonde.launch.program import Launched

# Those that a person or a job system sends. Stops (Ctrl-Z) are not among them: the terminal stops the launcher too.
PASSED = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2))
CHECK_SECONDS = 1.0
GRACE_SECONDS = 0.1


@contextmanager
def blocked() -> Iterator[set[int]]:
    """Keep signals for `attend` while the block runs; gives the mask from before, which a program is to be started with."""
    if not hasattr(signal, "sigwaitinfo"):
        raise SondeError("sonde run needs Linux. Here, call sonde.init() at the start of the script instead.")
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, nobody learns how a child ended
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED | {signal.SIGCHLD})
    try:
        yield {int(number) for number in before}
    finally:
        forget()  # what came too late for the program is not meant for the few moments that are left
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def attend(launched: Launched) -> int:
    """Wait for the end of the program, and pass signals on to it. Only inside of `blocked`. Returns its exit code."""
    return until(launched.poll, partial(_pass_on, launched))


def until(ended: Callable[[], int | None], came: Callable[[signal.struct_siginfo], None]) -> int:
    """Wait until `ended` has an exit code; each signal of `PASSED` meanwhile is given to `came`. Only inside of `blocked`.

    Not with `sigtimedwait`: that of Python 3.11 tells, in a process that was stopped until the timeout had passed, of a
    signal that nobody has sent (whatever stands in memory).
    """
    with _knocks():
        while (code := ended()) is None:
            info = signal.sigwaitinfo(PASSED | {signal.SIGCHLD})
            if info.si_signo != signal.SIGCHLD:
                came(info)
    return code


def forget() -> None:
    """Take away what has come and was not attended to. Only inside of `blocked`."""
    while waiting := PASSED & signal.sigpending():
        signal.sigwait(waiting)


@contextmanager
def _knocks() -> Iterator[None]:
    """Wake this thread now and then: the end of a child may be told to a thread that some library has started before."""
    over = threading.Event()
    sleeper = threading.get_ident()

    def knock() -> None:
        while not over.wait(CHECK_SECONDS):
            signal.pthread_kill(sleeper, signal.SIGCHLD)

    thread = threading.Thread(target=knock, name="sonde signals", daemon=True)
    with guard("starting a thread of the launcher"):
        thread.start()
    try:
        yield
    finally:
        over.set()
        if thread.ident is not None:
            thread.join()


def _pass_on(launched: Launched, came: signal.struct_siginfo) -> None:
    """Send on what was sent to the launcher alone. The terminal sends to the whole group: the program has it already."""
    if came.si_code > 0:  # from the kernel, and not from a process
        return
    # Somebody may have sent it to the whole group too (`kill -- -group`): a program without a handler is then gone.
    until = time.monotonic() + GRACE_SECONDS
    while launched.poll() is None and time.monotonic() < until:
        time.sleep(GRACE_SECONDS / 10)
    with suppress(ProcessLookupError):
        launched.signal(came.si_signo)
