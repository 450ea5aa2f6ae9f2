"""Collation: np.stack for each field, or functions of the dataset; what does not fit is told with field and items."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hn
from tests.pipeline.stars import Stars, batch, made

from sonde.errors import ConfigError, DataError


def test_each_field_becomes_one_array() -> None:
    """Arrays are stacked, numbers and texts become rows; ids stand beside."""
    found = batch(made("Stars"), 1, 2)
    assert list(found) == ["object_id", "data"]
    assert found["object_id"].tolist() == ["s1", "s2"]
    assert found["data"]["image"].shape == (2, 2, 3)
    assert found["data"]["image"].dtype == np.float32
    assert found["data"]["label"].tolist() == [1, 2]
    assert found["data"]["name"].tolist() == ["s1", "s2"]


class Given(Stars):
    """Whatever a test gives it."""

    values: list[Any]

    def get_image(self, index: int) -> Any:
        return self.values[index]


def collated(values: list[Any]) -> Any:
    """These values as a batch."""
    Given.values = values
    provider = made("Stars", dataset_class=f"{__name__}.Given", fields=["image"], dataset_config={"size": len(values)})
    provider.nans.mode = "false"
    return batch(provider)["data"]["image"]


_dtypes: Any = hn.integer_dtypes(endianness="=") | hn.floating_dtypes(endianness="=") | hn.boolean_dtypes()


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(_dtypes, hn.array_shapes(min_dims=0, min_side=0)).flatmap(
        lambda one: st.lists(hn.arrays(one[0], one[1]), min_size=1, max_size=4)
    )
)
def test_default_is_the_same_as_stack(values: list[Any]) -> None:
    """In values, shape and dtype."""
    expected: Any = np.stack(values)
    found = collated(values)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_types_that_differ_are_brought_together_as_stack_does() -> None:
    """A whole number among fractions is one of them."""
    values: list[Any] = [np.zeros(2, np.float32), np.ones(2, np.int64)]
    assert collated(values).dtype == np.stack(values).dtype


def test_numbers_of_other_machines_become_native() -> None:
    """Big-endian numbers, as FITS files have them, are refused by torch."""
    found = collated([np.array([1, 2], ">f4")] * 2)
    assert found.dtype == np.dtype("=f4")
    assert found.tolist() == [[1, 2], [1, 2]]


def test_batch_shares_no_memory_with_the_dataset() -> None:
    """Who changes a batch does not change the data."""
    values = [np.zeros(2)]
    found = collated(values)
    found += 1
    assert values[0].tolist() == [0, 0]


def test_unequal_shapes_are_told_with_the_field_and_the_two_items() -> None:
    """And with what can be done."""
    with pytest.raises(DataError) as caught:
        batch(made("Ragged"), 1, 2, 3)
    assert "data.image has the shape (2, 3) in item 's1', but (2, 4) in item 's3'" in str(caught.value)
    assert "collate_image(samples) in Ragged" in str(caught.value)


def test_value_that_fits_no_array_is_told_with_its_item() -> None:
    """None, for one."""
    with pytest.raises(DataError, match=r"data.label of item 's2' is None \(NoneType\)"):
        batch(made("Gaps"), 1, 2, 3)


@pytest.mark.parametrize("value", [{"a": 1}, object(), [np.zeros(2), np.zeros(3)]])
def test_objects_are_told(value: Any) -> None:
    """Also lists that are no array."""
    with pytest.raises(DataError, match="item 's1'"):
        collated([np.zeros(2), value])


def test_empty_batch_is_told() -> None:
    """It has no shape."""
    with pytest.raises(DataError, match="no items"):
        made("Stars").collate([])


def test_function_of_a_field_may_give_several_arrays() -> None:
    """They stand beside the other fields, which are stacked as always."""
    found = batch(made("Padded", primary_id_field="star"), 0, 2)["data"]
    assert found["flux"].tolist() == [[1, 0, 0], [1, 1, 1]]
    assert found["flux_length"].tolist() == [1, 3]
    assert found["count"].tolist() == [1, 3]


def test_function_of_the_dataset_takes_the_place_of_all_fields() -> None:
    """It gets the items of its source, and says what the batch has."""
    assert batch(made("Whole"), 1, 2)["data"]["sum"].tolist() == [7, 14]


def test_both_kinds_of_functions_are_refused() -> None:
    """Before anything is read."""
    with pytest.raises(ConfigError, match=r"data_request.train.data: Both has both collate and collate_image"):
        made("Both")


class Mistaken(Stars):
    """A function for a field that does not exist."""

    def collate_imgae(self, samples: list[Any]) -> Any: ...


class Wrong(Stars):
    """A function that does what a test says."""

    result: Any = None

    def collate_image(self, samples: list[Any]) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


class WrongWhole(Stars):
    """A function that gives no dict."""

    def collate(self, samples: list[Any]) -> Any:
        return [1, 2]


def test_function_for_no_field_is_refused() -> None:
    """A misspelt function would silently do nothing."""
    with pytest.raises(ConfigError, match=r"Mistaken has collate_imgae, but no get_imgae. Did you mean 'image'"):
        made("Stars", dataset_class=f"{__name__}.Mistaken")


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (
            IndexError("far"),
            r"collate_image of 'data' \(Wrong\) failed on a batch of 2 \('s0' to 's1'\): IndexError: far",
        ),
        ({"image": 1, "label": 2}, "returned 'label', which already exists"),
        ({3: 1}, "returned the key 3"),
        ([np.zeros(2), np.zeros(3)], "returned list for 'image', which is not an array"),
    ],
)
def test_function_that_does_something_else_is_named(result: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It raised, it used a name that is taken, it gave no array."""
    monkeypatch.setattr(Wrong, "result", result)
    with pytest.raises(DataError, match=words):
        batch(made("Stars", dataset_class=f"{__name__}.Wrong", fields=["label", "image"]), 0, 1)


def test_function_of_a_dataset_has_to_give_a_dict() -> None:
    """Field by field."""
    with pytest.raises(DataError, match=r"collate of 'data' \(WrongWhole\) returned list. It must return a dict"):
        batch(made("Stars", dataset_class=f"{__name__}.WrongWhole"), 0, 1)
