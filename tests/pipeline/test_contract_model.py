"""The contract of the data flow, from `prepare_inputs` on: what each step is given, and what comes out of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.pipeline import models
from tests.pipeline.models import pipeline

from sonde.errors import ModelError
from sonde.pipeline import register_model
from sonde.pipeline.results.results import open_results
from sonde.pipeline.training.inputs import device_of, prepare, prepared, to_tensors

CPU = torch.device("cpu")


def kinds(batch: Any) -> Any:
    """The types of a batch."""
    return [type(part) for part in batch] if isinstance(batch, tuple) else type(batch)


# ── after collate, before prepare_inputs: a dict of arrays, each with the whole batch ──


def test_prepare_inputs_gets_a_dict_of_arrays_by_source_and_field(tmp_path: Path) -> None:
    """And the ids."""
    given = pipeline(tmp_path).train(trace=3).prepare_inputs[0].batch_dict
    assert given.keys() == {"data", "object_id"}
    assert {field: array.shape for field, array in given["data"].items()} == {"x": (3, 2), "side": (3,)}
    assert given["object_id"].tolist() == ["p0", "p1", "p2"]


# ── after prepare_inputs: a tuple of arrays, or one ──


@pytest.mark.parametrize(
    "result", [np.ones((2, 3)), (np.ones(2), np.zeros(2, int)), [np.ones(2), np.ones(2)], (np.ones(2), None)]
)
def test_one_array_and_tuples_of_arrays_are_accepted(result: Any) -> None:
    """A list becomes a tuple; a part may be None."""
    found = prepared(lambda _: result, {}, "Model")
    assert isinstance(found, np.ndarray | tuple)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"x": np.ones(2)}, "returned dict"),
        ("text", "returned str"),
        ((np.ones(2), 3), "returned int"),
        (np.array(["a"]), "array of <U1"),
        (np.array([None]), "array of object"),
    ],
)
def test_anything_else_is_told(result: Any, words: str) -> None:
    """With the model and the type."""
    with pytest.raises(ModelError, match=f"prepare_inputs of Model .*{words.removeprefix('returned ')}"):
        prepared(lambda _: result, {}, "Model")


def test_a_field_that_is_not_there_is_told_with_those_there_are() -> None:
    """The name of what was asked for, and the content of the batch."""
    with pytest.raises(ModelError, match=r"asked for 'image'.*'data': \['x'\]"):
        prepared(lambda batch: batch["data"]["image"], {"data": {"x": np.ones(2)}}, "Model")


def test_prepare_inputs_must_be_static() -> None:
    """It is called without a model: exported models have none."""

    class Bound:
        def prepare_inputs(self, batch: Any) -> Any: ...

    with pytest.raises(ModelError, match="@staticmethod"):
        prepare(Bound)
    with pytest.raises(ModelError, match="has no prepare_inputs"):
        prepare(object)


def test_prepare_inputs_may_be_inherited() -> None:
    """As any method."""
    assert prepare(models.Heir) is models.Line.prepare_inputs


# ── inside the methods of the model: a tuple of tensors on the device, or one ──


@pytest.mark.parametrize("method", ["train_batch", "validate_batch", "test_batch", "infer_batch"])
def test_each_method_gets_tensors_as_prepare_inputs_made_arrays(tmp_path: Path, method: str) -> None:
    """A tuple as a tuple, with labels last, of the same types and values."""
    made = pipeline(tmp_path, validate=models.request())
    verb = {"train_batch": made.train, "validate_batch": made.train, "infer_batch": made.infer}.get(method, made.test)
    trace = verb(trace=3)
    call = next(one for one in trace.evaluation if one.func_name == method)
    arrays = trace.prepare_inputs[0].batch_ndarray
    assert kinds(call.batch) == [torch.Tensor, torch.Tensor]
    assert [part.device for part in call.batch] == [CPU, CPU]
    assert all(np.array_equal(tensor.numpy(), array) for tensor, array in zip(call.batch, arrays, strict=True))
    assert [str(tensor.dtype) for tensor in call.batch] == ["torch.float32", "torch.int64"]


def test_one_array_becomes_one_tensor(tmp_path: Path) -> None:
    """Not a tuple of one."""
    group = {"dataset_class": "RandomDataset", "fields": ["image"], "primary_id_field": "object_id"}
    trace = pipeline(tmp_path, "Autoencoder", train={"data": group}).train(trace=2)
    assert kinds(trace.evaluation[0].batch) is torch.Tensor


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.arange(6.0)[::-1],
        np.arange(12).reshape(3, 4).T,
        np.broadcast_to(np.float32(1), (3, 2)),
        np.zeros((0, 3), np.float32),
        np.array(5.0),
        np.array([True, False]),
        np.array([1, 2], np.uint16),
        np.array([1 + 2j]),
    ],
    ids=lambda array: f"{array.dtype.str}{array.shape}",
)
def test_arrays_of_any_layout_become_tensors_of_the_same_values(array: np.ndarray[Any, Any]) -> None:
    """Foreign byte order, negative strides, memory that must not be written, none at all."""
    tensor = to_tensors(array, CPU)
    assert tuple(tensor.shape) == array.shape
    assert np.array_equal(tensor.numpy(), array)


def test_a_plain_array_is_not_copied() -> None:
    """It is large."""
    array = np.ones((4, 4), np.float32)
    tensor = to_tensors((array, None), CPU)
    array[0, 0] = 7
    assert tensor[0][0, 0] == 7
    assert tensor[1] is None


def test_device_is_chosen_and_checked() -> None:
    """One that cannot be used is told with its name."""
    assert device_of("auto").type in ("cpu", "cuda", "mps")
    for wrong in ("cuda:77", "gpu", "meta:x"):
        with pytest.raises(ModelError, match=wrong):
            device_of(wrong)


# ── inference: arrays in Lance ──


def test_outputs_are_written_as_arrays_by_name(tmp_path: Path) -> None:
    """One column for each, of the shape and type that the model gave."""

    @register_model
    class Several(models.Line):
        def infer_batch(self, batch: Any) -> dict[str, Any]:
            scores = self(batch)
            return {"scores": scores, "best": scores.argmax(1), "pair": scores.double().reshape(-1, 2, 1)}

    made = pipeline(tmp_path)
    made.config["model"]["name"] = "Several"
    made.train()
    results = open_results(made.infer())
    assert list(results.ids) == [f"p{number}" for number in range(10)]
    found = {name: (results[name].dtype, results[name].shape) for name in ("scores", "best", "pair")}
    assert found == {
        "scores": (np.dtype("f4"), (10, 2)),
        "best": (np.dtype("i8"), (10,)),
        "pair": (np.dtype("f8"), (10, 2, 1)),
    }
    assert np.array_equal(results["best"], results["scores"].argmax(1))
