"""Outermost calls of modules: the model and the loss, seen at `torch.nn.Module.__call__`.

A subscriber gets the module as the first of the arguments. Not seen: modules called by other modules, modules called
inside a backward pass (activation checkpointing computes parts of the model again there), and what torch.compile reads.
`model.forward(x)` does not pass here: then each child is outermost. A model that is compiled while there are subscribers is
compiled once more after the last has left; one that was compiled before is not.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from sonde.hooks.torch.outermost import OutermostPoint


def _places(torch: ModuleType) -> list[tuple[Any, str]]:
    return [(torch.nn.Module, "__call__")]


module_call = OutermostPoint(
    "torch.nn.Module.__call__", "to see the calls of models and losses", library="torch", find=_places
)
