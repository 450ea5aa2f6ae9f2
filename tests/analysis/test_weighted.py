"""Draws by weights, kept without the weights: what is sealed is what was delivered, and damage invents nothing."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from tests.analysis.test_draws import raw, stated
from tests.analysis.test_shuffle import blob, cut, items, moved, note, reread, sealed

from sonde.analysis import ledger, weighted
from sonde.analysis.shuffle import Orders
from sonde.store.ledger import DRAWN, SORTED, STATE, WEIGHTED, Recipe, read_recipe, recipe_bytes

torch: Any = pytest.importorskip("torch")

QUICK = settings(max_examples=60, deadline=None)
SLOW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WEIGHTS = st.one_of(
    st.lists(st.floats(0, 1e300), min_size=1, max_size=40),
    st.lists(st.sampled_from([0.0, 1.0, 0.1, 5e-324]), min_size=1, max_size=400),
    st.builds(lambda seed, count: np.random.RandomState(seed).rand(count).tolist(), st.integers(0, 99), st.integers(1, 9999)),
).filter(lambda found: 0 < sum(found) < 1e307)  # fmt: skip


def drawn(values: list[float], total: int, seed: int = 3, skip: int = 0, kind: Any = None) -> tuple[Recipe, list[int]]:
    """A recipe, and what torch draws when so many words of its generator were used before."""
    generator = torch.Generator().manual_seed(seed)
    recipe = Recipe(WEIGHTED, len(values), total, state=stated(generator))
    torch.randint(9, (skip,), generator=generator)
    weights = torch.as_tensor(values, dtype=kind or torch.double)
    return recipe, torch.multinomial(weights, total, True, generator=generator).tolist()


def learnt(recipe: Recipe, came: list[int]) -> weighted.Spans:
    """What all draws of a round tell."""
    found = weighted.learn(recipe, np.arange(len(came)), np.array(came))
    assert found is not None
    return found


# ── the numbers of torch ─────────────────────────────────────────────────────────────────────────────────────────────


@QUICK
@given(values=WEIGHTS, total=st.integers(2, 700), seed=st.integers(0, 2**63), single=st.booleans())
def test_what_torch_draws_by_weights_follows_its_fractions(
    values: list[float], total: int, seed: int, single: bool
) -> None:
    """Zeros, few and many distinct weights, of both types."""
    assume(not single or 1e-30 < sum(values) < 1e30)
    recipe, came = drawn(values, total, seed, kind=torch.float if single else None)
    assert weighted.make(recipe, learnt(recipe, came)).tolist() == came


def test_draws_of_a_large_dataset_are_those_of_torch() -> None:
    """In several pieces."""
    recipe, came = drawn(np.random.RandomState(1).rand(300_000).tolist(), 600_000)
    assert np.array_equal(weighted.make(recipe, learnt(recipe, came)), came)


def test_a_draw_that_no_weights_give_tells_nothing() -> None:
    """Two items that changed their places, one that does not exist, one that was never drawn."""
    recipe, came = drawn([1.0, 2.0, 3.0] * 20, 500)
    steps, other = np.arange(500), np.array(came)
    other[[3, 4]] = other[[4, 3]]
    assert weighted.learn(recipe, steps, other) is None
    assert weighted.learn(recipe, steps, np.array(came) + 1) is None
    assert weighted.learn(recipe, steps, np.array(came) - 1) is None
    assert weighted.learn(recipe, steps + 1, np.array(came)) is None


def test_rounds_by_the_same_weights_tell_more_together() -> None:
    """And those by others contradict each other."""
    values = np.random.RandomState(0).rand(400).tolist()
    one, other, strange = (drawn(of, 900, seed) for of, seed in ((values, 1), (values, 2), (values[::-1], 3)))
    both = weighted.merge(learnt(*one), learnt(*other))
    assert both is not None
    assert [weighted.make(recipe, both).tolist() for recipe, _ in (one, other)] == [one[1], other[1]]
    assert weighted.merge(both, learnt(*strange)) is None


# ── as bytes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@QUICK
@given(
    numbers=st.one_of(
        st.lists(st.integers(0, 2**26 - 1), min_size=1, max_size=300),
        st.lists(st.integers(0, 40), min_size=1, max_size=900),
        st.lists(st.sampled_from([0, 999, 1000]), min_size=1, max_size=90),
    ),
    beyond=st.sampled_from([0, 1, 100, 2**25]),
    parts=st.integers(1, 4),
)
def test_any_sorted_draws_come_back_from_their_bytes(numbers: list[int], beyond: int, parts: int) -> None:
    """Of one round or of several, each number many times, or few of many."""
    count = max(numbers) + 1 + beyond
    whole = [numbers[part::parts] for part in range(min(parts, len(numbers)))]
    first = Recipe(SORTED, count, 1, state=STATE.pack(624, *range(624)))
    rounds = [first._replace(total=len(part), skip=2000 * place) for place, part in enumerate(whole)]
    fractions = np.concatenate([weighted._fractions(one, one.total) for one in rounds])
    order = np.empty(len(numbers), np.uint32)
    order[np.argsort(fractions)] = sorted(numbers)
    spans = weighted.unpacked(weighted.packed([order], count), rounds)
    assert spans is not None
    assert np.concatenate([weighted.make(one, spans) for one in rounds]).tolist() == order.tolist()


@QUICK
@given(data=st.data())
def test_damaged_draws_give_the_true_items_or_none(data: st.DataObject) -> None:
    """Cut, longer, with other bytes: what comes out is compared with the check of the recipe."""
    values = data.draw(st.sampled_from([[1.0, 2.0] * 5, np.random.RandomState(0).rand(9000).tolist()]))
    recipe, came = drawn(values, 600)
    good = recipe._replace(kind=SORTED, subset=1, check=zlib.crc32(np.array(came, "<u4").tobytes()))
    content = bytearray(weighted.packed([np.array(came, np.uint32)], len(values)))
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=3)):
        content[place] = data.draw(st.integers(0, 255))
    content = (content + data.draw(st.binary(max_size=3)))[: data.draw(st.integers(0, len(content) + 3))]
    notes: list[str] = []
    order = Orders([recipe_bytes(good._replace(state=good.state + bytes(content)))], "p", notes).order(1)
    assert order is None or order.tolist() == came
    assert ["damaged" in one for one in notes] == ([True] if order is None else [])


# ── sealing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@SLOW
@given(
    missing=st.sets(st.integers(0, 20)),
    skip=st.sampled_from([0, 2, 5, 15]),
    ends=st.integers(4000, 6000),
    size=st.integers(200, 700),
    different=st.booleans(),
)
def test_a_round_by_weights_is_sealed_as_places(
    tmp_path_factory: pytest.TempPathFactory, missing: set[int], skip: int, ends: int, size: int, different: bool
) -> None:
    """Whole or ended early, with other draws before it, without some batches."""
    folder = tmp_path_factory.mktemp("ledger")
    values = np.random.RandomState(0).rand(5000).tolist() if different else [1.0, 0.0, 2.0] * 900
    recipe, came = drawn(values, 9000, skip=skip)
    batches = [one for one in cut(came, size)[: ends // size] if one[0] not in missing]
    assume(len(batches) * size > 3500)  # else the state of the generator takes as much
    book = sealed(folder, raw(folder, batches, note(recipe)))
    assert items(book) == batches
    assert moved(book) == len(batches)


def epochs(folder: Path, *weights: list[float], total: int = 6000) -> ledger.Book:
    """The sealed ledger of one epoch by each of these weights, all batches as places."""
    rounds = [drawn(values, total, seed) for seed, values in enumerate(weights)]
    batches = [one for number, (_, came) in enumerate(rounds) for one in cut(came, 400, number)]
    noted = [note(recipe, number) for number, (recipe, _) in enumerate(rounds)]
    book = sealed(folder, raw(folder, batches, *noted))
    assert items(book) == batches
    assert moved(book) == len(batches)
    return book


def holders(book: ledger.Book) -> list[int]:
    """For each recipe the number of the one that has its draws."""
    return [one.subset for one in map(read_recipe, book.recipes) if one is not None]


def test_epochs_by_the_same_weights_are_kept_together(tmp_path: Path) -> None:
    """The first recipe has the draws of all; together they take less room than one by one."""
    values = np.random.RandomState(0).rand(3000).tolist()
    book = epochs(tmp_path, values, values, values)
    first, *others = (len(recipe) - len(recipe_bytes(Recipe(0, 0, 0))) - STATE.size for recipe in book.recipes)
    assert holders(book) == [1, 1, 1]
    assert others == [0, 0]
    assert first <= (3 * 6000 + 3000) / 8 + 1


def test_other_weights_or_another_number_of_items_begin_a_new_group(tmp_path: Path) -> None:
    """What came before stays as it is."""
    values = np.random.RandomState(0).rand(3000).tolist()
    book = epochs(tmp_path, values, values, values[::-1], [*values, 1.0], [*values, 1.0])
    assert holders(book) == [1, 1, 3, 4, 4]


def test_a_group_has_no_more_draws_than_can_be_sorted_quickly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for one round makes all of them."""
    monkeypatch.setattr(ledger, "MOST_TOGETHER", 12_000)
    assert holders(epochs(tmp_path, *[[1.0, 2.0, 0.0] * 999] * 5)) == [1, 1, 3, 3, 5]


