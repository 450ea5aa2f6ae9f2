"""SIGTERM with other signals at the same moment."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from sonde.native import sigterm

PLACES = 40  # more than the function has
PROGRAM = f"""
import os, signal, sys
from sonde.blackbox import sigterm

def ended(*_):
    raise RuntimeError("DataLoader worker exited")

def interrupt(place):
    seen = 0
    def trace(frame, event, arg):
        nonlocal seen
        if frame.f_code.co_filename == sigterm.__file__:
            seen += 1
            if seen == place:
                signal.raise_signal(signal.SIGCHLD)
        return trace
    return trace

for place in range({PLACES}):
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, ended)
        sigterm.watch(lambda: os.write(1, b"called "))
        sys.settrace(interrupt(place))
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            pass
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


@pytest.mark.skipif(sigterm is None, reason="SIGTERM is seen in C")
def test_workers_that_end_at_the_same_moment_change_nothing() -> None:
    """torch raises an error for them, wherever the program is: the program dies of SIGTERM all the same, after one call."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines() == [f"called {-signal.SIGTERM}"] * PLACES
    assert done.stderr == ""
