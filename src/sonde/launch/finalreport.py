"""The report at the end of `sonde run`: made by a process of its own, so that the launcher stays small."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from sonde.launch import blindspots
from sonde.launch.child import exit_code_of, start_module
from sonde.launch.signals import forget, until
from sonde.store.folder import PROFILES

STDOUT, STDERR = 1, 2


def draw_report(run: str, mask: Iterable[int]) -> bool | None:
    """Draw the card of a run on the error channel; None if there is nothing to show, False if it could not be done.

    Only inside of `blocked`, whose mask is given: a signal that comes meanwhile ends the drawing. One that came before was
    meant for the program: `timeout` sends to the launcher, and once more to its group. What goes wrong with the report is not
    told here: the program's own last words are the more important ones.
    """
    if blindspots.nothing(run, ()):
        return None
    return _done(["sonde", "report", run], mask, errors=False)


def join_profiles(run: str, mask: Iterable[int], quiet: bool) -> bool:
    """Put what torch.profiler recorded on the timeline of the run; False if it recorded nothing. Only inside of `blocked`."""
    if not os.path.isdir(os.path.join(run, PROFILES)):
        return False
    _done(["sonde.exchange.imports.profiler", run, *(["quiet"] if quiet else [])], mask, errors=True)
    return True


def _done(words: list[str], mask: Iterable[int], *, errors: bool) -> bool:
    """Whether a module of ours has done its work. Its output goes to the error channel."""
    forget()
    silent = [] if errors else [(os.POSIX_SPAWN_OPEN, STDERR, os.devnull, os.O_WRONLY, 0)]
    try:
        pid = start_module(words[0], words[1:], mask, file_actions=[(os.POSIX_SPAWN_DUP2, STDERR, STDOUT), *silent])
    except OSError:
        return False
    return until(partial(exit_code_of, pid), partial(_end, pid)) == 0


def _end(pid: int, _: signal.struct_siginfo) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
