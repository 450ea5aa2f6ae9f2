"""`sonde.log(loss=0.3, step=7)`: a counter for each number, a mark for anything else."""

from __future__ import annotations

from sonde.events import core
from sonde.guard import guard
from sonde.store.probe import LOG


def log(step: int | None = None, **values: object) -> None:
    """Record values by name, at the current or the given step. Never raises.

    A value may be a number, or an array or tensor with one element. Values are not read while nothing is being
    recorded.
    """
    if not core.info()["recording"]:
        return
    for name, value in values.items():
        with guard("logging a value"):
            _record(name, value, step)


def _record(name: str, value: object, step: int | None) -> None:
    number = as_number(value)
    if number is None:
        core.mark(name, LOG, args={"value": value}, step=step)
    else:
        core.counter(name, number, LOG, step=step)


def as_number(value: object) -> float | None:
    """The value as a number; None if it is none, or none that fits."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        item = getattr(value, "item", None)
        if not callable(item) or any(size != 1 for size in shape):
            return None
        value = item()
    if isinstance(value, str | bytes | bytearray) or not hasattr(type(value), "__float__"):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (OverflowError, TypeError, ValueError):
        return None
