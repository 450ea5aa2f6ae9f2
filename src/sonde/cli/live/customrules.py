"""Runs custom rules on a growing run, and carries out their actions: stop, dump, deepen.

`python -m sonde.cli.live.customrules RUN FILE...` runs beside the program, started by its launcher; it ends with it. It takes at most 5 % of the time
of a core, and does the same for one rule at most every 10 minutes. A rule that raises, hangs or ends its process is named and not asked
again. No rule is asked before the training has begun: without steps, many would raise.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sonde.cli.deepen import STEPS, first_step, trainers, training
from sonde.diagnosis.custom.process import SECONDS as SECONDS_OF_ALL, UNASKED, ask_apart
from sonde.errors import SondeError
from sonde.store import request as requests
from sonde.store.folder import FILE_MODE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sonde.finding import Finding

SECONDS = 10.0  # between two looks, at least
SHARE = 0.05  # of the time, that looking may take
AGAIN_SECONDS = 600.0  # until a rule may have the same done again
DUMP_FILE = "dump"


class Acting:
    """What was done for which rule, and when."""

    def __init__(
        self, run: Path, files: Sequence[str], say: Callable[[str], None], seconds: float = SECONDS_OF_ALL
    ) -> None:
        self._run = run
        self._seconds = seconds
        self._files = files
        self._say = say
        self._done: dict[tuple[str, str], float] = {}
        self._told: set[str] = set()
        self._off: set[str] = set()

    def look(self) -> None:
        """Ask all rules once, and do what they want."""
        training(self._run)  # raises if no process trains
        found = ask_apart(self._run, self._files, self._seconds, sorted(self._off))
        self._off |= found.failed.keys()
        for problem in found.failed.values():
            self._told.add(problem)
            self._say(f"{_sentence(problem.removesuffix(UNASKED))} It is off until the program ends.")
        for problem in found.problems:
            if problem not in self._told:
                self._told.add(problem)
                self._say(problem)
        for finding in found.findings:
            wanted = finding.evidence.get("then")
            for action in map(str, wanted if isinstance(wanted, list) else []):
                if action in ACTIONS and self._may(finding.kind, action):
                    self._act(finding, action)

    def _may(self, kind: str, action: str) -> bool:
        last = self._done.get((kind, action))
        return last is None or (action != "stop" and time.monotonic() - last >= AGAIN_SECONDS)

    def _act(self, finding: Finding, action: str) -> None:
        try:
            ACTIONS[action](self._run, finding)
        except (SondeError, OSError):  # it starts, or ends: the next look comes soon
            return
        self._done[finding.kind, action] = time.monotonic()
        self._say(f"{finding.kind}: {_sentence(finding.why)} {SAID[action]}")


def _sentence(text: str) -> str:
    """Words of a rule, with a period."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _stop(run: Path, finding: Finding) -> None:
    if not (run / requests.STOP_FILE).exists():  # another launcher of the job may have asked
        requests.ask_stop(run, requests.StopRequest(first_step(trainers(run)), finding.why))


def _dump(run: Path, _finding: Finding) -> None:
    fd = os.open(run / DUMP_FILE, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, FILE_MODE)
    try:
        os.utime(fd)
    finally:
        os.close(fd)


def _deepen(run: Path, finding: Finding) -> None:
    parts = (requests.LAYERS, requests.STACKS)
    first = first_step(trainers(run))
    requests.ask_deep(run, requests.DeepRequest(os.urandom(4).hex(), STEPS, parts, 0, first, f"rule {finding.kind}"))


ACTIONS: dict[str, Callable[[Path, Finding], None]] = {"stop": _stop, "dump": _dump, "deepen": _deepen}
SAID = {
    "stop": "Asked the program to stop.",
    "dump": "Asked for the last batches.",
    "deepen": f"Recording {STEPS} steps in depth.",
}


def main(run: str, files: Sequence[str]) -> None:
    """Look again and again, until the launcher is gone."""
    launcher = os.getppid()
    acting = Acting(Path(run), files, lambda text: print(f"sonde: {text}", file=sys.stderr, flush=True))
    while os.getppid() == launcher:
        before = _cpu_seconds()
        with suppress(SondeError):
            acting.look()
        until = time.monotonic() + max(SECONDS, (_cpu_seconds() - before) / SHARE)
        while os.getppid() == launcher and time.monotonic() < until:
            time.sleep(0.5)


def _cpu_seconds() -> float:
    """CPU time of this process and of those that it has started and that have ended."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
