"""What `sonde run` adds to a step of real programs, and to their start: fresh processes, interleaved rounds, CPU time.

A program prints a low quantile of the CPU time of its steps. What else the machine does only ever adds to a step, so the fast
steps tell most about the program itself. Each round runs every mode once; the ratio to the bare run of the same round counts.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from benchmarks.importing import ENVIRONMENT
from benchmarks.subjects import scratch

PROGRAMS = {"language": 400, "images": 200, "autoencoder": 300}  # steps of each: two to three seconds
MODES: dict[str, tuple[str, ...]] = {
    "run": (),
    "deep": ("--deep",),
    "blackbox and watch": ("--blackbox", "--watch-nonfinite"),
    "io": ("--io",),
}
ONLY = {"io": ("images",)}  # modes that say nothing of a program without files


def measure(rounds: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """For each program and mode the ratio of a step to the bare one; and the CPU seconds that a start takes more."""
    return {"steps": {name: _steps(name, rounds, tell) for name in PROGRAMS}, "start_s": _start(2 * rounds, tell)}


def _steps(name: str, rounds: int, tell: Callable[[str], None]) -> dict[str, float]:
    words = ("-m", f"benchmarks.programs.{name}", str(PROGRAMS[name]))
    modes = {mode: options for mode, options in MODES.items() if name in ONLY.get(mode, PROGRAMS)}
    bare, ratios = [], {mode: list[float]() for mode in modes}
    for number in range(rounds):
        tell(f"{name}: round {number + 1} of {rounds}")
        bare.append(_step_us([sys.executable, *words]))
        for mode, options in modes.items():
            ratios[mode].append(_recorded(options, words) / bare[-1])
    return {"bare_us": median(bare), **{mode: median(found) for mode, found in ratios.items()}}


def _recorded(options: Sequence[str], words: Sequence[str]) -> float:
    with scratch() as folder:
        return _step_us([sys.executable, "-m", "sonde", "run", "-q", "--dir", folder, *options, *words])


def _step_us(command: Sequence[str]) -> float:
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=ENVIRONMENT)
    return float(json.loads(done.stdout.splitlines()[-1])["p10_us"])


def _start(rounds: int, tell: Callable[[str], None]) -> float:
    """CPU seconds of everything that `sonde run` adds to a program that only imports torch."""
    words = ("-c", "import torch")
    added = []
    for number in range(rounds):
        tell(f"start: round {number + 1} of {rounds}")
        bare = _cpu_s([sys.executable, *words])
        with scratch() as folder:
            added.append(
                _cpu_s([sys.executable, "-m", "sonde", "run", "-q", "--dir", folder, sys.executable, *words]) - bare
            )
    return median(added)


def _cpu_s(command: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env=ENVIRONMENT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
