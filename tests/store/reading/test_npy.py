"""Rows of .npy files that nobody vouches for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sonde.store.reading.npy import MOST_BYTES, read_head, read_rows, read_whole


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "uint8", ">f8", "float16"])
def test_rows_are_those_that_were_written(tmp_path: Path, dtype: str, order: Any) -> None:
    """In either order of the bytes in memory, and of any type of number."""
    array = np.asarray(np.arange(24).reshape(4, 2, 3) % 2, dtype, order=order)
    np.save(tmp_path / "a.npy", array)
    rows = read_rows(tmp_path / "a.npy", [3, 0, 4, -1])
    assert list(rows) == [3, 0]
    assert all((rows[place] == array[place]).all() for place in rows)
    assert (read_whole(tmp_path / "a.npy") == array).all()


def test_an_array_without_rows_has_none(tmp_path: Path) -> None:
    """A single number; an array of no length."""
    np.save(tmp_path / "one.npy", np.float64(3))
    np.save(tmp_path / "none.npy", np.zeros((0, 3)))
    assert read_rows(tmp_path / "one.npy", [0]) == {}
    assert read_rows(tmp_path / "none.npy", [0]) == {}
    assert read_whole(tmp_path / "one.npy") == 3


def test_of_a_large_file_only_the_rows_are_read(tmp_path: Path) -> None:
    """It may be larger than what is read at once; a hole in the file takes no disk."""
    path = tmp_path / "a.npy"
    np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(1000, MOST_BYTES // 100)).flush()
    assert read_rows(path, [999])[999].sum() == 0
    with pytest.raises(ValueError, match="over the maximum"):
        read_whole(path)


def test_a_row_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """Before it is read."""
    path = tmp_path / "a.npy"
    np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(2, MOST_BYTES + 1)).flush()
    with pytest.raises(ValueError, match="one row has"):
        read_rows(path, [0])


@pytest.mark.parametrize(
    "array", [np.array([object()]), np.array(["text"]), np.zeros(2, "M8[s]"), np.zeros(2, complex)]
)
def test_what_is_no_number_is_refused(tmp_path: Path, array: Any) -> None:
    """Objects above all."""
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(ValueError, match="not numbers"):
        read_rows(tmp_path / "a.npy", [0])


def test_a_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    """Its head promises more."""
    np.save(tmp_path / "a.npy", np.zeros(100))
    content = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(content[:-8])
    with pytest.raises(ValueError, match="does not match"):
        read_rows(tmp_path / "a.npy", [0])


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 300))
def test_any_bytes_are_an_array_or_an_error(content: bytes, size: int) -> None:
    """And never anything else."""
    head = b"\x93NUMPY\x01\x00" + len(content).to_bytes(2, "little") + content
    try:
        found = read_head(head, size)
    except ValueError:
        return
    assert found.offset <= size
