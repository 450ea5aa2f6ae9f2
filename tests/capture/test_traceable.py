"""Gates: functions that can be captured; the C one and its Python twin do the same."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from sonde.capture import traceable as gates


@pytest.fixture(params=["c", "python"])
def made(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The function that makes gates."""
    if request.param == "python":
        monkeypatch.setattr(gates, "native", None)
    elif gates.native is None:
        pytest.skip("the C part was not built")
    yield gates.traceable
    gates.watch(False)


def add(a: int, b: int = 1) -> int:
    """A sum."""
    return a + b


def told(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A handler that gives back what it got."""
    return args, kwargs


def test_a_closed_gate_calls_the_function(made: Any) -> None:
    """With all its arguments."""
    assert made(add, told)(1, b=2) == 3


def test_an_open_gate_calls_the_handler(made: Any) -> None:
    """With positional and keyword arguments as they were given."""
    gate = made(add, told)
    gates.watch(True)
    assert gate(1, b=2) == ((1,), {"b": 2})
    assert gate(*[1, 2]) == ((1, 2), {})
    assert gate(a=1) == ((), {"a": 1})
    gates.watch(False)
    assert gate(1) == 2


def test_it_binds_as_a_method(made: Any) -> None:
    """And comes first in the arguments of its handler."""

    class Thing:
        def number(self, x: int) -> int:
            return x

        gated = made(number, told)

    thing = Thing()
    assert thing.gated(3) == 3
    assert Thing.gated(thing, 3) == 3
    gates.watch(True)
    assert thing.gated(3, y=1) == ((thing, 3), {"y": 1})
    assert thing.gated.__self__ is thing


def test_it_looks_like_the_function(made: Any) -> None:
    """Name, text, signature, and attributes."""
    gate = made(add, told)
    assert (gate.__name__, gate.__doc__, gate.__module__) == ("add", "A sum.", __name__)
    assert str(inspect.signature(gate)) == str(inspect.signature(add))
    assert gate.__wrapped__ is add
    assert gate.__defaults__ is not None or gate.__wrapped__.__defaults__ == (1,)
    assert "add" in repr(gate)


def test_exceptions_pass(made: Any) -> None:
    """Of the function and of the handler."""

    def fails(*args: Any) -> Any:
        raise KeyError("x")

    gate = made(fails, fails)
    with pytest.raises(KeyError):
        gate()
    gates.watch(True)
    with pytest.raises(KeyError):
        gate()


def test_it_can_be_collected(made: Any) -> None:
    """Also as a part of a circle."""

    def inner() -> None:
        pass

    gate = made(inner, told)
    inner.gate = gate  # type: ignore[attr-defined]
    seen = weakref.ref(gate)
    del gate, inner
    gc.collect()
    assert seen() is None


_decorated = gates.traceable(add, told)
add_too = _decorated
_decorated.__qualname__ = "add_too"


def test_it_is_pickled_and_copied_by_name() -> None:
    """As functions are."""
    assert pickle.loads(pickle.dumps(add_too)) is add_too
    assert copy.deepcopy(add_too) is add_too
