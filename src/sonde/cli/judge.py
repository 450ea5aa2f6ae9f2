"""The verdict on a run that is being watched: asked for again and again, in a process beside the screen.

It may need much memory for a moment, and a second of a core: the screen is to have neither.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from sonde import config
from sonde.views.watch import Opinion

EVERY = 5.0  # seconds between two verdicts, at least
SHARE = 0.02  # of the time that may be spent on them
NICE = 10


class Judge:
    """Asks for the verdict, and never waits for it."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._asked: subprocess.Popen[bytes] | None = None
        self._answer: IO[bytes] | None = None
        self._begun = 0.0
        self._due = 0.0
        self._last = False  # the verdict on a run that is over was asked for
        self.opinion: Opinion | None = None

    @property
    def asking(self) -> bool:
        """Whether an answer is being waited for."""
        return self._asked is not None

    def look(self, *, over: bool) -> Opinion | None:
        """The newest verdict; None if there is none yet. `over`: the run has ended, one more look is enough."""
        self._hear()
        if self._asked is None and not self._last and (over or time.monotonic() >= self._due):
            self._last = over
            self._ask()
        return self.opinion

    def close(self) -> None:
        """Ask no more."""
        if self._asked is not None:
            self._asked.kill()
            self._asked.wait()
        self._forget()

    def _ask(self) -> None:
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115  read when the answer is there
        self._begun = time.monotonic()
        line = [sys.executable, "-P", "-m", "sonde.diagnosis", str(self._run)]
        self._asked = subprocess.Popen(  # noqa: S603  our own command
            line,
            stdin=subprocess.DEVNULL,
            stdout=self._answer,
            stderr=subprocess.DEVNULL,
            env=config.of_program(None, "", {}),
            start_new_session=True,  # Ctrl-C is not meant for it
        )
        os.setpriority(os.PRIO_PROCESS, self._asked.pid, NICE)

    def _hear(self) -> None:
        if self._asked is None or self._asked.poll() is None or self._answer is None:
            return
        self._answer.seek(0)
        content = self._answer.read()
        took = time.monotonic() - self._begun
        self._due = time.monotonic() + max(EVERY, took / SHARE)
        if self._asked.returncode == 0:
            self.opinion = Opinion(**json.loads(content))
        self._forget()

    def _forget(self) -> None:
        if self._answer is not None:
            self._answer.close()
        self._asked = self._answer = None
