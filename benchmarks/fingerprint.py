"""What `--fingerprint` adds to a training that is recorded anyway: blocks of steps with and without it, in ABBA order, CPU time.

python -m benchmarks.fingerprint ROUNDS prints the ratios of every model. The budgets are 1.02 every 100 steps and 1.15 at every step.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.step import MODELS

WARM = 40  # steps after each change
BLOCKS = {100: 200, 1: 60}  # fingerprints every so many steps: the steps of a block
PARTS = 4  # of a round, each in ABBA order


def _block(step: Callable[[], None], steps: int) -> float:
    for _ in range(WARM):
        step()
    begun = time.thread_time_ns()
    for _ in range(steps):
        step()
    return (time.thread_time_ns() - begun) / steps / 1000


def _measured(step: Callable[[], None], every: int, rounds: int) -> dict[str, float]:
    from sonde import config, probes, session

    plain, ratios = [], []
    for number in range(rounds * PARTS):
        times: dict[bool, list[float]] = {False: [], True: []}
        for on in (True, False, False, True) if number % 2 else (False, True, True, False):
            session.install_probes(config.load(fingerprint=every if on else 0))
            times[on].append(_block(step, BLOCKS[every]))
            probes.uninstall()
        plain.append(min(times[False]))
        ratios.append(min(times[True]) / min(times[False]))
    return {"plain_us": median(plain), "ratio": median(ratios), "low": min(ratios), "high": max(ratios)}


def run(rounds: int) -> None:
    """The CNN and the transformer, in this process."""
    import torch

    from sonde import probes, session

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd(), ignore_cleanup_errors=True) as folder:
        session.init(dir=folder)
        probes.uninstall()
        for every in BLOCKS:
            for model in ("CNN", "transformer"):
                found: dict[str, Any] = _measured(MODELS[model](torch), every, rounds)
                print(json.dumps({"model": model, "every": every, **found}), flush=True)
        session.finish()


if __name__ == "__main__":
    run(int(sys.argv[1]))
