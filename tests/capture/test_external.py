"""capture(): functions that cannot be edited."""

from __future__ import annotations

import copy
import pickle
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from sonde import flow
from sonde.errors import SettingError

pytestmark = pytest.mark.usefixtures("nothing_left")


class Base:
    """A library's class."""

    def fit(self, x: Any, y: Any = None) -> Base:
        return self

    @staticmethod
    def scale(x: float) -> float:
        return x * 2

    @classmethod
    def kind(cls) -> str:
        return cls.__name__


class Child(Base):
    """It inherits everything."""


class Slim:
    """No attributes can be put on its objects."""

    __slots__ = ()

    def run(self, x: int) -> int:
        return x + 1


def _fit_and_fail() -> None:
    Base().fit(1)
    raise ZeroDivisionError


def names(trace: flow.TraceResult) -> list[str]:
    """The functions that were captured."""
    return [call.disp_name for call in trace.calls()]


def test_a_method_of_a_class_is_captured_until_the_trace_ends() -> None:
    """Then the original is back."""
    original = vars(Base)["fit"]
    with flow.trace() as trace:
        flow.capture(Base, "fit", stage_name="evaluation", result_name="model")
        Base().fit(np.zeros(2), y=1)
        Child().fit(3)
    assert vars(Base)["fit"] is original
    assert names(trace) == ["Base__fit", "Child__fit"]
    assert set(trace.evaluation[0].params) == {"x", "y"}


def test_one_made_before_the_trace_ends_with_the_trace() -> None:
    """It waits for it."""
    original = vars(Base)["fit"]
    flow.capture(Base, "fit")
    Base().fit(1)
    with flow.trace() as trace:
        Base().fit(2)
    assert vars(Base)["fit"] is original
    assert len(trace.evaluation) == 1


def test_as_a_block_it_ends_with_the_block() -> None:
    """Also when the block ends with an exception."""
    original = vars(Base)["fit"]
    with flow.trace() as trace:
        with pytest.raises(ZeroDivisionError), flow.capture(Base, "fit"):
            _fit_and_fail()
        assert vars(Base)["fit"] is original
        Base().fit(2)
    assert len(trace.evaluation) == 1


def test_an_inherited_method_is_captured_on_the_class_that_was_named_only() -> None:
    """Nothing is left on that class, and the class above is not touched."""
    with flow.trace() as trace:
        flow.capture(Child, "fit")
        Child().fit(1)
        Base().fit(2)
    assert names(trace) == ["Child__fit"]
    assert "fit" not in vars(Child)
    assert isinstance(Child().fit(1), Child)


def test_of_an_object_only_its_own_calls_are_captured() -> None:
    """And nothing is put on it: it can still be copied and pickled in the block."""
    one, other = Child(), Child()
    with flow.trace() as trace:
        flow.capture(one, "fit")
        other.fit(1)
        one.fit(2)
        assert vars(one) == {}
        assert isinstance(pickle.loads(pickle.dumps(one)), Child)
        copy.deepcopy(one).fit(3)
    assert [call.params["x"] for call in trace.evaluation] == [2]


def test_an_object_without_room_for_attributes() -> None:
    """Its class is patched."""
    slim = Slim()
    with flow.trace() as trace:
        flow.capture(slim, "run")
        assert slim.run(1) == 2
    assert names(trace) == ["Slim__run"]


def test_static_and_class_methods_keep_their_kind() -> None:
    """They stay static and class methods after it too."""
    with flow.trace() as trace:
        flow.capture(Base, "scale")
        flow.capture(Child, "kind")
        assert Base.scale(2) == 4
        assert Child().scale(3) == 6
        assert Child.kind() == "Child"
    assert names(trace) == ["Base__scale", "Base__scale", "Child__kind"]
    assert isinstance(vars(Base)["scale"], staticmethod)
    assert "kind" not in vars(Child)


def test_a_function_of_a_module() -> None:
    """As a library has them."""
    library = ModuleType("library")
    library.scale = lambda x: x * 2  # type: ignore[attr-defined]
    with flow.trace() as trace:
        flow.capture(library, "scale", stage_name="prepare_inputs", disp_name="scale")
        library.scale(2)
    assert names(trace) == ["scale"]


def test_a_function_that_an_object_holds() -> None:
    """It is replaced where it stands, and put back."""

    class Holder:
        pass

    def action(x: int) -> int:
        return x

    holder = Holder()
    holder.action = action  # type: ignore[attr-defined]
    with flow.trace() as trace:
        flow.capture(holder, "action")
        holder.action(1)  # type: ignore[attr-defined]
    assert names(trace) == ["action"]
    assert holder.action is action  # type: ignore[attr-defined]


def test_two_captures_of_one_method() -> None:
    """The newest that fits decides; the original comes back after the last."""
    original = vars(Base)["fit"]
    one = Base()
    with flow.trace() as trace:
        flow.capture(Base, "fit", stage_name="collate")
        with flow.capture(one, "fit", stage_name="evaluation"):
            one.fit(1)
            Base().fit(2)
        one.fit(3)
    assert vars(Base)["fit"] is original
    assert [(call.stage_name, call.params["x"]) for call in trace.calls()] == [
        ("evaluation", 1),
        ("collate", 2),
        ("collate", 3),
    ]


def test_undo_may_be_called_twice() -> None:
    """The second time does nothing."""
    captured = flow.capture(Base, "fit")
    captured.undo()
    captured.undo()
    assert "undone" in repr(captured)
    with flow.trace():
        pass


@pytest.mark.parametrize(
    ("target", "name", "message"),
    [
        (Base, "fitt", "Did you mean 'fit'"),
        (Base(), "__dict__", "not a function"),
        (np.ndarray, "sum", "Cannot capture"),
        (Base, "fit", "no parameter"),
    ],
)
def test_what_cannot_be_captured_is_a_clear_error(target: Any, name: str, message: str) -> None:
    """Before anything is patched."""
    with pytest.raises(SettingError, match=message):
        flow.capture(target, name, params_to_capture=["nobody"] if message == "no parameter" else None)


def test_a_wrong_stage_is_a_clear_error() -> None:
    """With the valid ones."""
    with pytest.raises(SettingError, match="evaluation"):
        flow.capture(Base, "fit", stage_name="evaluate")
