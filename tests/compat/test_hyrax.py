"""Hyrax's names: each class, method and default of its page on `hyrax.trace`, one by one."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
import sonde
from sonde.capture import decorate
from sonde.compat.hyrax import trace
from sonde.compat.hyrax.trace import (
    TraceCall,
    TraceContext,
    TraceDef,
    TracePrintable,
    TraceResult,
    TraceStage,
)

EMPTY = inspect.Parameter.empty
STAGES = ["dataset_getter", "resolve_data", "collate", "prepare_inputs", "evaluation"]


class Provider:
    """Has every function that Hyrax instruments."""

    def __len__(self) -> int:
        return 50

    def get_image(self, index: int) -> int:
        return index + 1

    def resolve_data(self, index: int) -> dict[str, int]:
        return {"image": self.get_image(index)}

    def collate(self, samples: list[Any]) -> dict[str, int]:
        return self.handle_nans({"count": len(samples)})

    def handle_nans(self, batch: dict[str, int]) -> dict[str, int]:
        return batch

    @staticmethod
    def prepare_inputs(batch: dict[str, int]) -> int:
        return batch["count"]

    def create_ort_inputs(self, batch: int) -> dict[str, int]:
        return {"input": batch}

    def run_onnx_batch(self, inputs: dict[str, int]) -> int:
        return inputs["input"]


@pytest.fixture
def result() -> Iterator[TraceResult]:
    """That of an active trace; what it puts on classes goes away with it."""
    with sonde.flow.trace():
        found = trace.get_trace()
        assert found is not None
        yield found
        found.remove_class_level_shims()


def call() -> TraceCall:
    """With an argument of every kind of name: its own, and one that is the output's too."""
    return TraceCall("A__f", "f", {"index": 3, "data": {"x": 1}}, {"data": [1, 2]}, 1_500_000)


def shown(found: TraceResult, stage: str) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, arguments and result of each call."""
    return [(one.disp_name, one.params, one.retval) for one in found[stage]]


# ── decorators ──


@pytest.mark.parametrize(
    ("name", "stage"),
    [("trace_dataset_func", "dataset_getter"), ("trace_model_func", "evaluation"), ("trace_func", EMPTY)],
)
def test_a_decorator_has_these_parameters_and_defaults(name: str, stage: Any) -> None:
    """In Hyrax's order, all but the function by keyword only."""
    found = inspect.signature(getattr(trace, name)).parameters
    assert {key: one.default for key, one in found.items()} == {
        "func": None, "params_to_capture": None, "result_name": None, "stage_name": stage,
    }  # fmt: skip
    assert {one.kind for one in list(found.values())[1:]} == {inspect.Parameter.KEYWORD_ONLY}
    assert getattr(trace, name) is getattr(decorate, name)


def test_a_decorated_function_appears_in_its_stage(result: TraceResult) -> None:
    """With the chosen names."""

    @trace.trace_func(stage_name="collate", params_to_capture={"first": 0}, result_name="sum")
    def add(one: int, other: int) -> int:
        return one + other

    add(1, 2)
    assert shown(result, "collate") == [("add", {"first": 1}, {"sum": 3})]


# ── the module ──


def test_trace_result_and_get_trace_are_the_active_result() -> None:
    """None while no trace is active."""
    assert trace.trace_result is None
    with sonde.flow.trace():
        found = trace.get_trace()
        assert isinstance(found, TraceResult)
        assert trace.trace_result is found
    assert trace.get_trace() is None


def test_reset_trace_deletes_what_was_captured(result: TraceResult) -> None:
    """It may be called at any time."""
    result.trace_call(TraceDef("f", stage_name="collate"), 1)
    trace.reset_trace()
    assert len(result.collate) == 0


def test_reset_trace_is_harmless_without_a_trace() -> None:
    """Nothing to delete."""
    trace.reset_trace()


def test_there_is_a_logger() -> None:
    """With the name of the module, as in Hyrax."""
    assert trace.logger is logging.getLogger("sonde.compat.hyrax.trace")


def test_an_unknown_name_of_the_module_is_an_attribute_error() -> None:
    """With the names that there are."""
    with pytest.raises(AttributeError, match="trace_result"):
        trace.trace_results  # noqa: B018


