"""Waiting for the end of a program."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from sonde.launch.signals import blocked, until


def test_an_end_of_which_nobody_was_told_is_noticed_all_the_same() -> None:
    """The signal may have gone to a thread that a library has started."""
    end = time.monotonic() + 0.2
    with blocked():
        begun = time.monotonic()
        assert until(lambda: 7 if time.monotonic() > end else None, lambda _: None) == 7
    assert 0.2 <= time.monotonic() - begun < 10


# In a process of its own: one that tests has threads that would take the signals.
FORGETTING = """
import os, signal
from sonde.launch.signals import blocked, forget, until
came = []
with blocked():
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGHUP)
    forget()
    os.kill(os.getpid(), signal.SIGUSR2)
    os.kill(os.getpid(), signal.SIGCHLD)
    until(lambda: 0 if came else None, lambda info: came.append(int(info.si_signo)))
    os.kill(os.getpid(), signal.SIGTERM)  # too late: it is not to end this process
print(came)
"""


def test_what_came_before_can_be_forgotten_and_what_comes_later_is_told() -> None:
    """Each once; the end of a child is neither."""
    done = subprocess.run([sys.executable, "-c", FORGETTING], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"[{int(signal.SIGUSR2)}]\n"
