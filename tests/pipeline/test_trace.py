"""trace=N of the verbs: what is captured, under which names, and that nothing else happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.pipeline import models
from tests.pipeline.models import equal, pipeline, request, weights
from torch import nn

from sonde import flow
from sonde.errors import DataError, SettingError
from sonde.events import get_context, set_context
from sonde.flow import TraceResult
from sonde.pipeline import Pipeline

GETTERS = ["data__get_x", "data__get_side", "data__get_object_id"]


def names(trace: TraceResult, stage: str) -> list[str]:
    """The names of the calls of a stage, in order."""
    return [call.disp_name for call in trace[stage]]


def head(call: Any) -> str:
    """The first line of a call, without its duration."""
    return str(call).split(" duration", maxsplit=1)[0]


def test_train_shows_the_names_of_each_stage(tmp_path: Path) -> None:
    """As the documented session does, and nothing that was not named: no loader, no backward, no optimizer."""
    trace = pipeline(tmp_path).train(trace=2)
    assert names(trace, "dataset_getter") == GETTERS * 2
    assert names(trace, "resolve_data") == ["DataProvider__resolve_data"] * 2
    assert names(trace, "collate") == ["DataProvider__collate", "DataProvider__handle_nans"]
    assert names(trace, "prepare_inputs") == ["Line__prepare_inputs"]
    assert names(trace, "evaluation") == ["Line__train_batch", "Line__forward"]


def test_arguments_and_results_have_their_names(tmp_path: Path) -> None:
    """Those by which a user reaches them."""
    made = pipeline(tmp_path)
    trace = made.train(trace=2)
    found = [head(call) for stage in trace.stages.values() for call in stage]
    assert found == [
        "data__get_x(index) -> x",
        "data__get_side(index) -> side",
        "data__get_object_id(index) -> object_id",
        "data__get_x(index) -> x",
        "data__get_side(index) -> side",
        "data__get_object_id(index) -> object_id",
        "DataProvider__resolve_data(index) -> data_dict",
        "DataProvider__resolve_data(index) -> data_dict",
        "DataProvider__collate(batch_dicts) -> batch_dict",
        "DataProvider__handle_nans(batch_dict) -> batch_dict_no_nan",
        "Line__prepare_inputs(batch_dict) -> batch_ndarray",
        "Line__train_batch(batch) -> loss_dict",
        "Line__forward(batch) -> batch_results",
    ]
    assert [head(call) for call in made.infer(trace=1).evaluation] == [
        "Line__infer_batch(batch) -> batch_results",
        "Line__forward(batch) -> batch_results",
    ]


def test_the_first_items_are_traced_in_order(tmp_path: Path) -> None:
    """Different ones, although training visits items in a random order."""
    trace = pipeline(tmp_path).train(trace=4)
    assert [call.index for call in trace.resolve_data] == [0, 1, 2, 3]
    assert trace.collate[0].batch_dict["object_id"].tolist() == ["p0", "p1", "p2", "p3"]
    assert trace.item(id="p2").rows[-1] == 2


def test_values_are_what_the_functions_saw(tmp_path: Path) -> None:
    """The same arrays from the getter to the model, by their digests."""
    trace = pipeline(tmp_path).train(trace=2)
    assert np.array_equal(trace.collate[0].batch_dict["data"]["x"][1], trace.dataset_getter[3].x)
    batch = trace.evaluation[0].batch
    assert isinstance(batch[0], torch.Tensor)
    assert np.array_equal(batch[0].numpy(), trace.prepare_inputs[0].batch_ndarray[0])
    assert trace.evaluation[0].loss_dict["loss"] > 0


@pytest.mark.parametrize("verb", ["train", "infer", "test"])
def test_a_traced_verb_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """No file, no change of the config, of classes, of random numbers, of step and epoch."""
    monkeypatch.chdir(tmp_path)
    made = pipeline("results", validate=request())
    kinds = (models.Line, models.Points, nn.Module, torch.utils.data.DataLoader, Pipeline)
    before = ({kind: dict(vars(kind)) for kind in kinds}, made.config.as_dict(), torch.get_rng_state().tolist())
    set_context(7, 3)
    try:
        getattr(made, verb)(trace=2)
        assert get_context() == (7, 3)
    finally:
        set_context(-1, -1)
    after = ({kind: dict(vars(kind)) for kind in kinds}, made.config.as_dict(), torch.get_rng_state().tolist())
    assert after == before
    assert not list(tmp_path.iterdir())


def test_infer_after_a_trace_uses_the_weights_of_the_real_training(tmp_path: Path) -> None:
    """A traced training of one step is nothing that a later verb would pick up."""
    made = pipeline(tmp_path)
    folder = made.train()
    made.train(trace=2)
    results = made.infer()
    record = json.loads((results / "run.json").read_text())
    assert record["weights"] == str(folder / "weights.pt")


def test_a_traced_verb_uses_trained_weights_if_there_are_any(tmp_path: Path) -> None:
    """Else it says that they are fresh."""
    made = pipeline(tmp_path)
    assert "freshly initialised" in made.infer(trace=2).notes[0]
    folder = made.train()
    trace = made.infer(trace=2)
    assert not trace.notes
    model = models.Line(None, None).eval()
    model.load_state_dict({name: value for name, value in weights(folder).items() if not name.startswith("criterion")})
    assert torch.equal(trace.evaluation[0].batch_results, model.infer_batch(trace.evaluation[0].batch))


@pytest.mark.parametrize("bad", [True, 2.5, -1, "2", [2]])
def test_a_wrong_number_is_told_before_anything_is_made(tmp_path: Path, bad: Any) -> None:
    """With the value."""
    made = pipeline(tmp_path)
    for verb in (made.train, made.infer, made.test, made.engine):
        with pytest.raises(SettingError, match="trace is"):
            verb(trace=bad)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("off", [None, 0, False])
def test_without_a_number_a_verb_runs_as_always(tmp_path: Path, off: Any) -> None:
    """And returns what it returns."""
    assert isinstance(pipeline(tmp_path).train(trace=off), Path)


def test_more_items_than_there_are_is_noted(tmp_path: Path) -> None:
    """All of them are traced."""
    trace = pipeline(tmp_path).train(trace=99)
    assert len(trace.resolve_data) == 10
    assert "train has only 10 of the 99" in trace.notes[0]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_show_the_same_calls(tmp_path: Path, method: str) -> None:
    """Getters, items, batches: in the order and with the values of the main process."""
    made = pipeline(tmp_path, validate=request())
    alone = made.train(trace=2)
    made.config["data_loader"]["num_workers"] = 1
    made.config["data_loader"]["start_method"] = method
    trace = made.train(trace=2)
    assert [head(call) for call in trace.calls()] == [head(call) for call in alone.calls()]
    assert [call.about.phase for call in trace.calls()] == [call.about.phase for call in alone.calls()]
    assert not trace.diff(alone)
    assert {call.about.worker for call in trace.dataset_getter} == {0}


def test_inherited_methods_are_shown_under_the_class_in_use(tmp_path: Path) -> None:
    """And are inherited afterwards, as before."""
    made = pipeline(tmp_path, "Heir")
    for _ in range(2):
        assert names(made.train(trace=2), "evaluation") == ["Heir__train_batch", "Heir__forward"]
    assert "forward" not in vars(models.Heir)
    assert names(pipeline(tmp_path).train(trace=2), "evaluation") == ["Line__train_batch", "Line__forward"]


def test_decorated_functions_appear_once(tmp_path: Path) -> None:
    """Of datasets and of models, beside those that only their author knows."""
    trace = pipeline(tmp_path, "Marked", "Noted").train(trace=1)
    assert names(trace, "dataset_getter") == ["Noted__get_x", "data__get_side", "data__get_object_id"]
    assert names(trace, "evaluation") == ["Marked__train_batch", "Marked__look", "Marked__forward"]


def test_augmentation_is_part_of_the_trace(tmp_path: Path) -> None:
    """Between the getter and the item."""
    trace = pipeline(tmp_path, train=request("Augmented", augment=True)).train(trace=1)
    assert names(trace, "dataset_getter")[:2] == ["data__get_x", "data__augment_x"]
    changed = trace.dataset_getter[1][-1]
    assert not np.array_equal(changed, trace.dataset_getter[0].x)
    assert np.array_equal(trace.resolve_data[0].data_dict["data"]["x"], changed)


def test_train_and_validate_are_told_apart(tmp_path: Path) -> None:
    """In the facts of a call and in the text; with one phase alone the text does not speak of it."""
    trace = pipeline(tmp_path, validate=request()).train(trace=2)
    assert [(call.disp_name, call.about.phase) for call in trace.evaluation] == [
        ("Line__train_batch", "train"),
        ("Line__forward", "train"),
        ("Line__validate_batch", "validate"),
        ("Line__forward", "validate"),
    ]
    assert str(trace.collate[0]).splitlines()[0].endswith("phase=train")
    assert "phase=" not in str(pipeline(tmp_path).train(trace=2))


def test_passes_of_test_are_told_apart(tmp_path: Path) -> None:
    """Each with all its stages."""
    trace = pipeline(tmp_path).test(trace=2)
    assert [call.about.phase for call in trace.resolve_data] == ["infer", "infer", "test", "test"]
    assert [(call.disp_name, call.about.phase) for call in trace.evaluation] == [
        ("Line__infer_batch", "infer"),
        ("Line__forward", "infer"),
        ("Line__test_batch", "test"),
        ("Line__forward", "test"),
    ]


def test_a_trace_with_phases_can_be_saved(tmp_path: Path) -> None:
    """And is the same when it is read."""
    trace = pipeline(tmp_path, validate=request()).train(trace=2)
    trace.save(tmp_path / "a.sonde")
    loaded = flow.load(tmp_path / "a.sonde")
    assert [call.about.phase for call in loaded.calls()] == [call.about.phase for call in trace.calls()]
    assert str(loaded) == str(trace)


def test_an_exception_keeps_what_was_captured(tmp_path: Path) -> None:
    """On the exception, with the item that failed."""
    with pytest.raises(DataError, match="p7") as caught:
        pipeline(tmp_path, dataset="Failing").train(trace=9)
    kept: TraceResult = caught.value.sonde_trace  # type: ignore[attr-defined]
    assert [call.index for call in kept.resolve_data] == list(range(8))
    assert not list(tmp_path.iterdir())


def test_a_trace_of_everything_may_run_around_a_verb(tmp_path: Path) -> None:
    """It follows torch as in any program, and the verb does all that it does without it."""
    made = pipeline(tmp_path)
    plain = made.train()
    with flow.trace(batches=1) as trace:
        folder = made.train()
    assert equal(weights(folder), weights(plain))
    assert "backward" in names(trace, "evaluation")
    assert "DataProvider__resolve_data" in names(trace, "resolve_data")
