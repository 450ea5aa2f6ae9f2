"""What one span costs, for every subject, in interleaved rounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from statistics import median
from typing import Any

from benchmarks import floor
from benchmarks.subjects import CALL, SUBJECTS, Subject


class Worker:
    """The process that measures one subject."""

    def __init__(self, index: int, subject: Subject) -> None:
        self.subject = subject
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", str(index)],
            env={**os.environ, **subject.environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.rounds: list[dict[str, float]] = []
        self.missing = self._answer().get("missing")

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"missing": "the process died"}

    def round(self) -> None:
        """Measure once."""
        assert self.process.stdin is not None
        if self.missing is not None:
            return
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except OSError:
            self.missing = "the process died"
            return
        answer = self._answer()
        self.missing = answer.pop("missing", None)
        if self.missing is None:
            self.rounds.append(answer)

    def close(self) -> None:
        """Let it end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def measure(rounds: int, tell: Any) -> dict[str, Any]:
    """All subjects, `rounds` times in turn; medians."""
    workers = [Worker(index, subject) for index, subject in enumerate(SUBJECTS)]
    floors = []
    for number in range(rounds):
        tell(number, rounds)
        for worker in workers:
            floors.append(floor.clock_ns())  # beside each: the machine is not equally fast at all times
            worker.round()
    for worker in workers:
        worker.close()
    rows = [row for worker in workers for row in _rows(worker)]
    call = median(values[CALL] for worker in workers for values in worker.rounds)
    missing = {f"{w.subject.name}, {w.subject.state}": w.missing for w in workers if w.missing is not None}
    return {
        "call_ns": call,
        "floor_ns": median([known for known in floors if known is not None]) if all(floors) else None,
        "rows": rows,
        "missing": missing,
    }


def _rows(worker: Worker) -> list[dict[str, Any]]:
    if worker.missing is not None or not worker.rounds:
        return []
    labels = [label for label in worker.rounds[0] if label != CALL]
    return [
        {
            "subject": worker.subject.name,
            "state": worker.subject.state,
            "case": label,
            "ns": median(values[label] for values in worker.rounds),
        }
        for label in labels
    ]
