"""A point whose subscribers see outermost calls only: not those inside another, in a backward pass, or read by the compiler."""

from __future__ import annotations

import threading
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from sonde.hooks.points import Point, dressed
from sonde.hooks.torch.private import compile_flag, graph_task
from sonde.hooks.torch.status import backward_test, compile_test, native, readable, reads_objects

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.hooks.points import Link

    Calls = dict[int, Callable[..., Any]]

_numbers = count()


def until_gone(calls: Calls, module: Any) -> ref[Any]:
    """Keep this, and nothing is called for this module any more when it is gone. Only C code runs then, as in `weak.py`."""
    return ref(module, partial(calls.pop, id(module)))


class _Thread(threading.local):
    inside = False


class OutermostPoint(Point):
    """One patched function of torch whose calls may lie in each other."""

    def __init__(self, name: str, reason: str, *, in_backward: bool = False, **options: Any) -> None:
        """As `Point`. `in_backward`: subscribers see calls inside a backward pass too."""
        super().__init__(name, reason, **options)
        self._in_backward = in_backward
        self._number = next(_numbers)
        self._thread = _Thread()
        self._wrappers: dict[int, Any] = {}  # by the `id` of the original; for good: compiled code may hold on to one
        self._functions: dict[int, Any] = {}  # the same as functions, for an older compiler
        self._made_all: tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...] = ()

    def replace_some(self, make: Callable[[Callable[..., Any]], Calls]) -> Callable[[], None]:
        """For some first arguments call a function of `make(original)` instead, until the returned function is called.

        They are known by their `id`. Otherwise as `replace_all`. The dict may change at any time.
        """
        return self.replace_all(lambda original: replaced(original, make(original)))

    def replace_all(self, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
        """Call `make(original)` in the place of the original, until the returned function is called.

        Also for calls inside others, though not inside a backward pass. What is called must pass on arguments, result and
        exceptions as they are, and guard itself. Of several, what the later one gets as the original is what the earlier
        one made; it may go on to be called when the earlier one has left.
        """

        def change(made_all: tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...]) -> None:
            self._made_all = made_all
            for link in self._links:
                self._replace(link)
                link.fast = self._fast_path and self._fast_path(link.inner)
            self._changed()

        return self._joined(
            lambda: change((*self._made_all, make)),
            lambda: change(tuple(one for one in self._made_all if one is not make)),
        )

    def made(self, original: Callable[..., Any], link: Link) -> Callable[..., Any]:
        """What stands in the place of the function."""
        subscribed = self.around(original, link)
        if native is None:
            self._replace(link)
            return dressed(_outermost(link, subscribed, self._busy(), self._thread), original)
        wrapper = self._wrappers.get(id(original))
        if wrapper is None:
            task = None if self._in_backward else graph_task()
            wrapper = native.Outermost(original, *compile_flag(), task, self._number)
            self._wrappers[id(original)] = dressed(wrapper, original)
        self._undo.append(readable(wrapper, original))
        wrapper.subscribe(subscribed)
        self._replace(link)
        if reads_objects():
            return cast("Callable[..., Any]", wrapper)
        return cast(
            "Callable[..., Any]", self._functions.setdefault(id(original), dressed(_read(wrapper, original), original))
        )

    def _replace(self, link: Link) -> None:
        """Let calls inside others come to what replaces the function."""
        link.inner = link.original
        for make in self._made_all:
            link.inner = make(link.inner)
        if native is not None:
            self._wrappers[id(link.original)].replace(link.inner if self._made_all else None)

    def use_fast_path(self, link: Link, fast: Callable[..., Any] | None) -> None:
        """Without subscribers the wrapper calls the fast path itself."""
        if native is not None:
            self._wrappers[id(link.original)].fast_path(fast)

    def _busy(self) -> Callable[[], bool]:
        return _never if self._in_backward else backward_test()


def _never() -> bool:
    return False


def replaced(original: Callable[..., Any], calls: Calls) -> Callable[..., Any]:
    """A function that calls those of `calls` for some first arguments, by their `id`, and the original for all others."""
    if native is not None:
        compiler, flag = compile_flag()
        return cast("Callable[..., Any]", native.replaced(original, calls=calls, compiler=compiler, flag=flag))

    def call(*args: Any, **kwargs: Any) -> Any:
        return (calls.get(id(args[0]), original) if args else original)(*args, **kwargs)

    return call


def _read(wrapper: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """The wrapper as a function that torch.compile can read: it comes to the original at once."""
    compiling = compile_test()

    def call(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) if compiling() else wrapper(*args, **kwargs)

    return call


def _outermost(
    link: Link, subscribed: Callable[..., Any], in_backward: Callable[[], bool], thread: _Thread
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
            return subscribed(*args, **kwargs)
        finally:
            thread.inside = False

    return call
