"""What a model is made of, looked up once: its layers, its parameters, and the modules that evaluation mode changes."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from sonde.probes.layers import names as naming
from sonde.weak import WeakTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sonde.probes.learning.names import LayerNames

NORMS = ("BatchNorm", "SyncBatchNorm", "InstanceNorm")
TIMES = 16  # so often a structure is used before it is looked up again: a parameter may have been replaced

Reference = weakref.ref[Any]


class Structure:
    """That of one model."""

    def __init__(self, model: Any, names: LayerNames) -> None:
        self.shape = naming.shape(model)
        self.used = 0
        self.name = names.model(model)
        self.layers: dict[str, list[Reference]] = {}  # their own parameters
        for layer, parameter in names.know(model):
            self.layers.setdefault(layer, []).append(weakref.ref(parameter))
        modules = list(naming.layers(model))
        self.compiled = any(one.compiled for one in modules)
        self.leaves = {  # by address: name and class of the layers that call no other
            id(one.module): (names.module(model, one.name), type(one.module).__name__)
            for one in modules
            if next(one.module.children(), None) is None
        }
        self.embedding = any(kind.startswith("Embedding") for _, kind in self.leaves.values())
        self._changing = _changing(model)

    def learning(self) -> list[Any]:
        """The parameters that learn."""
        return [one for each in self.layers.values() for one in alive(each) if one.requires_grad]

    def modes(self) -> tuple[int, int]:
        """Modules that evaluation mode changes, in parts that learn; how many of them are in that mode."""
        found = [
            one.training
            for reference, deciding in self._changing
            if (one := reference()) is not None and any(each.requires_grad for each in alive(deciding))
        ]
        return len(found), found.count(False)


class Structures:
    """Those of all models that were called."""

    def __init__(self, names: LayerNames) -> None:
        self._names = names
        self._known: WeakTable[Structure] = WeakTable()

    def of(self, model: Any) -> Structure:
        """The structure of a model, as it is now."""
        known = self._known.get(model)
        if known is None or known.used >= TIMES or known.shape != naming.shape(model):
            known = self._known[model] = Structure(model, self._names)
        known.used += 1
        return known


def alive(references: Iterable[Reference]) -> list[Any]:
    """The objects that are still there."""
    return [one for reference in references if (one := reference()) is not None]


def _changing(model: Any) -> list[tuple[Reference, list[Reference]]]:
    """The modules that evaluation mode changes, each with the parameters that show whether it is part of what learns.

    Those are its own, or else those of the module around it.
    """
    paths = [(path, weakref.ref(one)) for path, one in model.named_parameters()]
    found = []
    for path, module in model.named_modules():
        if _changes(module):
            parent = path.rpartition(".")[0]
            around = [one for name, one in paths if name.startswith(f"{parent}." if parent else "")]
            own = [weakref.ref(one) for one in module.parameters(recurse=False)]
            found.append((weakref.ref(module), own or around))
    return found


def _changes(module: Any) -> bool:
    """Does evaluation mode change what this module itself does?"""
    kind = type(module).__name__
    if kind.startswith(NORMS):
        return bool(getattr(module, "track_running_stats", False))
    if "Dropout" in kind:
        return bool(getattr(module, "p", 0.0))
    dropout = getattr(module, "dropout", 0.0)  # of attention and of recurrent layers
    return isinstance(dropout, float) and dropout > 0
