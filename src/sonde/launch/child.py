"""Starts and ends processes of Sonde that work for the launcher. They do not record themselves."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sonde import environment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def start_module(module: str, words: Sequence[str], mask: Iterable[int] = (), **more: Any) -> int:
    """Start `python -m MODULE WORD...`; returns its pid. `more`: for `os.posix_spawn`. Raises OSError."""
    line = [sys.executable, "-P", "-m", module, *words]
    return os.posix_spawn(sys.executable, line, environment.unrecorded(), setsigmask=mask, **more)


def exit_code_of(pid: int) -> int | None:
    """The exit code of a child; None while it runs."""
    done, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


def kill(pid: int) -> None:
    """End a child, and what it has started in its process group."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
