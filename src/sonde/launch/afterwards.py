"""The report at the end of `sonde run`: made by a process of its own, so that the launcher stays small."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from sonde import config
from sonde.launch import unseen
from sonde.launch.program import BOOT
from sonde.launch.signals import CHECK_SECONDS, PASSED

if TYPE_CHECKING:
    from collections.abc import Iterable

STDOUT, STDERR = 1, 2


def draw_report(run: str, mask: Iterable[int]) -> bool | None:
    """Draw the card of a run on the error channel; None if there is nothing to tell, False if it could not be done.

    Only inside of `blocked`, whose mask is given: a signal that comes meanwhile ends the drawing. What goes wrong with the
    report is not told here: the program's own last words are the more important ones.
    """
    if unseen.nothing(run, ()):
        return None
    line = [sys.executable, "-P", "-m", "sonde", "report", run]
    try:
        pid = os.posix_spawn(
            sys.executable,
            line,
            config.of_program(None, BOOT, {}),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, STDERR, STDOUT),
                (os.POSIX_SPAWN_OPEN, STDERR, os.devnull, os.O_WRONLY, 0),
            ],
            setsigmask=mask,
        )
    except OSError:
        return False
    return _waited(pid) == 0


def _waited(pid: int) -> int:
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        came = signal.sigtimedwait(PASSED | {signal.SIGCHLD}, CHECK_SECONDS)
        if came is not None and came.si_signo != signal.SIGCHLD:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
