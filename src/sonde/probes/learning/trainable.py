"""Which layers of a model can learn: frozen or not, in an optimizer or not, with a gradient or not; and its mode, in training.

Facts are written as marks when they have changed. That a layer has a gradient, or is in an optimizer, stays true once it was seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.probes.learning.structure import Structure, alive
from sonde.store.probe import LEARNING_LAYER, LEARNING_MODEL
from sonde.store.record import ESSENTIAL
from sonde.weak import WeakTable

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_LAYERS = 4096
Values = tuple[object, ...]

_MODEL = ("training", "changing", "evaluating", "compiled", "embedding")
_LAYER = ("place", "parameters", "frozen", "gradient", "optimized", "sharded")


class Trainable:
    """Those of this process."""

    def __init__(self) -> None:
        self._written: dict[tuple[str, str], Values] = {}
        self._graded: set[str] = set()
        self._optimized: set[str] = set()
        self._optimizers: WeakTable[bool] = WeakTable()  # the parameters in optimizers
        self._called: list[Structure] = []  # in this step

    def optimizer(self, optimizer: Any) -> None:
        """There is this optimizer."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._optimizers[parameter] = True

    def called(self, model: Any, structure: Structure) -> None:
        """A model is called in training."""
        self._called.append(structure)
        values = (model.training, *structure.modes(), structure.compiled, structure.embedding)
        self._write(LEARNING_MODEL, structure.name, _MODEL, values)

    def updates(self) -> None:
        """An optimizer begins to step: gradients are there."""
        for structure in self._called:
            for layer, references in structure.layers.items():
                if layer not in self._graded and any(one.grad is not None for one in alive(references)):
                    self._graded.add(layer)

    def end(self) -> None:
        """The step has ended."""
        for structure in self._called:
            for place, (layer, references) in enumerate(list(structure.layers.items())[:MOST_LAYERS]):
                self._layer(place, layer, alive(references))
        self._called.clear()

    def _layer(self, place: int, layer: str, parameters: Sequence[Any]) -> None:
        if layer not in self._optimized and any(one in self._optimizers for one in parameters):
            self._optimized.add(layer)
        size, frozen = sum(one.numel() for one in parameters), not any(one.requires_grad for one in parameters)
        sharded = any(hasattr(one, "to_local") for one in parameters)
        values = (place, size, frozen, layer in self._graded, layer in self._optimized, sharded)
        self._write(LEARNING_LAYER, layer, _LAYER, values)

    def _write(self, cat: str, name: str, words: Values, values: Values) -> None:
        if self._written.get((cat, name)) != values:
            self._written[cat, name] = values
            core.mark(name, cat, None, dict(zip(map(str, words), values, strict=True)), ESSENTIAL)
