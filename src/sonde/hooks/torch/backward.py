"""Backward passes: `Tensor.backward` and `torch.autograd.backward`, which the former goes through.

A subscriber gets the arguments of the latter: what is differentiated comes first. Not seen: a pass inside another one
(activation checkpointing), the second call for a tensor with its own `__torch_function__`, and `torch.autograd.grad`, which
changes no `.grad`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from sonde.hooks.torch.outermost import OutermostPoint


def _places(torch: ModuleType) -> list[tuple[Any, str]]:
    return [(torch.autograd, "backward")]


backward = OutermostPoint("torch.autograd.backward", "to see backward passes", library="torch", find=_places)
