"""The process that runs custom rules while the program runs: started only if the setting `rules` names some."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from sonde import environment
from sonde.guard import guard

if TYPE_CHECKING:
    from collections.abc import Sequence


class RulesProcess:
    """The process. It says on the error channel what it does."""

    def __init__(self, run: str, files: Sequence[str]) -> None:
        self._pid = 0
        line = [sys.executable, "-P", "-m", "sonde.cli.live.customrules", run, *files]
        with guard("starting the custom rules"):
            self._pid = os.posix_spawn(
                sys.executable,
                line,
                environment.unrecorded(),
                file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, 2, 1)],
                setsigmask=(),
                setpgroup=0,  # Ctrl-C is for the program
            )

    def end(self) -> None:
        """End it, and what it has started."""
        if self._pid:
            with suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
            self._pid = 0
