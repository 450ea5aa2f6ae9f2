"""The data format at each stage: one test for each row of the table in docs/explanation/data-flow.md that is about data."""

from __future__ import annotations

import numpy as np
from tests.pipeline.stars import batch, joined, made


def test_getter_gives_an_array_a_scalar_or_a_text() -> None:
    """Row "dataset.get_*(idx)": a single item."""
    dataset = made("Stars").datasets["data"]
    assert isinstance(dataset.get_image(0), np.ndarray)
    assert isinstance(dataset.get_label(0), int)
    assert isinstance(dataset.get_name(0), str)


def test_before_collate_there_is_a_list_of_nested_dicts() -> None:
    """Row "before collate": {source: {field: value}, "object_id": text}."""
    provider = joined()
    items = [provider[index] for index in range(3)]
    for item in items:
        assert set(item) == {"data", "spec", "object_id"}
        assert set(item["data"]) == {"image", "label", "name"}
        assert type(item["object_id"]) is str


def test_after_collate_there_is_a_dict_of_arrays_of_the_whole_batch() -> None:
    """Row "after collate, before prepare_inputs": {source: {field: array}}, each with a row for each item."""
    found = batch(joined(), 0, 1, 2)
    assert set(found) == {"object_id", "data", "spec", "spec__matched"}
    arrays = [found["object_id"], found["spec__matched"], *found["data"].values(), *found["spec"].values()]
    assert all(type(array) is np.ndarray and len(array) == 3 for array in arrays)
