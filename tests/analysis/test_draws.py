"""Draws with replacement of all items alike: the same numbers as those of torch, and what came is what is sealed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from tests.analysis.test_shuffle import Batches, cut, items, moved, note, sealed, write

from sonde.analysis import draws
from sonde.analysis.ledger import Book, read_book
from sonde.store.ledger import DRAWN, Recipe

torch: Any = pytest.importorskip("torch")

from sonde.hooks.torch import order  # noqa: E402

QUICK = settings(max_examples=60, deadline=None)
SLOW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def stated(generator: Any) -> bytes:
    """The state of a generator, as a recipe has it."""
    found = order._state(generator)
    assert found is not None
    return found


# ── the numbers of torch ─────────────────────────────────────────────────────────────────────────────────────────────


@QUICK
@given(count=st.integers(1, 1 << 26), total=st.integers(1, 500), seed=st.integers(0, 2**63), given=st.booleans())
def test_draws_of_all_items_alike_are_those_of_torch(count: int, total: int, seed: int, given: bool) -> None:
    """By the seed, or by the state of a generator."""
    generator = torch.Generator().manual_seed(seed)
    recipe = Recipe(DRAWN, count, total, seed=seed, state=stated(generator) if given else b"")
    sampler = torch.utils.data.RandomSampler(range(count), True, total, generator=generator)
    assert draws.make(recipe).tolist() == list(sampler)


# ── sealing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def raw(folder: Path, batches: Batches, *entries: bytes) -> Book:
    """The ledger with these entries, as it was written."""
    book = read_book(write(folder / "ledger.bin", batches, *entries), [])
    assert book is not None
    return book


@SLOW
@given(
    missing=st.sets(st.integers(0, 20)),
    skip=st.sampled_from([0, 2, 5]),
    ends=st.integers(4000, 6000),
    size=st.integers(200, 700),
    odd=st.booleans(),
)
def test_a_round_of_true_draws_is_sealed_as_places(
    tmp_path_factory: pytest.TempPathFactory, missing: set[int], skip: int, ends: int, size: int, odd: bool
) -> None:
    """Whole or ended early, with other draws before it, without some batches, with one that somebody changed."""
    folder = tmp_path_factory.mktemp("ledger")
    generator = torch.Generator().manual_seed(1)
    recipe = Recipe(DRAWN, 5000, 9000, state=stated(generator))
    torch.randint(9, (skip,), generator=generator)
    drawn = torch.randint(5000, (9000,), generator=generator).tolist()
    batches = [one for one in cut(drawn, size)[: ends // size] if skip == 5 or one[0] not in missing]
    assume(batches)
    if odd:
        batches[-1] = (batches[-1][0], batches[-1][1][::-1])
    book = sealed(folder, raw(folder, batches, note(recipe)))
    assert items(book) == batches
    assert moved(book) in (0, len(batches) - odd)
    assert moved(book) or len(batches) * size < 3000  # then the state of the generator takes as much
