"""Results of layers in one call of a model: mean, spread, share of zeros, of saturated values and of dead units."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.hooks.torch import private
from sonde.probes.layers.backward import tensors_of
from sonde.probes.learning.tensors import active, first_rows, moments_of, plain
from sonde.store.probe import ACTIVATION
from sonde.store.record import DETAIL

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.guard import guard
    from sonde.probes.learning.pending import PendingNumbers
    from sonde.probes.learning.structure import Structure

MOST_CALLS = 8  # of a layer in one call of a model that are looked at
FEWEST = 16  # results of a unit by which it may be called dead
RECTIFIERS = ("ReLU", "ReLU6")  # a unit of these that gives 0 for every item gets no gradient
# Where a layer is saturated: the middle of what it gives, and how far from it.
SATURATED = {"Sigmoid": (0.5, 0.49), "Hardsigmoid": (0.5, 0.49), "Tanh": (0.0, 0.98), "Hardtanh": (0.0, 0.98)}
CHANNELS_FIRST = (2, 4, 5)  # dimensions of results whose second one counts units; in others the last one does


class Activations:
    """What the layers of a model give in one call of it. Layers are modules without children."""

    def __init__(self, structure: Structure, step: int, looking: guard[None]) -> None:
        self._step = step
        self._layers: dict[int, _Layer] = {}
        if not structure.compiled:  # what the compiler made of a model cannot be looked into
            self._layers = {address: _Layer(*about) for address, about in structure.leaves.items()}
        self._looking = looking

    def watch(self) -> Callable[[], None]:
        """Look at the calls of layers from now on; returns what ends that."""
        if not self._layers:
            return _nothing
        register = sys.modules["torch.nn.modules.module"].register_module_forward_hook
        removed: Callable[[], None] = register(self._called).remove
        return removed

    def _called(self, module: Any, _inputs: Any, output: Any) -> None:
        layer = self._layers.get(id(module))
        if layer is not None and layer.calls < MOST_CALLS:
            with self._looking, private.without_modes():
                layer.look(output)

    def end(self, results: PendingNumbers) -> None:
        """The call has ended: order what was looked at."""
        for layer in self._layers.values():
            if layer.scalars:
                results.add(layer.scalars, layer.writer(self._step))


class _Layer:
    """One layer: the numbers of each call of it."""

    __slots__ = ("_device", "_saturated", "_type", "calls", "name", "scalars", "shapes")

    def __init__(self, name: str, type: str) -> None:
        self.name = name
        self.calls = 0
        self.scalars: list[Any] = []
        self.shapes: list[tuple[int, int]] = []  # of each call: elements, and units that may be dead
        self._device: Any = None
        self._type = type
        self._saturated = SATURATED.get(type)

    def look(self, output: Any) -> None:
        torch = sys.modules["torch"]
        found = next(tensors_of(output, torch.Tensor), None)
        given = None if found is None or private.is_wrapped(found) else plain(found)
        if given is None or not given.numel() or not given.is_floating_point():
            return
        if self._device not in (None, given.device):
            return
        self._device = given.device
        given = first_rows(given)
        self.calls += 1
        found = moments_of(given, self._saturated)
        self.scalars += [found.mean, found.norm, found.nonzero]
        if self._saturated is not None:
            self.scalars.append(found.beyond)
        units = _units(given) if self._type in RECTIFIERS else 0
        if units:
            self.scalars.append(active(given, 1 if given.ndim in CHANNELS_FIRST else given.ndim - 1))
        self.shapes.append((given.numel(), units))

    def writer(self, step: int) -> Callable[[list[float]], None]:
        def write(values: list[float]) -> None:
            for what, value in self._combined(values).items():
                core.counter(self.name, value, ACTIVATION + what, self.calls, None, DETAIL, step)

        return write

    def _combined(self, values: list[float]) -> dict[str, float]:
        """The numbers of all calls together."""
        size = total = squares = zeros = saturated = 0.0
        dead, units, left = 0.0, 0, iter(values)
        for elements, counted in self.shapes:
            mean, length, nonzero = next(left), next(left), next(left)
            size += elements
            total += mean * elements
            squares += length * length
            zeros += elements - nonzero
            saturated += next(left) if self._saturated is not None else 0.0
            dead += counted - next(left) if counted else 0.0
            units += counted
        mean = total / size
        found = {"mean": mean, "std": _root(squares / size - mean * mean), "zeros": zeros / size}
        if self._saturated is not None:
            found["saturated"] = saturated / size
        return found | ({"dead": dead / units} if units else {})


def _root(square: float) -> float:
    """Rounding may have made it a little negative; NaN stays NaN."""
    return math.sqrt(square) if square >= 0 else 0.0 if square < 0 else square


def _units(given: Any) -> int:
    """How many units there are, if each has enough results."""
    unit = 1 if given.ndim in CHANNELS_FIRST else given.ndim - 1
    units = int(given.shape[unit]) if given.ndim > 1 else 0
    return units if units and given.numel() // units >= FEWEST else 0


def _nothing() -> None:
    pass
