"""`to_onnx`: the exported model is the same as the one that was trained, or there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.pipeline.nets import Net, pipeline

from sonde.errors import CheckpointError, ConfigError, ExportError
from sonde.pipeline.export.exported import Exported
from sonde.pipeline.results.results import open_results


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an export of Several, whose results are beside it."""
    p = pipeline(tmp_path_factory.mktemp("several"), "Several")
    p.train()
    p.infer()
    found: Path = p.to_onnx()
    return found


def test_the_export_is_a_valid_model_of_the_wanted_opset(exported: Path) -> None:
    """As the ONNX library judges it."""
    model = onnx.load(exported / "model.onnx")
    onnx.checker.check_model(model)
    assert [one.version for one in model.opset_import if one.domain in ("", "ai.onnx")] == [20]


@pytest.mark.parametrize("count", [1, 3, 10])
def test_the_export_gives_the_same_for_any_number_of_items(exported: Path, count: int) -> None:
    """Also for numbers that it was not exported with."""
    pairs = np.array([[n, n + 0.5] for n in range(count)], np.float32)
    model = Exported(exported / "model.onnx")
    found = model.run_onnx_batch(model.create_ort_inputs((pairs, None)))
    expected = open_results(next(exported.parent.glob("*-infer-*")))
    for name in ("made", "best", "cube"):
        np.testing.assert_allclose(found[name], expected[name][:count], rtol=1e-4, atol=1e-5)
        assert found[name].dtype == expected[name].dtype


def test_inputs_that_the_model_does_not_use_are_no_inputs(exported: Path) -> None:
    """Labels need not be there when it runs."""
    session = onnxruntime.InferenceSession(exported / "model.onnx", providers=["CPUExecutionProvider"])
    (only,) = session.get_inputs()
    assert only.shape == ["batch", 2]


def test_an_export_says_which_weights_it_has(exported: Path) -> None:
    """In the record of the run."""
    record = json.loads((exported / "run.json").read_text())
    assert record["status"] == "completed"
    assert record["weights"].endswith("weights.pt")


def test_an_export_that_differs_is_an_error_and_is_not_kept(tmp_path: Path) -> None:
    """The message says by how much, and what is allowed."""
    p = pipeline(tmp_path, "Random")
    p.train()
    with pytest.raises(ExportError, match=r"'data' by up to .* onnx\.tolerance is 0\.0001"):
        p.to_onnx()
    (folder,) = (tmp_path / "results").glob("*-to-onnx-*")
    assert not list(folder.glob("*.onnx"))
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"
    with pytest.raises(ExportError, match="No exported model"):
        p.engine()


def test_a_model_that_cannot_be_exported_is_told_with_the_reason(tmp_path: Path) -> None:
    """In one line, although the exporter says much more."""
    p = pipeline(tmp_path, "Stiff")
    p.train()
    with pytest.raises(ExportError, match="Cannot export Stiff: ") as caught:
        p.to_onnx()
    assert "\n" not in str(caught.value)


def test_inputs_that_need_torch_are_told(tmp_path: Path) -> None:
    """Before the export begins."""
    p = pipeline(tmp_path, "Torchy")
    p.train()
    with pytest.raises(ExportError, match=r"Torchy\.prepare_inputs uses torch"):
        p.to_onnx()


def test_without_a_trained_model_nothing_is_exported(tmp_path: Path) -> None:
    """An export of random weights is of no use."""
    with pytest.raises(CheckpointError, match="to-onnx has no weights"):
        pipeline(tmp_path).to_onnx()


def test_there_is_nothing_to_trace(tmp_path: Path) -> None:
    """Which is told."""
    with pytest.raises(ConfigError, match="nothing to trace"):
        pipeline(tmp_path).to_onnx(trace=2)


def test_the_model_is_left_as_it_was(exported: Path) -> None:
    """The export changes no class."""
    assert set(vars(Net)) >= {"forward", "infer_batch"}
    assert not any(name.startswith("_sonde") for name in vars(Net))


def test_one_item_is_enough_to_export_with(tmp_path: Path) -> None:
    """The number of items is free nevertheless."""
    p = pipeline(tmp_path, size=1)
    p.train()
    model = Exported(p.to_onnx() / "model.onnx")
    given: Any = np.zeros((5, 2), np.float32)
    assert model.run_onnx_batch(model.create_ort_inputs(given))["data"].shape == (5, 3)
