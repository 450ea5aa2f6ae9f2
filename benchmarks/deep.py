"""What recording each layer adds to forward and backward of a 12-layer encoder: paired passes in ABBA order, CPU time.

Each recorder runs in a process of its own, beside bare passes of the same process: python -m benchmarks.deep SUBJECT ROUNDS.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.step import Subject, pairs, profiled, sonde

LAYERS = 12


def encoder(torch: Any) -> Callable[[], None]:
    """Forward and backward of it: about 18 ms on a free core, 108 layers."""
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.1)
    net = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    batch = torch.randn(8, 32, 64)

    def passes() -> None:
        net.zero_grad()
        net(batch).sum().backward()

    return passes


def _phases(passes: Callable[[], None], folder: str) -> Subject:
    return sonde(passes, folder)


def _deep(passes: Callable[[], None], folder: str) -> Subject:
    return sonde(passes, folder, deep=True)


SUBJECTS: dict[str, Callable[[Callable[[], None], str], Subject]] = {
    "sonde": _phases,
    "sonde deep": _deep,
    "torch.profiler": profiled(full=False),
    "torch.profiler full": profiled(full=True),
}


def run(name: str, rounds: int) -> dict[str, float]:
    """One recorder, in this process."""
    import torch

    torch.set_num_threads(1)
    passes = encoder(torch)
    for _ in range(20):
        passes()
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd(), ignore_cleanup_errors=True) as folder:
        found = pairs(SUBJECTS[name](passes, folder), passes, max(1, rounds // 3))  # a step is long
    return {**found, "ratio": 1 + found["added_us"] / found["bare_us"]}


def measure(rounds: int) -> dict[str, Any]:
    """All recorders, each in a process of its own; what it added, or why that could not be measured."""
    results: dict[str, Any] = {}
    for name in SUBJECTS:
        command = [sys.executable, "-m", "benchmarks.deep", name, str(rounds)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
            results[name] = json.loads(done.stdout.splitlines()[-1])
        except (subprocess.SubprocessError, ValueError, IndexError) as error:
            results[name] = {"missing": str(error)}
    return results


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]))))
