"""The vocabulary: `ai.compute.forward`, `ai.dataloader.fetch`, ... See `docs/reference/vocabulary.md`; the table is `vocabulary.py`.

    @ai.compute.forward                               with ai.compute.backward(args={"scale": 2}):
    def forward(model, batch): ...                        loss.backward()

    for batch in ai.dataloader.fetch.iter(loader): ...                  ai.update(step=step, epoch=epoch)

`ai` is a profiler itself (`with ai:`, `@ai`), which a module cannot be. So the root of the tree takes this module's place.
"""

from __future__ import annotations

import sys

from sonde.ai.node import Node
from sonde.ai.tree import Root, ai

__all__ = [
    "Node",
    "Root",
    "checkpoint",
    "comm",
    "compute",
    "custom",
    "data",
    "dataloader",
    "derive",
    "device",
    "disable",
    "enable",
    "init",
    "iter",
    "other",
    "pipeline",
    "start",
    "stop",
    "update",
]

# What `from sonde.ai import ...` finds, for type checkers; at run time these are the attributes of the root.
checkpoint = ai.checkpoint
comm = ai.comm
compute = ai.compute
data = ai.data
dataloader = ai.dataloader
device = ai.device
other = ai.other
pipeline = ai.pipeline
custom = ai.custom
derive = ai.derive
disable = ai.disable
enable = ai.enable
init = ai.init
iter = ai.iter
start = ai.start
stop = ai.stop
update = ai.update


def _replace_module() -> None:
    """Put the root where the import system looks for this module, with all that it wants to find there."""
    module = sys.modules[__name__]
    dunders = ("__name__", "__doc__", "__file__", "__path__", "__package__", "__loader__", "__spec__", "__all__")
    for name in (*dunders, "Node", "Root", "node", "tree", "vocabulary"):
        setattr(ai, name, getattr(module, name))
    sys.modules[__name__] = ai  # type: ignore[assignment]


_replace_module()
