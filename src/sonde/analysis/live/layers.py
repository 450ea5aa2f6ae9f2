"""The layers of the models of a run, added up while it runs: time forward and backward, memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sonde.lazy import numpy as np
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

CATEGORIES = (probe.LAYER, probe.LAYER_BACKWARD)
MOST_LAYERS = 20_000


@dataclass
class Stratum:
    """One layer of all ranks. Times and calls are sums, bytes the newest; None: never seen."""

    name: str
    type: str = ""
    calls: int = 0
    forward_ns: int | None = None
    backward_ns: int | None = None
    activation: int | None = None
    parameters: int | None = None
    gradients: int | None = None
    compiled: bool = False


class LayerTotals:
    """Takes the layers of all processes."""

    def __init__(self) -> None:
        self._layers: dict[str, Stratum] = {}

    def __len__(self) -> int:
        return len(self._layers)

    def layers(self) -> list[Stratum]:
        """The layers, the one with the most time first."""
        return sorted(self._layers.values(), key=lambda one: -((one.forward_ns or 0) + (one.backward_ns or 0)))

    def describe(self, name: str, facts: Mapping[str, Any], key: int) -> None:
        """Take what is said of a layer once."""
        one = self._layer(name)
        if one is None:
            return
        one.type = str(facts.get("type") or one.type)
        one.parameters = _bytes(facts.get("parameters"), key)
        one.gradients = _bytes(facts.get("gradients"), None)
        one.compiled = bool(facts.get("compiled", one.compiled))

    def add(self, spans: NDArray[np.void], names: Mapping[int, tuple[str, str]]) -> None:
        """Take spans of layers, forward or backward."""
        ids, places, counts = np.unique(spans["name"], return_inverse=True, return_counts=True)
        sums = np.bincount(places, spans["dur"], minlength=len(ids))
        newest = np.zeros(len(ids), dtype=np.int64)
        newest[places] = spans["key"]
        for id, ns, calls, key in zip(ids.tolist(), sums.tolist(), counts.tolist(), newest.tolist(), strict=True):
            cat, name = names[id]
            one = self._layer(name)
            if one is None:
                continue
            if cat == probe.LAYER:
                one.calls += calls
                one.forward_ns = (one.forward_ns or 0) + round(ns)
                one.activation = key if key >= 0 else one.activation
            else:
                one.backward_ns = (one.backward_ns or 0) + round(ns)

    def _layer(self, name: str) -> Stratum | None:
        if name not in self._layers and len(self._layers) >= MOST_LAYERS:
            return None
        return self._layers.setdefault(name, Stratum(name))


def _bytes(given: object, otherwise: int | None) -> int | None:
    if isinstance(given, int) and given >= 0:
        return given
    return otherwise if otherwise is not None and otherwise >= 0 else None
