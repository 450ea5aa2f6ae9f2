"""Random numbers: seeded for a run, saved in its checkpoints, and restored for the surrounding program."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sonde.pipeline.training.ignite import require_torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Python, NumPy and torch give what follows from the seed; after the block what they would have given without it."""
    require_torch()
    import torch

    before = state()
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  the user's code may draw from it
    torch.manual_seed(seed)
    try:
        yield
    finally:
        restore(before)


def state() -> dict[str, Any]:
    """Where the generators of this process are, as values that a checkpoint may hold."""
    import torch

    name, keys, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002
    return {
        "python": random.getstate(),
        "numpy": [str(name), np.asarray(keys).tolist(), int(position), int(has_gauss), float(gauss)],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore(saved: dict[str, Any]) -> None:
    """Go on from where `state` was taken."""
    import torch

    version, internal, gauss = saved["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, value = saved["numpy"]
    np.random.set_state((name, np.asarray(keys, np.uint32), position, has_gauss, value))  # noqa: NPY002
    torch.set_rng_state(saved["torch"])
    if saved["cuda"] and torch.cuda.device_count() == len(saved["cuda"]):
        torch.cuda.set_rng_state_all(saved["cuda"])
