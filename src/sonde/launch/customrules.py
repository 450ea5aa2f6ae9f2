"""The process that runs custom rules while the program runs: started only if the setting `rules` names some."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sonde.guard import guard
from sonde.launch.child import kill, start_module

if TYPE_CHECKING:
    from collections.abc import Sequence


class RulesProcess:
    """The process. It says on the error channel what it does."""

    def __init__(self, run: str, files: Sequence[str]) -> None:
        self._pid = 0
        with guard("starting the custom rules"):
            self._pid = start_module(
                "sonde.cli.live.customrules",
                [run, *files],
                file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, 2, 1)],
                setpgroup=0,  # Ctrl-C is for the program
            )

    def end(self) -> None:
        """End it, and what it has started."""
        if self._pid:
            kill(self._pid)
            self._pid = 0
