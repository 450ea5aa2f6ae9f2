"""Decorators that let a function appear in traces: `trace_dataset_func`, `trace_model_func`, `trace_func`.

    @trace_dataset_func
    def get_image(self, index): ...

    @trace_func(stage_name="collate", params_to_capture=["samples"], result_name="batch")
    def collate(samples): ...

While no trace is active, a call of such a function costs one test of a flag more than before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from sonde.capture import tape
from sonde.capture.definition import Arguments, TraceDef, is_method, shown_name
from sonde.capture.traceable import Switch, traceable
from sonde.errors import SettingError
from sonde.events.decorate import ASYNC_GENERATOR, COROUTINE, GENERATOR, Pieces, flags_of, pieces
from sonde.events.wraps import dress
from sonde.guard import guard

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping

    Wanted = Mapping[str, int] | Iterable[str]
    Choice = Callable[[tuple[Any, ...]], "Noted | None"]

_F = TypeVar("_F")
MARK = "__sonde_traced__"


@overload
def trace_dataset_func(func: _F, /) -> _F: ...
@overload
def trace_dataset_func(
    *, params_to_capture: Wanted | None = ..., result_name: str | None = ..., stage_name: str = ...
) -> Callable[[_F], _F]: ...
def trace_dataset_func(
    func: Any = None,
    *,
    params_to_capture: Wanted | None = None,
    result_name: str | None = None,
    stage_name: str = "dataset_getter",
) -> Any:
    """Capture a dataset function in traces, by default in the stage dataset_getter."""
    return _decorator(func, params_to_capture, result_name, stage_name)


@overload
def trace_model_func(func: _F, /) -> _F: ...
@overload
def trace_model_func(
    *, params_to_capture: Wanted | None = ..., result_name: str | None = ..., stage_name: str = ...
) -> Callable[[_F], _F]: ...
def trace_model_func(
    func: Any = None,
    *,
    params_to_capture: Wanted | None = None,
    result_name: str | None = None,
    stage_name: str = "evaluation",
) -> Any:
    """Capture a model function in traces, by default in the stage evaluation."""
    return _decorator(func, params_to_capture, result_name, stage_name)


@overload
def trace_func(func: _F, /, *, stage_name: str) -> _F: ...
@overload
def trace_func(
    *, params_to_capture: Wanted | None = ..., result_name: str | None = ..., stage_name: str
) -> Callable[[_F], _F]: ...
def trace_func(
    func: Any = None,
    *,
    params_to_capture: Wanted | None = None,
    result_name: str | None = None,
    stage_name: str,
) -> Any:
    """Capture any function in traces, in the stage `stage_name`."""
    return _decorator(func, params_to_capture, result_name, stage_name)


def _decorator(func: Any, wanted: Wanted | None, result: str | None, stage: str) -> Any:
    definition = TraceDef(params_to_capture=wanted, result_name=result, stage_name=stage)

    def decorate(function: Any) -> Any:
        if not callable(getattr(function, "__func__", function)):
            raise SettingError(f"{function!r} is not a function. sonde.flow decorators need a function.")
        return traced(function, definition)

    return decorate if func is None else decorate(func)


def traced(function: Any, definition: TraceDef, choose: Choice | None = None) -> Any:
    """The function, with its calls noted while a trace is active. It stays of the kind it is.

    `choose` says, by the arguments of a call, how it is noted, if at all; without it, as `definition` says.
    """
    if isinstance(function, staticmethod | classmethod):
        return type(function)(traced(function.__func__, definition, choose))
    pick = choose or _always(Noted(function, definition))
    flags = flags_of(function)
    drive: Any = next((driver for bit, driver in _DRIVERS if flags & bit), None)
    made = traceable(function, _handler(function, pick)) if drive is None else dress(drive(function, pick), function)
    made.__dict__[MARK] = True
    return made


def _always(noted: Noted) -> Choice:
    return lambda _: noted


def is_traced(function: object) -> bool:
    """Does this function note its calls itself?"""
    return MARK in getattr(function, "__dict__", {})


def _handler(function: Callable[..., Any], pick: Choice) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        frame = begin(pick, args, kwargs)
        return (
            function(*args, **kwargs) if frame is None else tape.finish_call(frame, lambda: function(*args, **kwargs))
        )

    return call


@guard("capturing a call", default=None)
def begin(pick: Choice, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tape.CallFrame | None:
    """Note that a call begins, if it is one that is wanted."""
    noted = pick(args)
    return None if noted is None else noted.enter(args, kwargs)


class Noted:
    """A function whose calls are noted, and the names under which they appear."""

    __slots__ = ("arguments", "definition", "method", "owner")

    def __init__(self, function: Callable[..., Any], definition: TraceDef) -> None:
        name = str(getattr(function, "__name__", type(function).__name__))
        self.method = is_method(function)
        self.owner = _class_in(str(getattr(function, "__qualname__", "")))
        self.definition = TraceDef(
            definition.disp_name,
            definition.func_name or name,
            definition.params_to_capture,
            definition.result_name,
            definition.stage_name,
        )
        self.arguments = Arguments(function, bound=int(self.method))
        self.arguments.check(self.definition, name)

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tape.CallFrame | None:
        """Note that a call begins."""
        definition = self.definition
        name = definition.disp_name or self._shown(args)
        return tape.enter(definition, name, lambda: self.arguments.of(definition, args, kwargs))

    def _shown(self, args: tuple[Any, ...]) -> str:
        if self.method and args:
            return tape.name_of(args[0], self.definition.func_name)
        return shown_name(self.owner, self.definition.func_name)


def _class_in(qualname: str) -> str:
    """The class in which a function was written, known by its full name; nothing if it was written in none."""
    outer = qualname.rpartition(".")[0]
    return "" if outer.endswith("<locals>") else outer.rpartition(".")[2]


# ── generators and coroutines ────────────────────────────────────────────────────────────────────────────────────────


class _Yielding:
    """A generator that tells what it yields."""

    __slots__ = ("close", "inner", "life")

    def __init__(self, inner: Generator[Any, Any, Any], life: tape.CallLife) -> None:
        self.inner = inner
        self.life = life
        self.close = inner.close

    def send(self, value: Any) -> Any:
        return self._note(self.inner.send(value))

    def throw(self, error: BaseException) -> Any:
        return self._note(self.inner.throw(error))

    def _note(self, item: Any) -> Any:
        self.life.gave(item)
        return item


def _generator(function: Callable[..., Any], pick: Choice) -> Callable[..., Any]:
    def driver(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        if not Switch.on:
            return (yield from function(*args, **kwargs))
        life = tape.CallLife(begin(pick, args, kwargs))
        inner = _Yielding(function(*args, **kwargs), life)
        try:
            result = yield from pieces(cast("Generator[Any, Any, Any]", inner), cast("Any", life))
        except GeneratorExit:
            life.close(gives=True)  # its consumer wants no more
            raise
        except BaseException as error:
            life.close(error, gives=True)
            raise
        life.close(gives=True)
        return result

    return driver


def _coroutine(function: Callable[..., Any], pick: Choice) -> Callable[..., Any]:
    async def driver(*args: Any, **kwargs: Any) -> Any:
        if not Switch.on:
            return await function(*args, **kwargs)
        life = tape.CallLife(begin(pick, args, kwargs))
        try:
            result = await Pieces(function(*args, **kwargs), cast("Any", life))
        except BaseException as error:
            life.close(error)
            raise
        life.close(result=result)
        return result

    return driver


def _async_generator(function: Callable[..., Any], pick: Choice) -> Callable[..., Any]:
    async def driver(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        life = tape.CallLife(begin(pick, args, kwargs) if Switch.on else None)
        lived = cast("Any", life)
        inner = function(*args, **kwargs)
        request: Any = inner.__anext__()
        try:
            while True:
                item = await Pieces(request, lived)
                life.gave(item)
                try:
                    sent = yield item
                except GeneratorExit:
                    await Pieces(inner.aclose(), lived)
                    life.close(gives=True)
                    raise
                except BaseException as error:  # noqa: BLE001  it is handed to the generator inside
                    request = inner.athrow(error)
                else:
                    request = inner.asend(sent)
        except StopAsyncIteration:
            life.close(gives=True)
        except GeneratorExit:
            raise
        except BaseException as error:
            life.close(error, gives=True)
            raise

    return driver


_DRIVERS = ((ASYNC_GENERATOR, _async_generator), (COROUTINE, _coroutine), (GENERATOR, _generator))
