"""Joins: what belongs to an item is found by its id; what is missing is marked, and is no crash."""

from __future__ import annotations

import numpy as np
import pytest
from tests.pipeline.stars import PATH, batch, joined, source

from sonde.errors import ConfigError, DataError
from sonde.pipeline.config import Config
from sonde.pipeline.data.collate import _nothing
from sonde.pipeline.data.join import id_text, refuse_duplicates
from sonde.pipeline.data.provider import DataProvider


def test_items_have_what_belongs_to_them_or_none() -> None:
    """Left outer: every item of the primary dataset is there."""
    provider = joined(fields=["flux"])
    assert len(provider) == 20
    assert (provider[4]["spec"]["flux"] == 4).all()
    assert provider[5]["spec"] is None
    assert list(provider[5]) == ["data", "spec", "object_id"]


def test_misses_are_marked_by_a_mask_and_hold_no_value() -> None:
    """Arrays are as long as the batch; a float without a value is NaN, a text is empty."""
    found = batch(joined(), 4, 5, 6)
    assert found["spec__matched"].tolist() == [True, False, True]
    assert found["spec"]["flux"].shape == (3, 4)
    assert found["spec"]["flux"][:, 0].tolist()[::2] == [4, 6]
    assert np.isnan(found["spec"]["flux"][1]).all()
    assert found["spec"]["class"].tolist() == ["class s4", "", "class s6"]
    assert found["spec"]["count"].dtype.kind == "i"


def test_mask_is_there_also_without_a_miss() -> None:
    """What a model gets has the same form in each batch."""
    assert batch(joined(), 4, 6)["spec__matched"].tolist() == [True, True]


@pytest.mark.parametrize("kind", ["Spectra", "Padded"])
def test_batch_of_misses_only_has_the_same_fields(kind: str) -> None:
    """The dataset says what its items look like."""
    found = batch(joined(kind), 1, 3)
    assert set(found["spec"]) == set(batch(joined(kind), 0, 2)["spec"])
    assert not found["spec__matched"].any()
    assert all(len(values) == 2 for values in found["spec"].values())


def test_function_of_a_field_gets_only_what_was_found() -> None:
    """Its rows go to their places."""
    found = batch(joined("Padded"), 16, 17, 18)["spec"]
    assert found["flux"][[0, 2]].tolist() == [[1, 1], [1, 0]]
    assert found["flux_length"].tolist() == [2, 0, 1]


def test_misses_are_no_nan_of_the_data() -> None:
    """The default is an error for NaN, and a miss is none."""
    assert joined().nans.mode == "error"
    batch(joined(), 4, 5)


@pytest.mark.parametrize("mode", ["zero", "quantile"])
def test_misses_are_zero_where_nan_are_replaced(mode: str) -> None:
    """Who wants no NaN in a batch gets none."""
    assert batch(joined(config={"data.nan_mode": mode}), 4, 5)["spec"]["flux"].tolist() == [[4] * 4, [0] * 4]


def test_join_without_any_match_is_told() -> None:
    """With an example of what there is to match."""
    with pytest.raises(DataError) as caught:
        joined(join_field="class")
    said = str(caught.value)
    assert "data_request.train.spec: no class matches the id of an item of 'data'" in said
    assert "'class s18'" in said


def test_join_field_that_is_not_unique_is_told() -> None:
    """It would not be clear what belongs to an item."""
    other = {"dataset_class": f"{PATH}.Stars", "join_field": "label"}
    with pytest.raises(DataError, match="items 0 and 3 have the same label '0'"):
        DataProvider(Config({"data_request": {"train": {"data": source("Stars"), "b": other}}}), "train")


def test_join_field_that_does_not_exist_is_told() -> None:
    """With group, name and key."""
    with pytest.raises(ConfigError, match=r"data_request.train.spec.join_field is 'stra', but Spectra has no get_stra"):
        joined(join_field="stra")


def test_join_goes_with_a_split() -> None:
    """Rows of the group, not of the dataset, have their matches."""
    request = {
        "train": {
            "data": source("Stars", split_fraction=0.5),
            "spec": {"dataset_class": f"{PATH}.Spectra", "join_field": "star"},
        }
    }
    provider = DataProvider(Config({"data_request": request}), "train")
    assert len(provider) == 10
    for item in provider:  # type: ignore[attr-defined]
        number = int(item["object_id"][1:])
        assert (item["spec"] is None) == bool(number % 2)
        assert item["spec"] is None or (item["spec"]["flux"] == number).all()


@pytest.mark.parametrize("value", [7, "7", b"7", np.int64(7), np.str_("7")])
def test_ids_are_compared_as_texts(value: object) -> None:
    """The number 7 in one file is the text "7" in another."""
    assert id_text(value) == "7"


def test_equal_hashes_are_no_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids that only look the same to a hash table are not the same."""
    monkeypatch.setitem(refuse_duplicates.__globals__, "hash", lambda text: 1)
    refuse_duplicates("here", range(50), str)
    with pytest.raises(DataError, match="items 0 and 6"):
        refuse_duplicates("here", range(8), lambda row: str(row % 6))


@pytest.mark.parametrize("dtype", ["m8[s]", "M8[ns]"])
def test_misses_of_times_are_not_a_time_of_the_same_unit(dtype: str) -> None:
    """NumPy will refuse a difference of times that has no unit."""
    empty = _nothing(np.dtype(dtype))
    assert empty.dtype == np.dtype(dtype)
    assert np.isnat(empty)
