"""Golden traces: what matches, what does not, and what a person reads then."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import sonde
from sonde import golden
from sonde.capture.result import TraceResult


class Squares(Dataset[dict[str, object]]):
    """Squares and one more."""

    def __init__(self, dtype: torch.dtype = torch.float32, more: float = 0.0) -> None:
        self.dtype, self.more = dtype, more

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, object]:
        return {"x": torch.full((3,), index * index + 1 + self.more, dtype=self.dtype), "name": f"n{index}"}


def traced(dataset: Squares, workers: int = 0) -> TraceResult:
    with sonde.flow.trace(items=2) as trace:
        next(iter(DataLoader(dataset, batch_size=2, num_workers=workers)))
    return trace


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A golden trace of the squares."""
    monkeypatch.setattr(golden, "current", golden.Golden(tmp_path, update=True))
    golden.assert_trace_matches(traced(Squares()), "golden/squares.json")
    monkeypatch.setattr(golden, "current", golden.Golden(tmp_path))
    return tmp_path / "golden" / "squares.json"


def test_the_same_pipeline_matches(file: Path) -> None:
    """Nothing is said."""
    golden.assert_trace_matches(traced(Squares()), file)


def test_loader_workers_change_nothing(file: Path) -> None:
    """The order of calls and their processes do not count."""
    golden.assert_trace_matches(traced(Squares(), workers=2), file)


def test_another_dtype_is_named_with_both(file: Path) -> None:
    """With the stage, the function, the item and the field."""
    with pytest.raises(AssertionError) as found:
        golden.assert_trace_matches(traced(Squares(torch.float64)), file)
    text = str(found.value)
    assert "__getitem__" in text
    assert "item 1" in text
    assert "out.x" in text
    assert "golden  torch.float32" in text or "golden  float32" in text
    assert "pytest --sonde-update" in text


def test_another_value_is_a_difference(file: Path) -> None:
    """Its digest is another one."""
    with pytest.raises(AssertionError, match="digest"):
        golden.assert_trace_matches(traced(Squares(more=1e-6)), file)


def test_a_small_change_is_allowed_by_rtol(file: Path) -> None:
    """Statistics count instead of digests."""
    golden.assert_trace_matches(traced(Squares(more=1e-6)), file, rtol=1e-3)
    with pytest.raises(AssertionError):
        golden.assert_trace_matches(traced(Squares(more=0.5)), file, rtol=1e-3)


def test_a_call_that_is_gone_and_one_that_is_new_are_named(file: Path) -> None:
    """By stage and function."""
    with sonde.flow.trace(items=2) as trace:
        for _ in DataLoader(Squares(), batch_size=2, shuffle=False, sampler=[3, 4]):
            pass
    with pytest.raises(AssertionError) as found:
        golden.assert_trace_matches(trace, file)
    assert "a new call" in str(found.value)
    assert "the new one does not" in str(found.value)


def test_a_missing_file_says_how_to_write_it(tmp_path: Path) -> None:
    """As the first run of a new test needs it."""
    with pytest.raises(AssertionError, match=r"There is no golden trace .* --sonde-update"):
        golden.assert_trace_matches(traced(Squares()), tmp_path / "none.json")


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": 99, "calls": {}}'])
def test_a_file_that_is_no_golden_trace_is_refused(tmp_path: Path, content: str) -> None:
    """And never passes."""
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(AssertionError, match="not a golden trace"):
        golden.assert_trace_matches(traced(Squares()), tmp_path / "bad.json")


def test_the_file_is_json_with_one_value_a_line_and_no_value_in_it(file: Path) -> None:
    """It can be reviewed, and holds no data."""
    text = file.read_text()
    assert json.loads(text)["schema"] == 1
    assert max(map(len, text.split("\n"))) < 250


def test_nan_and_numpy_values_survive_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON has neither."""

    @sonde.flow.trace_func(stage_name="prepare_inputs")
    def stage(x: object) -> object:
        return x

    def once() -> TraceResult:
        with sonde.flow.trace() as trace:
            stage({"nan": float("nan"), "array": np.array([1.0, np.nan]), "none": None, "words": ["a", "b"]})
        return trace

    monkeypatch.setattr(golden, "current", golden.Golden(tmp_path, update=True))
    golden.assert_trace_matches(once(), "nan.json")
    monkeypatch.setattr(golden, "current", golden.Golden(tmp_path))
    golden.assert_trace_matches(once(), "nan.json")


@pytest.mark.soak
def test_two_hundred_repeats_match(file: Path) -> None:
    """A golden trace does not flake, with workers or without."""
    for number in range(200):
        golden.assert_trace_matches(traced(Squares(), workers=2 * (number % 10 == 0)), file)
