"""Layers of torch that turn finite numbers only into finite ones: their output need not be checked."""

from __future__ import annotations

import sys
from typing import Any

from sonde.hooks.torch import private

STEADY = frozenset({"Identity", "Flatten", "Unflatten", "ReLU", "ReLU6", "Sigmoid", "Tanh", "Hardsigmoid"})


def hooks(module: Any) -> tuple[dict[Any, Any], ...] | None:
    """Where functions of the program may change what such a layer gets or gives; None: it is another one."""
    kind = type(module)
    if (
        kind.__name__ not in STEADY
        or getattr(sys.modules["torch"].nn, kind.__name__) is not kind
        or "forward" in vars(module)
    ):
        return None
    found = private.forward_hooks(module)
    return found if all(isinstance(one, dict) for one in found) else None
