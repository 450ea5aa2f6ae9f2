"""Tables of pandas: columns, index, every dtype."""

from __future__ import annotations

from typing import Any

import numpy
import pandas
import pytest

from sonde.capture.show.text import value_text
from sonde.values.note import ARRAY, MAPPING, MISSING
from sonde.values.snapshot import OFF, SUMMARY, Keep, digest, freeze

COLUMNS: dict[str, Any] = {
    "int": pandas.Series([1, 2]),
    "float": pandas.Series([1.0, numpy.nan]),
    "text": pandas.Series(["x", "y"]),
    "text or nothing": pandas.Series(["x", None]),
    "object": pandas.Series([[1], {"a": 2}]),
    "category": pandas.Series(["u", "v"], dtype="category"),
    "time": pandas.to_datetime(pandas.Series(["2020-01-01", None])),
    "time with zone": pandas.to_datetime(pandas.Series(["2020-01-01", "2021-01-01"]), utc=True),
    "duration": pandas.to_timedelta(pandas.Series([1, 2]), unit="s"),
    "nullable": pandas.Series([1, None], dtype="Int64"),
    "nullable, full": pandas.Series([1, 2], dtype="Int64"),
    "bool": pandas.Series([True, False]),
    "interval": pandas.Series(pandas.interval_range(0, 2)),
    "period": pandas.Series(pandas.period_range("2020", periods=2, freq="D")),
}


@pytest.mark.parametrize("keep", [Keep(), SUMMARY, OFF, Keep(limit=0)], ids=["full", "summary", "off", "no room"])
@pytest.mark.parametrize("name", COLUMNS)
def test_any_column_freezes_and_prints(name: str, keep: Keep) -> None:
    """By itself and in a frame."""
    series = COLUMNS[name]
    note = freeze(series, keep).note
    assert (note.kind, note.type, note.shape, note.dtype) == (ARRAY, "pandas.Series", (2,), str(series.dtype))
    frame = freeze(series.to_frame(name), keep).note
    assert [child for child, _ in frame.children] == [name]
    assert value_text(frame)


def test_frame_shows_its_columns() -> None:
    """A frame is a mapping of arrays, and knows its shape."""
    kept = freeze(pandas.DataFrame({"a": [1, 2], "b": [0.5, numpy.nan]}))
    assert (kept.note.kind, kept.note.type, kept.note.shape) == (MAPPING, "pandas.DataFrame", (2, 2))
    assert isinstance(kept.value, dict)
    assert kept.value["a"].tolist() == [1, 2]
    assert dict(kept.note.children)["b"].nonfinite == 1


def test_index_that_says_something_is_shown() -> None:
    """Labels count; the numbers of the rows do not need to be told."""
    frame = pandas.DataFrame({"a": [1, 2]})
    assert [name for name, _ in freeze(frame.set_axis(["p", "q"])).note.children] == ["(index)", "a"]
    assert digest(frame) != digest(frame.set_axis(["p", "q"]))
    assert digest(frame["a"]) != digest(frame.set_axis(["p", "q"])["a"])


def test_columns_of_the_same_name_are_told_apart() -> None:
    """Names may repeat, and may be no texts."""
    kept = freeze(pandas.DataFrame([[1, 2, 3]], columns=["a", "a", 7]))
    assert [name for name, _ in kept.note.children] == ["a", "a.1", "7"]


def test_several_levels_of_labels() -> None:
    """A MultiIndex prints."""
    labels = pandas.MultiIndex.from_tuples([(1, "a"), (1, "b")])
    assert freeze(labels).note.shape == (2,)
    assert value_text(freeze(pandas.DataFrame([[1, 2]], columns=labels)).note)


def test_later_changes_do_not_show() -> None:
    """The copy is a snapshot."""
    frame = pandas.DataFrame({"a": [1, 2]})
    kept = freeze(frame)
    frame.loc[0, "a"] = 100
    assert isinstance(kept.value, dict)
    assert kept.value["a"].tolist() == [1, 2]


def test_content_order_and_names_count() -> None:
    """Different frames have different digests, equal ones the same."""
    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    others = [frame.iloc[::-1].reset_index(drop=True), frame.rename(columns={"a": "c"}), frame[["b", "a"]], frame[:1]]
    assert digest(frame) == digest(frame.copy())
    assert len({digest(one) for one in (frame, *others)}) == 5


def test_series_of_numbers_has_the_digest_of_its_array() -> None:
    """The library does not count."""
    assert digest(pandas.Series([1.0, 2.0])) == digest(numpy.array([1.0, 2.0]))
    assert digest(pandas.Series([1, 2], dtype="Int64")) == digest(numpy.array([1, 2]))


def test_empty_frame() -> None:
    """Nothing is something."""
    kept = freeze(pandas.DataFrame())
    assert (kept.note.shape, kept.value) == ((0, 0), {})
    assert freeze(pandas.DataFrame(), SUMMARY).value is MISSING
