"""What a run of many ranks costs: sealing, the first and later reports, on Dask, and the first screen of `sonde watch`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.importing import ENVIRONMENT
from benchmarks.reading import bytes_of
from benchmarks.subjects import scratch
from sonde import open_run
from sonde.testing import synthetic_run

FEWER = 10  # the smaller run has one in so many of the ranks
NAMES = (
    "SELECT cat, name, count(*), sum(dur_ns), max(dur_ns) FROM events WHERE kind = 'span' GROUP BY ALL ORDER BY 4 DESC"
)
SCREEN = """
import sys
from pathlib import Path
from sonde.cli.live.screen import Reader
reader = Reader(Path(sys.argv[1]))
print(len(reader.look().ranks))
reader.close()
"""


class Cost(NamedTuple):
    """CPU of a command and all its processes, and the peak memory of the largest of them."""

    cpu_s: float
    peak_mb: float


def cost(*words: str) -> Cost:
    """What a command costs. A small program starts it: the peak of a process is at least that of the one that forked it."""
    code = (
        "import json, os, sys; pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=["
        "(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]); _, status, use = os.wait4(pid, 0); "
        "print(json.dumps([status, use.ru_utime + use.ru_stime, use.ru_maxrss / 1024]))"
    )
    line = [sys.executable, "-I", "-S", "-c", code, sys.executable, *words]
    done = subprocess.run(line, check=True, capture_output=True, text=True, env={**os.environ, **ENVIRONMENT})
    status, cpu, peak = json.loads(done.stdout.splitlines()[-1])
    if status:
        raise SystemExit(f"{' '.join(words)}: {done.stderr[-500:]}")
    return Cost(round(cpu, 2), round(peak, 1))


def sonde(*words: str) -> Cost:
    """What a command of ours costs."""
    return cost("-m", "sonde", *words)


def measure(ranks: int, steps: int) -> dict[str, Any]:
    """All of it, for a run of so many ranks, and for one of a tenth of them."""
    found: dict[str, Any] = {"ranks": ranks, "steps": steps}
    with scratch() as folder:
        for name, count in (("few", ranks // FEWER), ("many", ranks)):
            run = synthetic_run(Path(folder) / name, ranks=count, steps=steps, hosts=max(1, count // 8), workers=0)
            one: dict[str, Any] = {"raw_bytes": bytes_of(run)}
            if name == "many":
                one["screen"] = cost("-c", SCREEN, str(run))
            else:
                found["loop"], found["dask"] = _engines(Path(folder), count, steps)
            one["seal"] = sonde("seal", str(run), "--workers", "2")
            if name == "many":
                one["sealed_screen"] = cost("-c", SCREEN, str(run))
            one["report"] = sonde("report", str(run))
            one["names"] = sonde("query", str(run), NAMES)
            one["sealed_bytes"] = bytes_of(run)
            with open_run(run) as opened:
                one["events"] = sum(row["events"] for row in opened.rows)
            found[name] = {key: value._asdict() if isinstance(value, Cost) else value for key, value in one.items()}
    return found


def _engines(folder: Path, ranks: int, steps: int) -> tuple[dict[str, float], dict[str, float]]:
    """The same map in a loop and on two processes of Dask."""
    costs = []
    for name, how in (("loop", ("--workers", "1")), ("dask", ("--dask", "local:2"))):
        run = synthetic_run(folder / name, ranks=ranks, steps=steps, workers=0)
        costs.append(sonde("seal", str(run), *how)._asdict())
    return costs[0], costs[1]
