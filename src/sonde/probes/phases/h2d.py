"""The probe of copies from the host to a device: `.to(...)`, `.cuda()` and `copy_`. The key is the number of bytes.

A program that runs on the host alone pays nothing for it: the methods are patched when a device comes into use, or at once
if the setting `patch_h2d` asks for it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.guard import guard
from sonde.hooks import finder
from sonde.hooks.torch import private
from sonde.hooks.torch.copy import tensor_copy
from sonde.hooks.torch.transfer import tensor_to
from sonde.probes import step
from sonde.store.probe import H2D, PROBE

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from sonde.config import Settings

_watching = guard("watching a copy to a device")


class _Transfers:
    """The patched methods, and whether they are wanted."""

    def __init__(self) -> None:
        self.wanted = True
        self.undo: list[Callable[[], object]] = []

    def put(self) -> None:
        """A device has come into use."""
        if self.wanted and len(self.undo) < 2:
            self.undo += [tensor_to.fast_path(_moving), tensor_copy.fast_path(_copying)]

    def leave(self) -> None:
        """Take all away."""
        self.wanted = False
        while self.undo:
            self.undo.pop()()


def install(settings: Settings) -> Callable[[], None]:
    """Record copies to a device until the returned function is called."""
    transfers = _Transfers()
    if settings.patch_h2d:
        transfers.put()
    else:
        transfers.undo.append(finder.when_imported("torch", lambda torch: _when_used(torch, transfers.put)))
    return transfers.leave


def _when_used(torch: ModuleType, put: Callable[[], None]) -> None:
    """Call when torch begins to use a device, or now if it may do so unseen. Asks no driver: that would break forks."""
    if torch.version.cuda or torch.version.hip:
        private.when_device_used(torch.cuda, put)
    if getattr(torch.version, "xpu", None):
        private.when_device_used(torch.xpu, put)
    if torch.backends.mps.is_built():
        put()


def _moving(original: Callable[..., Any]) -> Callable[..., Any]:
    def move(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
        span = None
        with _watching:
            if tensor.is_cpu and _away(args, kwargs):
                span = _span(tensor)
        if span is None:
            return original(tensor, *args, **kwargs)
        with span:
            return original(tensor, *args, **kwargs)

    return move


def _copying(original: Callable[..., Any]) -> Callable[..., Any]:
    def copy(target: Any, /, *args: Any, **kwargs: Any) -> Any:
        span = None
        with _watching:
            span = _span(args[0] if args else kwargs["other"])
        if span is None:
            return original(target, *args, **kwargs)
        with span:
            return original(target, *args, **kwargs)

    return copy


def _span(tensor: Any) -> core.Span:
    if not step.now.begun:
        step.begin()
    return core.Span(H2D, PROBE, key=tensor.nbytes, base=step.phases)


def _away(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Is the target of this `.to(...)` or `.cuda(...)` another place than the host?"""
    torch = sys.modules["torch"]
    target = kwargs.get("device")
    if target is None:
        target = args[0] if args else kwargs.get("tensor", kwargs.get("other"))
    if isinstance(target, torch.Tensor):
        return not target.is_cpu
    if isinstance(target, torch.device):
        return bool(target.type != "cpu")
    return not (isinstance(target, str) and target.split(":")[0] == "cpu")