# ── TraceDef, TracePrintable ──


@pytest.mark.parametrize("name", ["disp_name", "func_name", "params_to_capture", "result_name", "stage_name"])
def test_a_trace_def_has_this_field(name: str) -> None:
    """By keyword and as an attribute."""
    given = {
        "disp_name": "A__f", "func_name": "f", "params_to_capture": {"x": 0}, "result_name": "y", "stage_name": "collate",
    }  # fmt: skip
    definition = TraceDef(**given)  # type: ignore[arg-type]
    assert getattr(definition, name) == given[name]


@pytest.mark.parametrize("kind", [TraceResult, TraceStage, TraceCall])
def test_results_stages_and_calls_are_printable(kind: type) -> None:
    """Their base class."""
    assert issubclass(kind, TracePrintable)


@pytest.mark.parametrize("name", ["__str__", "__getitem__", "_valid_keys"])
def test_a_printable_needs_this_method(name: str) -> None:
    """It is abstract."""
    assert name in TracePrintable.__abstractmethods__
    with pytest.raises(TypeError):
        TracePrintable()  # type: ignore[abstract]


def test_a_printable_of_ones_own_shows_its_text_and_its_keys() -> None:
    """Items are attributes, too."""

    class Mine(TracePrintable):
        def __str__(self) -> str:
            return "mine"

        def __getitem__(self, idx: str) -> str:
            return {"one": "1"}[idx]

        def _valid_keys(self) -> list[str]:
            return ["one"]

    mine = Mine()
    assert (repr(mine), mine.one, dir(mine), hasattr(mine, "two")) == ("mine", "1", ["one"], False)


# ── TraceCall ──


def test_a_call_has_hyraxs_fields() -> None:
    """`retval` is a dict of the result's name."""
    one = call()
    assert (one.disp_name, one.func_name, one.duration_ns) == ("A__f", "f", 1_500_000)
    assert (one.params, one.retval) == ({"index": 3, "data": {"x": 1}}, {"data": [1, 2]})


def test_a_call_gives_values_by_number_and_by_name() -> None:
    """Inputs first; the pair if a name is both."""
    one = call()
    assert (one[0], one[-1], one["index"], one.index) == (3, [1, 2], 3, 3)
    assert one.data == ({"x": 1}, [1, 2])
    assert dir(one) == ["data", "index"]


def test_a_call_prints_like_hyraxs() -> None:
    """Head, inputs, outputs."""
    head, *rest = str(call()).splitlines()
    assert head == "A__f(index, data) -> data duration=1.5 ms"
    assert rest[:2] == ["inputs:", "\tindex = 3"]
    assert "outputs:" in rest
    assert repr(call()) == str(call())


def test_a_call_shows_any_value() -> None:
    """`_repr_value`, also for what Hyrax cannot print."""
    assert call()._repr_value("text") == "'text'"
    assert call()._repr_value(np.zeros(0)).startswith("<numpy.ndarray shape=(0,)")
    assert call()._repr_value(None) == "None"


def test_a_call_can_be_copied() -> None:
    """In Hyrax that ends in a RecursionError."""
    assert copy.copy(call()).retval == {"data": [1, 2]}


# ── TraceStage ──


def test_a_stage_holds_calls() -> None:
    """In their order; by number, and by name as a list."""
    stage = TraceStage()
    assert (stage.calls, stage.func_dict, len(stage), str(stage)) == ([], {}, 0, "[]")
    stage.append(call())
    stage.append(TraceCall("B__g"))
    assert len(stage) == 2
    assert [one.disp_name for one in stage.calls] == ["A__f", "B__g"]
    assert (stage[0].disp_name, stage["-1"].disp_name) == ("A__f", "B__g")
    assert [one.params["index"] for one in stage["A__f"]] == [3]
    assert isinstance(stage.A__f, list)
    assert list(stage.func_dict) == dir(stage) == ["A__f", "B__g"]
    assert stage._repr_calls().startswith("A__f(")


@pytest.mark.parametrize(("key", "error"), [(2, IndexError), ("nothing", KeyError)])
def test_a_stage_says_what_it_does_not_have(key: Any, error: type[Exception]) -> None:
    """By number or name."""
    with pytest.raises(error, match=str(key)):
        TraceStage()[key]


