"""Orders that are kept as recipes: what is sealed is what was delivered, and a recipe that lies or breaks invents nothing."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sonde.analysis import shuffle
from sonde.analysis.ledger import Book, Ledgers, read_book, write_sealed
from sonde.analysis.run import open_run
from sonde.analysis.seal import seal
from sonde.errors import ReplayError
from sonde.replay import replay
from sonde.store.ledger import SEEDED, STATE, STATED, Packer, Recipe, Writer, pack_recipe, pack_text, recipe_bytes
from sonde.store.probe import batch_key
from sonde.testing import build_training

QUICK = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
BATCHES = "SELECT loader, round, batch, step, indices FROM batches ORDER BY ALL"
Batches = list[tuple[int, list[int]]]


def reference(seed: int, count: int) -> list[int]:
    """The order of a seed by the book, number by number."""
    draws = np.random.RandomState(seed & 0xFFFFFFFF)
    order = list(range(count))
    for place in range(count - 1):
        other = place + int(draws.randint(0, 2**32, dtype=np.uint32)) % (count - place)
        order[place], order[other] = order[other], order[place]
    return order


def cut(order: list[int], size: int, round: int = 0, loader: int = 0) -> Batches:
    """The batches of a round, by their keys."""
    return [
        (batch_key(loader, round, number // size), order[number : number + size])
        for number in range(0, len(order), size)
    ]


def write(path: Path, batches: Batches, *first: bytes) -> Path:
    """A ledger that begins with these entries."""
    writer = Writer(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), lambda _: True)
    packer = Packer()
    for entry in first:
        writer.put(entry, 0)
    for key, items in batches:
        writer.put(packer.batch(key, tuple(items)) or b"")
    writer.close()
    return path


def sealed(folder: Path, raw: Book | None, notes: list[str] | None = None) -> Book:
    """The ledger as it is read when it was sealed."""
    assert raw is not None
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")  # as sealing does: rows keep their order
        write_sealed(connection, [("p", raw)], folder / "ledger.parquet")
    return reread(folder, notes)


def reread(folder: Path, notes: list[str] | None = None) -> Book:
    """The sealed ledger."""
    ledgers = Ledgers()
    ledgers.add_sealed("p", folder / "ledger.parquet", "p", [] if notes is None else notes)
    book = ledgers.book("p")
    assert book is not None
    return book


def items(book: Book) -> list[tuple[int, list[int] | None]]:
    """All batches, in their order."""
    return [(key, book.indices(key)) for key in book.key.tolist()]


def moved(book: Book) -> int:
    """How many batches are places in an order."""
    return int((book.shuffle > 0).sum())


def note(recipe: Recipe, round: int = 0, loader: int = 0) -> bytes:
    """The entry of a recipe."""
    return pack_recipe(batch_key(loader, round, 0), recipe)


# ── what is true ─────────────────────────────────────────────────────────────────────────────────────────────────────


@QUICK
@given(
    count=st.integers(2, 300),
    seed=st.integers(0, 2**64 - 1),
    size=st.integers(2, 40),
    missing=st.sets(st.integers(0, 100)),
    ends=st.integers(1, 300),
)
def test_a_round_of_a_true_recipe_is_sealed_as_places(
    tmp_path_factory: pytest.TempPathFactory, count: int, seed: int, size: int, missing: set[int], ends: int
) -> None:
    """Whole, ended early, or with batches that are not there."""
    folder = tmp_path_factory.mktemp("ledger")
    batches = [one for one in cut(reference(seed, count)[:ends], size) if one[0] not in missing]
    path = write(folder / "ledger.bin", batches, note(Recipe(SEEDED, count, count, seed=seed)))
    raw = read_book(path, [])
    if raw is None:
        return
    book = sealed(folder, raw)
    assert items(book) == items(raw) == batches
    assert moved(book) == len(batches)
    assert [int(number) for number in np.diff(book.start)] == [1] * len(batches)


@QUICK
@given(
    noted=st.lists(
        st.builds(
            Recipe,
            st.integers(0, 6),
            st.integers(-3, 60),
            st.integers(-3, 90),
            st.integers(0, 5),
            st.integers(0, 5),
            st.sampled_from([0, 0, 1]),
            st.integers(0, 3),
            st.sampled_from([b"", b"x", bytes(STATE.size), STATE.pack(9, *range(624))]),
            st.integers(0, 3),
            st.just(0),
        ),
        max_size=4,
    ),
    batches=st.lists(st.lists(st.integers(-2, 40), max_size=5), min_size=1, max_size=12),
    true=st.booleans(),
)
def test_whatever_is_noted_the_sealed_items_are_those_that_came(
    tmp_path_factory: pytest.TempPathFactory, noted: list[Recipe], batches: list[list[int]], true: bool
) -> None:
    """Recipes that lie, that cannot be, that repeat, of batches that are empty or out of range."""
    folder = tmp_path_factory.mktemp("ledger")
    made = [(batch_key(0, 0, number), one) for number, one in enumerate(batches)]
    if true:
        made += cut(reference(1, 30), 4, round=1)
    entries = [*map(note, noted), *(note(one, round=1) for one in noted), note(Recipe(SEEDED, 30, 30, seed=1), round=1)]
    raw = read_book(write(folder / "ledger.bin", made, *entries), [])
    book = sealed(folder, raw)
    assert items(book) == made
    if true:
        assert moved(book) >= 8


def test_one_odd_batch_costs_only_itself(tmp_path: Path) -> None:
    """Somebody changed what the loader asks for in the middle of a round."""
    batches = cut(reference(5, 100), 10)
    batches[3] = (batches[3][0], batches[3][1][::-1])
    raw = read_book(write(tmp_path / "ledger.bin", batches, note(Recipe(SEEDED, 100, 100, seed=5))), [])
    book = sealed(tmp_path, raw)
    assert items(book) == batches
    assert moved(book) == 9


def test_a_wrong_recipe_moves_no_single_items(tmp_path: Path) -> None:
    """A batch of one item is somewhere in every order; that is no reason to look it up there."""
    order = random.Random(3).sample(range(200), 200)
    raw = read_book(write(tmp_path / "ledger.bin", cut(order, 1), note(Recipe(SEEDED, 200, 200, seed=5))), [])
    book = sealed(tmp_path, raw)
    assert book == raw
    assert book.recipes == []


@pytest.mark.parametrize("missing", [0, 2])
def test_draws_that_came_before_are_found(tmp_path: Path, missing: int) -> None:
    """A loader draws a seed for its workers from the same generator; also when the first batches are not there."""
    draws = np.random.RandomState(8)
    state: Any = draws.get_state(legacy=False)
    packed = STATE.pack(state["state"]["pos"], *state["state"]["key"].tolist())
    draws.randint(0, 2**32, 2, dtype=np.uint32)
    order = list(range(90))
    for place in range(89):
        other = place + int(draws.randint(0, 2**32, dtype=np.uint32)) % (90 - place)
        order[place], order[other] = order[other], order[place]
    batches = cut(order, 8)[missing:]
    raw = read_book(write(tmp_path / "ledger.bin", batches, note(Recipe(STATED, 90, 90, state=packed))), [])
    book = sealed(tmp_path, raw)
    assert items(book) == batches
    assert moved(book) == 12 - missing


def test_loaders_rounds_and_texts_beside_each_other(tmp_path: Path) -> None:
    """Each round has its own order; what has none stays as it is."""
    first, second = reference(1, 50), reference(2, 50)
    turns = [*cut(first, 7, 0, 2), *cut(second, 7, 1, 2)]
    other = cut(random.Random(1).sample(range(50), 50), 7, 0, 3)
    mixed = [one for pair in zip(turns, [*other, *other], strict=False) for one in pair]
    noted = [note(Recipe(SEEDED, 50, 50, seed=1), 0, 2), note(Recipe(SEEDED, 50, 50, seed=2), 1, 2)]
    keys = pack_text(batch_key(2, 0, 99), 2, b'{"keys":["a","b"]}')
    raw = read_book(write(tmp_path / "ledger.bin", mixed, *noted, keys), [])
    assert raw is not None
    book = sealed(tmp_path, raw)
    assert items(book) == items(raw)
    assert (moved(book), len(book.recipes)) == (len(turns), 2)
    named = book.batch(batch_key(2, 0, 99))
    assert named is not None
    assert (named.keys, named.size) == (["a", "b"], 2)


def test_sealing_again_keeps_the_orders(tmp_path: Path) -> None:
    """A process that joined later is no reason to write them all out."""
    raw = read_book(write(tmp_path / "ledger.bin", cut(reference(1, 50), 7), note(Recipe(SEEDED, 50, 50, seed=1))), [])
    book = sealed(tmp_path, raw)
    (tmp_path / "again").mkdir()
    assert sealed(tmp_path / "again", book) == book
    assert moved(book) == 8


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def trained(path: Path, recipe: Recipe | None, order: list[int]) -> Path:
    """A run of 10 steps with 10 items each, in this order."""
    run = build_training(path, steps=10, batch_size=10)
    (folder,) = run.glob("*-1000-0")
    write(folder / "ledger.bin", cut(order, 10), *([] if recipe is None else [note(recipe)]))
    return run


def test_tables_items_and_replay_are_the_same_raw_and_sealed(tmp_path: Path) -> None:
    """Everything that asks for items."""
    path = trained(tmp_path / "run", Recipe(SEEDED, 100, 100, seed=4), reference(4, 100))
    found = []
    for _ in range(2):
        with open_run(path) as run:
            asked = [run.sql(BATCHES).fetchall(), run.items(step=7).fetchall(), run.notes]
            found.append([*asked, replay(run, 7, list(range(100))).indices])
        seal(path)
    assert found[0] == found[1]
    assert found[0][3] == [reference(4, 100)[70:80]]
    assert moved(sealed_book(path)) == 10


def sealed_book(path: Path) -> Book:
    """The ledger of the only process of a sealed run."""
    with open_run(path) as run:
        ((_, book),) = run.database.ledgers.books()
    return book


def test_no_order_is_made_unless_somebody_asks_for_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And then each of them once."""
    path = trained(tmp_path / "run", Recipe(SEEDED, 100, 100, seed=4), reference(4, 100))
    seal(path)
    made: list[Recipe] = []
    original = shuffle.make

    def counting(recipe: Recipe) -> Any:
        made.append(recipe)
        return original(recipe)

    monkeypatch.setattr(shuffle, "make", counting)
    with open_run(path) as run:
        assert run.sql("SELECT sum(size), max(step) FROM batches").fetchall() == [(100, 9)]
        assert made == []
        assert len(run.sql(BATCHES).fetchall()) == 10
        run.items(step=3)
        assert len(made) == 1


