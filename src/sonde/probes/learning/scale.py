"""The scale of a gradient scaler whenever it changes, and the norm of gradients that `clip_grad_norm_` has found."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch.clip import clip
from sonde.hooks.torch.optimizer import scaler_step
from sonde.probes.learning.tensors import capturing, plain, unseen
from sonde.store.probe import LEARNING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.probes.learning.pending import PendingNumbers

_noting = guard("noting the scale of gradients")


def watch(results: PendingNumbers) -> Callable[[], None]:
    """Look at every step of a scaler, and at every clipping; returns what ends that."""
    leave = [scaler_step.subscribe(_Scales(results)), clip.subscribe(_Clips(results))]

    def end() -> None:
        while leave:
            leave.pop()()

    return end


class _OnChange:
    """Numbers that are written when they change."""

    def __init__(self, results: PendingNumbers) -> None:
        self.results = results
        self._last: dict[str, float] = {}

    def note(self, name: str, value: Any) -> None:
        """Write this number, perhaps later."""
        step = core.get_context()[0]

        def write(values: list[float]) -> None:
            if self._last.get(name) != values[0]:
                self._last[name] = values[0]
                core.counter(name, values[0], LEARNING, step=step)

        self.results.add([value], write)


class _Scales(_OnChange):
    """Subscribes to each step of a gradient scaler."""

    @_noting
    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        scaler = args[0]
        if not scaler.is_enabled() or capturing():
            return
        torch = sys.modules["torch"]
        device = next((one.device for group in args[1].param_groups for one in group["params"]), None)
        if device is not None:
            with unseen():  # asked for the scale itself, it would wait for the device
                self.note("scale", scaler.scale(torch.ones((), device=device)))

    def after(self, _token: Any, _result: Any, _error: BaseException | None) -> None:
        pass


class _Clips(_OnChange):
    """Subscribes to each clipping of gradients."""

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return kwargs.get("max_norm", args[1] if len(args) > 1 else None)

    @_noting
    def after(self, limit: Any, total: Any, error: BaseException | None) -> None:
        if error is not None or capturing():
            return
        with unseen():
            found = plain(total)
            if found is not None and found.numel() == 1:
                step = core.get_context()[0]
                self.results.add([found], lambda values: core.counter("clip.norm", values[0], LEARNING, step=step))
        if isinstance(limit, int | float):
            self.note("clip.limit", float(limit))
