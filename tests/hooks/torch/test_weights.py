"""The weights of samplers: all of them come back from their bytes, and what nobody could use is left alone."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

torch: Any = pytest.importorskip("torch")

from sonde.analysis.draws import _weights as unpacked  # noqa: E402
from sonde.hooks.torch import weights  # noqa: E402

QUICK = settings(max_examples=60, deadline=None)


def back(values: Any) -> tuple[Any, int]:
    """The weights as they are read again, and how many bytes they took."""
    content = weights.packed(torch.as_tensor(values, dtype=torch.double), sys.maxsize)
    assert content is not None
    return unpacked(content, len(values)), len(content)


def same(values: Any) -> int:
    """How many bytes some weights take, bit for bit."""
    found, size = back(values)
    assert found.tobytes() == np.asarray(values, np.float64).tobytes()
    return size


@QUICK
@given(
    st.one_of(
        st.lists(st.floats(), min_size=1, max_size=50),
        st.lists(st.sampled_from([0.0, -0.0, 1.5, float("nan")]), min_size=1, max_size=3000),
    )
)
def test_all_weights_come_back(values: list[float]) -> None:
    """Whatever they are."""
    same(values)


@pytest.mark.parametrize(("classes", "expected"), [(1, 1), (256, 1), (257, 2), (5000, 2), (50_000, 8)])
def test_few_distinct_weights_take_few_bytes(classes: int, expected: int) -> None:
    """One for each up to 256 values, two up to some thousands, as they are if that is less."""
    values = np.random.RandomState(1).rand(classes)[np.random.RandomState(2).randint(0, classes, 200_000)]
    assert same(values) // 200_000 == expected


def test_rare_weights_that_no_sample_sees() -> None:
    """They are found when all are looked up."""
    values = np.ones(300_000)
    values[100_001:100_050] = np.arange(49)
    assert same(values) < 301_000


def test_weights_that_take_too_much_room_are_none() -> None:
    """Three of two values are 23 bytes."""
    some = torch.tensor([1.0, 2.0, 1.0], dtype=torch.double)
    assert weights.packed(some, 22) is None
    assert len(weights.packed(some, 23) or b"") == 23


@pytest.mark.parametrize("each", [8, 9, 11])
def test_many_rare_weights_are_kept_as_they_are(each: int) -> None:
    """Most of them one class, one in so many all different: whether a sample has too many, or lacks too many."""
    values = np.where(np.arange(200_000) % each, 1.0, np.arange(200_000))
    assert same(values) == 4 + 8 * 200_000


@QUICK
@given(count=st.integers(2, 5000), places=st.tuples(st.integers(0, 4999), st.integers(0, 4999)))
def test_other_weights_or_another_order_have_another_digest(count: int, places: tuple[int, int]) -> None:
    """Two that change their places, in a row or elsewhere; and one that is another."""
    one, other = (place % count for place in places)
    plain = torch.arange(count, dtype=torch.double)
    before = weights.digest(plain)
    plain[[one, other]] = plain[[other, one]]
    assert (weights.digest(plain) == before) == (one == other)
    plain[one] += 0.5
    assert weights.digest(plain) != before


def test_a_digest_is_that_of_the_numbers() -> None:
    """However they lie in memory."""
    spread = torch.ones(1, dtype=torch.double).expand(3000)
    assert weights.digest(torch.ones(3000, dtype=torch.double)) == weights.digest(spread)


@pytest.mark.parametrize(
    "strange",
    [
        None,
        [1.0],
        torch.ones(3),
        torch.ones(0, dtype=torch.double),
        torch.ones(3, 3, dtype=torch.double),
        torch.ones(3, dtype=torch.double, device="meta"),
        torch.nn.Parameter(torch.ones(3, dtype=torch.double)),
    ],
)
def test_other_things_are_no_weights(strange: Any) -> None:
    """Of another type, shape or device than torch draws from."""
    assert weights.digest(strange) is None
    assert weights.packed(strange, 99) is None


def test_without_numpy_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recording loads no library of its own accord."""
    monkeypatch.delitem(sys.modules, "numpy")
    assert weights.packed(torch.ones(3, dtype=torch.double), 99) is None
