"""A pool of real rounds: in each, four fresh recorded processes run one after another, in an order that rotates.

`a` and `same` are one program; `slower` does a tenth more work in each step; `stalls` does two steps' work more in every 20th step,
which is a tenth more too.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

import numpy as np

from sonde.cli.gate import turn

STEPS = 300
EXTRA = 0.10  # of a step's work
EVERY = 20
PROGRAMS = ("a", "same", "slower", "stalls")
PARTS = ("steps", "ends", "looks")  # of a turn
TRAIN = Path(__file__).with_name("train.py")


def record(folder: Path, rounds: int) -> None:
    """Record rounds until the pool has so many. A round is one file; what was recorded before stays."""
    folder.mkdir(parents=True, exist_ok=True)
    plan = _plan(folder / "plan.json")
    for number in range(rounds):
        file = folder / f"round-{number:04}.json"
        if not file.exists():
            content = _round(number, plan["times"])
            file.with_suffix(".part").write_text(json.dumps(content))
            file.with_suffix(".part").rename(file)
            print(f"round {number + 1} of {rounds}, load {content['load']:.1f}", file=sys.stderr, flush=True)


def read(folder: Path) -> list[dict[str, Any]]:
    """The rounds of a pool: what each program recorded, in ns."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob("round-*.json"))]


def _round(number: int, times: int) -> dict[str, Any]:
    first = number % len(PROGRAMS)
    order = [*PROGRAMS[first:], *PROGRAMS[:first]]
    found: dict[str, Any] = {"begun": time.time(), "load": os.getloadavg()[0], "order": order}
    with tempfile.TemporaryDirectory(prefix=".ab-", dir=Path.cwd()) as folder:
        for name in order:
            taken = turn(command(name, times), Path(folder, name))
            found[name] = {part: np.asarray(getattr(taken, part)).astype(int).tolist() for part in PARTS}
    return found


def command(name: str, times: int) -> str:
    """How one of the programs is started."""
    added = {"slower": [1, times], "stalls": [EVERY, EVERY * times]}.get(name, [])
    return shlex.join(map(str, [sys.executable, TRAIN, STEPS, *added]))


def _plan(file: Path) -> dict[str, Any]:
    """How often the extra work is done: found once for a pool, by CPU time."""
    if not file.exists():
        plain, more = _low_cpu(0), _low_cpu(10)
        file.write_text(json.dumps({"times": max(1, round(EXTRA * plain / ((more - plain) / 10))), "step_ns": plain}))
    plan: dict[str, Any] = json.loads(file.read_text())
    return plan


def _low_cpu(times: int) -> float:
    """The CPU time of a step, in ns: the fastest tenth of three trainings."""
    from benchmarks.ab.train import steps

    taken = []
    for _ in range(3):
        before = time.thread_time_ns()
        for _ in steps(STEPS, 1, times):
            now = time.thread_time_ns()
            taken.append(now - before)
            before = now
    return quantiles(taken, n=10)[0]
