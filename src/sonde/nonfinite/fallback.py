"""The watch where `native/finite.c` was not built: results of layers, losses, and gradients of parameters after each pass.

It looks at no gradient between layers, and so names the layer of a parameter instead of the operation.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from sonde.guard import guard
from sonde.hooks.torch import private
from sonde.nonfinite import check
from sonde.probes.layers.backward import tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from weakref import ref

OFF, ON, QUIET = 0, 1, 2


class _State:
    """What all threads share."""

    mode = OFF
    suspected = False  # the end of each backward pass is to be reported
    weights: list[ref[Any]] = []  # noqa: RUF012  there is one state
    passed: Any = None  # what the backward pass that runs began with
    guarded: guard[None] = guard("watching for non-finite values")
    watch: Any = None


_state = _State()
_inside = threading.local()


def prepare(watch: Any, guarded: guard[None]) -> None:
    """Tell this watch what is found; all that is done here is under this guard."""
    _state.watch, _state.guarded = watch, guarded


def turn(mode: int) -> None:
    """0: off. 1: on. 2: only losses are looked at."""
    _state.mode, _state.suspected = mode, False


def renew() -> None:
    """A batch has come."""


def suspect(on: bool) -> None:
    """Say whether the end of each backward pass is to be reported."""
    _state.suspected = on


def weigh(weights: list[Any]) -> None:
    """The weak references to parameters whose gradients are looked at."""
    _state.weights = weights


def at() -> tuple[Any, Any, int, Any]:
    """Of layers nothing is known here; what the backward pass that runs began with."""
    return None, None, 0, _state.passed


class LayerCall:
    """What is called in the place of `nn.Module.__call__` for a layer."""

    first = end = 0  # which nodes of autograd's graph it made is not known

    def __init__(self, layer: Any, original: Callable[..., Any]) -> None:
        self.layer, self.original = layer, original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self.original(*args, **kwargs)
        error = None
        if _state.mode == ON and private.tracing_state()() is None:  # what is asked of a tensor would be traced
            with _state.guarded:
                error = self._look(result, args, kwargs)
        _raise(error)
        return result

    def _look(self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bits = 0
        for one in tensors_of(result, sys.modules["torch"].Tensor):
            bits |= check.look(one)
        if not bits:
            return None
        known = (None, None, 0, sys.maxsize, 0, 0, 0, None)  # no operation before this call is blamed
        return _state.watch.output(self.layer, result, (*args, *kwargs.values()), tuple(kwargs) or None, bits, known)


def passing(original: Callable[..., Any]) -> Callable[..., Any]:
    """What is called in the place of a backward pass."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if _state.mode == OFF or getattr(_inside, "passing", False):
            return original(*args, **kwargs)
        error = None
        with _state.guarded:
            error = _begins(args[0]) if args else None
        _raise(error)
        _state.passed, _inside.passing = args[0] if args else None, True
        try:
            result = original(*args, **kwargs)
            with _state.guarded:
                error = _ended()
            _raise(error)
        finally:
            _state.passed, _inside.passing = None, False
        return result

    return call


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error


def _begins(loss: Any) -> Any:
    bits = check.look(loss)
    if _state.mode == QUIET:
        return _state.watch.passed(bits)
    return _state.watch.loss(loss, bits) if bits else None


def _ended() -> Any:
    if _state.mode != ON:
        return None
    index, bits, seen = _bad_weight()
    return _state.watch.ended(index, bits, seen) if index >= 0 or _state.suspected else None


def _bad_weight() -> tuple[int, int, int]:
    """Which parameter has a gradient that is not finite, -1: none; its bits; how many have one."""
    seen = 0
    for index, one in enumerate(_state.weights):
        gradient = getattr(one(), "grad", None)
        if gradient is not None:
            seen += 1
            bits = check.look(gradient)
            if bits:
                return index, bits, seen
    return -1, 0, seen


def engine() -> Any:
    """The C part, or this module."""
    return check.native if check.native is not None else sys.modules[__name__]
