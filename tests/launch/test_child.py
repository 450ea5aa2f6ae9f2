"""Processes that work for the launcher."""

from __future__ import annotations

import os
import time

import pytest

from sonde.launch.child import exit_code_of, kill, start_module


def test_a_module_runs_and_its_exit_code_is_known() -> None:
    """It is None until it has ended."""
    pid = start_module("platform", [], file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    until = time.monotonic() + 60
    while (code := exit_code_of(pid)) is None and time.monotonic() < until:
        time.sleep(0.01)
    assert code == 0


def test_a_child_that_is_killed_is_reaped() -> None:
    """It leaves no zombie, and a second time does no harm."""
    pid = start_module("http.server", ["0", "--bind", "127.0.0.1"], file_actions=_SILENT, setpgroup=0)
    kill(pid)
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)
    kill(pid)


_SILENT = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
