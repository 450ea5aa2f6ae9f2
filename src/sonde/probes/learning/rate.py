"""Optimizers and their learning rates: what an optimizer is when it first steps, and its rates whenever they change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch.status import native
from sonde.store.probe import GROUP_BITS, OPTIMIZER_SETTINGS, PROBE, RATE, SETUP
from sonde.store.record import ESSENTIAL
from sonde.weak import WeakTable

MOST_GROUPS = 16  # parameter groups whose rates are recorded
PLAIN = (bool, int, float, str)

_noting = guard("noting the learning rate of an optimizer")
_listeners: list[Callable[[Any], None]] = []


def at_step(listener: Callable[[Any], None]) -> Callable[[], None]:
    """Call with an optimizer that has stepped, in the step that it belongs to; returns the end of it."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener) if listener in _listeners else None


class Rates:
    """The learning rates that were last recorded, by optimizer."""

    def __init__(self) -> None:
        self._known: WeakTable[list[float | None]] = WeakTable()

    def forget(self) -> None:
        """Nothing was recorded."""
        self._known.clear()

    @_noting
    def note(self, optimizer: Any, number: int) -> None:
        """An optimizer has stepped: record its rates, if they are not the last ones."""
        for listener in _listeners:
            listener(optimizer)
        rates = [_rate(group) for group in optimizer.param_groups[:MOST_GROUPS]]
        known = self._known.get(optimizer)
        if rates == known:
            return
        if known is None:
            core.mark(OPTIMIZER_SETTINGS, SETUP, number, _facts(optimizer), ESSENTIAL)
        self._known[optimizer] = rates
        for group, rate in enumerate(rates):
            if rate is not None and (known is None or group >= len(known) or known[group] != rate):
                core.counter(RATE, rate, PROBE, number << GROUP_BITS | group)

    def following(self, number: int) -> Callable[[Any], Any]:
        """What notes the rates of an optimizer after each plain step. Python code runs only where one has changed."""
        seen: list[object] = []

        @_noting
        def look(optimizer: Any) -> None:
            seen.clear()
            self.note(optimizer, number)
            seen[:] = [group.get("lr") for group in optimizer.param_groups]

        return look if native is None else native.stepped(look, seen=seen, listeners=_listeners)


def _rate(group: Any) -> float | None:
    """The rate of a group; None if it lies on a device, or is no number."""
    rate = group.get("lr")
    if type(rate) is float:
        return rate
    if isinstance(rate, int | float):
        return float(rate)
    return rate.item() if getattr(rate, "is_cpu", False) and rate.numel() == 1 else None


def _facts(optimizer: Any) -> dict[str, object]:
    """Its type, its settings, and what it optimizes."""
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    types: dict[str, int] = {}
    for one in parameters:
        name = str(one.dtype).removeprefix("torch.")
        types[name] = types.get(name, 0) + one.numel()
    settings = {
        str(name): list(value) if isinstance(value, tuple) else value
        for name, value in optimizer.defaults.items()
        if isinstance(value, PLAIN) or (isinstance(value, tuple) and all(isinstance(one, PLAIN) for one in value))
    }
    return {
        "type": type(optimizer).__name__,
        "settings": settings,
        "groups": len(optimizer.param_groups),
        "tensors": len(parameters),
        "parameters": sum(types.values()),
        "dtypes": types,
        "devices": sorted({str(one.device) for one in parameters}),
    }