def test_a_group_is_sorted_once_for_all_its_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many orders are asked for."""
    book = epochs(tmp_path, *[[1.0, 2.0, 0.0] * 999] * 7)
    made: list[int] = []
    original = weighted.unpacked

    def counting(content: bytes, rounds: list[Recipe]) -> Any:
        made.append(len(rounds))
        return original(content, rounds)

    monkeypatch.setattr(weighted, "unpacked", counting)
    assert items(reread(tmp_path)) == items(book)
    assert made == [7]


def test_two_loaders_that_take_turns_have_groups_of_their_own(tmp_path: Path) -> None:
    """Training and checking."""
    rounds = [drawn([1.0 + place % 2, 2.0] * 500, 6000, place) for place in range(4)]
    named = [(place // 2, place % 2) for place in range(4)]
    batches = [
        one for (_, came), (round, loader) in zip(rounds, named, strict=True) for one in cut(came, 400, round, loader)
    ]
    noted = [note(recipe, *where) for (recipe, _), where in zip(rounds, named, strict=True)]
    book = sealed(tmp_path, raw(tmp_path, batches, *noted))
    assert items(book) == batches
    assert holders(book) == [1, 1, 3, 3]


def test_a_round_that_was_drawn_otherwise_stays_as_it_is(tmp_path: Path) -> None:
    """Another generator, or a batch that somebody changed; the rounds beside it are sealed all the same."""
    values = [1.0, 2.0, 0.0] * 999
    rounds = [drawn(values, 6000, seed) for seed in range(4)]
    batches = [cut(came, 400, number) for number, (_, came) in enumerate(rounds)]
    batches[2][5] = (batches[2][5][0], batches[2][5][1][::-1])
    wrong = rounds[1][0]._replace(state=rounds[0][0].state)
    noted = [note(recipe, number) for number, recipe in enumerate([rounds[0][0], wrong, rounds[2][0], rounds[3][0]])]
    whole = [one for each in batches for one in each]
    book = sealed(tmp_path, raw(tmp_path, whole, *noted))
    assert items(book) == whole
    assert moved(book) == 30
    assert holders(book) == [1, 1]


def test_a_short_round_takes_less_room_as_it_is(tmp_path: Path) -> None:
    """The state of the generator takes more than a thousand numbers."""
    recipe, came = drawn(np.random.RandomState(0).rand(6000).tolist(), 6000)
    book = raw(tmp_path, cut(came[:1000], 100), note(recipe))
    assert sealed(tmp_path, book) == book


def test_several_notes_for_one_round_do_no_harm(tmp_path: Path) -> None:
    """One of them is enough, whichever is true; pieces of weights that earlier versions wrote are passed by."""
    recipe, came = drawn([3.0] * 50, 9000)
    batches = cut(came, 400)
    others = [
        recipe._replace(items=49),
        recipe._replace(state=b""),
        recipe._replace(kind=5),
        recipe._replace(seed=8),
        recipe,
    ]
    book = sealed(tmp_path, raw(tmp_path, batches, *map(note, others)))
    assert items(book) == batches
    assert moved(book) == len(batches)


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def damaged(folder: Path, change: dict[str, Any]) -> list[str]:
    """Seal a round, change its recipe; the notes of whoever reads it. The items must not be told."""
    recipe, came = drawn([1.0, 2.0] * 5, 8000)
    book = sealed(folder, raw(folder, cut(came, 400), note(recipe)))
    (good,) = map(read_recipe, book.recipes)
    assert good is not None
    file = folder / "ledger.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT {blob(good._replace(**change))} FROM read_parquet('{file}')")
        connection.execute(f"COPY t TO '{file}' (FORMAT parquet)")
    notes: list[str] = []
    assert [found for _, found in items(reread(folder, notes))] == [None] * 20
    return notes


@pytest.mark.parametrize(
    "change",
    [
        {"state": STATE.pack(624, *range(624))},
        {"state": STATE.pack(624, *range(624)) + bytes(2000)},
        {"state": STATE.pack(624, *range(624)) + b"\xff" * 2000},
        {"state": b"short"},
        {"state": STATE.pack(700, *range(624)) + b"x"},
        {"subset": 0},
        {"subset": 9},
        {"items": 2**40},
        {"items": 9},
        {"total": 2**60},
        {"total": 2**26},
        {"total": 7999},
        {"replicas": 2},
        {"kind": DRAWN},
        {"skip": 65535},
    ],
)
def test_a_damaged_recipe_of_draws_is_told_and_gives_no_items(tmp_path: Path, change: dict[str, Any]) -> None:
    """Another state, no draws, sizes that cannot be."""
    (told,) = damaged(tmp_path, change)
    assert "The ledger of p is damaged" in told


def test_draws_that_were_sealed_with_their_weights_are_told(tmp_path: Path) -> None:
    """Versions before the first release did that; no items are invented."""
    (told,) = damaged(tmp_path, {"kind": WEIGHTED})
    assert "does not know (4)" in told
