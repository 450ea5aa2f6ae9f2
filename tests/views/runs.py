"""Runs that reports are made of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sonde.testing import MS, BuiltProcess, build_run, build_training, training_processes

EVIL = "\"'><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">&amp;\x1b[31m"
SLOW = 42  # the item that takes long
STEPS = 60


def with_slow_item(path: Path) -> Path:
    """A training with two workers, in which one item of step 10 keeps everybody waiting."""

    def phases(_rank: int, step: int) -> Mapping[str, int]:
        return {
            "input_wait": 200 * MS if step == SLOW // 4 else 2 * MS,
            "forward": 3 * MS,
            "backward": 5 * MS,
            "optimizer": MS,
        }

    return build_training(
        path,
        steps=STEPS,
        workers=2,
        phases=phases,
        item_ns=lambda _, index: 198 * MS if index == SLOW else MS // 2,
        loss=lambda step: 1 / (step + 1),
        rss=lambda _, step: 10**8 + step * 10**5,
        layers=["body", "body.first", "head"],
    )


def ranks(path: Path, **fields: Any) -> Path:
    """Two ranks, of which the second takes longer by itself; the first waits for it in communication."""

    def phases(rank: int, _step: int) -> Mapping[str, int]:
        return {
            "forward": (2 + 8 * rank) * MS,
            "backward": 5 * MS,
            "communication": (9 - 8 * rank) * MS,
            "optimizer": MS,
        }

    return build_run(path, training_processes(ranks=2, steps=STEPS, phases=phases), **fields)


def apart(path: Path) -> Path:
    """Three trainings, each in a process of its own; the last one is shorter."""
    trainers = [*training_processes(ranks=2, steps=STEPS), training_processes(ranks=3, steps=STEPS // 2)[2]]
    return build_run(path, [changed(one, rank=None, local_rank=None, world_size=None) for one in trainers])


def changed(process: BuiltProcess, **facts: object) -> BuiltProcess:
    """The same process, with other facts about it."""
    return process._replace(process={**(process.process or {}), **facts})
