"""Checkpoints being written and read: `torch.save` and `load`, those of `torch.distributed.checkpoint`, and of safetensors.

A subscriber gets the arguments of the function. One inside another (a distributed one saves parts by `torch.save`) is seen
too, by the point of its own.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sonde.hooks.points import Point

if TYPE_CHECKING:
    from types import ModuleType

    from sonde.hooks.points import Attribute


def _places(torch: ModuleType) -> list[Attribute]:
    return [(torch, "save"), (torch.serialization, "save")]


def _distributed_places(package: ModuleType) -> list[Attribute]:
    saver = sys.modules.get("torch.distributed.checkpoint.state_dict_saver")
    return [(owner, "save") for owner in (package, saver) if hasattr(owner, "save")]


def _load_places(torch: ModuleType) -> list[Attribute]:
    return [(torch, "load"), (torch.serialization, "load")]


def _distributed_load_places(package: ModuleType) -> list[Attribute]:
    loader = sys.modules.get("torch.distributed.checkpoint.state_dict_loader")
    return [(owner, "load") for owner in (package, loader) if hasattr(owner, "load")]


def _safetensors_load_place(package: ModuleType) -> list[Attribute]:
    return [(package, "load_file")]


def _safetensors_place(package: ModuleType) -> list[Attribute]:
    return [(package, "save_file")]


torch_save = Point("torch.save", "to see checkpoints being written", library="torch", find=_places)
distributed_save = Point(
    "torch.distributed.checkpoint.save", "to see checkpoints being written", library="torch.distributed.checkpoint",
    find=_distributed_places,
)  # fmt: skip
safetensors_save = Point(
    "safetensors.torch.save_file", "to see checkpoints being written", library="safetensors.torch",
    find=_safetensors_place,
)  # fmt: skip
SAVES = (torch_save, distributed_save, safetensors_save)

_READING = "to see checkpoints being read"
LOADS = (
    Point("torch.load", _READING, library="torch", find=_load_places),
    Point(
        "torch.distributed.checkpoint.load", _READING, library="torch.distributed.checkpoint",
        find=_distributed_load_places,
    ),
    Point("safetensors.torch.load_file", _READING, library="safetensors.torch", find=_safetensors_load_place),
)  # fmt: skip
