"""`infer`: the right weights, the right order, complete results, and a clear message where there is none."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from tests.pipeline.nets import HERE, pipeline, request

from sonde.errors import CheckpointError, DataError, FolderRefused, ModelError, SondeError
from sonde.flow import TraceResult
from sonde.pipeline.results.results import open_results


def record(folder: Path) -> dict[str, str]:
    """What run.json says."""
    found: dict[str, str] = json.loads((folder / "run.json").read_text())
    return found


def test_every_item_is_in_the_table_once_and_in_order(tmp_path: Path) -> None:
    """With its id, although the last batch is smaller."""
    p = pipeline(tmp_path, "Echo")
    p.train()
    results = open_results(p.infer())
    assert results.ids.tolist() == [f"n{number}" for number in range(10)]
    assert results["out"][:, 0].tolist() == list(range(10))


def test_numbers_that_are_not_finite_are_results_too(tmp_path: Path) -> None:
    """NaN and infinities reach the table as they are; bfloat16 becomes float32."""
    p = pipeline(tmp_path, "Echo")
    p.train()
    results = open_results(p.infer())
    assert np.isnan(results["out"][:, 1]).all()
    assert results["out"][3].tolist()[2:] == [np.inf, -np.inf]
    assert results["half"].dtype == np.float32


def test_each_output_is_a_column_with_its_shape_and_dtype(tmp_path: Path) -> None:
    """A dict of tensors gives as many columns."""
    p = pipeline(tmp_path, "Several")
    p.train()
    results = open_results(p.infer())
    assert {name: (one.shape, one.dtype) for name, one in results.columns.items()} == {
        "made": ((3,), "float32"),
        "best": ((), "int64"),
        "cube": ((3, 1, 1), "float32"),
    }
    assert results["best"].tolist() == results["made"].argmax(1).tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_do_not_change_the_results(tmp_path: Path, workers: int) -> None:
    """The same items in the same order."""
    p = pipeline(tmp_path, "Echo")
    p.train()
    p.config["data_loader"]["num_workers"] = workers
    assert open_results(p.infer())["out"][:, 0].tolist() == list(range(10))


def test_the_newest_completed_run_is_used_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not an older one, not one that has failed, not a traced one."""
    p = pipeline(tmp_path)
    p.train()
    p.config["general"]["seed"] = 5
    newest = p.train()
    failed = pipeline(tmp_path, fails=9)
    with pytest.raises(DataError):
        failed.train()
    p.train(trace=2)
    with caplog.at_level(logging.INFO, "sonde.pipeline"):
        folder = p.infer()
    assert f"infer uses the weights of {newest / 'weights.pt'}" in caplog.text
    assert record(folder)["weights"] == str(newest / "weights.pt")


def test_a_run_of_another_model_is_not_used(tmp_path: Path) -> None:
    """Its weights would not fit, or, worse, they would."""
    pipeline(tmp_path, "Echo").train()
    with pytest.raises(CheckpointError, match=rf"no completed training run of {HERE}.Net"):
        pipeline(tmp_path).infer()


def test_a_run_can_be_named(tmp_path: Path) -> None:
    """By its path, or its name among the results; or a file with weights."""
    p = pipeline(tmp_path)
    first = p.train()
    p.config["general"]["seed"] = 5
    p.train()
    expected = []
    for key, value in {"run": str(first), "weights": str(first / "weights.pt")}.items():
        named = pipeline(tmp_path)
        named.config["infer"][key] = value
        expected.append(open_results(named.infer())["data"].tolist())
    p.config["infer"]["run"] = first.name
    assert open_results(p.infer())["data"].tolist() == expected[0] == expected[1]


def test_a_run_that_is_not_there_is_told(tmp_path: Path) -> None:
    """With the key of the config."""
    p = pipeline(tmp_path)
    p.config["infer"]["run"] = "nope"
    with pytest.raises(CheckpointError, match=r"infer\.run is 'nope'"):
        p.infer()


def test_without_a_trained_model_there_is_a_clear_error(tmp_path: Path) -> None:
    """And no folder is made."""
    with pytest.raises(CheckpointError, match=r"Train first, or set infer\.run or infer\.weights"):
        pipeline(tmp_path).infer()
    assert not (tmp_path / "results").exists()


def test_a_traced_infer_without_a_trained_model_uses_fresh_weights_and_says_so(tmp_path: Path) -> None:
    """In a note of the trace. It leaves nothing behind."""
    trace = pipeline(tmp_path).infer(trace=2)
    assert isinstance(trace, TraceResult)
    assert "freshly initialised" in "".join(trace.notes)
    assert [call.disp_name for call in trace.evaluation] == ["Net__infer_batch", "Net__forward"]
    assert not (tmp_path / "results").exists()


def test_a_traced_infer_uses_a_trained_model_if_there_is_one(tmp_path: Path) -> None:
    """What it gives is what the untraced one gives, and no results are written."""
    p = pipeline(tmp_path)
    p.train()
    before = sorted((tmp_path / "results").iterdir())
    trace = p.infer(trace=3)
    assert sorted((tmp_path / "results").iterdir()) == before
    assert not trace.notes
    np.testing.assert_allclose(
        trace.evaluation[0].batch_results, open_results(p.infer())["data"][:3], rtol=1e-6, atol=1e-7
    )


def test_an_item_that_fails_keeps_what_was_finished(tmp_path: Path) -> None:
    """The error names dataset, field, index and id; the run is not marked as completed."""
    p = pipeline(tmp_path)
    p.train()
    p.set_config("data_request", request("infer", fails=9))
    with pytest.raises(DataError, match=r"get_pair of 'data'.* item 9 \(id 'n9'\)"):
        p.infer()
    (folder,) = (tmp_path / "results").glob("*-infer-*")
    assert open_results(folder).ids.tolist() == [f"n{number}" for number in range(8)]
    assert record(folder)["status"] == "failed"


@pytest.mark.parametrize(("model", "words"), [("Wrong", "returned list for 'data'"), ("Mute", "has no infer_batch")])
def test_a_model_that_gives_nothing_usable_is_told(tmp_path: Path, model: str, words: str) -> None:
    """With its name."""
    with pytest.raises(ModelError, match=words) as caught:
        pipeline(tmp_path, model).infer(trace=2)
    assert model in str(caught.value)


def test_a_results_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """Here because a file stands in its place."""
    p = pipeline(tmp_path)
    folder = p.train()
    (tmp_path / "file").write_text("")
    p.config["infer"]["run"] = str(folder)
    p.config["general"]["results_dir"] = str(tmp_path / "file")
    with pytest.raises(FolderRefused, match="results_dir"):
        p.infer()


def test_the_effective_config_is_saved_with_the_results(tmp_path: Path) -> None:
    """Also what is only a default."""
    p = pipeline(tmp_path)
    p.train()
    text = (p.infer() / "config.toml").read_text()
    assert "batch_size = 4" in text
    assert "nan_mode" in text


@pytest.mark.parametrize("count", [-1, 2.5, True, "2"])
def test_a_wrong_number_of_items_is_told_before_anything_is_made(tmp_path: Path, count: int) -> None:
    """No folder, and the value in the message."""
    with pytest.raises(SondeError, match=str(count)):
        pipeline(tmp_path).infer(trace=count)
    assert not (tmp_path / "results").exists()
