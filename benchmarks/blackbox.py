"""What the black box and the watch for non-finite values add to a step of training, beside what others do: ABBA order, CPU time.

Each subject runs in a process of its own: python -m benchmarks.blackbox SUBJECT ROUNDS. Every step takes a batch from a loader.
What is added by the black box and the watch is added to steps that are recorded anyway; `sonde` itself, `detect_anomaly` and
hooks with `isfinite` to bare ones.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.feeding import Fed, Ready
from benchmarks.step import MODELS, Subject, measure_each, pairs, sonde

BATCHES = 3
SHAPES = {"MLP": (32, 64), "CNN": (8, 3, 16, 16), "transformer": (4, 16, 32)}  # of a batch


def _besides(**settings: Any) -> Callable[[Callable[[], None], str], Subject]:
    """What these settings add to a recording that runs without them."""

    def make(step: Callable[[], None], folder: str) -> Subject:
        from sonde import config, probes, session

        session.init(dir=folder)

        def change(**wanted: Any) -> None:
            probes.uninstall()
            session.install_probes(config.load(**wanted))

        return Subject(lambda: change(**settings), change, step)

    return make


def _anomaly(step: Callable[[], None], _folder: str) -> Subject:
    import torch

    def turn(on: bool) -> None:
        torch.autograd.set_detect_anomaly(on)

    return Subject(lambda: turn(True), lambda: turn(False), step)


def _isfinite(step: Callable[[], None], _folder: str) -> Subject:
    """What people write by hand: a hook on every layer."""
    import torch

    handles: list[Any] = []

    def look(module: Any, _given: Any, result: Any) -> None:
        if isinstance(result, torch.Tensor) and not torch.isfinite(result).all():
            raise ValueError(type(module).__name__)

    def on() -> None:
        handles.append(torch.nn.modules.module.register_module_forward_hook(look))

    def off() -> None:
        while handles:
            handles.pop().remove()

    return Subject(on, off, step)


SUBJECTS: dict[str, Callable[[Callable[[], None], str], Subject]] = {
    "sonde": sonde,
    "+ black box": _besides(blackbox=BATCHES),
    "+ watch": _besides(watch_nonfinite="record"),
    "+ black box + watch": _besides(blackbox=BATCHES, watch_nonfinite="record"),
    "detect_anomaly": _anomaly,
    "isfinite hooks": _isfinite,
}


def run(name: str, rounds: int) -> dict[str, Any]:
    """All models with one subject, in this process."""
    import torch

    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd(), ignore_cleanup_errors=True) as folder:
        for model, make in MODELS.items():
            batch = torch.randn(SHAPES[model]), torch.zeros(SHAPES[model][0], dtype=torch.long)
            step = Fed(make(torch), torch.utils.data.DataLoader(Ready(batch), batch_size=None))
            for _ in range(50):
                step()
            subject = SUBJECTS[name](step, folder)
            subject.on()
            step.begin()
            subject.off()
            results[model] = pairs(subject, step, rounds)
        if "sonde.session" in sys.modules:
            sys.modules["sonde.session"].finish()
    return results


def measure(rounds: int) -> dict[str, Any]:
    """All subjects; what each adds to each model, or why it could not be measured."""
    return measure_each("benchmarks.blackbox", SUBJECTS, rounds)


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]))), flush=True)
    os._exit(0)
