"""The process that pushes a run to a URL while its program runs: it is told of the end through a pipe, and outlives the launcher."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from sonde import environment
from sonde.guard import guard
from sonde.launch.afterwards import exit_code_of
from sonde.launch.signals import forget, until

if TYPE_CHECKING:
    from collections.abc import Iterable

ENDED = b"e"
LEFT = -1  # nobody waits for it any longer


class Pusher:
    """A process beside the program. `pid` is None if it could not be started."""

    def __init__(self, run: str, url: str, id: str | None, every: float, mask: Iterable[int], *, quiet: bool) -> None:
        self.pid: int | None = None
        self._pipe = -1
        with guard("starting to push"):
            reading, self._pipe = os.pipe()
            os.set_inheritable(reading, True)
            told = [str(reading), str(every), str(int(quiet)), run, url, *([id] if id else [])]
            try:
                self.pid = os.posix_spawn(
                    sys.executable,
                    [sys.executable, "-P", "-m", "sonde.cli.pushloop", *told],
                    environment.unrecorded(),
                    setsid=True,
                    setsigmask=mask,
                )
            finally:
                os.close(reading)

    def finish(self) -> None:
        """The program has ended: what is left is to be pushed."""
        if self._pipe >= 0:
            with suppress(OSError):
                os.write(self._pipe, ENDED)
            os.close(self._pipe)
            self._pipe = -1

    def wait(self) -> bool | None:
        """Whether the rest was pushed; None: somebody did not want to wait for it. Only inside of `blocked`."""
        if self.pid is None:
            return False
        forget()
        left: list[int] = []
        ended = partial(exit_code_of, self.pid)
        code = until(lambda: LEFT if left else ended(), lambda came: left.append(came.si_signo))
        return None if code == LEFT else code == 0
