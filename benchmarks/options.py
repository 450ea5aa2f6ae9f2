"""What an option such as `--learning` adds to a training that is recorded anyway: blocks with and without it, in ABBA order, CPU time.

python -m benchmarks.options ROUNDS measures in this process, with some idle threads beside the training, as loaders have them. The
CPU time is that of the process, so our own threads are in it.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.step import MODELS

# Per option: its settings, the steps between two samples, and the models for which it has a budget.
OPTIONS: dict[str, tuple[dict[str, Any], int, tuple[str, ...]]] = {
    "--learning 50": ({"learning": 50}, 50, ("MLP", "CNN", "transformer")),
    "--fingerprint 100": ({"fingerprint": 100}, 100, ("CNN", "transformer")),
    "--fingerprint 1": ({"fingerprint": 1}, 1, ("CNN", "transformer")),
    "--sample 50": ({"sample": 50}, 1, ("MLP", "CNN", "transformer")),
}
WARM = 80  # steps after each change
BLOCK_SECONDS = 0.3
THREADS = 8
DEEP = 40  # frames of each idle thread


def _block(step: Callable[[], None], steps: int) -> float:
    """CPU time of a step of this process, in µs: the mean of a block."""
    for _ in range(WARM):
        step()
    begun = time.process_time_ns()
    for _ in range(steps):
        step()
    return (time.process_time_ns() - begun) / steps / 1000


def _block_steps(step: Callable[[], None], every: int) -> int:
    """Steps of a block: about BLOCK_SECONDS, and at least two samples."""
    for _ in range(WARM):
        step()
    begun = time.process_time()
    for _ in range(WARM):
        step()
    one = (time.process_time() - begun) / WARM
    return every * max(2, math.ceil(BLOCK_SECONDS / one / every))


def _compare(step: Callable[[], None], settings: dict[str, Any], every: int, rounds: int) -> dict[str, float]:
    from sonde import config, probes, session

    steps = _block_steps(step, every)
    plain, ratios = [], []
    for number in range(rounds):
        times: dict[bool, list[float]] = {False: [], True: []}
        for on in (True, False, False, True) if number % 2 else (False, True, True, False):
            session.install_probes(config.load(**settings) if on else config.load())
            times[on].append(_block(step, steps))
            probes.uninstall()
        plain.append(min(times[False]))
        ratios.append(min(times[True]) / min(times[False]))
    return {"plain_us": median(plain), "ratio": median(ratios), "low": min(ratios), "high": max(ratios)}


def _idle(depth: int, over: threading.Event) -> None:
    if depth:
        _idle(depth - 1, over)
    else:
        over.wait()


def run(rounds: int) -> list[dict[str, Any]]:
    """Every option with its models, in this process."""
    import torch

    from sonde import probes, session

    torch.set_num_threads(1)
    over = threading.Event()
    for _ in range(THREADS):
        threading.Thread(target=_idle, args=(DEEP, over), daemon=True).start()
    rows = []
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd(), ignore_cleanup_errors=True) as folder:
        session.init(dir=folder)
        probes.uninstall()
        for option, (settings, every, models) in OPTIONS.items():
            for model in models:
                found = _compare(MODELS[model](torch), settings, every, rounds)
                rows.append({"option": option, "model": model, **found})
        session.finish()
    over.set()
    return rows


def measure(rounds: int) -> list[dict[str, Any]]:
    """In a process of its own."""
    command = [sys.executable, "-m", "benchmarks.options", str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=1800, check=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]))))