# ── TraceResult ──


def test_a_result_begins_empty() -> None:
    """With all stages."""
    made = TraceResult(2)
    assert (made.trace_batch_size, made.shimmed_funcs, dir(made)) == (2, [], sorted(STAGES))
    assert made._valid_keys() == STAGES
    assert str(made["collate"]) == str(made.collate) == "[]"
    assert str(made).startswith("Trace Stages {")


def test_a_result_says_which_stages_there_are() -> None:
    """An unknown one is a KeyError, and no attribute."""
    with pytest.raises(KeyError, match="evaluation"):
        TraceResult(2)["evaluations"]
    assert not hasattr(TraceResult(2), "evaluations")


def test_trace_call_notes_a_call_to_be_completed() -> None:
    """With the chosen arguments."""
    made = TraceResult(2)
    noted = made.trace_call(TraceDef("A__f", "f", {"x": 1}, "y", "collate"), "self", 5)
    assert (noted.params, noted.retval, noted.duration_ns) == ({"x": 5}, {}, None)
    noted.retval, noted.duration_ns = {"y": 6}, 7
    assert shown(made, "collate") == [("A__f", {"x": 5}, {"y": 6})]


def test_trace_call_numbers_arguments_that_nobody_named() -> None:
    """As Hyrax does."""
    assert list(TraceResult(2).trace_call(TraceDef("f"), 1, 2).params) == ["000_call", "001_call"]


def test_reset_deletes_all_calls() -> None:
    """The stages stay."""
    made = TraceResult(2)
    made.trace_call(TraceDef("f", stage_name="collate"), 1)
    made.reset()
    assert (len(made.collate), made._valid_keys()) == (0, STAGES)


def test_reduce_len_ends_with_remove_class_level_shims() -> None:
    """A class that is shorter than that keeps its length."""
    made, few = TraceResult(2), TraceResult(100)
    made.reduce_len(Provider)
    assert (len(Provider()), len(made.shimmed_funcs)) == (2, 1)
    made.remove_class_level_shims()
    assert (len(Provider()), made.shimmed_funcs) == (50, [])
    few.reduce_len(Provider)
    assert len(Provider()) == 50
    few.remove_class_level_shims()


def test_a_class_keeps_what_it_inherits(result: TraceResult) -> None:
    """In Hyrax an inherited method is None afterwards."""

    class Child(Provider):
        pass

    result.instrument_class_data_handler(Child, TraceDef("C__get_image", "get_image", {"index": 1}, "image", "collate"))
    Child().get_image(4)
    Provider().get_image(9)
    assert shown(result, "collate") == [("C__get_image", {"index": 4}, {"image": 5})]
    result.remove_class_level_shims()
    assert ("get_image" in vars(Child), Child().get_image(4)) == (False, 5)


def test_instrument_instance_data_handler_returns_what_it_put_on_the_object(result: TraceResult) -> None:
    """Other objects are left alone."""
    provider, definition = Provider(), TraceDef("P__get_image", "get_image", {"index": 0}, "image", "dataset_getter")
    shim = result.instrument_instance_data_handler(provider, provider.get_image, definition)
    assert provider.get_image is shim
    assert (provider.get_image(1), Provider().get_image(2)) == (2, 3)
    assert shown(result, "dataset_getter") == [("P__get_image", {"index": 1}, {"image": 2})]


def test_instrument_dataset_getter(result: TraceResult) -> None:
    """By the friendly name of the data and the field."""
    provider = Provider()
    result.instrument_dataset_getter(provider, provider.get_image, "data", "image")
    provider.get_image(1)
    assert shown(result, "dataset_getter") == [("data__get_image", {"index": 1}, {"image": 2})]


def test_instrument_dataset_collate(result: TraceResult) -> None:
    """By the friendly name of the data."""
    provider = Provider()
    result.instrument_dataset_collate(provider, provider.collate, "data")
    provider.collate([1])
    assert shown(result, "collate") == [("data__collate", {"samples": [1]}, {"batch_dict": {"count": 1}})]