def test_only_the_last_orders_stay_in_memory(tmp_path: Path) -> None:
    """A run of many epochs is read in bounded memory."""
    rounds = [cut(reference(seed, 40), 10, round=seed) for seed in range(7)]
    noted = [note(Recipe(SEEDED, 40, 40, seed=seed), round=seed) for seed in range(7)]
    raw = read_book(write(tmp_path / "ledger.bin", [one for each in rounds for one in each], *noted), [])
    assert raw is not None
    book = sealed(tmp_path, raw)
    assert items(book) == items(raw)
    assert book.orders is not None
    assert sorted(book.orders._made) == [4, 5, 6, 7]


def tampered(folder: Path, change: str) -> list[str]:
    """Seal a ledger of one order, change its table; the notes of whoever reads it. The items must not be told."""
    write(folder / "ledger.bin", cut(reference(6, 60), 8), note(Recipe(SEEDED, 60, 60, seed=6)))
    sealed(folder, read_book(folder / "ledger.bin", []))
    file = folder / "ledger.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT {change} FROM read_parquet('{file}')")
        connection.execute(f"COPY t TO '{file}' (FORMAT parquet)")
    notes: list[str] = []
    book = reread(folder, notes)
    assert [found for _, found in items(book)] == [None] * 8
    batch = book.batch(0)
    assert batch is not None
    assert (batch.indices, batch.keys, batch.size) == (None, None, 8)
    return notes


