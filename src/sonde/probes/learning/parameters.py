"""Gradients, weights and updates of an optimizer in one step, by parameter group and layer.

Norms are those of all elements. The update is measured on at most 65,536 evenly spaced elements of each parameter, which are
copied for the time of the step; its norm is scaled up to the whole.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.events import core
from sonde.probes.learning.tensors import distance, moments_of, norm, plain, spread
from sonde.store.probe import GRADIENT, GROUP_BITS
from sonde.store.record import DETAIL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sonde.probes.learning.names import LayerNames
    from sonde.probes.learning.pending import PendingNumbers

MOST_COPIED = 1 << 16  # elements of a parameter
MOST_LAYERS = 4096  # of an optimizer


class _Tensor(NamedTuple):
    """One parameter when its optimizer begins to step. `before`: a part of it; `weight`: its norm; the rest is of its gradient."""

    parameter: Any
    before: Any
    weight: Any
    size: int  # 0: it has none
    norm: Any = 0.0
    nonzero: Any = 0
    nonfinite: Any = 0


class Update:
    """One step of an optimizer that is looked at: made when it begins, ended when it has ended."""

    def __init__(self, optimizer: Any, number: int, step: int, names: LayerNames) -> None:
        self._number = number
        self._step = step
        self._names = names
        self._scale = scale = getattr(optimizer, "grad_scale", None)  # a fused optimizer divides by it itself
        self._layers: dict[tuple[int, str], list[_Tensor]] = {}
        for group, layer, parameter in parameters_of(optimizer, names):
            found = None if len(self._layers) >= MOST_LAYERS else _look(parameter, scale)
            if found is not None:
                self._layers.setdefault((group, layer), []).append(found)

    def end(self, results: PendingNumbers, *, closure: bool) -> None:
        """The parameters are new. With a closure, the gradients came during the step: those before it were of another one."""
        if closure:
            self._renew()
        for (group, layer), tensors in self._layers.items():
            scalars = [(one.norm, one.nonzero, one.nonfinite, one.weight, _moved(one)) for one in tensors]
            results.add([one for row in scalars for one in row], self._writer(group, layer, tensors))

    def _renew(self) -> None:
        """Look at gradients again, and name layers of models that were called for the first time."""
        found: dict[tuple[int, str], list[_Tensor]] = {}
        for (group, layer), tensors in self._layers.items():
            for one in tensors:
                name = self._names.layer(one.parameter) or layer
                found.setdefault((group, name), []).append(_again(one, self._scale))
        self._layers = found

    def _writer(self, group: int, layer: str, tensors: list[_Tensor]) -> Callable[[list[float]], None]:
        shapes = [(one.size, one.parameter.numel() / one.before.numel()) for one in tensors]
        key, step = self._number << GROUP_BITS | group, self._step

        def write(values: list[float]) -> None:
            for what, value in _combined(values, shapes).items():
                core.counter(layer, value, GRADIENT + what, key, None, DETAIL, step)

        return write


def parameters_of(optimizer: Any, names: LayerNames) -> Iterator[tuple[int, str, Any]]:
    """Group, layer and parameter of all parameters of an optimizer."""
    count = 0
    for group, about in enumerate(optimizer.param_groups):
        for parameter in about["params"]:
            yield group, names.layer(parameter) or f"?/parameter {count}", parameter
            count += 1


def _look(parameter: Any, scale: Any) -> _Tensor | None:
    weights = plain(parameter)
    if weights is None or not weights.numel() or not weights.is_floating_point():
        return None
    before = spread(weights, MOST_COPIED).clone()
    return _again(_Tensor(parameter, before, moments_of(weights).norm, 0), scale)


def _again(tensor: _Tensor, scale: Any) -> _Tensor:
    """The same with its gradient as it is now."""
    gradient = None if tensor.parameter.grad is None else plain(tensor.parameter.grad)
    if gradient is None or not gradient.numel():
        return _Tensor(tensor.parameter, tensor.before, tensor.weight, 0)
    found = moments_of(gradient)
    length = found.norm if scale is None else found.norm / scale.to(gradient.device)
    return tensor._replace(size=gradient.numel(), norm=length, nonzero=found.nonzero, nonfinite=found.nonfinite)


def _moved(tensor: _Tensor) -> Any:
    now = plain(tensor.parameter)
    part = None if now is None else spread(now, MOST_COPIED)
    if part is None or part.shape != tensor.before.shape:
        return norm(tensor.before) * math.nan
    return distance(part, tensor.before)


def _combined(values: list[float], shapes: list[tuple[int, float]]) -> dict[str, float]:
    """What is written of a layer, of the numbers of its parameters."""
    norms = weights = updates = zeros = bad = 0.0
    size = 0
    for place, (elements, times) in enumerate(shapes):
        length, nonzero, nonfinite, weight, moved = values[5 * place : 5 * place + 5]
        weights += weight * weight
        updates += moved * moved * times
        norms += length * length
        zeros += elements - nonzero
        bad += nonfinite
        size += elements
    found = {"weight": math.sqrt(weights), "update": math.sqrt(updates)}
    if size:
        found |= {"norm": math.sqrt(norms), "zeros": zeros / size, "nonfinite": bad / size}
    return found
