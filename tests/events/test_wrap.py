"""Recorded functions: they look, bind, copy and pickle like what they wrap."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import pickle
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from tests.events.harness import ERROR, SPAN

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.events.conftest import Clock
    from tests.events.harness import Process


F = TypeVar("F")


def scale(value: int, /, by: int = 2, *, plus: int = 0) -> int:
    """Scale a value."""
    return value * by + plus


scale.unit = "px"  # type: ignore[attr-defined]


def test_each_call_is_an_event(recording: Any, clock: Clock, done: Callable[[], Process]) -> None:
    """A call is recorded from entry to return, and its value passes."""

    def work(by: int) -> int:
        clock.now += by
        return by * 2

    recorded = recording.Span("x").wrap(work)
    assert [recorded(1), recorded(by=2)] == [2, 4]
    assert [event.dur for event in done().listed()] == [1, 2]


def test_arguments_pass_unchanged(recording: Any) -> None:
    """Positional and keyword arguments arrive as they were given, also those called like our own."""

    def work(*args: object, **kwargs: object) -> object:
        return args, kwargs

    recorded = recording.Span("x").wrap(work)
    assert recorded(1, 2, self=3, function=4, span=5) == ((1, 2), {"self": 3, "function": 4, "span": 5})


def test_wrong_arguments_raise_as_ever(recording: Any) -> None:
    """A wrong call raises TypeError from the function itself."""
    with pytest.raises(TypeError, match="scale"):
        recording.Span("x").wrap(scale)()


def test_an_exception_passes_and_marks(recording: Any, done: Callable[[], Process]) -> None:
    """A call that raises is marked, and the exception is the user's own."""
    error = ValueError("mine")

    def work() -> None:
        raise error

    with pytest.raises(ValueError, match="mine") as caught:
        recording.Span("x", args={"a": 1}).wrap(work)()
    assert caught.value is error
    found = done()
    assert found.only("x").kind == SPAN | ERROR
    assert found.args(found.only("x")) == {"a": 1, "error": "ValueError"}


def test_calls_nest(recording: Any, done: Callable[[], Process]) -> None:
    """A recorded function is the parent of what happens in it, recursion included."""

    def descend(levels: int) -> None:
        if levels:
            recorded(levels - 1)
        else:
            recording.mark("m")

    recorded = recording.Span("x").wrap(descend)
    recorded(2)
    assert done().tree() == [("x", None), ("x", "x"), ("x", "x"), ("m", "x")]


def test_the_switch_is_read_at_the_call(recording: Any, done: Callable[[], Process]) -> None:
    """Functions decorated while the span is off are recorded once it is on, and the other way round."""
    span = recording.Span("x")
    span.on = False
    recorded = span.wrap(scale)
    assert recorded(1) == 2
    span.on = True
    assert recorded(2) == 4
    span.on = False
    assert recorded(3) == 6
    assert len(done().listed()) == 1


def test_it_works_without_a_recording(core: Any) -> None:
    """A decorated function is just the function while nothing is recorded."""
    assert core.Span("x").wrap(scale)(4, by=3, plus=1) == 13


def test_it_looks_like_the_function(core: Any) -> None:
    """Name, text, module, attributes and signature are those of the function."""
    recorded = core.Span("x").wrap(scale)
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        assert getattr(recorded, name) == getattr(scale, name)
    assert recorded.unit == "px"
    assert recorded.__wrapped__ is scale
    assert recorded.__annotations__ == scale.__annotations__
    assert inspect.signature(recorded) == inspect.signature(scale)
    assert inspect.unwrap(recorded) is scale


def test_attributes_can_be_set(core: Any) -> None:
    """A decorated function takes attributes, and the function below does not get them."""
    recorded = core.Span("x").wrap(scale)
    recorded.mine = 1
    assert recorded.mine == 1
    assert not hasattr(scale, "mine")
    with pytest.raises(AttributeError):
        _ = recorded.missing


def test_it_binds_as_a_method(recording: Any, done: Callable[[], Process]) -> None:
    """In a class it is a method; through the class it takes the instance; in static and class methods it stays so."""

    def wrap(function: F) -> F:
        recorded: F = recording.Span("x").wrap(function)
        return recorded

    class Model:
        @wrap
        def forward(self, value: int) -> tuple[Model, int]:
            return self, value

        @staticmethod
        @wrap
        def fixed(value: int) -> int:
            return value

        @classmethod
        @wrap
        def made(cls, value: int) -> tuple[type, int]:
            return cls, value

        @property
        @wrap
        def size(self) -> int:
            return 3

    model = Model()
    assert model.forward(1) == (model, 1)
    assert Model.forward(model, 2) == (model, 2)
    assert (model.fixed(3), Model.fixed(4)) == (3, 4)
    assert (model.made(5), Model.made(6)) == ((Model, 5), (Model, 6))
    assert model.size == 3
    bound = model.forward
    assert bound(7) == (model, 7)
    assert getattr(bound, "__self__", None) is model
    assert len(done().listed()) == 8


def test_it_wraps_any_callable(recording: Any, done: Callable[[], Process]) -> None:
    """Builtins, partial functions, classes, bound methods and callable objects can be recorded."""

    class Doubler:
        def __call__(self, value: int) -> int:
            return value * 2

    wrap = recording.Span("x").wrap
    assert wrap(len)([1, 2]) == 2
    assert wrap(functools.partial(scale, 3))() == 6
    assert wrap(dict)(a=1) == {"a": 1}
    assert wrap("a-b".split)("-") == ["a", "b"]
    assert wrap(Doubler())(4) == 8
    assert wrap(wrap(scale))(5) == 10
    assert len(done().listed()) == 7


@pytest.mark.parametrize("thing", [None, 5, "name", [scale]])
def test_what_cannot_be_called_is_refused(core: Any, thing: object) -> None:
    """Decorating something that is no function is a mistake, and is told at once."""
    with pytest.raises(TypeError):
        core.Span("x").wrap(thing)


def test_it_is_copied_as_itself(core: Any) -> None:
    """Copies, deep or not, are the same object, as for functions."""
    recorded = core.Span("x").wrap(scale)
    assert copy.copy(recorded) is recorded
    assert copy.deepcopy({"a": recorded})["a"] is recorded


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_it_is_pickled_by_name(core: Any, monkeypatch: pytest.MonkeyPatch, protocol: int) -> None:
    """A module's decorated function is pickled as a reference to it."""
    recorded = core.Span("x").wrap(scale)
    monkeypatch.setitem(globals(), "scale", recorded)
    assert pickle.loads(pickle.dumps(recorded, protocol)) is recorded


def test_it_can_be_referenced_weakly_and_is_collected(core: Any) -> None:
    """Nothing keeps a decorated function alive, not even a cycle through itself."""

    def work() -> None: ...

    recorded = core.Span("x").wrap(work)
    recorded.me = recorded
    ref = weakref.ref(recorded)
    del recorded
    gc.collect()
    assert ref() is None


def test_it_is_hashable_and_compares_by_identity(core: Any) -> None:
    """Decorated functions can be keys of a dict."""
    one, two = (core.Span("x").wrap(scale) for _ in range(2))
    assert {one: 1, two: 2} == {one: 1, two: 2}
    assert one != two
