"""DFTracer's `dft_fn`: functions, constructors, loops and blocks of one category."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from sonde.ai.node import OPTIONAL, Node, arguments
from sonde.events import Span, core
from sonde.events.decorate import decorate

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])


class _Open(threading.local):
    """The names of the entries that are open in this thread, innermost last."""

    def __init__(self) -> None:
        self.names: list[str] = []


class dft_fn:  # noqa: N801  their name
    """Records functions (`@fn.log`), constructors, loops and blocks (`with fn:`) under one category.

    `name` is the name of a block's event. Default: the name of the function that created this object.
    """

    def __init__(
        self,
        cat: str,
        name: str | None = None,
        epoch: int | None = None,
        step: int | None = None,
        image_idx: int | None = None,
        image_size: float | None = None,
        enable: bool = True,
    ) -> None:
        """The values that are given go to all its events."""
        self._node = Node(name or sys._getframe(1).f_code.co_name, cat)
        self._node.on = bool(enable)
        self._node.update(args=arguments(None, dict(zip(OPTIONAL, (epoch, step, image_idx, image_size), strict=True))))
        self._open = _Open()

    def __enter__(self) -> Self:
        self._open.names.append(self._node.name)
        self._node.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._node.__exit__(kind, error, trace)
        if self._open.names:
            self._open.names.pop()

    def update(
        self, *, epoch: Any = None, step: Any = None, args: Mapping[str, object] | None = None, **more: object
    ) -> Self:
        """Set the step and epoch of the process. Other arguments go to the open event, or to later ones.

        Arguments added while an event is open are recorded as a mark `<name>.update` inside it.
        """
        self._node.update(epoch=epoch, step=step)
        given = arguments(args, more)
        if given and self._open.names and self._node.on:
            core.mark(f"{self._open.names[-1]}.update", self._node.cat, args=given)
        elif given:
            self._node.update(args=given)
        return self

    def flush(self) -> None:
        """Record the open block up to here."""
        self._node.flush()

    def reset(self) -> None:
        """Record the open block up to here, and start it again."""
        self._node.reset()

    def enable(self) -> None:
        """Start recording at the next entry."""
        self._node.enable()

    def disable(self) -> None:
        """Stop recording at the next entry."""
        self._node.disable()

    @overload
    def log(self, function: _F, /, *, name: str | None = None) -> _F: ...
    @overload
    def log(self, function: None = None, /, *, name: str | None = None) -> Callable[[_F], _F]: ...
    def log(self, function: Any = None, /, *, name: str | None = None) -> Any:
        """Record each call of a function, under its qualified name or `name`.

        Parameters and attributes of `self` named epoch, step, image_idx or image_size become arguments.
        """
        if function is None:
            return functools.partial(self.log, name=name)
        if isinstance(function, staticmethod | classmethod):
            return type(function)(self.log(function.__func__, name=name))
        name = name or getattr(function, "__qualname__", None) or self._node.name
        span = Span(name, self._node.cat, base=self._node)
        return self._recorded(function, span) if _is_plain(function) else decorate(span, function)

    log_init = log
    log_static = log

    def _recorded(self, function: Callable[..., Any], span: Span) -> Callable[..., Any]:
        name, capture = span.name, _ArgumentValues(function)

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            found = capture(args, kwargs)
            self._open.names.append(name)
            try:
                with Span(name, span.cat, args=found, base=self._node) if found else span:
                    return function(*args, **kwargs)
            finally:
                self._open.names.pop()

        return recorded

    def iter(
        self,
        iterable: Iterable[_T],
        name: str = "loop",
        iter_name: str = "step",
        include_block: bool = True,
        include_iter: bool = True,
    ) -> Iterator[_T]:
        """Iterate; `<name>.iter` is the wait for an item, `<name>.yield` its use, counted from 1.

        `iter_name` has no effect: the count is the key of both events.
        """
        del iter_name
        wait = Span(f"{name}.iter", self._node.cat, base=self._node) if include_iter else None
        block = Span(f"{name}.yield", self._node.cat, base=self._node) if include_block else None
        return core.iterate(iterable, wait, block)

    def log_metadata(self, key: str, value: object) -> None:
        """Record a fact about the run immediately."""
        if self._node.on:
            core.mark(key, "dftracer", args={"value": value}, metadata=True)


class _ArgumentValues:
    """Finds the values of a call that DFTracer records by their name: the caller's, else the default, else of `self`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        try:
            self.signature = inspect.signature(function)
        except (TypeError, ValueError):
            self.signature = inspect.Signature()
        self.names = [name for name in OPTIONAL if name in self.signature.parameters]
        self.method = next(iter(self.signature.parameters), "") == "self"

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, object]:
        found = _attributes(args[0]) if self.method and args else {}
        if self.names:
            found |= self._parameters(args, kwargs)
        return found

    def _parameters(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, object]:
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError:  # a wrong call: the function itself will say so
            return {}
        bound.apply_defaults()
        return {name: value for name in self.names if (value := bound.arguments[name]) is not None}


def _attributes(instance: object) -> dict[str, object]:
    # Only plain attributes: a property would run the user's code.
    plain = getattr(instance, "__dict__", {})
    return {name: plain[name] for name in OPTIONAL if plain.get(name) is not None}


def _is_plain(function: object) -> bool:
    return inspect.isroutine(function) and not (
        inspect.isgeneratorfunction(function)
        or inspect.iscoroutinefunction(function)
        or inspect.isasyncgenfunction(function)
    )
