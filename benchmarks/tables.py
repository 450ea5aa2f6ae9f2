"""What the tables of a long training cost: 1 M steps on each of 4 ranks, each table asked for in a fresh process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from benchmarks.reading import SEAL, run_apart
from benchmarks.subjects import scratch

STEPS = 1_000_000
RANKS = 4

# What the probes write in a step: input wait, samples, forward, backward, optimizer, update; and the loss.
RECORD = """
import sys, sonde
from sonde.events import core
from sonde.store import probe, record
session = sonde.init(dir=sys.argv[1], name="bench", cap="100GB", enabled=True)
forward, backward, optimizer = (core.Span(name, probe.PROBE, key=3) for name in ("forward", "backward", "optimizer"))
for step in range(int(sys.argv[2])):
    core.set_context(step, 0)
    key = probe.batch_key(0, 0, step)
    with core.Span("input_wait", probe.PROBE, key=key): pass
    core.counter("samples", 32.0, probe.PROBE, key=key)
    with forward: pass
    with backward: pass
    with optimizer: pass
    core.mark("update", probe.PROBE, key=0, level=record.ESSENTIAL)
session.finish()
print(session.path)
"""
ASK = """
import sys
from sonde import open_run
with open_run(sys.argv[1]) as run:
    print(run.sql(sys.argv[2]).fetchall()[0][0])
"""
QUESTIONS = {
    "steps": "SELECT count(*), quantile_cont(dur_ns, [0.5, 0.99]), sum(input_wait_ns), sum(residual_ns) FROM steps",
    "phases": "SELECT sum(calls) / 4, phase, sum(dur_ns) FROM phases GROUP BY phase ORDER BY phase",
    "batches": "SELECT count(*), purpose, sum(wait_ns) FROM batches GROUP BY purpose",
}


def measure(steps: int = STEPS, ranks: int = RANKS) -> dict[str, Any]:
    """Record one rank, copy it to the others, and ask each table, raw and sealed."""
    found: dict[str, Any] = {"steps": steps, "ranks": ranks}
    with scratch() as folder:
        _, run = run_apart(RECORD, folder, str(steps))
        for rank in range(1, ranks):
            _copy(Path(run), rank)
        found["raw"] = _ask(run)
        run_apart(SEAL, run)
        found["sealed"] = _ask(run)
    return found


def _ask(run: str) -> dict[str, dict[str, float]]:
    return {table: run_apart(ASK, run, question)[0] for table, question in QUESTIONS.items()}


def _copy(run: Path, rank: int) -> None:
    first = min(path for path in run.iterdir() if path.is_dir())
    about = json.loads((first / "process.json").read_text())
    about |= {"pid": about["pid"] + rank, "rank": rank}
    copy = run / f"{about['host']}-{about['pid']}-0"
    shutil.copytree(first, copy)
    (copy / "process.json").write_text(json.dumps(about))


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
