"""Calls, gradients and backward passes that are looked at: the same as `_finite.c`, in Python, where that was not built."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from sonde.flow import finite
from sonde.guard import guard

if TYPE_CHECKING:
    from collections.abc import Callable
    from weakref import ref

OFF, ON, QUIET = 0, 1, 2
CALM_PLACES = 4  # behind a single harmless operation; of so many in a row one is hooked


class _Thread(threading.local):
    def __init__(self) -> None:
        self.open: list[Call] = []
        self.inputs: list[Any] = []  # of those that are open
        self.parted: list[bool] = []
        self.passing = False
        self.last: Any = None
        self.end = 0
        self.given = 0  # the address of the last result, or of the first of it
        self.calm = 0  # places behind a single harmless operation, since the batch came


class _State:
    """What all threads share."""

    mode = OFF
    suspected = False
    bad = False  # a gradient was told in this pass
    good: Hook | None = None  # the last one whose gradient was finite
    weights: list[ref[Any]] = []  # noqa: RUF012  there is one state
    passed: Any = None
    guarded: guard[None] = guard("watching for non-finite values")


_thread = _Thread()
_state = _State()
_parts: tuple[Any, ...] = ()


def prepare(parts: tuple[Any, ...], guarded: guard[None] | None = None) -> None:
    """Take what is needed; all that is done here is under this guard."""
    global _parts
    _parts = parts
    _state.guarded = guarded or _state.guarded


def turn(mode: int) -> None:
    """0: off. 1: on. 2: only losses are looked at."""
    _state.mode, _state.suspected, _state.bad, _state.good = mode, False, False, None
    renew()


def renew() -> None:
    """A batch has come: what this thread calls now comes after no layer."""
    _thread.last, _thread.given, _thread.end, _thread.calm = None, 0, 0, 0


def suspect(on: bool) -> None:
    """Say whether the end of each backward pass is to be told."""
    _state.suspected = on


def weigh(weights: list[Any]) -> None:
    """The weak references to parameters whose gradients are looked at."""
    _state.weights = weights


def at() -> tuple[Any, Any, int, Any]:
    """What is open in this thread, and what was seen last."""
    outer = _thread.open[-1].layer if _thread.open else None
    return outer, _thread.last, _thread.end, _state.passed


class Call:
    """What is called in the place of `nn.Module.__call__` for a layer."""

    __slots__ = ("end", "first", "ins", "layer", "original", "outs", "own")

    def __init__(
        self,
        layer: Any,
        original: Callable[..., Any],
        outs: tuple[Any, ...],
        ins: tuple[Any, ...],
        own: bool,
        _hooks: Any,
    ) -> None:
        self.layer, self.original, self.outs, self.ins, self.own = layer, original, outs, ins, own
        self.first = self.end = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        thread, tracing = _thread, _parts[5]
        if _state.mode != ON or (not thread.open and tracing() is not None):
            return self.original(*args, **kwargs)
        given = args[1] if len(args) > 1 else None
        first = _parts[4]()
        adjacent = given is not None and id(given) == thread.given and first == thread.end
        if thread.parted:
            thread.parted[-1] = True
        thread.open.append(self)
        thread.inputs.append(given)
        thread.parted.append(False)
        try:
            result = self.original(*args, **kwargs)
        finally:
            thread.open.pop()
            thread.inputs.pop()
            parted = thread.parted.pop()
        error = None
        if _state.mode == ON:
            with _state.guarded:
                error = self._judge(result, args, kwargs, (first, adjacent, parted))
        _told(error)
        return result

    def _judge(self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any], at: tuple[Any, ...]) -> Any:
        first, adjacent, parted = at
        given = args[1] if len(args) > 1 else None
        thread = _thread
        tensors = (result,) if type(result) in _parts[:2] else _parts[6](result)
        bits = 0
        for one in tensors:
            bits |= _parts[7](one)
        changed = given is not None and (given is result or bool(bits and adjacent and _parts[7](given)))
        if bits:
            outer = thread.open[-1].layer if thread.open else None
            root = thread.inputs[0] if thread.inputs else None
            situation = (outer, thread.last, thread.end, first, int(adjacent), int(changed), int(parted), root)
            names = tuple(kwargs) or None
            error = _parts[8](self.layer, result, (*args, *kwargs.values()), names, bits, situation)
            if error is not None:
                return error
        if not parted:
            for one in tensors if self.own else ():
                _hook(one, self.outs)
            if (self.own or not adjacent) and not changed and type(given) in _parts[:2]:
                _hook(given, self.ins, alone=not self.own and first - thread.end == 1)
            thread.last, thread.given = self.layer, id(tensors[0]) if tensors and not bits else 0
            thread.end = _parts[4]()
            self.first, self.end = first, thread.end
        return None


watched = Call


def _hook(tensor: Any, carriers: tuple[Any, ...], alone: bool = False) -> None:
    """Put the hook on the node that made this tensor; `alone`: it is the only one since the last layer."""
    if type(tensor) not in _parts[:2]:
        return
    node = tensor.grad_fn
    if alone and type(node) in _parts[15]:
        _thread.calm += 1
        if (_thread.calm - 1) % CALM_PLACES:
            return
    if node is not None and tensor.output_nr < len(carriers):
        node._register_hook_dict(carriers[tensor.output_nr])


class Hook:
    """Looks at gradients: 0, of the result of a layer; 1, of its input."""

    __slots__ = ("layer", "side")

    def __init__(self, layer: Any, side: int) -> None:
        self.layer, self.side = layer, side

    def __call__(self, gradient: Any) -> None:
        error = None
        if _state.mode == ON and not _state.bad and gradient is not None:
            with _state.guarded:
                error = self._judge(gradient)
        _told(error)

    def _judge(self, gradient: Any) -> Any:
        bits = _parts[7](gradient)
        if not bits:
            _state.good = self
            return None
        _state.bad = True
        good = _state.good
        known = (good.layer, good.side) if good is not None else (None, 0)
        return _parts[9](self.layer, self.side, gradient, bits, *known)


hook = Hook


class Pass:
    """What is called in the place of a backward pass."""

    __slots__ = ("original",)

    def __init__(self, original: Callable[..., Any]) -> None:
        self.original = original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _state.mode == OFF or _thread.passing:
            return self.original(*args, **kwargs)
        error = None
        with _state.guarded:
            error = _begins(args[0]) if args else None
        _told(error)
        before, _state.passed = _state.passed, args[0] if args else None
        _thread.passing = True
        try:
            result = self.original(*args, **kwargs)
            with _state.guarded:
                error = _ended()
            _told(error)
        finally:
            _thread.passing = False
            _state.passed = before
            renew()
        return result


passing = Pass


def _told(error: BaseException | None) -> None:
    if error is not None:
        raise error


def _begins(loss: Any) -> Any:
    bits = _parts[7](loss)
    _state.bad, _state.good = False, None
    if _state.mode == QUIET:
        _parts[12](bits)
        return None
    return _parts[10](loss, bits) if bits else None


def _ended() -> Any:
    if _state.mode != ON:
        return None
    index, bits, seen = _bad_weight()
    if index < 0 and not _state.bad and not _state.suspected:
        return None
    return _parts[11](index, bits, seen)


def _bad_weight() -> tuple[int, int, int]:
    seen = 0
    for index, one in enumerate(_state.weights):
        weight = one()
        gradient = None if weight is None else weight.grad
        if gradient is not None:
            seen += 1
            bits = _parts[7](gradient)
            if bits:
                return index, bits, seen
    return -1, 0, seen


def engine() -> Any:
    """The C part, or this module."""
    return finite.native if finite.native is not None else sys.modules[__name__]
