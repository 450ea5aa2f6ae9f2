"""What `--sample` adds to a training that is recorded anyway: blocks with and without it, in ABBA order, CPU time of the process.

python -m benchmarks.sampling ROUNDS measures in this process, with some idle threads beside the training, as loaders have them; the
time of our own thread is in it. It also counts what one look takes.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.step import MODELS

HZ = 50
BLOCK_SECONDS = 1.0
THREADS = 8
DEEP = 40  # frames of each idle thread


def _block(step: Callable[[], None]) -> float:
    """CPU time of a step of this process, in µs: the mean of about a second."""
    for _ in range(20):
        step()
    steps, begun, until = 0, time.process_time_ns(), time.monotonic() + BLOCK_SECONDS
    while time.monotonic() < until:
        step()
        steps += 1
    return (time.process_time_ns() - begun) / steps / 1000


def _idle(depth: int, over: threading.Event) -> None:
    if depth:
        _idle(depth - 1, over)
    else:
        over.wait()


def run(rounds: int) -> dict[str, Any]:
    """All models, in this process."""
    import torch

    from sonde import session
    from sonde.probes.sampling import sample

    torch.set_num_threads(1)
    over = threading.Event()
    for _ in range(THREADS):
        threading.Thread(target=_idle, args=(DEEP, over), daemon=True).start()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd(), ignore_cleanup_errors=True) as folder:
        session.init(dir=folder)
        for model, make in MODELS.items():
            step = make(torch)
            plain, ratios = [], []
            for number in range(rounds):
                times: dict[bool, list[float]] = {False: [], True: []}
                for on in (True, False, False, True) if number % 2 else (False, True, True, False):
                    if on:
                        sample.begin(HZ)
                    times[on].append(_block(step))
                    sample.end()
                plain.append(sum(times[False]) / 2)
                ratios.append(sum(times[True]) / sum(times[False]))
            results[model] = {
                "plain_us": median(plain),
                "ratio": median(ratios),
                "low": min(ratios),
                "high": max(ratios),
            }
        results["look_us"] = _look(sample)
        session.finish()
    over.set()
    return results


def _look(sample: Any) -> float:
    """CPU time of one look, in µs."""
    sampler = sample.StackSampler(HZ, threading.get_ident())
    sampler.look()
    begun = time.thread_time_ns()
    for _ in range(1000):
        sampler.look()
    return (time.thread_time_ns() - begun) / 1e6


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]))))
