"""A subscriber that keeps what it is told, for the tests of the points."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from sonde import guard, hooks
from sonde.hooks.points import Point


class Call(NamedTuple):
    """One call that has ended."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    error: BaseException | None

    @property
    def of(self) -> str:
        """The type of the first argument."""
        return type(self.args[0]).__name__


class Told:
    """Keeps begun and ended calls."""

    def __init__(self) -> None:
        self.begun = 0
        self.calls: list[Call] = []

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call begins."""
        self.begun += 1
        return args, kwargs

    def after(self, token: Any, result: Any, error: BaseException | None) -> None:
        """A call has ended."""
        args, kwargs = token
        self.calls.append(Call(args, kwargs, result, error))


@contextmanager
def told(*points: Point) -> Iterator[list[Told]]:
    """Subscribe to each for a block; at its end nothing is patched, and nothing of ours has failed."""
    before = guard.counts()
    subscribers = [Told() for _ in points]
    leave = [point.subscribe(subscriber) for point, subscriber in zip(points, subscribers, strict=True)]
    try:
        yield subscribers
    finally:
        for each in leave:
            each()
    assert hooks.describe() == []
    assert guard.counts() == before
