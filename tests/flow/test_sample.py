"""A look at a batch: its parts, its size, and a digest that tells whether it was changed."""

from __future__ import annotations

from collections import UserDict, namedtuple
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from sonde.flow.sample import MOST_PARTS, WHOLE, changed, look, parts_of

Pair = namedtuple("Pair", "image label")  # noqa: PYI024  as programs have it


def ways(data: Any, *exclude: str) -> list[tuple[Any, ...]]:
    """The ways to the parts of a batch."""
    return [way for way, _ in parts_of(data, exclude)]


def test_parts_are_found_in_the_usual_containers() -> None:
    """Tuples, lists, dicts, what is like a dict, and named tuples; lists of texts are one part."""
    x = torch.ones(2)
    assert ways([x, x]) == [(0,), (1,)]
    assert ways((7, x)) == [(0,), (1,)]
    assert ways({"a": x, "ids": ["p", "q"]}) == [("a",), ("ids",)]
    assert ways(UserDict(a=x)) == [("a",)]
    assert ways(Pair(x, [x])) == [("image",), ("label", 0)]
    assert ways(x) == [()]
    assert ways(["p", "q"]) == [()]


def test_excluded_names_are_left_out_at_any_depth() -> None:
    """Their values are not looked at."""
    assert ways({"a": {"patient": torch.ones(1), "b": 1}, "patient": 2}, "patient") == [("a", "b")]


def test_parts_are_bounded() -> None:
    """However many there are, and however deep."""
    deep: Any = [torch.ones(1)]
    for _ in range(50):
        deep = [deep]
    assert len(parts_of(deep)) == 1
    assert len(parts_of([torch.ones(1)] * 1000)) == MOST_PARTS


def test_a_small_batch_is_read_whole_and_a_large_one_by_a_sample() -> None:
    """The look says which."""
    small, large = look(parts_of([torch.ones(10)])), look(parts_of([torch.ones(WHOLE)]))
    assert (small.whole, small.size) == (True, 40)
    assert (large.whole, large.size) == (False, 4 * WHOLE)
    assert None not in (small.digest, large.digest)


@pytest.mark.parametrize("place", [0, 5, -1])
def test_any_change_of_a_small_array_is_seen(place: int) -> None:
    """Also one of which torch knows nothing."""
    memory = np.arange(100.0)
    parts = parts_of({"a": torch.from_numpy(memory), "b": 3})
    before = look(parts)
    assert changed(parts, before) is False
    memory[place] += 1
    assert changed(parts, before) is True


def test_a_change_by_torch_is_seen_wherever_it_is() -> None:
    """A sample would miss it; the count of changes does not."""
    x = torch.zeros(WHOLE * 10)
    parts = parts_of([x])
    before = look(parts)
    x[WHOLE // 2 + 1] = 1
    assert look(parts).digest == before.digest
    assert changed(parts, before) is True


def test_a_buffer_that_is_filled_anew_is_seen_by_the_sample() -> None:
    """As by a loader of one's own that uses its memory again."""
    memory = np.zeros(WHOLE * 10, np.float32)
    parts = parts_of([torch.from_numpy(memory)])
    before = look(parts)
    memory[:] = 1
    assert changed(parts, before) is True


def test_tensors_of_all_kinds_are_taken() -> None:
    """What cannot be read has no digest, and does not fail."""
    with torch.inference_mode():
        quiet = torch.ones(3)
    unusual = [
        torch.ones(3, requires_grad=True),
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, 3).to_sparse(),
        torch.ones(3, device="meta"),
        torch.ones(3, dtype=torch.complex64).conj(),
        torch.ones(4, 4).t(),
        torch.tensor(1.0),
        torch.empty(0),
        torch.nn.Parameter(torch.ones(2)),
        quiet,
        np.array(["a", None], dtype=object),
        np.ones((4, 4))[:, ::2],
    ]
    for one in unusual:
        seen = look(parts_of([one]))
        assert changed(parts_of([one]), seen) in (False, None)
    assert look(parts_of([torch.ones(3, dtype=torch.bfloat16)])).digest is not None
    assert look(parts_of([torch.ones(3, requires_grad=True)])).digest is not None
    assert look(parts_of([torch.ones(3, device="meta")])).elsewhere


def test_without_arrays_nothing_can_be_told() -> None:
    """No digest is not the same as an equal one."""
    parts = parts_of({"text": ["a", "b"]})
    assert look(parts).digest is None
    assert changed(parts, look(parts)) is None
