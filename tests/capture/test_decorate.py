"""Decorators: functions that appear in traces."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

import sonde
from sonde import flow
from sonde.capture import stages
from sonde.errors import SettingError
from sonde.flow import trace_dataset_func, trace_func, trace_model_func

pytestmark = pytest.mark.usefixtures("nothing_left")


class Source:
    """A dataset with decorated functions of every kind."""

    @trace_dataset_func
    def get_image(self, index: int, scale: float = 1.0) -> Any:
        """An image."""
        return np.full((2, 2), index * scale)

    @trace_dataset_func(params_to_capture={"where": 1}, result_name="found")
    def find(self, index: int, hint: str = "") -> int:
        return index + 1

    @trace_func(stage_name="collate", params_to_capture=["b"])
    def pair(self, a: int, b: int) -> tuple[int, int]:
        return a, b

    @staticmethod
    @trace_func(stage_name="prepare_inputs")
    def prepare(batch: int) -> int:
        return batch * 2

    @trace_func(stage_name="prepare_inputs")
    @staticmethod
    def prepare_too(batch: int) -> int:
        return batch * 3

    @classmethod
    @trace_func(stage_name="prepare_inputs")
    def make(cls, batch: int) -> str:
        return cls.__name__ + str(batch)

    @trace_model_func
    async def ask(self, question: int) -> int:
        await asyncio.sleep(0)
        return question + 1

    @trace_dataset_func
    def stream(self, count: int) -> Iterator[int]:
        yield from range(count)

    @trace_dataset_func
    async def feed(self, count: int) -> AsyncIterator[int]:
        for n in range(count):
            yield n


@trace_model_func
def outer(x: int) -> int:
    return inner(x) + 1


@trace_model_func
def inner(x: int) -> int:
    if x < 0:
        raise ValueError(x)
    return x * 2


def only(trace: flow.TraceResult) -> flow.TraceCall:
    """The one call of a trace."""
    (call,) = trace.calls()
    return call


def test_all_parameters_are_captured_by_name_without_self() -> None:
    """Positional, keyword and default values all have the names of the parameters."""
    with flow.trace() as trace:
        Source().get_image(3, scale=2.0)
        Source().get_image(index=4)
    first, second = trace.dataset_getter
    assert first.params == {"index": 3, "scale": 2.0}
    assert second.params == {"index": 4, "scale": 1.0}
    assert first.disp_name == "Source__get_image"
    assert first.func_name == "get_image"
    assert first.result_name == "return_value"
    assert (first.retval == 6).all()


def test_positions_name_arguments_also_when_they_come_by_keyword() -> None:
    """Position 1 of a method is its first argument after self, however it is given."""
    with flow.trace() as trace:
        Source().find(7)
        Source().find(index=8)
    assert [call.params for call in trace.dataset_getter] == [{"where": 7}, {"where": 8}]
    assert [call.found for call in trace.dataset_getter] == [8, 9]


def test_a_list_names_the_parameters_to_capture() -> None:
    """The others are left out."""
    with flow.trace() as trace:
        Source().pair(1, b=2)
    assert only(trace).params == {"b": 2}


@pytest.mark.parametrize(
    ("call", "name", "params", "result"),
    [
        (lambda: Source.prepare(2), "Source__prepare", {"batch": 2}, 4),
        (lambda: Source().prepare_too(batch=2), "Source__prepare_too", {"batch": 2}, 6),
        (lambda: Source.make(2), "Source__make", {"batch": 2}, "Source2"),
    ],
    ids=["static", "static-outside", "class"],
)
def test_static_and_class_methods(call: Any, name: str, params: dict[str, int], result: object) -> None:
    """They work as before, and are captured."""
    assert call() == result
    with flow.trace() as trace:
        assert call() == result
    assert (only(trace).disp_name, only(trace).params, only(trace).retval) == (name, params, result)


def test_coroutines_are_captured_with_what_they_return() -> None:
    """An async method stays one."""
    assert inspect.iscoroutinefunction(Source.ask)
    with flow.trace() as trace:
        assert asyncio.run(Source().ask(1)) == 2
    assert only(trace).params == {"question": 1}
    assert only(trace).retval == 2


def test_tasks_that_take_turns_are_not_inside_each_other() -> None:
    """Each task has its own parents."""

    async def both() -> None:
        await asyncio.gather(Source().ask(1), Source().ask(2))

    with flow.trace() as trace:
        asyncio.run(both())
    assert [call.about.parent for call in trace.evaluation] == [None, None]


def test_generators_are_captured_with_what_they_yield() -> None:
    """A generator that is not used up gives what it has yielded."""
    assert inspect.isgeneratorfunction(Source.stream)
    with flow.trace() as trace:
        assert list(Source().stream(3)) == [0, 1, 2]
        for _ in Source().stream(3):
            break
    assert [call.retval for call in trace.dataset_getter] == [[0, 1, 2], [0]]


def test_async_generators_are_captured_with_what_they_yield() -> None:
    """The same, with await."""

    async def use() -> list[int]:
        return [n async for n in Source().feed(3)]

    with flow.trace() as trace:
        assert asyncio.run(use()) == [0, 1, 2]
    assert only(trace).retval == [0, 1, 2]


def test_a_call_inside_another_knows_its_parent() -> None:
    """Parents stand before children."""
    with flow.trace() as trace:
        outer(1)
    first, second = trace.evaluation
    assert (first.disp_name, second.disp_name) == ("outer", "inner")
    assert second.about.parent == first.about.seq
    assert first.about.duration_ns is not None
    assert second.about.duration_ns is not None


def test_an_exception_passes_and_is_noted_on_the_call() -> None:
    """The call has no output, and the name of the exception."""
    with flow.trace() as trace, pytest.raises(ValueError, match="-1"):
        outer(-1)
    assert [call.about.error for call in trace.evaluation] == ["ValueError", "ValueError"]
    assert [call.about.output for call in trace.evaluation] == [None, None]


def test_what_is_shown_is_what_the_function_received() -> None:
    """Later changes in place do not reach the trace."""

    @trace_model_func
    def clear(values: Any) -> Any:
        values[:] = 0
        return values

    array = np.ones(3)
    with flow.trace() as trace:
        clear(array)
    array[:] = 7
    assert only(trace).params["values"].tolist() == [1, 1, 1]
    assert only(trace).retval.tolist() == [0, 0, 0]


def test_a_wrong_stage_fails_at_decoration_and_lists_the_valid_ones() -> None:
    """Not at the first traced call."""
    with pytest.raises(SettingError, match=r"colate.*Did you mean 'collate'.*dataset_getter"):
        trace_func(stage_name="colate")
    with pytest.raises(SettingError):
        trace_dataset_func(stage_name="nothing")


@pytest.mark.parametrize("wanted", [{"a": "0"}, {"a": -1}, {"a": True}, "a", 3, [1], {"a": 9}, ["nobody"]])
def test_wrong_parameters_fail_at_decoration(wanted: Any) -> None:
    """With a message about params_to_capture, or about the parameter."""
    with pytest.raises(SettingError):
        trace_func(stage_name="collate", params_to_capture=wanted)(lambda a: a)


def test_a_stage_that_was_declared_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It appears in results made after that."""
    monkeypatch.setattr(stages, "_declared", list(stages.DEFAULT_STAGES))
    flow.declare_stage("augmentation", after="dataset_getter")

    @trace_func(stage_name="augmentation")
    def flip(x: int) -> int:
        return -x

    with flow.trace() as trace:
        flip(3)
    assert trace.augmentation[0].retval == -3
    assert list(trace.stages).index("augmentation") == 1


def test_the_function_looks_as_before() -> None:
    """Name, text, signature, module."""
    assert Source.get_image.__name__ == "get_image"
    assert Source.get_image.__doc__ == "An image."
    assert list(inspect.signature(Source.get_image).parameters) == ["self", "index", "scale"]
    assert pickle.loads(pickle.dumps(outer)) is outer


def test_a_call_that_does_not_fit_raises_what_it_always_raised() -> None:
    """Naming the arguments is no reason for another error."""
    with flow.trace() as trace, pytest.raises(TypeError, match=r"unexpected keyword|too many|takes"):
        inner(1, 2)  # type: ignore[call-arg]
    assert only(trace).about.error == "TypeError"


def test_nothing_is_captured_while_no_trace_is_active() -> None:
    """And nothing is left of it."""
    outer(1)
    assert flow.get_trace() is None
    with flow.trace() as trace:
        pass
    outer(1)
    assert trace.calls() == []


def test_hidden_names_are_not_looked_at() -> None:
    """The setting exclude."""

    @trace_model_func
    def login(name: str, password: str) -> str:
        return name

    with sonde.flow.trace(exclude=["password"]) as trace:
        login("ada", "secret")
    assert "secret" not in str(trace)
    assert "ada" in str(trace)
