"""NaN in a batch: each mode, for all fields and for one, and never in place."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from tests.pipeline.stars import batch, made

from sonde.errors import ConfigError, DataError
from sonde.pipeline.data.nans import Nans, has_nan

ONE: dict[str, Any] = {
    "data": {"x": np.array([[1.0, np.nan, 3.0, 5.0], [1.0, 1.0, 1.0, 1.0]])},
    "object_id": np.array(["a", "b"]),
}


def handled(mode: object, values: object = None, quantile: float = 0.5) -> Any:
    """The field after it was treated."""
    table = {"nan_mode": mode, "nan_quantile": quantile, "nan_fields": {}}
    given = ONE if values is None else {"data": {"x": values}, "object_id": np.array(["a", "b"])}
    return Nans(table).handle(given)["data"]["x"]


def test_default_is_an_error_that_names_field_and_item() -> None:
    """Nobody trains on NaN without knowing."""
    with pytest.raises(DataError) as caught:
        batch(made("Cloudy", fields=["image"]), 0, 1, 2)
    assert "data.image has NaN in 2 of 3 items of a batch, first in item 's1'" in str(caught.value)
    assert "data.nan_mode" in str(caught.value)


def test_warning_is_told_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """The batch stays as it is."""
    provider = made("Cloudy", {"data.nan_mode": "warn"}, fields=["image"])
    with caplog.at_level(logging.WARNING, "sonde.pipeline"):
        found = batch(provider, 0, 1)
        batch(provider, 1, 2)
    assert np.isnan(found["data"]["image"]).sum() == 1
    assert len(caplog.records) == 1
    assert provider.nans.warned == {"data.image": 3}


def test_zero_takes_the_place_of_nan_only() -> None:
    """Everything else stays, infinity too."""
    assert handled("zero", np.array([[np.nan, np.inf], [1, 2]])).tolist() == [[0, np.inf], [1, 2]]


def test_quantile_is_that_of_the_item() -> None:
    """The median of 1, 3 and 5 is 3; the other item stays."""
    assert handled("quantile").tolist() == [[1, 3, 3, 5], [1, 1, 1, 1]]


def test_quantile_looks_at_finite_values() -> None:
    """Infinity is no value to fill a gap with."""
    assert handled("quantile", np.array([[np.nan, np.inf, 2.0], [1, 1, 1]])).tolist() == [[2, np.inf, 2], [1, 1, 1]]


@pytest.mark.parametrize("mode", ["false", False])
def test_false_does_nothing(mode: object) -> None:
    """As a word or as a value."""
    assert handled(mode) is ONE["data"]["x"]


@pytest.mark.parametrize("mode", ["zero", "quantile", "warn", "false"])
def test_nothing_is_changed_in_place(mode: str) -> None:
    """Neither the batch that was given nor the arrays of the dataset."""
    provider = made("Cloudy", {"data.nan_mode": mode}, fields=["image"], dataset_config={"all": False})
    kept = provider.datasets["data"].images.copy()
    before = provider._collate([provider[0], provider[1]])
    image = before["data"]["image"].copy()
    provider.handle_nans(before)
    np.testing.assert_array_equal(before["data"]["image"], image)
    np.testing.assert_array_equal(provider.datasets["data"].images, kept)


def test_batch_without_nan_is_given_back_as_it_is() -> None:
    """No copy where there is nothing to do."""
    given = {"data": {"x": np.ones((2, 2))}, "object_id": np.array(["a", "b"])}
    assert Nans({"nan_mode": "zero", "nan_quantile": 0.5, "nan_fields": {}}).handle(given) is given


@pytest.mark.parametrize("key", ["image", "data.image"])
def test_mode_of_a_field_goes_before_the_mode_of_all(key: str) -> None:
    """By its name, with or without the source's."""
    provider = made("Cloudy", {"data.nan_mode": "zero", "data.nan_fields": {key: "false"}})
    found = batch(provider, 1, 2)["data"]
    assert np.isnan(found["image"]).sum() == 7
    assert found["label"].tolist() == [0, 2]


def test_mode_for_a_field_that_does_not_exist_is_refused() -> None:
    """It would silently do nothing."""
    with pytest.raises(ConfigError, match=r"data.nan_fields names 'imgae', which is not a field. Did you mean 'image'"):
        made("Cloudy", {"data.nan_fields": {"imgae": "zero"}})


@pytest.mark.parametrize("key", ["data.nan_mode", "data.nan_fields.image"])
def test_unknown_mode_is_refused(key: str) -> None:
    """With the ones there are."""
    with pytest.raises(ConfigError, match=f"{key} is 'zeros'. Did you mean 'zero'"):
        made("Cloudy", {key: "zeros"} if key.endswith("mode") else {"data.nan_fields": {"image": "zeros"}})


def test_quantile_out_of_range_is_refused() -> None:
    """From 0 to 1."""
    with pytest.raises(ConfigError, match=r"data.nan_quantile is 5"):
        made("Cloudy", {"data.nan_quantile": 5.0})


def test_item_of_nothing_but_nan_has_no_quantile() -> None:
    """It is told which one, and what to do."""
    provider = made("Cloudy", {"data.nan_mode": "quantile"}, fields=["image"])
    with pytest.raises(DataError) as caught:
        batch(provider, 0, 1, 2)
    assert "data.image has NaN in 1 of 3 items of a batch, first in item 's2', and no other values" in str(caught.value)
    assert "data.nan_fields" in str(caught.value)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
def test_nan_is_found_in_each_type_and_place(dtype: str) -> None:
    """Also among infinities, and in a part of a larger array."""
    values = np.zeros((40, 33), dtype)
    values[3] = np.inf
    values[4] = -np.inf
    assert not has_nan(values)
    for place in (0, 17, 1319):
        changed = values.copy()
        changed.flat[place] = np.nan
        assert has_nan(changed)
        assert has_nan(changed[:, ::-1])


@pytest.mark.parametrize("values", [np.zeros(0), np.array(["nan"]), np.array([1]), np.array([True]), 3, None])
def test_what_can_have_no_nan_has_none(values: object) -> None:
    """Numbers without fractions, texts, nothing."""
    assert not has_nan(values)


def test_fields_of_half_precision_keep_their_type() -> None:
    """The quantile is computed in double precision, and put in as what was there."""
    values = np.array([[1, np.nan], [2, 2]], np.float16)
    for mode in ("zero", "quantile"):
        assert handled(mode, values).dtype == np.float16
