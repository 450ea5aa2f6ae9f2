"""What the kernel says of machine and processes."""

from __future__ import annotations

import os

from sonde import system


def test_start_ticks_of_a_process_do_not_change() -> None:
    """A living process has its start time, and one that is not there has none."""
    assert system.start_ticks(os.getpid()) == system.start_ticks(os.getpid())
    assert system.start_ticks(2**30) is None
