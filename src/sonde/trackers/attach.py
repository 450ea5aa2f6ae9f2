"""Starts the process that feeds a tracker, from within the program that is recorded."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from sonde import environment, ranks, session
from sonde.events.recorder import is_multiprocessing_child
from sonde.guard import guard, warn
from sonde.launch.companion import ENDED
from sonde.trackers.tracker import check

if TYPE_CHECKING:
    from collections.abc import Mapping

SHELL = "/bin/sh"
PATIENCE = 60.0  # seconds that a program waits at its end for the report to be sent
SAID_AFTER = 3.0

_attached: set[str] = set()


def attach(name: str, target: Mapping[str, str]) -> bool:
    """Feed a tracker with what this program records, from rank 0; whether that has begun. Never raises."""
    with guard(f"attaching {name}"):
        if is_multiprocessing_child() or ranks.current().rank not in (None, 0) or name in _attached:
            return False
        check(name, f"sonde.trackers.{name}")
        running = session.current() or session.init()
        if running.path is None:
            warn("Sonde is not recording, so nothing goes to %s.", name)
            return False
        _attached.add(name)
        _start(name, str(running.path), target)
        return True
    return False


def _start(name: str, run: str, target: Mapping[str, str]) -> None:
    """Through a shell that ends at once: the program has no child that it did not start itself."""
    told, tell = os.pipe()
    done, finished = os.pipe()
    for descriptor in (told, finished):
        os.set_inheritable(descriptor, True)
    words = [str(told), str(finished), "1", run, name, json.dumps(dict(target))]
    line = [sys.executable, "-P", "-m", "sonde.trackers.follow", *words]
    try:
        shell = os.posix_spawn(
            SHELL,
            [SHELL, "-c", '"$@" &', "sh", *line],
            environment.unrecorded(),
            setsid=True,
            setsigmask=signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        )
        os.waitpid(shell, 0)
    finally:
        os.close(told)
        os.close(finished)
    session.at_end(lambda: _wait(name, tell, done))


def _wait(name: str, tell: int, done: int) -> None:
    """The recording has ended: wait a while until the tracker has the report."""
    with suppress(OSError):
        os.write(tell, ENDED)
    os.close(tell)
    _attached.discard(name)
    said, until = False, time.monotonic() + PATIENCE
    with suppress(KeyboardInterrupt):
        while not select.select([done], [], [], SAID_AFTER)[0] and time.monotonic() < until:
            if not said:
                print(f"sonde: sending the report to {name}", file=sys.stderr, flush=True)
            said = True
    os.close(done)
