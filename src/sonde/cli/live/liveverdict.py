"""The verdict on a watched run, renewed again and again in a separate process.

It needs much memory for a moment, and a second of a core: the screen is to have neither. Where memory is scarce it is not
asked for, and should there be too little of it all the same, the kernel ends that process before any other.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO

from sonde import environment, system, units
from sonde.views.watch import Opinion

EVERY = 5.0  # seconds between two verdicts, at least
SHARE = 0.02  # of a core: what they may cost. Not of the time they take: on a busy host that is mostly waiting
NICE = 10
FIRST_TO_GO = "1000"  # the highest mark that the kernel knows for processes that it may end for want of memory
NEEDED = 100_000_000  # bytes for a verdict, before one was made
SPARE = 3  # times of what it needs have to be free


class VerdictProcess:
    """Asks for the verdict, and never waits for it."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._asked: subprocess.Popen[bytes] | None = None
        self._answer: IO[bytes] | None = None
        self._begun = 0  # when the run was read for the answer that is waited for
        self._due = 0.0
        self._last = False  # the verdict on a run that is over was asked for
        self._final = False  # and it is there
        self._read = 0  # when the run was read for the verdict that is there
        self._needed = NEEDED
        self.opinion: Opinion | None = None
        self.notice: str | None = None  # why there is no new one

    @property
    def asking(self) -> bool:
        """Whether an answer is being waited for."""
        return self._asked is not None

    def look(self, *, over: bool) -> Opinion | None:
        """The newest verdict; None if there is none yet. `over`: the run has ended, one more look is enough."""
        self._hear()
        if self._asked is None and not self._last and (over or time.monotonic() >= self._due) and self._is_room():
            self._last = over
            self._ask()
        if self.opinion is None or self._final:
            return self.opinion
        return replace(self.opinion, age_ns=time.monotonic_ns() - self._read)

    def close(self) -> None:
        """Ask no more."""
        if self._asked is not None:
            self._asked.kill()
            self._asked.wait()
        self._forget()

    def _is_room(self) -> bool:
        room = system.room(os.getpid())
        short = room is not None and room < SPARE * self._needed
        self.notice = None
        if short:
            self.notice = (
                f"no live verdict: it needs {units.size(self._needed)} of memory, {units.size(room)} are free. Later, "
                f"run: sonde report {self._run.name}"
            )
        return not short

    def _ask(self) -> None:
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115  read when the answer is there
        self._begun = time.monotonic_ns()
        line = [sys.executable, "-P", "-m", "sonde.diagnosis", str(self._run)]
        self._asked = subprocess.Popen(  # noqa: S603  our own command
            line,
            stdin=subprocess.DEVNULL,
            stdout=self._answer,
            stderr=subprocess.DEVNULL,
            env=environment.unrecorded(),
            start_new_session=True,  # Ctrl-C is not meant for it
        )
        with suppress(OSError):  # it is gone already
            os.setpriority(os.PRIO_PROCESS, self._asked.pid, NICE)
            Path(f"/proc/{self._asked.pid}/oom_score_adj").write_text(FIRST_TO_GO)

    def _hear(self) -> None:
        if self._asked is None or self._asked.poll() is None or self._answer is None:
            return
        self._answer.seek(0)
        content = self._answer.read()
        self._due = time.monotonic() + EVERY
        if self._asked.returncode == 0:
            answer = json.loads(content)
            self._needed = answer.pop("needed") or self._needed
            self._due = time.monotonic() + max(EVERY, answer.pop("cpu") / SHARE)
            self.opinion, self._read, self._final = Opinion(**answer), self._begun, self._last
        elif self._asked.returncode == -signal.SIGKILL:  # by the kernel, for want of memory
            self._needed *= 2
        self._forget()

    def _forget(self) -> None:
        if self._answer is not None:
            self._answer.close()
        self._asked = self._answer = None
