"""Splits: by fraction or by saved index; disjoint, and always the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.pipeline.stars import source

from sonde.errors import ConfigError, DataError
from sonde.pipeline.config import Config
from sonde.pipeline.data.provider import DataProvider
from sonde.pipeline.data.request import parse_request
from sonde.pipeline.data.split import rows_of, shuffled


def parts(length: int, seed: int = 0, files: Any = None, **fractions: float | None) -> dict[str, list[int]]:
    """The rows of each group."""
    request = parse_request({group: {"data": source("Stars", split_fraction=one)} for group, one in fractions.items()})
    return {group: list(rows_of(group, request, length, seed, files or {})) for group in request}


@settings(deadline=None)
@given(
    length=st.integers(20, 500),
    seed=st.integers(0, 2**40),
    train=st.integers(1, 8),
    validate=st.integers(1, 8),
    rest=st.integers(1, 8),
)
def test_parts_are_disjoint_complete_and_of_the_right_size(
    length: int, seed: int, train: int, validate: int, rest: int
) -> None:
    """For any fractions that add up to 1."""
    whole = train + validate + rest
    found = parts(length, seed, train=train / whole, validate=validate / whole, test=rest / whole)
    together = [row for rows in found.values() for row in rows]
    assert sorted(together) == list(range(length))
    assert abs(len(found["train"]) - length * train / whole) <= 1
    assert found["train"] == sorted(found["train"])


def test_same_seed_takes_the_same_items_in_any_version() -> None:
    """These numbers must never change: a saved run would be split in another way."""
    assert parts(10, 3, train=0.5, test=0.5) == {"train": [0, 2, 5, 6, 9], "test": [1, 3, 4, 7, 8]}
    assert parts(10, 4, train=0.5, test=0.5) != parts(10, 3, train=0.5, test=0.5)


def test_order_is_a_shuffle() -> None:
    """Every number once, and far from sorted."""
    order = shuffled(1000, 1)
    assert sorted(order.tolist()) == list(range(1000))
    assert abs(np.corrcoef(order, np.arange(1000))[0, 1]) < 0.1


def test_groups_keep_their_parts_whatever_their_order_in_the_request() -> None:
    """train, validate, test, and then the others by name."""
    assert parts(50, test=0.2, train=0.6, more=0.2) == dict(parts(50, train=0.6, more=0.2, test=0.2))


def test_whole_data_may_be_used_by_several_groups() -> None:
    """Nobody has asked for a split."""
    assert parts(5, train=1.0, test=None, infer=1.0) == {name: list(range(5)) for name in ("train", "test", "infer")}


def test_infer_takes_the_first_items_in_order_and_may_share_them() -> None:
    """What is inferred is not held against training."""
    assert parts(10, train=0.8, test=0.2, infer=0.3)["infer"] == [0, 1, 2]


@pytest.mark.parametrize("fractions", [{"train": 0.8, "test": 0.3}, {"train": 0.8, "test": None}])
def test_fractions_that_add_up_to_more_are_refused(fractions: dict[str, Any]) -> None:
    """Groups would share items; one without a fraction takes all."""
    with pytest.raises(ConfigError, match=r"add up to 1\.\d \(train 0.8, test"):
        parts(10, **fractions)


def test_part_without_items_is_told() -> None:
    """With the numbers."""
    with pytest.raises(DataError, match=r"data_request.train: split_fraction 0.01 of 10 items leaves no items"):
        parts(10, train=0.01)


def test_other_data_is_split_apart() -> None:
    """Groups share data only if class, location and dataset_config are the same."""
    request = parse_request(
        {
            "train": {"data": source("Stars", split_fraction=0.8, data_location="/a")},
            "test": {"data": source("Stars", split_fraction=0.8, data_location="/b")},
        }
    )
    assert len(rows_of("test", request, 10, 0, {})) == 8


# ── saved index ──────────────────────────────────────────────────────────────────────────────────────────────────────


def saved(folder: Path, **rows: Any) -> dict[str, str]:
    """Files with these rows."""
    for group, one in rows.items():
        np.save(folder / f"{group}.npy", np.asarray(one))
    return {group: str(folder / f"{group}.npy") for group in rows}


def test_saved_index_is_taken_in_its_order(tmp_path: Path) -> None:
    """It may be any."""
    assert parts(10, files=saved(tmp_path, train=[5, 1, 3], test=[2]), train=None, test=None) == {
        "train": [5, 1, 3],
        "test": [2],
    }


def test_provider_saves_an_index_that_can_be_given_back(tmp_path: Path) -> None:
    """A later run has the same items, whatever the fraction was."""
    config = Config({"data_request": {"train": {"data": source("Stars", split_fraction=0.4)}}})
    first = DataProvider(config, "train")
    first.save_index(tmp_path / "train.npy")
    again = Config({"data_request": {"train": {"data": source("Stars")}}})
    again["split"]["index"]["train"] = str(tmp_path / "train.npy")
    assert DataProvider(again, "train").ids() == first.ids()
    assert len(first) == 8


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        ([1, 30], DataError, "index 30, but there are 10 items"),
        ([-1], DataError, "there are 10 items"),
        ([1, 1], DataError, "an index twice"),
        ([0.5], ConfigError, "whole numbers"),
        ([[1]], ConfigError, "whole numbers"),
        ([], ConfigError, "whole numbers"),
    ],
)
def test_index_that_does_not_fit_is_told(tmp_path: Path, rows: Any, error: type[Exception], words: str) -> None:
    """With group and file."""
    with pytest.raises(error) as caught:
        parts(10, files=saved(tmp_path, train=rows), train=None)
    assert words in str(caught.value)
    assert "split.index.train" in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b"no array", b"\x80\x04K\x01."])
def test_file_that_is_no_array_is_told(tmp_path: Path, content: bytes | None) -> None:
    """Missing, empty, something else; it is never unpickled."""
    file = tmp_path / "train.npy"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"Cannot read split.index.train"):
        parts(10, files={"train": str(file)}, train=None)


def test_indices_that_overlap_are_refused(tmp_path: Path) -> None:
    """With the number of items and one of them."""
    with pytest.raises(DataError, match="train and test share 2 items, such as 2"):
        parts(10, files=saved(tmp_path, train=[1, 2, 3], test=[2, 3, 4]), train=None, test=None)


@pytest.mark.parametrize(
    ("fractions", "words"),
    [
        ({"train": 0.5}, "data_request.train has split_fraction, and split.index.train"),
        ({"train": None, "test": None}, "data_request.test has the same data as train"),
        ({"test": None}, "split.index names the group 'train'"),
    ],
)
def test_index_and_fraction_are_not_mixed(tmp_path: Path, fractions: dict[str, Any], words: str) -> None:
    """It would not be clear what is disjoint."""
    with pytest.raises(ConfigError) as caught:
        parts(10, files=saved(tmp_path, train=[1]), **fractions)
    assert words in str(caught.value)


def test_stratified_parts_have_their_share_of_each_class() -> None:
    """Also of a class that is rare; disjoint and complete as ever."""
    labels = np.array(["common"] * 90 + ["rare"] * 10)
    request = parse_request({group: {"data": source("Stars", split_fraction=one)} for group, one in PARTS.items()})
    found = {group: list(rows_of(group, request, 100, 3, {}, lambda: labels)) for group in PARTS}
    assert sorted(row for rows in found.values() for row in rows) == list(range(100))
    assert {group: int((labels[rows] == "rare").sum()) for group, rows in found.items()} == {
        "train": 6,
        "validate": 2,
        "test": 2,
    }


PARTS = {"train": 0.6, "validate": 0.2, "test": 0.2}


def test_stratified_split_by_a_field_of_the_dataset() -> None:
    """Which need not be among those that are read."""
    request = {group: {"data": source("Stars", split_fraction=0.5, fields=["image"])} for group in ("train", "test")}
    config = Config({"data_request": request})
    config["split"]["stratify_field"] = "label"
    counts = [np.bincount(DataProvider(config, group).column("label")) for group in request]
    assert abs(counts[0] - counts[1]).max() <= 1
    config["split"]["stratify_field"] = "lable"
    with pytest.raises(ConfigError, match="Did you mean 'label'"):
        DataProvider(config, "train")
    config["split"]["stratify_field"] = "image"
    with pytest.raises(ConfigError, match=r"split\.stratify_field names a field without classes"):
        DataProvider(config, "train")
