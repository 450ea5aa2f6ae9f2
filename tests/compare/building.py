"""Runs to compare: trainings with some noise in their steps, always the same; and what is kept of one, without a run."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sonde.compare.confidence import BLOCKS
from sonde.compare.summary import OWN, POINTS, STEP, ItemTimes, Rank, Steps, Summary
from sonde.testing import MS, TRAINING, build_run, training_processes

SCATTER = 0.03
META = ("git", "command", "settings", "python")


def training(
    path: Path, *, seed: int = 1, scatter: float = SCATTER, slower: Mapping[str, float] | None = None, **more: Any
) -> Path:
    """A training of 80 steps whose phases scatter; `slower` multiplies some of them."""
    meta = {name: more.pop(name) for name in META if name in more}
    chance = random.Random(seed)
    factors = slower or {}

    def phases(_rank: int, _step: int) -> dict[str, int]:
        return {name: round(ns * factors.get(name, 1.0) * chance.gauss(1, scatter)) for name, ns in TRAINING.items()}

    return build_run(path, training_processes(**{"steps": 80, "phases": phases, **more}), **meta)


def kept(
    phases: Mapping[str, Callable[[int], float]] | None = None,
    *,
    steps: int = 200,
    seed: int = 1,
    scatter: float = SCATTER,
    slower: Mapping[str, float] | None = None,
    wait: float | None = None,
    **changed: Any,
) -> Summary:
    """What is kept of a training. `phases`: the ns of each in a step, as a function of the step; they scatter.

    `wait`: so many times the other time of a mean step was spent in waiting for a core; None: not known.
    """
    chance = np.random.default_rng(seed)
    wanted = phases or {name: lambda _step, ns=ns: ns for name, ns in TRAINING.items()}  # type: ignore[misc]
    times = {
        name: np.array([of(step) for step in range(steps)])
        * chance.normal(1, scatter, steps)
        * (slower or {}).get(name, 1.0)
        for name, of in wanted.items()
    }
    whole = np.sum([*times.values()], axis=0)
    known = {STEP: whole * (1 + (wait or 0.0)), **times, **({} if wait is None else {OWN: whole})}
    size = max(1, min(4, steps // 5), -(-steps // BLOCKS))
    parts = [slice(first, first + size) for first in range(0, steps - size + 1, size)]
    places = [(place + 0.5) / POINTS for place in range(POINTS)]
    low, middle, high = np.quantile(whole, [0.1, 0.5, 0.95]).tolist() if steps else (None,) * 3
    made = Steps(
        *(steps, 3, 3, steps + 2, low, middle, high, float(known[STEP].mean()) if steps else None, 4.0, 4e9 / 12e6),
        points=[np.quantile(whole[part], places).tolist() for part in parts],
        means={name: [float(one[part].mean()) for part in parts] for name, one in known.items()} if steps else {},
    )
    about: dict[str, Any] = {
        "run": f"run-{seed}",
        "name": "run",
        "path": f"/runs/{seed}",
        "state": "ended",
        "ended": "finished",
        "started_ns": None,
        "crowded": False,
        "drops": 0,
        "notes": [],
        "ranks": [],
        "layers": [],
        "memory": {},
        "items": ItemTimes(0, 0, None, [], []),
        "findings": [],
        "setup": {},
        "losses": [],
        "loss": None,
    }
    return Summary(**{**about, "steps": made, **changed})


__all__ = ["MS", "Rank", "kept", "training"]
