"""What a report costs: of 1 M steps on each of 4 ranks, of a run of 200 steps, and how large a page of 10,000 steps is."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.importing import ENVIRONMENT
from benchmarks.reading import SEAL, bytes_of, run_apart
from benchmarks.subjects import scratch
from benchmarks.tables import RECORD, _copy

STEPS, RANKS = 1_000_000, 4
SHORT, PAGE = 200, 10_000
ROUNDS = 5
EVENTS = 6  # that a step has

REPORT = """
import sys
from sonde.cli.report import command
command.main([sys.argv[1]], standalone_mode=False)
"""


def measure(steps: int = STEPS, ranks: int = RANKS) -> dict[str, Any]:
    """CPU and memory of the long one, raw and sealed, seconds from command to card of the short one, bytes of the page."""
    found: dict[str, Any] = {"steps": steps, "ranks": ranks}
    with scratch() as folder:
        _, long = run_apart(RECORD, folder, str(steps))
        for rank in range(1, ranks):
            _copy(Path(long), rank)
        found["long"], _ = run_apart(REPORT, long)
        run_apart(SEAL, long)
        found["sealed_bytes_per_event"] = bytes_of(Path(long)) / (EVENTS * steps * ranks)
        found["long_sealed"], _ = run_apart(REPORT, long)
        _, short = run_apart(RECORD, folder, str(SHORT))
        found["short_s"] = statistics.median(_command(short) for _ in range(ROUNDS))
        _, middle = run_apart(RECORD, folder, str(PAGE))
        page = Path(folder) / "report.html"
        _command(middle, "--html", str(page))
        found["page_kb"] = page.stat().st_size / 1000
    return found


def _command(*words: str) -> float:
    """Seconds that `sonde report` takes, from its start to its end."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "sonde", "report", *words]
    subprocess.run(command, check=True, capture_output=True, env=ENVIRONMENT)
    return time.perf_counter() - begun


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
