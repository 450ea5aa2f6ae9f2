"""Values that dumps of the black box have: of an item, of a batch, and as whole arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.analysis.boxes import batch, certificate, write_dump

from sonde.analysis.run import open_run
from sonde.errors import UnknownName
from sonde.testing import build_training
from sonde.views.itemvalues import MOST_NUMBERS, ArrayPlace, values_of_batch, values_of_item, whole_array

BAD = 2  # the position of the item that went wrong


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A training whose batch 7 is in a dump: four pictures of three colours, a curve and a number for each item."""
    path = build_training(tmp_path / "run", steps=12)
    pictures = np.linspace(0, 1, 4 * 3 * 16 * 16, dtype=np.float32).reshape(4, 3, 16, 16)
    pictures[BAD, 1, 5, 6] = np.nan
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "image": pictures,
        "curve": np.linspace(0, 1, 400).reshape(4, 100),
        "label": np.arange(4),
    }
    told = certificate(items=[{"position": BAD, "index": 702, "id": "cat"}], batch=None)
    kept = batch(7, arrays, ids=["a", "b", "cat", "d"])
    told["batch"] = kept[0]["key"]
    write_dump(path, "nonfinite", [kept], nonfinite=told, rank=0)
    return path


@pytest.mark.parametrize(("index", "id"), [(702, None), (None, "cat")])
def test_an_item_has_its_values_by_index_and_by_name(run: Path, index: int | None, id: str | None) -> None:
    """A picture, a curve and a number, each with what is wrong in it."""
    with open_run(run) as opened:
        image, curve, label = values_of_item(opened, index, id)
    assert (image.value.path, image.value.shape, image.value.nonfinite, image.dtype) == (
        "image",
        (3, 16, 16),
        1,
        "float32",
    )
    assert image.value.picture is not None
    assert curve.value.curve is not None
    assert label.value.numbers == ["2"]
    assert "black box 000-nonfinite" in image.source


def test_an_item_that_no_dump_has_has_no_values(run: Path) -> None:
    """Nothing is made up."""
    with open_run(run) as opened:
        assert values_of_item(opened, 3, None) == []


def test_a_batch_has_a_picture_of_each_item_and_names_the_one_that_went_wrong(run: Path) -> None:
    """By rank, loader, round and number."""
    with open_run(run) as opened:
        found = values_of_batch(opened, 0, 0, 0, 7)
        assert found is not None
        assert set(found.pictures) == {0, 1, 2, 3}
        assert found.guilty == [BAD]
        assert values_of_batch(opened, 0, 0, 0, 8) is None
        assert values_of_batch(opened, 1, 0, 0, 7) is None


def test_a_whole_array_has_every_number_of_an_image(run: Path) -> None:
    """Colours stand last, and NaN is NaN."""
    with open_run(run) as opened:
        found = whole_array(opened, ArrayPlace("000-nonfinite-testhost-1000", 0, 0, BAD))
    assert found.numbers.shape == (16, 16, 3)
    assert (found.is_image, found.shape, found.dtype, found.stride) == (True, (3, 16, 16), "float32", 1)
    assert np.argwhere(np.isnan(found.numbers)).tolist() == [[5, 6, 1]]


def test_a_large_array_is_thinned(tmp_path: Path) -> None:
    """An answer stays small, and says what is missing."""
    path = build_training(tmp_path / "run", steps=12)
    write_dump(path, "demand", [batch(1, {"image": np.zeros((1, 1200, 1200), np.float32)})])
    with open_run(path) as opened:
        found = whole_array(opened, ArrayPlace("000-demand-testhost-1000", 0, 0, 0))
    assert found.stride == 3
    assert found.numbers.size <= MOST_NUMBERS


@pytest.mark.parametrize(
    "place",
    [ArrayPlace("../x", 0, 0, 0), ArrayPlace("000-nonfinite-testhost-1000", 9, 0, 0), ArrayPlace("000-nonfinite-testhost-1000", 0, 9, 0),
     ArrayPlace("000-nonfinite-testhost-1000", 0, 0, 99)],
)  # fmt: skip
def test_an_array_that_is_not_there_is_an_unknown_name(run: Path, place: ArrayPlace) -> None:
    """Whatever is asked for, nothing outside the dumps is read."""
    with open_run(run) as opened, pytest.raises(UnknownName):
        whole_array(opened, place)
