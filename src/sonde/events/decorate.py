"""Records each call of a function: plain ones in the core, generators and coroutines piece by piece over their life."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sonde.events.cores import core
from sonde.events.wraps import dress

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator

    from sonde.native.core import Life, Span

_F = TypeVar("_F")

# Bits of `code.co_flags`, as the module `inspect` has them, which is slow to import.
GENERATOR, COROUTINE, ASYNC_GENERATOR = 0x20, 0x80, 0x200


def decorate(span: Span, function: _F, /) -> _F:
    """The function, with each of its calls recorded as an event of the span. It stays of the kind it is."""
    if isinstance(function, staticmethod | classmethod):
        return cast("_F", type(function)(decorate(span, function.__func__)))
    flags = flags_of(function)
    drive: Any = next((driver for bit, driver in _DRIVERS if flags & bit), None)
    if drive is None:
        return cast("_F", _plain(span, cast("Callable[..., Any]", function)))
    return cast("_F", dress(drive(span, function), cast("Callable[..., Any]", function)))


def _plain(span: Span, function: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function, recorded by the core with no frame in between; methods beside torch go through one.

    torch.compile reads the methods of a class as Python functions: it calls another object without its instance, and
    refuses a model whose forward is one. It would read the code of the Python core too. What it compiles is therefore
    read through, and not recorded.
    """
    recorded = span.wrap(function)
    compiling = getattr(getattr(sys.modules.get("torch"), "compiler", None), "is_compiling", None)
    if compiling is None or (core.KIND == "c" and not _is_method(function)):
        return recorded

    def method(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if compiling() else recorded(*args, **kwargs)

    return dress(method, function)


def _is_method(function: object) -> bool:
    """Was it defined in the body of a class?"""
    around = str(getattr(function, "__qualname__", "")).rpartition(".")[0]
    return bool(around) and not around.endswith("<locals>")


def flags_of(function: object) -> int:
    """What kind of function it is; a `functools.partial` is what it holds."""
    inner = getattr(function, "func", None)
    if inner is not None and hasattr(function, "keywords"):
        return flags_of(inner)
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    return flags if isinstance(flags, int) else 0


def _generator(span: Span, function: Callable[..., Generator[Any, Any, Any]]) -> Callable[..., Any]:
    def driver(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        life = core.Life(span)
        try:
            result = yield from pieces(function(*args, **kwargs), life)
        except BaseException as error:
            life.close(type(error))
            raise
        life.close()
        return result

    return driver


def _coroutine(span: Span, function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    async def driver(*args: Any, **kwargs: Any) -> Any:
        life = core.Life(span)
        try:
            result = await Pieces(function(*args, **kwargs), life)
        except BaseException as error:
            life.close(type(error))
            raise
        life.close()
        return result

    return driver


def _async_generator(span: Span, function: Callable[..., AsyncGenerator[Any, Any]]) -> Callable[..., Any]:
    async def driver(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        life = core.Life(span)
        inner = function(*args, **kwargs)
        request: Any = inner.__anext__()
        try:
            while True:
                item = await Pieces(request, life)
                try:
                    sent = yield item
                except GeneratorExit:
                    await Pieces(inner.aclose(), life)
                    raise
                except BaseException as error:  # noqa: BLE001  it is handed to the generator inside
                    request = inner.athrow(error)
                else:
                    request = inner.asend(sent)
        except StopAsyncIteration:
            life.close()
        except BaseException as error:
            life.close(type(error))
            raise

    return driver


_DRIVERS = ((ASYNC_GENERATOR, _async_generator), (COROUTINE, _coroutine), (GENERATOR, _generator))


class Pieces:
    """Awaits something, with the life running only while the code inside does."""

    __slots__ = ("_awaited", "_life")

    def __init__(self, awaited: Any, life: Life) -> None:
        self._awaited = awaited
        self._life = life

    def __await__(self) -> Generator[Any, Any, Any]:
        return pieces(self._awaited.__await__(), self._life)


def pieces(inner: Generator[Any, Any, Any], life: Life) -> Generator[Any, Any, Any]:
    """Drive a generator to its end: what is sent, thrown and returned passes through."""
    advance: Callable[[Any], Any] = inner.send
    given: Any = None
    while True:
        life.resume()
        try:
            item = advance(given)
        except StopIteration as stop:
            return stop.value
        finally:
            life.suspend()
        try:
            given = yield item
            advance = inner.send
        except GeneratorExit:
            _close(inner, life)
            raise
        except BaseException as error:  # noqa: BLE001  it is handed to the generator inside
            given, advance = error, inner.throw


def _close(inner: Generator[Any, Any, Any], life: Life) -> None:
    life.resume()
    try:
        inner.close()
    finally:
        life.suspend()
