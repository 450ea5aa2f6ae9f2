"""Verdicts on runs that nobody has diagnosed yet: made one by one while somebody looks at the list, and kept in memory only."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import duckdb

from sonde.analysis.run import RECORDING, Run
from sonde.errors import SondeError
from sonde.guard import guard
from sonde.store.alive import UNKNOWN
from sonde.views.outcome import Outcome, outcome_of, read_outcome
from sonde.views.report import report
from sonde.views.runs import BROKEN
from sonde.web.asking import INTERRUPT_EVERY
from sonde.web.folder import MEMORY, interrupt, version_of

if TYPE_CHECKING:
    from pathlib import Path

    from sonde.views.runs import RunEntry

MOST = 50  # of the newest runs
AT_ONCE = 4  # between two looks at the list, so that it ends soon after the last one
LARGEST = 200_000_000  # bytes: a verdict on a larger run takes long


class Verdicts:
    """What came of the runs of a folder, as far as it is known."""

    def __init__(self) -> None:
        self._made: dict[Path, tuple[str, Outcome | None]] = {}
        self._waiting: list[Path] = []
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None
        self._busy: Path | None = None  # the run that is being diagnosed
        self._open: Run | None = None

    def known(self, path: Path) -> Outcome | None:
        """What was kept in the run's folder, or found out here."""
        kept = read_outcome(path)
        made = self._made.get(path)
        return made[1] if kept is None and made is not None and made[0] == version_of(path) else kept

    def lacking(self, path: Path, one: RunEntry) -> bool:
        """Whether a verdict on this run can be made, and was not."""
        over = one.state not in (RECORDING, UNKNOWN, BROKEN) and bool(one.processes) and one.size <= LARGEST
        made = self._made.get(path)
        return over and read_outcome(path) is None and (made is None or made[0] != version_of(path))

    def make(self, paths: list[Path]) -> None:
        """Begin with the first of these; what was asked for before and has not begun is dropped."""
        with self._lock:
            self._waiting = [one for one in paths[:AT_ONCE] if one != self._busy]
            if self._waiting and self._worker is None:
                self._worker = threading.Thread(target=self._work, name="sonde ui verdicts")
                self._worker.start()

    def close(self) -> None:
        """End what is being made."""
        self._waiting = []
        while (worker := self._worker) is not None:
            if (run := self._open) is not None:
                interrupt(run)  # one query after another
            worker.join(INTERRUPT_EVERY)

    def _work(self) -> None:
        while (path := self._next()) is not None:
            version, found = version_of(path), None
            with guard("reading a run for its verdict"):
                found = self._outcome(path)
            self._made[path] = version, found

    def _next(self) -> Path | None:
        with self._lock:
            self._busy = self._waiting.pop(0) if self._waiting else None
            if self._busy is None:
                self._worker = None
            return self._busy

    def _outcome(self, path: Path) -> Outcome | None:
        try:
            with Run([path], threads=1, memory=MEMORY) as run:
                self._open = run
                return outcome_of(report(run))
        except (SondeError, duckdb.Error):
            return None
        finally:
            self._open = None
