"""Do weights change between two updates? A part of some is kept after a sampled update, and compared before the next one.

Of the others it is known whether torch counts them as changed in place. It does not count a change through `.data`.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.events import core
from sonde.hooks.torch import private
from sonde.probes.learning.parameters import parameters_of
from sonde.probes.learning.tensors import distance, norm, plain, spread
from sonde.store.probe import CHANGED, LEARNING
from sonde.store.record import DETAIL

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.probes.learning.names import LayerNames
    from sonde.probes.learning.pending import PendingNumbers

MOST_COPIED = 1024  # elements of a parameter
COMPARED = 4  # parameters that are kept, evenly spaced


class _Before(NamedTuple):
    parameter: weakref.ref[Any]
    layer: str
    version: int
    values: Any  # None: nothing of it is kept


class Weights:
    """What the last sampled update of each optimizer has left."""

    def __init__(self, names: LayerNames) -> None:
        self._names = names
        self._kept: dict[int, list[_Before]] = {}  # by the number of the optimizer

    def keep(self, optimizer: Any, number: int) -> None:
        """An update has ended."""
        found = [(layer, one) for _, layer, one in parameters_of(optimizer, self._names) if one.requires_grad]
        every = -(-len(found) // COMPARED)
        self._kept[number] = [
            _Before(weakref.ref(one), layer, private.version(one), None if place % every else _copy(one))
            for place, (layer, one) in enumerate(found)
        ]

    def compare(self, number: int, step: int, results: PendingNumbers) -> None:
        """The next update begins."""
        kept = self._kept.pop(number, [])
        for one in kept:
            parameter = one.parameter()
            if parameter is None:
                continue
            if one.values is None:
                if private.version(parameter) != one.version:
                    core.counter(one.layer, math.nan, CHANGED, None, None, DETAIL, step)
                continue
            weights = plain(parameter)
            now = None if weights is None else spread(weights, MOST_COPIED)
            if now is not None and now.shape == one.values.shape and now.device == one.values.device:
                results.add([distance(now, one.values), norm(one.values)], _writer(one.layer, step))
        if kept:
            core.counter("compared", len(kept), LEARNING, number, None, DETAIL, step)

    def forget(self) -> None:
        """Nothing is kept."""
        self._kept.clear()


def _copy(parameter: Any) -> Any:
    weights = plain(parameter)
    return None if weights is None or not weights.numel() else spread(weights, MOST_COPIED).clone()


def _writer(layer: str, step: int) -> Callable[[list[float]], None]:
    def write(values: list[float]) -> None:
        change, length = values
        if change:
            core.counter(layer, change / length if length else 1.0, CHANGED, None, None, DETAIL, step)

    return write
