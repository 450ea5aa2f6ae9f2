"""What to trace: a limit on items, some batches or steps to observe, or everything; checked before it starts."""

from __future__ import annotations

from typing import Any, NamedTuple

from sonde.errors import SettingError

MAX_STEPS = 1_000_000  # of a collection that is no range: it is copied


class Plan(NamedTuple):
    """One of the first three is set, or none."""

    items: int | None = None  # loaders are limited to one batch of that many items
    batches: int | None = None  # only that many batches of each loader are captured
    steps: range | frozenset[int] | None = None  # only what happens in these steps is captured
    automatic: bool = True  # torch is followed; else only functions that were named for it are captured

    def as_json(self) -> dict[str, Any]:
        """The plan for other processes."""
        steps: Any = None
        if self.steps is not None:
            plain = isinstance(self.steps, range)
            steps = [self.steps.start, self.steps.stop, self.steps.step] if plain else {"in": sorted(self.steps)}  # type: ignore[union-attr]
        return {"items": self.items, "batches": self.batches, "steps": steps, "automatic": self.automatic}

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Plan:
        """What `as_json` wrote."""
        steps = given["steps"]
        made = None if steps is None else range(*steps) if isinstance(steps, list) else frozenset(steps["in"])
        return cls(given["items"], given["batches"], made, given["automatic"])


def checked(items: object, batches: object, steps: object) -> Plan:
    """The plan; raises SettingError if there cannot be one."""
    given = [name for name, value in (("items", items), ("batches", batches), ("steps", steps)) if value is not None]
    if len(given) > 1:
        raise SettingError(
            f"trace() got {' and '.join(given)}. Give only one: items=N limits loaders to one batch of N items; "
            "batches=K and steps=range(...) only observe."
        )
    return Plan(_count("items", items), _count("batches", batches), _steps(steps))


def _count(name: str, given: object) -> int | None:
    if given is None:
        return None
    # numpy's whole numbers have __index__ too; a bool is one in Python, but nobody means it as a number.
    if isinstance(given, bool) or not hasattr(given, "__index__") or type(given).__name__ == "bool_":
        raise SettingError(f"{name} is {given!r} ({type(given).__name__}). Give a whole number, at least 1.")
    number = int(given.__index__())
    if number < 1:
        raise SettingError(f"{name} is {number}. Give a whole number, at least 1.")
    return number


def _steps(given: object) -> range | frozenset[int] | None:
    if given is None:
        return None
    steps: range | frozenset[int]
    if isinstance(given, range):
        steps = given
    elif isinstance(given, set | frozenset | list | tuple) and len(given) <= MAX_STEPS:
        if any(isinstance(step, bool) or not isinstance(step, int) for step in given):
            raise SettingError(f"steps is {str(given)[:200]}. Its elements must be whole numbers.")
        steps = frozenset(given)
    else:
        raise SettingError(
            f"steps is {str(given)[:200]!r} ({type(given).__name__}). Give a range such as range(100, 102)."
        )
    if not steps or min(steps) < 0:
        raise SettingError(f"steps is {str(given)[:200]}. Give at least one step, counted from 0.")
    return steps