def blob(recipe: Recipe | bytes) -> str:
    """The change of a table that puts this in the place of its recipe."""
    content = recipe if isinstance(recipe, bytes) else recipe_bytes(recipe)
    return f"* REPLACE (CASE WHEN recipe IS NOT NULL THEN unhex('{content.hex()}') END AS recipe)"


def test_a_recipe_of_a_kind_from_the_future_is_told(tmp_path: Path) -> None:
    """It says what is missing, and what helps."""
    (told,) = tampered(tmp_path, blob(Recipe(77, 60, 60, state=b"anything")))
    assert "does not know (77)" in told
    assert "The version that sealed it can" in told


@pytest.mark.parametrize(
    "change",
    [
        blob(Recipe(SEEDED, 60, 60, seed=7)),
        blob(Recipe(SEEDED, 60, 60, subset=1, seed=6)),
        blob(Recipe(SEEDED, 60, 60, subset=9, seed=6)),
        blob(Recipe(SEEDED, 60, 60, subset=1, seed=6, state=bytes(240))),
        blob(Recipe(SEEDED, 2**60, 60, seed=6)),
        blob(Recipe(SEEDED, 60, 60, replicas=0, seed=6)),
        blob(Recipe(STATED, 60, 60, state=b"short")),
        blob(Recipe(STATED, 60, 60, state=STATE.pack(700, *range(624)))),
        blob(b"\1"),
        "* REPLACE (NULL::BLOB AS recipe)",
        "* REPLACE (shuffle + 5 AS shuffle)",
    ],
)
def test_a_damaged_recipe_is_told_and_gives_no_items(tmp_path: Path, change: str) -> None:
    """Another seed, sizes that cannot be, a state that was cut, none at all."""
    (told,) = tampered(tmp_path, change)
    assert "The ledger of p is damaged" in told


