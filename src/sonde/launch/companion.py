"""A process of Sonde's beside the program, which reads the run: it learns of the end through a pipe, and outlives the launcher."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from sonde.guard import guard
from sonde.launch.child import exit_code_of, start_module
from sonde.launch.signals import forget, until

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ENDED = b"e"  # what is written into the pipe when the program has ended
LEFT = -1  # nobody waits for it any longer


class Beside:
    """A process beside the program, `python -m MODULE PIPE WORD...`. `pid` is None if it could not be started."""

    def __init__(self, module: str, words: Sequence[str], mask: Iterable[int]) -> None:
        self.pid: int | None = None
        self._pipe = -1
        with guard("starting a companion process"):
            reading, self._pipe = os.pipe()
            os.set_inheritable(reading, True)
            try:
                self.pid = start_module(module, [str(reading), *words], mask, setsid=True)
            finally:
                os.close(reading)

    def finish(self) -> None:
        """The program has ended: what is left is to be done."""
        if self._pipe >= 0:
            with suppress(OSError):
                os.write(self._pipe, ENDED)
            os.close(self._pipe)
            self._pipe = -1

    def wait(self) -> bool | None:
        """Whether all went well; None: somebody did not want to wait for it. Only inside of `blocked`."""
        if self.pid is None:
            return False
        forget()
        left: list[int] = []
        ended = partial(exit_code_of, self.pid)
        code = until(lambda: LEFT if left else ended(), lambda came: left.append(came.si_signo))
        return None if code == LEFT else code == 0


def step_aside() -> None:
    """In such a process: be the last on this host to get a core or the disk, and outlive the signals that end the program."""
    import psutil

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError):
        os.nice(19)
    with suppress(OSError, AttributeError, psutil.Error):
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
