"""Signals on their way to the program: each reaches it once, whoever it was sent to."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from sonde.errors import SondeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sonde.launch.program import Launched

# Those that a person or a job system sends. Stops (Ctrl-Z) are not among them: the terminal stops the launcher too.
PASSED = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2))
CHECK_SECONDS = 1.0
GRACE_SECONDS = 0.1


@contextmanager
def blocked() -> Iterator[set[int]]:
    """Keep signals for `attend` while the block runs; gives the mask from before, which a program is to be started with."""
    if not hasattr(signal, "sigtimedwait"):
        raise SondeError("sonde run needs Linux. Here, call sonde.init() at the start of the script instead.")
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, nobody learns how a child ended
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED | {signal.SIGCHLD})
    try:
        yield {int(number) for number in before}
    finally:
        # What came too late for the program is not meant for the few moments that are left.
        while signal.sigtimedwait(PASSED, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def attend(launched: Launched) -> int:
    """Wait for the end of the program, and pass signals on to it. Only inside of `blocked`. Returns its exit code."""
    while (code := launched.poll()) is None:
        came = signal.sigtimedwait(PASSED | {signal.SIGCHLD}, CHECK_SECONDS)
        if came is not None and came.si_signo != signal.SIGCHLD:
            _pass_on(launched, came)
    return code


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
