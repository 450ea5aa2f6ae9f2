"""What the models that learn, and their layers and parameters, are called: "model/layer"."""

from __future__ import annotations

from typing import Any

from sonde.hooks.torch import private
from sonde.probes.layers import names as naming
from sonde.weak import WeakTable

BETWEEN = "/"


class LayerNames:
    """The names of this process; they stay what they are once they were given."""

    def __init__(self) -> None:
        self._models: WeakTable[str] = WeakTable()
        self._counts: dict[str, int] = {}  # models of each class
        self._layers: WeakTable[str] = WeakTable()  # of parameters
        self._sizes: dict[str, int] = {}  # parameters of each model

    def model(self, model: Any) -> str:
        """The class of a model; a second one of this class has a number behind it."""
        bare = naming.bare(model)
        known = self._models.get(bare)
        if known is None:
            kind = naming.kind(model)
            self._counts[kind] = number = self._counts.get(kind, 0) + 1
            known = self._models[bare] = kind if number == 1 else f"{kind}#{number}"
        return known

    def know(self, model: Any) -> list[tuple[str, Any]]:
        """The layers of all parameters of a model, and the parameters. A part of a larger model keeps the names that it has there."""
        whose = self.model(model)
        found = [(self._layer(whose, model, path), one) for path, one in naming.bare(model).named_parameters()]
        self._sizes[whose] = len(found)
        for layer, parameter in found:
            before = self._layers.get(parameter)
            if before is None or self._sizes.get(before.partition(BETWEEN)[0], 0) < len(found):
                self._layers[parameter] = layer
        return [(self.layer(parameter) or layer, parameter) for layer, parameter in found]

    def layer(self, parameter: Any) -> str | None:
        """The layer of a parameter; None: no model with it was called."""
        return self._layers.get(parameter)

    def module(self, model: Any, name: str) -> str:
        """The name of a module of a model."""
        return f"{self.model(model)}{BETWEEN}{name or naming.kind(model)}"

    def _layer(self, whose: str, model: Any, path: str) -> str:
        parts = [part for part in path.split(".") if part not in private.WRAPPERS][:-1]
        if naming.PARAMETRIZED in parts:
            parts = parts[: parts.index(naming.PARAMETRIZED)]
        return f"{whose}{BETWEEN}{'.'.join(parts) or naming.kind(model)}"
