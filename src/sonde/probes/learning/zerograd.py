"""Gradients that exist before the first backward pass of a step: they were not set to zero."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.probes.learning.tensors import moments_of, plain
from sonde.store.probe import LEARNING
from sonde.store.record import DETAIL

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.probes.learning.pending import PendingNumbers

MOST = 8  # parameters of a model that are looked at, evenly spaced


class Carried:
    """Gradients at the begin of each backward pass of one step."""

    def __init__(self) -> None:
        self._parameters: dict[int, weakref.ref[Any]] = {}
        self._begins: list[dict[int, Any]] = []

    def watch(self, parameters: list[Any]) -> None:
        """A model with these parameters is trained."""
        learning = [one for one in parameters if one.requires_grad]
        for one in learning[:: max(1, -(-len(learning) // MOST))]:
            self._parameters[id(one)] = weakref.ref(one)

    def backward_begins(self) -> None:
        """A backward pass begins."""
        found: dict[int, Any] = {}
        for address, reference in self._parameters.items():
            given = getattr(reference(), "grad", None)
            gradient = None if given is None else plain(given)
            found[address] = 0 if gradient is None else moments_of(gradient).nonzero
        self._begins.append(found)

    def update_begins(self, optimizer: Any, number: int, step: int, results: PendingNumbers) -> None:
        """The gradients are about to be used. Carried over are those that no pass of this step has found to be zero."""
        own = {id(one) for group in optimizer.param_groups for one in group["params"]}
        looked = [address for address in self._parameters if address in own]
        before = [[begin[address] for begin in self._begins if address in begin] for address in looked]
        before = [one for one in before if one]
        if before:
            results.add([value for one in before for value in one], _writer([len(one) for one in before], number, step))

    def end(self) -> None:
        """The step has ended."""
        self._parameters.clear()
        self._begins.clear()


def _writer(counts: list[int], number: int, step: int) -> Callable[[list[float]], None]:
    def write(values: list[float]) -> None:
        left = iter(values)
        least = [min(next(left) for _ in range(count)) for count in counts]
        core.counter("carried", sum(one > 0 for one in least) / len(least), LEARNING, number, None, DETAIL, step)

    return write
