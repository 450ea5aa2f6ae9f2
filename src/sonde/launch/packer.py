"""Has the records of a long run packed, by a process beside the program, before the run comes near its size cap."""

from __future__ import annotations

import os

from sonde.launch.child import kill, start_module
from sonde.store.usage import recorded

SHARE = 0.5  # of the cap: from then on records are packed; near it they are thinned out
MORE = 0.02  # of the cap: what must have come after nothing could be packed


class Packer:
    """Looks at what a run has, and starts the process when that is much. It runs as the last in line for a core."""

    def __init__(self, run: str, cap: int) -> None:
        self._run, self._cap = run, cap
        self._pid = 0
        self._again = SHARE * cap  # bytes of the run from which it is time

    def look(self) -> None:
        """Start it if it is time."""
        used = recorded(self._run)
        if self._pid:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if not pid:
                return
            self._pid = 0
            self._again = SHARE * self._cap if status == 0 else used + MORE * self._cap
        if used >= self._again:
            self._pid = start_module(
                "sonde.store.packing",
                [self._run],
                file_actions=[(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)],
                setpgroup=0,  # Ctrl-C is for the program
            )

    def stop(self) -> None:
        """End it: what it has packed counts, and the rest stays as it is."""
        if self._pid:
            kill(self._pid)
            self._pid = 0
