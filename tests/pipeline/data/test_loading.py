"""The order of items: each once, over all batches and ranks, and the same for the same seed and epoch."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from sonde.pipeline.data.loading import Order
from sonde.pipeline.training.distributed import World

counts = st.integers(0, 40)
sizes = st.integers(1, 7)
worlds = st.integers(1, 5)


def orders(count: int, size: int, ranks: int, **more: bool) -> list[Order]:
    """The orders of all ranks."""
    return [Order(range(count), size, World(rank, ranks), **more).shuffled(3) for rank in range(ranks)]


@given(counts, sizes, worlds)
def test_every_item_is_visited_once_over_all_ranks(count: int, size: int, ranks: int) -> None:
    """Whatever their number; no batch is larger than asked for, and none is empty."""
    found = [list(order) for order in orders(count, size, ranks)]
    assert sorted(index for batches in found for batch in batches for index in batch) == list(range(count))
    assert all(0 < len(batch) <= size for batches in found for batch in batches)


@given(counts, sizes, worlds)
def test_all_ranks_have_the_same_number_of_steps(count: int, size: int, ranks: int) -> None:
    """A rank without items takes part in the step; how many batches it has it knows beforehand."""
    found = orders(count, size, ranks)
    assert len({len(order) for order in found}) == 1
    assert all(len(list(order)) == order.filled() <= len(order) for order in found)
    assert not found or max(order.filled() for order in found) == len(found[0])


@given(counts, sizes, worlds)
def test_drop_last_leaves_only_whole_batches(count: int, size: int, ranks: int) -> None:
    """On every rank."""
    found = [list(order) for order in orders(count, size, ranks, drop_last=True)]
    assert all(len(batch) == size for batches in found for batch in batches)
    assert len({len(batches) for batches in found}) == 1


def test_order_follows_from_seed_and_epoch() -> None:
    """Which is what lets a run be resumed."""
    one, other = Order(range(50), 50).shuffled(1), Order(range(50), 50).shuffled(1)
    assert list(one) == list(one) == list(other)
    other.epoch = 1
    assert list(one) != list(other)
    assert list(one) != list(Order(range(50), 50).shuffled(2))


def test_weights_draw_with_replacement() -> None:
    """As many as there are items, by their share."""
    order = Order(range(4), 4).shuffled(0, np.array([0.0, 0.5, 0.5, 0.0]))
    assert all(set(batch) <= {1, 2} and len(batch) == 4 for batch in order)
