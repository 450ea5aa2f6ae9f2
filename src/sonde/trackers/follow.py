"""The process that feeds a tracker: reads the run every few seconds until the program ends, then makes the report.

`python -m sonde.trackers.follow PIPE DONE QUIET RUN TRACKER TARGET`: PIPE says when the program has ended; into DONE (-1: none) is
written when all is done; TARGET is a JSON object, what the tracker gets.
"""

from __future__ import annotations

import json
import os
import select
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sonde import environment
from sonde.analysis.live.run import RECORDING, STARTING, Live
from sonde.analysis.run import Run
from sonde.diagnosis.summary import summary
from sonde.guard import failure_of
from sonde.html import page
from sonde.launch.companion import ENDED, step_aside
from sonde.trackers.metrics import StepPoints
from sonde.trackers.tracker import StepValues, Tracker, opened
from sonde.views.charts import charts
from sonde.views.report import report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EVERY = 2.0  # seconds between two looks
LONGEST_PAUSE = 60.0  # seconds until a tracker that fails is tried again
MOST_WAITING = 5_000  # points that are kept for a tracker that fails
LAST_SECONDS = 600.0  # for what is left when the program has ended: then the tracker has hung
PAGE = "sonde-report.html"


def main(pipe: str, done: str, quiet: str, run: str, tracker: str, target: str) -> None:
    """Feed a tracker until the program has ended."""
    for descriptor in (int(pipe), int(done)):
        if descriptor >= 0:
            os.set_inheritable(descriptor, False)
    environment.alone_in_trackers()
    step_aside()
    feed = TrackerFeed(tracker, lambda: opened(tracker, Path(run).name, json.loads(target)))
    try:
        follow(int(pipe), Live(run), feed)
        _end_in_time(tracker)
        well = finish(Path(run), feed)
    finally:
        if int(done) >= 0:
            with suppress(OSError):
                os.write(int(done), ENDED)
    if well and not int(quiet):
        say(f"the report is in {tracker}")
    sys.exit(int(not well))


class TrackerFeed:
    """Gives points to a tracker. What fails is said once, and tried again later; `dropped` counts what was given up."""

    def __init__(self, name: str, open: Callable[[], Tracker]) -> None:
        self.dropped = 0
        self._name = name
        self._open = open
        self._tracker: Tracker | None = None
        self._waiting: list[StepValues] = []
        self._failed = ""
        self._pause = 0.0

    def add(self, points: list[StepValues], passed: float) -> None:
        """Take points; `passed` seconds after the last time."""
        self._waiting += points
        self.dropped += max(len(self._waiting) - MOST_WAITING, 0)
        del self._waiting[:-MOST_WAITING]
        self._pause -= passed
        if self._waiting and self._pause <= 0:
            self._tried(self._log)

    def finish(self, outcome: Mapping[str, float | str], page: Path) -> bool:
        """Give what is left, and end; whether that went well."""
        if self._waiting:
            self._tried(self._log)
        facts = {**outcome, "sonde/tracker/dropped": float(self.dropped + len(self._waiting))}
        return self._tried(lambda tracker: tracker.finish(facts, page))

    def _log(self, tracker: Tracker) -> None:
        tracker.log(self._waiting)
        self._waiting = []

    def _tried(self, do: Callable[[Tracker], None]) -> bool:
        reason = failure_of(lambda: do(self._opened()))
        if reason is None:
            self._pause = 0.0
            return True
        self._pause = LONGEST_PAUSE if self._failed else EVERY
        if reason != self._failed:
            say(f"not in {self._name}: {reason}")
        self._failed = reason
        return False

    def _opened(self) -> Tracker:
        if self._tracker is None:
            self._tracker = self._open()
        return self._tracker


def follow(pipe: int, live: Live, feed: TrackerFeed) -> None:
    """Feed the tracker every few seconds until the program has ended, or nothing records any more."""
    points, pipes = StepPoints(live), [pipe]
    while True:
        ready, _, _ = select.select(pipes, [], [], EVERY)
        word = os.read(pipe, 1) if ready else None
        feed.add(points.look(), EVERY)
        if word == ENDED or live.state not in (RECORDING, STARTING):
            break
        if word == b"":  # the program goes on without its launcher, or has not begun to record
            pipes = []
            if live.state == STARTING:
                break
    feed.dropped += points.skipped


def finish(run: Path, feed: TrackerFeed) -> bool:
    """Make the report, and give it to the tracker; whether that went well."""
    with tempfile.TemporaryDirectory(prefix="sonde-tracker-") as folder, Run([run], threads=1) as opened_run:
        file = Path(folder, PAGE)
        view = report(opened_run)
        file.write_text(page(view, charts(opened_run)), "utf-8")
        outcome = {name: value for name, value in summary(opened_run).items() if value is not None}
        for number, finding in enumerate(view.findings, 1):
            outcome[f"sonde/finding/{number}"] = f"{finding.kind}: {finding.why}"
        return feed.finish(outcome, file)


def _end_in_time(name: str) -> None:
    def give_up() -> None:
        say(f"gave up on {name}: it did not finish in {LAST_SECONDS:.0f} s")
        os._exit(1)

    timer = threading.Timer(LAST_SECONDS, give_up)
    timer.daemon = True
    timer.start()


def say(text: str) -> None:
    """One line on the error channel."""
    with suppress(OSError):
        print(f"sonde: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
