"""What `sonde ui` costs: a long sealed run until its charts can be drawn, its timeline, 2,000 runs, and memory; in CPU of the server."""

from __future__ import annotations

import json
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.importing import ENVIRONMENT
from benchmarks.reading import SEAL, run_apart
from benchmarks.subjects import scratch
from benchmarks.tables import RECORD, _copy

STEPS, RANKS, RUNS = 1_000_000, 4, 2000
EVENTS = 15  # that a step has
LANES = 12  # that are seen at once
VIEWS = 40  # of the timeline: places and zooms
QUIET = 5.0  # seconds in which nobody asks
CHARTS = ("step,phases,communication,loss,throughput", "rss,device,cpu,host_cpu,gpu,disk")
TIMEOUT = 120.0
# A step as the probes write it, with nine spans of the program inside the forward.
RECORD_DEEP = RECORD.replace(
    "with forward: pass",
    "with forward:\n        for part in parts:\n            with part: pass",
).replace("for step in range", "parts = [core.Span(f'part{n}', 'user') for n in range(9)]\nfor step in range")


def measure(steps: int = STEPS, ranks: int = RANKS, runs: int = RUNS) -> dict[str, Any]:
    """CPU seconds until the first paint of a run and of its timeline, ms of each view of it, of the list of runs; peak memory."""
    found: dict[str, Any] = {"events": EVENTS * steps * ranks, "runs": runs}
    with scratch() as folder:
        many, one = Path(folder) / "many", Path(folder) / "one"
        _, small = run_apart(RECORD, str(many), "50")
        for number in range(1, runs):
            shutil.copytree(small, f"{small}-{number}")
        with serving(many) as server:
            before = server.cpu()
            listed = server.ask("/api/runs")["runs"]
            found["list_cpu_s"] = server.cpu() - before
            assert len(listed) == runs
        _, long = run_apart(RECORD_DEEP, str(one), str(steps))
        for rank in range(1, ranks):
            _copy(Path(long), rank)
        run_apart(SEAL, long)
        found |= _long(one, Path(long).name)
    return found


def _long(folder: Path, run: str) -> dict[str, Any]:
    with serving(folder) as server:
        base = f"/api/runs/{run}"
        server.ask(f"{base}/head")
        for names in CHARTS:
            server.ask(f"{base}/series?name={names}&points=600")
        paint, painted = server.cpu(), server.seconds()
        lanes = server.ask(f"{base}/lanes")
        first, last = lanes["start_ns"], lanes["end_ns"]
        window = f"{base}/timeline?format=bin&pixels=1200&lanes={','.join(one['id'] for one in lanes['lanes'][:LANES])}"
        server.ask(f"{window}&from={first}&to={last}")
        timeline = server.cpu() - paint
        views = [_view(server, window, first, last, random.Random(seed)) for seed in range(VIEWS)]
        before = server.cpu()
        time.sleep(QUIET)
        return {
            "first_paint_cpu_s": paint,
            "first_paint_wall_s": painted,
            "timeline_cpu_s": timeline,
            "view_p95_ms": statistics.quantiles(views, n=20)[-1] * 1000,
            "quiet_share": (server.cpu() - before) / QUIET,
            "peak_mb": server.peak_mb(),
        }


def _view(server: Server, window: str, first: int, last: int, chance: random.Random) -> float:
    """CPU of one view of the timeline: as wide as one has it after some zooming, anywhere."""
    width = int((last - first) * 10 ** chance.uniform(-5, 0))
    begin = first + int((last - first - width) * chance.random())
    before = server.cpu()
    server.ask(f"{window}&from={begin}&to={begin + width}")
    return server.cpu() - before


class Server:
    """A server as a user starts it."""

    def __init__(self, process: subprocess.Popen[str], address: str, begun: float) -> None:
        self._process = psutil.Process(process.pid)
        self._address = address
        self._begun = begun

    def ask(self, path: str) -> Any:
        """The answer to one question; of numbers, what stands before them."""
        request = urllib.request.Request(self._address + path, headers={"Authorization": "Bearer bench"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            return json.loads(answer.readline() if "format=bin" in path else answer.read())

    def address(self, path: str) -> str:
        """Where a page is."""
        return self._address + path

    def cpu(self) -> float:
        """CPU seconds until now."""
        used = self._process.cpu_times()
        return used.user + used.system

    def seconds(self) -> float:
        """Since its start."""
        return time.perf_counter() - self._begun

    def peak_mb(self) -> float:
        """Its memory at the most."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found
        return int(found[1]) / 1000


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """A server for a folder of runs."""
    begun = time.perf_counter()
    line = [sys.executable, "-m", "sonde", "ui", str(folder), "--no-open", "--token", "bench", "--attached"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        found = re.search(r"http://[^/]+", process.stdout.readline())
        assert found
        yield Server(process, found[0], begun)
        process.stdin.close()


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