def test_a_batch_beyond_the_end_of_its_order_is_not_known(tmp_path: Path) -> None:
    """Fewer items than it had would be wrong."""
    assert tampered(tmp_path, "* REPLACE (57::UTINYINT AS low)") == []


def test_replay_says_that_the_order_cannot_be_made(tmp_path: Path) -> None:
    """Instead of rebuilding something else."""
    path = trained(tmp_path / "run", Recipe(SEEDED, 100, 100, seed=4), reference(4, 100))
    seal(path)
    file = path / "ledger.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT {blob(Recipe(9, 100, 100))} FROM read_parquet('{file}')")
        connection.execute(f"COPY t TO '{file}' (FORMAT parquet)")
    with open_run(path) as run, pytest.raises(ReplayError, match="order of its items"):
        replay(run, 3, list(range(100)))


def test_a_table_from_before_there_were_recipes_is_read(tmp_path: Path) -> None:
    """It called the length of a run differently, and had two columns less."""
    raw = read_book(write(tmp_path / "ledger.bin", cut(random.Random(0).sample(range(70), 70), 8)), [])
    book = sealed(tmp_path, raw)
    file = tmp_path / "ledger.parquet"
    with duckdb.connect() as connection:
        connection.execute(
            f"CREATE TABLE t AS SELECT * EXCLUDE (length, shuffle, recipe), length AS run FROM read_parquet('{file}')"
        )
        connection.execute(f"COPY t TO '{file}' (FORMAT parquet)")
    assert reread(tmp_path) == book == raw


# ── raw entries ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("content", [b"", b"\1\0", struct.pack("<H", 99) + bytes(60), bytes(5000)])
def test_a_strange_recipe_in_a_raw_ledger_costs_nothing(tmp_path: Path, content: bytes) -> None:
    """The items stand beside it."""
    batches = cut(reference(6, 60), 8)
    strange = struct.pack("<BBhIq", 7, 0, -1, len(content), 0) + content
    notes: list[str] = []
    raw = read_book(write(tmp_path / "ledger.bin", batches, strange), notes)
    assert notes == []
    assert items(sealed(tmp_path, raw)) == batches


def test_a_recipe_longer_than_any_is_damage(tmp_path: Path) -> None:
    """What is behind it cannot be found."""
    notes: list[str] = []
    broken = struct.pack("<BBhIq", 7, 0, -1, 2**31, 0)
    assert read_book(write(tmp_path / "ledger.bin", cut(reference(6, 60), 8), broken), notes) is None
    assert notes == ["ledger.bin is damaged: the batches behind its first 0 bytes are lost"]
