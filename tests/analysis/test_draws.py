"""Draws with replacement: the same numbers as those of torch, and of damaged weights none."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from tests.analysis.test_shuffle import Batches, blob, cut, items, moved, note, reread, sealed, write

from sonde.analysis import draws
from sonde.analysis.ledger import Book, read_book
from sonde.store.ledger import DRAWN, STATE, WEIGHTED, Recipe, pack_weights, read_recipe, recipe_bytes

torch: Any = pytest.importorskip("torch")

from sonde.hooks.torch import order, weights  # noqa: E402

QUICK = settings(max_examples=60, deadline=None)
SLOW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WEIGHTS = st.one_of(
    st.lists(st.floats(0, 1e300), min_size=1, max_size=40),
    st.lists(st.sampled_from([0.0, 1.0, 0.1, 5e-324]), min_size=1, max_size=400),
    st.builds(lambda seed, count: np.random.RandomState(seed).rand(count).tolist(), st.integers(0, 99), st.integers(1, 9999)),
).filter(lambda found: 0 < sum(found) < 1e307)  # fmt: skip


def stated(generator: Any) -> bytes:
    """The state of a generator, as a recipe has it."""
    found = order._state(generator)
    assert found is not None
    return found


def packed(values: list[float]) -> bytes:
    """Weights as the ledger has them."""
    found = weights.packed(torch.as_tensor(values, dtype=torch.double), sys.maxsize)
    assert found is not None
    return found


def by_weights(values: list[float], total: int, seed: int = 3) -> tuple[Recipe, list[int]]:
    """A recipe, and what torch draws."""
    generator = torch.Generator().manual_seed(seed)
    recipe = Recipe(WEIGHTED, len(values), total, seed=7, state=stated(generator))
    drawn = torch.multinomial(torch.as_tensor(values, dtype=torch.double), total, True, generator=generator)
    return recipe, drawn.tolist()


# ── the numbers of torch ─────────────────────────────────────────────────────────────────────────────────────────────


@QUICK
@given(values=WEIGHTS, total=st.integers(2, 700), seed=st.integers(0, 2**63), before=st.integers(0, 700))
def test_draws_by_weights_are_those_of_torch(values: list[float], total: int, seed: int, before: int) -> None:
    """Zeros, few and many distinct weights, wherever its generator stands."""
    generator = torch.Generator().manual_seed(seed)
    torch.rand(before, generator=generator)
    recipe = Recipe(WEIGHTED, len(values), total, state=stated(generator))
    table = draws.table(packed(values), len(values))
    drawn = torch.multinomial(torch.as_tensor(values, dtype=torch.double), total, True, generator=generator)
    assert draws.make(recipe, table).tolist() == drawn.tolist()


@QUICK
@given(count=st.integers(1, 1 << 26), total=st.integers(1, 500), seed=st.integers(0, 2**63), given=st.booleans())
def test_draws_of_all_items_alike_are_those_of_torch(count: int, total: int, seed: int, given: bool) -> None:
    """By the seed, or by the state of a generator."""
    generator = torch.Generator().manual_seed(seed)
    recipe = Recipe(DRAWN, count, total, seed=seed, state=stated(generator) if given else b"")
    sampler = torch.utils.data.RandomSampler(range(count), True, total, generator=generator)
    assert draws.make(recipe).tolist() == list(sampler)


def test_draws_of_a_large_dataset_are_those_of_torch() -> None:
    """In several pieces; the sums of many weights are not rounded otherwise."""
    values = np.random.RandomState(1).rand(300_000)
    recipe, drawn = by_weights(values.tolist(), 600_000)
    found = draws.make(recipe, draws.table(packed(values.tolist()), 300_000))
    assert np.array_equal(found, drawn)


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


def test_weights_are_kept_once_for_all_rounds(tmp_path: Path) -> None:
    """The first recipe has them, the others say which that is."""
    rounds = [by_weights([1.0, 2.0, 0.0] * 999, 6000, seed) for seed in range(3)]
    batches = [one for number, (_, drawn) in enumerate(rounds) for one in cut(drawn, 400, number)]
    noted = [note(recipe, number) for number, (recipe, _) in enumerate(rounds)]
    content = packed([1.0, 2.0, 0.0] * 999)
    book = sealed(tmp_path, raw(tmp_path, batches, *noted, *pack_weights(0, 7, 2997, content)))
    assert items(book) == batches
    assert moved(book) == len(batches)
    assert [len(recipe) for recipe in book.recipes] == [
        len(recipe_bytes(rounds[0][0])) + more for more in (len(content), 0, 0)
    ]


def test_weights_that_take_more_room_than_the_numbers_are_not_kept(tmp_path: Path) -> None:
    """Of one round there is nothing to gain."""
    values = np.random.RandomState(0).rand(6000).tolist()
    recipe, drawn = by_weights(values, 6000)
    book = raw(tmp_path, cut(drawn, 400), note(recipe), *pack_weights(0, 7, 6000, packed(values)))
    assert sealed(tmp_path, book) == book


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_weights_of_which_a_piece_is_missing_are_none(tmp_path: Path, lost: int) -> None:
    """The numbers stay as they are."""
    values = np.random.RandomState(0).rand(20_000).tolist()
    rounds = [by_weights(values, 60_000, seed) for seed in range(3)]
    batches = [one for number, (_, drawn) in enumerate(rounds) for one in cut(drawn, 4000, number)]
    pieces = pack_weights(0, 7, 20_000, packed(values))
    assert len(pieces) == 3
    del pieces[lost]
    noted = [note(recipe, number) for number, (recipe, _) in enumerate(rounds)]
    book = raw(tmp_path, batches, *noted, *pieces)
    assert sealed(tmp_path, book) == book


def test_two_notes_of_weights_for_one_round_do_no_harm(tmp_path: Path) -> None:
    """One of them is enough, whichever is true."""
    recipe, drawn = by_weights([3.0] * 50, 9000)
    batches, content = cut(drawn, 400), packed([3.0] * 50)
    others = [recipe._replace(items=49), recipe._replace(seed=8), recipe._replace(subset=1), recipe]
    notes = [note(one) for one in (recipe._replace(state=b""), *others)]
    entries = [
        *notes,
        *pack_weights(0, 7, 50, content),
        *pack_weights(0, 8, 50, content),
        *pack_weights(0, 7, 50, content),
    ]
    book = sealed(tmp_path, raw(tmp_path, batches, *entries))
    assert items(book) == batches
    assert moved(book) == len(batches)


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\1\0",
        struct.pack("<I", 2**32 - 1) + bytes(60),
        struct.pack("<I", 0) + bytes(8 * 59),
        struct.pack("<I", 0) + bytes(8 * 60),
        struct.pack("<I", 0) + struct.pack("<d", float("nan")) * 60,
        struct.pack("<I60d", 0, *[1.0] * 60)[::-1],
        struct.pack("<I", 1) + struct.pack("<d", -1.0) + bytes(60),
        struct.pack("<I", 1) + struct.pack("<d", float("inf")) + bytes(60),
        struct.pack("<I", 1) + struct.pack("<d", 1e308) + bytes(60),
        struct.pack("<I", 1) + struct.pack("<d", 1.0) + bytes([1] * 60),
        struct.pack("<I", 70_000) + bytes(8 * 70_000 + 120),
    ],
)
def test_what_are_no_weights_is_no_table(content: bytes) -> None:
    """Cut, beyond their values, negative, not finite, without a sum."""
    assert draws.table(content, 60) is None


def test_weights_of_more_items_than_torch_draws_from_are_none() -> None:
    """Nobody makes a table of any length that a file says."""
    assert draws.table(struct.pack("<Id", 1, 1.0), 2**40) is None


STATED = STATE.pack(624, *range(624))


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1, "state": STATED},
        {"state": b"short"},
        {"state": STATE.pack(700, *range(624)) + b"x"},
        {"subset": 0},
        {"subset": 9},
        {"items": 2**40},
        {"items": 11},
        {"total": 2**60},
        {"total": 7999},
        {"replicas": 2},
        {"kind": DRAWN},
        {"skip": 65535},
    ],
)
def test_a_damaged_recipe_of_draws_is_told_and_gives_no_items(tmp_path: Path, change: dict[str, Any]) -> None:
    """Another state, no weights, sizes that cannot be."""
    recipe, drawn = by_weights([1.0, 2.0] * 5, 8000)
    entries = [note(recipe), *pack_weights(0, 7, 10, packed([1.0, 2.0] * 5))]
    book = sealed(tmp_path, raw(tmp_path, cut(drawn, 400), *entries))
    (good,) = map(read_recipe, book.recipes)
    assert good is not None
    file = tmp_path / "ledger.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT {blob(good._replace(**change))} FROM read_parquet('{file}')")
        connection.execute(f"COPY t TO '{file}' (FORMAT parquet)")
    notes: list[str] = []
    assert [found for _, found in items(reread(tmp_path, notes))] == [None] * 20
    (told,) = notes
    assert "The ledger of p is damaged" in told
