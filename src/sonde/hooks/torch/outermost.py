"""A point that is told only of outermost calls: not of those inside another, in a backward pass, or read by the compiler."""

from __future__ import annotations

import threading
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from sonde.hooks.points import Point, dressed
from sonde.hooks.torch.engine import backward_test, compile_flag, compile_test, graph_task, native, readable

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.hooks.points import Link

    Calls = dict[int, Callable[..., Any]]

_numbers = count()


class _Thread(threading.local):
    inside = False


class OutermostPoint(Point):
    """One patched function of torch whose calls may lie in each other."""

    def __init__(self, name: str, reason: str, *, in_backward: bool = False, **options: Any) -> None:
        """As `Point`. `in_backward`: calls inside a backward pass are told too."""
        super().__init__(name, reason, **options)
        self._in_backward = in_backward
        self._number = next(_numbers)
        self._thread = _Thread()
        self._gates: dict[int, Any] = {}  # for good: compiled code may hold on to one
        self._calls: Callable[[Callable[..., Any]], Calls] | None = None

    def follow(self, make: Callable[[Callable[..., Any]], Calls]) -> Callable[[], None]:
        """For some first arguments call a function of `make(original)` instead, until the returned function is called.

        They are known by their `id`. Also for calls inside others, though not inside a backward pass. What is called must pass
        on arguments, result and exceptions as they are, and guard itself. The dict may change at any time.
        """

        def change(calls: Callable[[Callable[..., Any]], Calls] | None) -> None:
            self._calls = calls
            for link in self._links:
                self._reach(link)
                link.lane = self._lane and self._lane(link.inner)
            self._route()

        return self._joined(lambda: change(make), lambda: change(None))

    def made(self, original: Callable[..., Any], link: Link) -> Callable[..., Any]:
        """What stands in the place of the function."""
        told = self.around(original, link)
        if native is None:
            self._reach(link)
            return dressed(_gated(link, told, self._busy(), self._thread), original)
        gate = self._gates.get(id(original))
        if gate is None:
            task = None if self._in_backward else graph_task()
            gate = native.Gate(original, *compile_flag(), task, self._number)
            self._gates[id(original)] = dressed(gate, original)
        self._undo.append(readable(gate, original))
        gate.tell(told)
        link.replacement = gate
        self._reach(link)
        return cast("Callable[..., Any]", gate)

    def _reach(self, link: Link) -> None:
        """Let calls of what is followed come to those who follow it."""
        calls = self._calls and self._calls(link.original)
        if calls is None:
            link.inner = link.original
        else:
            link.inner = _followed(link.original, calls)
        if native is not None:
            link.replacement.reach(None if calls is None else link.inner)

    def routed(self, link: Link, lane: Callable[..., Any] | None) -> None:
        """Without subscribers the gate calls the lane itself."""
        if native is not None:
            link.replacement.route(lane)

    def _busy(self) -> Callable[[], bool]:
        return _never if self._in_backward else backward_test()


def _never() -> bool:
    return False


def _followed(original: Callable[..., Any], calls: Calls) -> Callable[..., Any]:
    if native is not None:
        return cast("Callable[..., Any]", native.followed(original, (calls, *compile_flag())))

    def call(*args: Any, **kwargs: Any) -> Any:
        return (calls.get(id(args[0]), original) if args else original)(*args, **kwargs)

    return call


def _gated(
    link: Link, told: Callable[..., Any], in_backward: Callable[[], bool], thread: _Thread
) -> Callable[..., Any]:
    compiling, original = compile_test(), link.original

    def call(*args: Any, **kwargs: Any) -> Any:
        # The compiler reads this function where it compiles a model: it must come to the original at once.
        if compiling() or in_backward():
            return original(*args, **kwargs)
        if thread.inside:
            return link.inner(*args, **kwargs)
        try:
            thread.inside = True
            return told(*args, **kwargs)
        finally:
            thread.inside = False

    return call
