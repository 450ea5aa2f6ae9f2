"""ResultDataset: what one run gave is the data of the next, in any order and in any process."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pipeline.nets import pipeline

from sonde.errors import ConfigError, ResultsError, SondeError
from sonde.pipeline.datasets import results as module
from sonde.pipeline.datasets.results import ResultDataset
from sonde.pipeline.results.results import ResultWriter, open_results

ROWS = 300


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Results with a vector, a number and a text for each item."""
    with ResultWriter(tmp_path) as writer:
        numbers = np.arange(ROWS)
        vectors = np.stack([numbers, -numbers], 1).astype(np.float32)
        writer.write([f"id{n}" for n in numbers], {"vector": vectors, "number": numbers, "name": numbers.astype(str)})
    return tmp_path


def values(dataset: Any, index: int) -> Any:
    """All fields of a row."""
    return [
        dataset.get_object_id(index),
        dataset.get_vector(index).tolist(),
        int(dataset.get_number(index)),
        dataset.get_name(index),
    ]


def test_each_column_is_a_field(table: Path) -> None:
    """And so are the ids."""
    dataset: Any = ResultDataset({}, str(table))
    assert len(dataset) == ROWS
    assert values(dataset, 7) == ["id7", [7, -7], 7, "7"]
    assert type(dataset.get_object_id(7)) is str


def test_any_order_gives_the_right_rows(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when blocks are small and few of them are kept."""
    monkeypatch.setattr(module, "BLOCK_ROWS", 7)
    monkeypatch.setattr(module, "KEPT_BLOCKS", 2)
    dataset: Any = ResultDataset({}, str(table))
    for index in np.random.default_rng(0).permutation(ROWS).tolist():
        assert values(dataset, index) == [f"id{index}", [index, -index], index, str(index)]
    assert len(dataset._blocks) <= 2


def test_a_copy_in_another_process_opens_the_table_itself(table: Path) -> None:
    """For workers that are spawned."""
    copied = pickle.loads(pickle.dumps(ResultDataset({}, str(table))))
    assert values(copied, 299) == ["id299", [299, -299], 299, "299"]


@pytest.mark.parametrize("index", [-1, ROWS])
def test_a_row_that_is_not_there_is_an_error(table: Path, index: int) -> None:
    """With the number of those that are."""
    dataset: Any = ResultDataset({}, str(table))
    with pytest.raises(IndexError, match=f"No row {index} .* it has {ROWS}"):
        dataset.get_vector(index)


def test_a_location_is_needed(tmp_path: Path) -> None:
    """And has to hold results."""
    with pytest.raises(ConfigError, match="needs data_location"):
        ResultDataset({})
    with pytest.raises(ResultsError, match="has no results"):
        ResultDataset({}, str(tmp_path))


@pytest.mark.parametrize("workers", [0, 1])
def test_the_results_of_one_run_are_the_data_of_the_next(tmp_path: Path, workers: int) -> None:
    """With the same ids, also when loader workers read them."""
    first = pipeline(tmp_path, "Echo")
    first.train()
    folder = first.infer()
    p = pipeline(tmp_path, "OnResults")
    p.config["data_loader"]["num_workers"] = workers
    source = {"dataset_class": "ResultDataset", "data_location": str(folder), "fields": ["half"]}
    p.set_config(
        "data_request", {group: {"data": {**source, "primary_id_field": "object_id"}} for group in ("train", "infer")}
    )
    p.train()
    found = open_results(p.infer())
    assert found.ids.tolist() == [f"n{number}" for number in range(10)]
    np.testing.assert_array_equal(found["data"], open_results(folder)["half"])


def test_a_wrong_field_is_told_with_those_there_are(table: Path, tmp_path: Path) -> None:
    """As for every dataset."""
    p = pipeline(tmp_path)
    source = {"dataset_class": "ResultDataset", "data_location": str(table), "fields": ["vectr"]}
    p.set_config("data_request", {"infer": {"data": {**source, "primary_id_field": "object_id"}}})
    with pytest.raises(SondeError, match="Did you mean 'vector'"):
        p.infer(trace=1)
