"""The runs of the served folder, and the few of them that are open."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from sonde.analysis.parts.manifest import stamps
from sonde.analysis.records.locate import PROCESSES_FILE, size_of, stamp
from sonde.analysis.run import RECORDING, Run
from sonde.errors import RunNotFound
from sonde.views.runs import candidates

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sonde.web.endpoints.traces import TraceReader

MOST_OPEN = 3
THREADS = 2
MEMORY = 160_000_000  # bytes that the database of one run may use
SHARE = 0.015  # of a core: what reading a growing run again may cost, with the answers that are then made
SELDOM = 0.015  # of a core: what the dear answers about a growing run may cost
SOON = 0.5  # seconds: a growing run is not read again before


class CachedAnswer(NamedTuple):
    """A dear answer: of which version of the run, and until when it is good enough while the run grows."""

    version: str
    answer: object
    until: float


class OpenRun:
    """A run that is kept open. Whoever uses it holds the lock; what was interrupted is thrown away."""

    def __init__(self, path: Path) -> None:
        self.run = Run([path], threads=THREADS, memory=MEMORY)
        self.lock = threading.Lock()
        self.dear_lock = threading.Lock()  # of those who ask for what takes long
        self._aside: OpenRun | None = None
        self._aside_lock = threading.Lock()
        self.version = ""
        self.live = False
        self.broken = False
        self._cost = 0.0
        self._read = 0.0
        self._kept: dict[str, CachedAnswer] = {}

    def bring_up_to_date(self) -> None:
        """Read the run again if it has changed, unless that was done just now."""
        if self.version and self.live and time.monotonic() < self._read + max(SOON, self._cost / SHARE):
            return
        version = version_of(self.run.path)
        if version != self.version or self.live:
            begun = time.process_time()
            self.run.refresh()
            self.live = self.run.state == RECORDING
            self.version = f"{version}-{time.monotonic_ns()}" if self.live else version
            self.run.database  # noqa: B018  it reads the files
            self._cost = time.process_time() - begun
        self._read = time.monotonic()

    def expire(self) -> None:
        """Read it again for the next question: something is known to have changed."""
        self._read, self._cost = -SOON, 0.0

    def answer(self, make: Callable[[], object]) -> object:
        """An answer. What it costs delays the next reading of a growing run."""
        begun = time.process_time()
        found = make()
        self._cost += time.process_time() - begun
        return found

    def seldom(self, question: str) -> CachedAnswer | None:
        """A dear answer that was made before, if it is good enough: of a growing run, it may be some steps old."""
        kept = self._kept.get(question)
        good = kept is not None and (kept.version == self.version or (self.live and time.monotonic() < kept.until))
        return kept if good else None

    def keep(self, question: str, version: str, make: Callable[[], object]) -> CachedAnswer:
        """Make a dear answer, and keep it for those who ask again."""
        begun = time.process_time()
        found = make()
        until = time.monotonic() + (time.process_time() - begun) / SELDOM
        kept = self._kept[question] = CachedAnswer(version, found, until)
        return kept

    def again(self) -> OpenRun:
        """The same run once more, to be closed after one question."""
        return OpenRun(self.run.path)

    def aside(self) -> OpenRun:
        """The same run once more, which stays open too: for questions of the user's own, so that the pages need not wait for them."""
        with self._aside_lock:
            if self._aside is None or self._aside.broken:
                self._aside = self.again()
            return self._aside

    def close(self) -> None:
        """Nobody uses it any more."""
        self.run.close()

    def leave(self) -> None:
        """Others are looked at now: close it, or let whoever still uses it do so."""
        for one in (self, self._aside):
            if one is not None:
                one.broken = True
                if one.lock.acquire(blocking=False):
                    one.run.close()
                    one.lock.release()

    def end(self) -> None:
        """The server ends."""
        for one in (self, self._aside):
            if one is not None:
                one.interrupt()

    def interrupt(self) -> None:
        """End what it computes. Tables that were half made are not used again."""
        self.broken = True
        interrupt(self.run)


def interrupt(run: Run) -> None:
    """End the query that runs, from another thread."""
    if run._database is not None:
        with suppress(duckdb.ConnectionException):  # closed in between
            run._database.connection.interrupt()


def version_of(path: Path) -> str:
    """What changes with the files of a run."""
    sealed = [stamp(path / PROCESSES_FILE), *(one for _, one in stamps(path))]
    return "-".join([f"{size_of(path):x}", *(f"{one[1]:x}" for one in sealed if one is not None)])


class RunsFolder:
    """A folder of runs. `chosen`: the run that the user named; `traces`: what reads traces of values."""

    def __init__(self, path: Path, chosen: str | None = None, traces: TraceReader | None = None) -> None:
        self.path = path
        self.traces = traces
        self.chosen = chosen
        self._open: OrderedDict[str, OpenRun] = OrderedDict()
        self._seen: set[str] = set()  # runs that were opened: one that is not there any more was deleted
        self._lock = threading.Lock()

    def find(self, id: str) -> Path:
        """The folder of a run. Raises RunNotFound: only what is listed can be asked for, so no path leads out."""
        for path in candidates(self.path):
            if path.name == id:
                return path
        raise RunNotFound(f"No run {id!r} in this folder. It may have been deleted.")

    def get(self, id: str) -> OpenRun:
        """A run, opened if it is not yet."""
        path = self.find(id)
        with self._lock:
            found = self._open.pop(id, None)
            if found is None or found.broken:
                found = OpenRun(path)
            self._open[id] = found
            self._seen.add(id)
            while len(self._open) > MOST_OPEN:
                _, left = self._open.popitem(last=False)
                left.leave()
            return found

    def knows(self, id: str) -> bool:
        """Whether this run was there before."""
        return id in self._seen

    def expire(self, id: str) -> None:
        """Read a run again, whatever it costs: it has ended."""
        found = self._open.get(id)
        if found is not None:
            found.expire()

    def forget(self, id: str) -> None:
        """Close a run that is gone or broken."""
        with self._lock:
            self._open.pop(id, None)

    def close(self) -> None:
        """Close all."""
        with self._lock:
            for one in self._open.values():
                one.end()
            self._open.clear()
