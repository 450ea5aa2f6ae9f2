"""replay(): the batches of a step of a recorded run, made again."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def replay(run: Any, step: int, dataset: Any, rank: int = 0, collate: Callable[[list[Any]], Any] | None = None) -> Any:
    """Rebuild the batches of a step of a run from its ledger with `dataset[index]`, without the model.

    `run` is a folder or an opened run. `dataset` is the one that the run was made with, or a loader, whose collate function is
    used then. The answer has `batches`, `indices`, `digest`, `recorded` and `same` (True, False, or None: no digest was
    recorded), and prints. Raises ReplayError if the batches cannot be rebuilt, UnknownName if the run has no such step.
    """
    # By its name, and only now: replaying reads a run, and what records must not import what reads.
    return import_module("sonde.replay").replay(run, step, dataset, rank, collate)
