"""The outputs of a model's `infer_batch`, as NumPy arrays by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sonde.errors import ModelError

OUTPUT = "data"  # the name of what a model gives that gives one tensor


def arrays(found: Any, model: str) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays, without a copy where that is possible. Raises ModelError for what is no tensor."""
    return {name: _array(value, name, model) for name, value in named(found).items()}


def named(found: Any) -> dict[str, Any]:
    """A dict of outputs as it is; a single one under the name "data"."""
    return {str(name): value for name, value in found.items()} if isinstance(found, Mapping) else {OUTPUT: found}


def _array(value: Any, name: str, model: str) -> np.ndarray[Any, Any]:
    import torch

    if isinstance(value, np.ndarray):
        return value
    if not isinstance(value, torch.Tensor):
        raise ModelError(
            f"infer_batch of {model} returned {type(value).__name__} for {name!r}. Return a tensor, or a dict of "
            "tensors."
        )
    plain = value.detach()
    if plain.dtype == torch.bfloat16:  # NumPy has no such type; float32 holds every one of its values
        plain = plain.float()
    array: np.ndarray[Any, Any] = plain.cpu().numpy()
    return array
