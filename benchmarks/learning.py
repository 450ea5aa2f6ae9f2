"""What `--learning` adds to a training that is recorded anyway: blocks of 100 steps with and without it, in ABBA order, CPU time.

python -m benchmarks.learning ROUNDS measures in this process. A block has two sampled steps, and the steps around them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.step import MODELS

EVERY = 50
BLOCK = 2 * EVERY
WARM = 80  # steps after each change
PARTS = 4  # of a round, each in ABBA order


def _block(step: Callable[[], None]) -> float:
    """CPU time of a step, in µs: the mean of a block."""
    for _ in range(WARM):
        step()
    begun = time.thread_time_ns()
    for _ in range(BLOCK):
        step()
    return (time.thread_time_ns() - begun) / BLOCK / 1000


def _measured(step: Callable[[], None], install: Callable[[int], None], leave: Callable[[], None], rounds: int) -> Any:
    plain, ratios = [], []
    for number in range(rounds * PARTS):
        times: dict[bool, list[float]] = {False: [], True: []}
        for on in (True, False, False, True) if number % 2 else (False, True, True, False):
            install(EVERY if on else 0)
            times[on].append(_block(step))
            leave()
        plain.append(min(times[False]))
        ratios.append(min(times[True]) / min(times[False]))
    return {"plain_us": median(plain), "ratio": median(ratios), "low": min(ratios), "high": max(ratios)}


def run(rounds: int) -> dict[str, Any]:
    """All models, in this process."""
    import torch

    from sonde import config, probes, session

    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd(), ignore_cleanup_errors=True) as folder:
        session.init(dir=folder)
        probes.uninstall()
        for model, make in MODELS.items():
            results[model] = _measured(
                make(torch), lambda every: session.install_probes(config.load(learning=every)), probes.uninstall, rounds
            )
        session.finish()
    return results


def measure(rounds: int) -> dict[str, Any]:
    """In a process of its own; what it says, or why it could not be measured."""
    command = [sys.executable, "-m", "benchmarks.learning", str(rounds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        return {model: {"missing": str(error)} for model in MODELS}


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]))))