def test_instrument_dataprovider(result: TraceResult) -> None:
    """Its three functions."""
    provider = Provider()
    result.instrument_dataprovider(provider)
    provider.collate([provider.resolve_data(1)])
    assert shown(result, "resolve_data") == [("DataProvider__resolve_data", {"index": 1}, {"data_dict": {"image": 2}})]
    assert [(one.disp_name, *one.params, *one.retval) for one in result.collate] == [
        ("DataProvider__collate", "batch_dicts", "batch_dict"),
        ("DataProvider__handle_nans", "batch_dict", "batch_dict_no_nan"),
    ]


def test_instrument_prepare_inputs(result: TraceResult) -> None:
    """Of a model."""
    model = Provider()
    result.instrument_prepare_inputs(model)
    model.prepare_inputs({"count": 2})
    assert shown(result, "prepare_inputs") == [
        ("Provider_inst_prepare_inputs", {"batch_dict": {"count": 2}}, {"batch_ndarray": 2})
    ]


def test_instrument_prepare_inputs_fn(result: TraceResult) -> None:
    """Of a bare function."""
    shim = result.instrument_prepare_inputs_fn(Provider.prepare_inputs)
    assert shim({"count": 2}) == 2
    assert [one.disp_name for one in result.prepare_inputs] == ["saved__prepare_inputs"]


def test_instrument_engine_verb(result: TraceResult) -> None:
    """Its two functions."""
    engine = Provider()
    result.instrument_engine_verb(engine)
    engine.run_onnx_batch(engine.create_ort_inputs(2))
    assert [(one.disp_name, *one.params, *one.retval) for one in result.evaluation] == [
        ("Engine__create_ort_inputs", "prepared_batch", "ort_inputs"),
        ("Engine__run_onnx_batch", "ort_inputs", "onnx_results"),
    ]


def test_a_shim_captures_nothing_without_a_trace() -> None:
    """And gives what the function gives."""
    made = TraceResult(2)
    shim = made._make_shim(Provider.prepare_inputs, TraceDef("f", stage_name="prepare_inputs"))
    assert (shim({"count": 1}), len(made.prepare_inputs)) == (1, 0)


# ── TraceContext, trace_verb_data ──


def config() -> dict[str, Any]:
    """With the keys that a trace changes."""
    return {"train": {"epochs": 9}, "data_loader": {"batch_size": 64}, "data_set": {"use_cache": True}}


def test_a_context_gives_a_config_for_one_batch() -> None:
    """A copy: in Hyrax the caller's own is changed for good."""
    given = config()
    context = TraceContext(2, given)
    with context as changed:
        found = trace.get_trace()
    assert (context.trace_arg, context.config, given) == (2, given, config())
    assert changed == {"train": {"epochs": 1}, "data_loader": {"batch_size": 2}, "data_set": {"use_cache": False}}
    assert found is not None
    assert found.trace_batch_size == 2


@pytest.mark.parametrize("off", [0, None, False])
def test_a_context_without_a_number_traces_nothing(off: Any) -> None:
    """The config is the given one."""
    given = config()
    with TraceContext(off, given) as same:
        assert trace.get_trace() is None
    assert same is given


def test_a_context_removes_shims_when_it_ends_by_an_exception() -> None:
    """And the exception passes."""

    def failing() -> None:
        with TraceContext(2, config()):
            found = trace.get_trace()
            assert found is not None
            found.reduce_len(Provider)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert len(Provider()) == 50


class Verb:
    """A verb with a config, as Hyrax's have one."""

    def __init__(self) -> None:
        self.config = config()
        self.seen: Any = None

    @trace.trace_verb_data
    def run(self, word: str) -> str:
        self.seen = self.config["data_loader"]["batch_size"]
        return word


def test_a_verb_returns_its_value_without_trace() -> None:
    """And runs with its own config."""
    verb = Verb()
    assert (verb.run("done"), verb.seen) == ("done", 64)


def test_a_traced_verb_returns_the_trace() -> None:
    """It ran with the changed config, and has its own again."""
    verb = Verb()
    assert isinstance(verb.run("done", trace=3), TraceResult)
    assert (verb.seen, verb.config) == (3, config())
