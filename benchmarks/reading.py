"""Size on disk, and what it costs to read many events: raw, and sealed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.subjects import scratch

# A training-like stream: an epoch of steps, each with fetch, items, forward, backward, optimizer.
RECORD = """
import sys, sonde
from sonde import ai
session = sonde.init(dir=sys.argv[1], name="bench", cap="100GB")
layers = [sonde.span(f"layer{i}", "layer", key=i) for i in range(30)]
wanted = int(sys.argv[2])
step = 0
while step * 40 < wanted:
    ai.update(step=step, epoch=step // 1000)
    with ai.compute.step:
        with ai.dataloader.fetch:
            for _ in range(4):
                with ai.data.item: pass
        with ai.compute.forward:
            for layer in layers:
                with layer: pass
        with ai.compute.backward: pass
        with ai.device.transfer: pass
    sonde.counter("loss", 1.0 / (step + 1))
    step += 1
session.finish()
print(session.path)
"""
SUMMARISE = """
import sys
from sonde import open_run
with open_run(sys.argv[1]) as run:
    rows = run.sql(
        "select cat, name, count(*), sum(dur_ns), quantile_cont(dur_ns, [0.5, 0.99]) "
        "from events where kind = 'span' group by all order by 4 desc"
    ).fetchall()
print(sum(row[2] for row in rows))
"""
SEAL = "import sys; from sonde.analysis.seal import seal; seal(sys.argv[1])"
# Its own: `ru_maxrss` of a program that was just started is at least that of the one that started it.
PEAK_MB = 'next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))'
REPORT = f"""
import json, resource, runpy, sys
code = sys.argv.pop(1)
exec(code)
use = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({{"cpu_s": use.ru_utime + use.ru_stime, "peak_mb": {PEAK_MB}}}))
"""


def run_apart(code: str, *arguments: str) -> tuple[dict[str, float], str]:
    """CPU seconds and peak memory of a fresh interpreter that runs the code; and what it printed."""
    done = subprocess.run([sys.executable, "-c", REPORT, code, *arguments], check=True, capture_output=True, text=True)
    *printed, last = done.stdout.strip().splitlines()
    return json.loads(last), printed[-1] if printed else ""


def bytes_of(run: Path) -> int:
    """Bytes of all files of a run."""
    return sum(path.stat().st_size for path in run.rglob("*") if path.is_file())


def measure(events: int) -> dict[str, Any]:
    """Record `events`, and read them raw and sealed."""
    with scratch() as folder:
        started = time.perf_counter()
        recorded, run = run_apart(RECORD, folder, str(events))
        wall = time.perf_counter() - started
        raw = bytes_of(Path(run))
        from_raw, counted = run_apart(SUMMARISE, run)
        sealing, _ = run_apart(SEAL, run)
        sealed = bytes_of(Path(run))
        from_sealed, again = run_apart(SUMMARISE, run)
    count = int(counted)
    if count != int(again):
        raise SystemExit(f"{count} spans were read raw, {again} sealed")
    return {
        "events": count,
        "record": {**recorded, "wall_s": wall},
        "raw_bytes_per_event": raw / count,
        "sealed_bytes_per_event": sealed / count,
        "read_raw": from_raw,
        "seal": sealing,
        "read_sealed": from_sealed,
    }
