"""Runs that something is wrong with, as far as a report is concerned."""

from __future__ import annotations

from pathlib import Path

from tests.views.runs import STEPS, changed

from sonde.store import probe
from sonde.testing import (
    MS,
    START_NS,
    WALL_NS,
    BuiltProcess,
    BuiltRecord,
    build_run,
    build_training,
    training_processes,
)

HOUR = 3600 * 10**9


def nothing(path: Path) -> Path:
    """A run folder, and no process in it."""
    return build_run(path, [])


def no_steps(path: Path) -> Path:
    """A process that recorded one span."""
    return build_run(path, [BuiltProcess([BuiltRecord(dur=5)])])


def one_step(path: Path) -> Path:
    """A single step."""
    return build_training(path, steps=1)


def only_evaluation(path: Path) -> Path:
    """Forward passes, and never a backward."""
    records = [
        BuiltRecord(probe.FORWARD, probe.PROBE, start=START_NS + n * MS, dur=MS // 2, key=0) for n in range(STEPS)
    ]
    return build_run(path, [BuiltProcess(records)])


def unequal(path: Path) -> Path:
    """Two ranks, of which one ended after half of the steps."""
    long, short = training_processes(ranks=2, steps=STEPS), training_processes(ranks=2, steps=STEPS // 2)
    return build_run(path, [long[0], short[1]])


def silent_rank(path: Path) -> Path:
    """Two ranks of a job that had four."""
    return build_run(path, [changed(one, world_size=4) for one in training_processes(ranks=2, steps=STEPS)])


def clocks(path: Path) -> Path:
    """Two hosts whose clocks are seven hours apart."""
    near, far = training_processes(ranks=2, steps=STEPS)
    start = {"mono_ns": START_NS, "wall_ns": WALL_NS + 7 * HOUR}
    return build_run(path, [near, changed(far, boot_id="other", start=start, end=None)._replace(host="far")])


def killed(path: Path) -> Path:
    """A process that ended without a word."""
    return build_training(path, steps=STEPS, workers=1, killed=True, loss=lambda step: float("nan"))


def newer(path: Path) -> Path:
    """A run folder of a later format."""
    return build_run(path, training_processes(steps=STEPS), schema=99)


def damaged(path: Path) -> Path:
    """A run folder whose description cannot be read."""
    path.mkdir()
    (path / "run.json").write_text("{")
    return path
