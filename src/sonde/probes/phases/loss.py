"""The loss as it goes into a backward pass, without ever waiting for a device.

A loss on the host is read at once. Of one on a device a copy is ordered and read when it is there, steps later; it is then
written with the step that it belongs to. The latter could not be tried where this was written: there was no device.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch import dlpack, private
from sonde.hooks.torch.status import native
from sonde.probes import step
from sonde.store.probe import LOSS, PROBE

if TYPE_CHECKING:
    from collections.abc import Callable

    Listener = Callable[[float, int | None], None]
    Writer = Callable[[Any, float], object]  # gets the span of it, and the value

MOST = 64  # copies under way; more than that are not ordered
SCALING = ("DivBackward0", "MulBackward0")  # operations that scale a loss
HIGHEST = 1e6  # a larger divisor is no number of micro-batches


class _Copy(NamedTuple):
    """A loss on its way to the host."""

    step: int | None
    value: Any  # in memory of the host
    done: Any  # the event behind the copy
    divisor: int
    chosen: bool  # the step is recorded


class _Scaled(NamedTuple):
    """What a gradient scaler made of a loss."""

    result: weakref.ref[Any]
    loss: Any  # the same numbers as before, without their graph
    divisor: int


class _PendingLosses:
    def __init__(self) -> None:
        self.copies: list[_Copy] = []
        self.scaled: _Scaled | None = None
        self.listeners: tuple[Listener, ...] = ()
        self.micro_batches = 0  # in a step of a framework that divides losses by it; 0: not known
        self.renew: Callable[[], None] = lambda: None  # the fast path knows who writes: it has to be made again


_reporting = guard("reporting a loss")
_losses = _PendingLosses()
span = core.Span(LOSS, PROBE, key=0, base=step.phases)


def at_loss(listener: Listener) -> Callable[[], None]:
    """Call with each loss, and its step, just before its backward pass, or later if it is on a device; returns the end of it."""

    def change(listeners: tuple[Listener, ...]) -> None:
        _losses.listeners = listeners
        _losses.renew()

    change((*_losses.listeners, listener))
    return lambda: change(tuple(one for one in _losses.listeners if one != listener))


def wanted() -> bool:
    """Does somebody want to know every loss, also in steps that are not recorded?"""
    return bool(_losses.listeners)


def at_change(renew: Callable[[], None]) -> None:
    """Call when `writer` gives another function than before."""
    _losses.renew = renew


def writer() -> Writer:
    """The function that writes a loss."""
    return _write if _losses.listeners else core.note


def _write(span: Any, value: float, key: int = 0) -> None:
    core.note(span, value, key)
    _report(value, core.get_context()[0])


def _report(value: float, number: int | None) -> None:
    for listener in _losses.listeners:
        with _reporting:
            listener(value, number)


def scaled(result: Any, loss: Any) -> None:
    """A gradient scaler has made `result` of `loss`: the loss is what is wanted."""
    if type(result) is sys.modules["torch"].Tensor and type(loss) is type(result):
        _losses.scaled = _Scaled(weakref.ref(result), loss.detach(), _divisor(loss))


def divided_by(micro_batches: int) -> None:
    """A framework divides the losses that come now by this number of micro-batches; 0: it does so no more."""
    _losses.micro_batches = micro_batches if micro_batches > 1 else 0
    if micro_batches > 1 and native is not None:
        native.passes(False)


def _divisor(loss: Any) -> int:
    """The key of a loss: what it was divided by in the last operation, if that is a whole number above 1; else 0.

    A product counts too, as in `loss * (1 / 8)`. The operand of that operation is documented as part of its saved tensors.
    """
    if _losses.micro_batches:
        return -_losses.micro_batches
    made_by = loss.grad_fn
    kind = type(made_by).__name__
    factor = private.saved(made_by, "other") if kind in SCALING else None
    if factor is None or factor.numel() != 1:
        return 0
    divisor = float(factor) if factor.is_cpu else 0.0
    if kind == SCALING[1]:
        divisor = 1 / divisor if divisor else 0.0
    whole = round(divisor) if 1 < divisor < HIGHEST else 0
    return whole if abs(divisor - whole) <= 1e-6 * divisor else 0


def note(tensors: Any) -> None:
    """Write the loss, if what is differentiated is one number."""
    loss = tensors[0] if isinstance(tensors, tuple | list) and len(tensors) == 1 else tensors
    divisor = None
    if _losses.scaled is not None:
        result, plain, before = _losses.scaled
        if result() is loss:
            loss, divisor = plain, before
        _losses.scaled = None
    if _losses.copies:
        collect()
    torch = sys.modules["torch"]
    if type(loss) is torch.Tensor:
        _take(torch, loss, divisor)
    elif isinstance(loss, torch.Tensor) and type(loss).__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
        with private.without_functions(subclasses=True):  # what the program makes of such calls is not meant for ours
            _take(torch, loss, divisor)


def _take(torch: Any, loss: Any, divisor: int | None) -> None:
    """A tensor that has its memory itself; what it was divided by, if that is known."""
    if loss.numel() != 1 or not dlpack.is_there(loss):
        return
    key = _divisor(loss) if divisor is None else divisor
    if not loss.is_cpu:
        if loss.is_cuda and len(_losses.copies) < MOST:
            _order(torch, loss, key)
    elif key:
        _write(span, loss.item(), key)
    else:
        writer()(span, loss.item())


def collect() -> None:
    """Write the losses that have arrived."""
    copies = _losses.copies
    while copies and copies[0].done.query():
        copy = copies.pop(0)
        value = copy.value.item()
        if copy.chosen:
            core.counter(LOSS, value, PROBE, copy.divisor, step=copy.step)
        _report(value, copy.step)


def _order(torch: Any, loss: Any, divisor: int) -> None:
    value = torch.empty_like(loss, device="cpu", pin_memory=True, requires_grad=False)
    value.copy_(loss.detach(), non_blocking=True)
    done = torch.cuda.Event()
    done.record()
    _losses.copies.append(_Copy(core.get_context()[0], value, done, divisor, step.phases.on))
