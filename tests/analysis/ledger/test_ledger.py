"""The ledger in the tables: the same indices raw and sealed, the items of a step, and what a sealed item costs."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.analysis.oldform import seal_in_one

from sonde.analysis.ledger.ledger import SAMPLE, WHOLE
from sonde.analysis.ledger.processes import Ledgers
from sonde.analysis.ledger.raw import read_ledger
from sonde.analysis.ledger.sealed import write_sealed
from sonde.analysis.run import open_run
from sonde.analysis.seal import seal
from sonde.errors import UnknownName
from sonde.store.folder import host
from sonde.store.ledger import ALONE, DATA, EntryMaker, LedgerWriter, pack_digest, pack_text
from sonde.store.probe import batch_key
from sonde.testing import build_training

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
BATCHES = "SELECT rank, loader, round, batch, purpose, step, indices FROM batches ORDER BY ALL"


def write_ledger(path: Path, batches: list[tuple[int, tuple[int, ...]]], *more: bytes) -> None:
    """The ledger of a process with these batches, and entries behind them."""
    writer = LedgerWriter(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), lambda _: True)
    packer = EntryMaker()
    for key, items in batches:
        entry = packer.batch(key, items, 1)
        assert entry is not None
        writer.put(entry)
    for entry in more:
        writer.put(entry, 0)
    writer.close()


def trained(path: Path, **training: Any) -> Path:
    """A run of two ranks with 6 steps of two micro-batches of 3 items; each rank has a ledger of shuffled items."""
    run = build_training(path, steps=6, ranks=2, micro_batches=2, batch_size=3, **training)
    for rank, folder in enumerate(sorted(run.glob("*-100?-0"))):
        chosen = random.Random(rank).sample(range(1000), 36)
        batches = [(batch_key(0, 0, number), tuple(chosen[3 * number : 3 * number + 3])) for number in range(12)]
        write_ledger(folder / "ledger.bin", batches)
    return run


def drawn(rank: int, number: int) -> list[int]:
    """The items of a batch of `trained`."""
    return random.Random(rank).sample(range(1000), 36)[3 * number : 3 * number + 3]


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_batches_have_the_indices_of_the_ledger(tmp_path: Path) -> None:
    """Each rank its own."""
    with open_run(trained(tmp_path / "run")) as run:
        found = run.sql(BATCHES).fetchall()
    assert [(row[0], row[3], row[6]) for row in found] == [
        (rank, number, drawn(rank, number)) for rank in range(2) for number in range(12)
    ]


def test_a_run_without_a_ledger_has_no_indices(tmp_path: Path) -> None:
    """They are not known, and so is nothing made up."""
    run = build_training(tmp_path / "run", steps=3)
    with open_run(run) as opened:
        assert {row[6] for row in opened.sql(BATCHES).fetchall()} == {None}


def test_sealed_and_raw_give_the_same(tmp_path: Path) -> None:
    """And the raw ledger goes when the table has been read back."""
    path = trained(tmp_path / "run")
    with open_run(path) as run:
        raw = run.sql(BATCHES).fetchall()
        items = run.items(step=2).fetchall()
    seal(path)
    assert not list(path.glob("*/ledger.bin"))
    assert (path / "parts" / f"{host()}-0000" / "ledger.parquet").stat().st_mode & 0o777 == 0o600
    with open_run(path) as run:
        assert run.sql(BATCHES).fetchall() == raw
        assert run.items(step=2).fetchall() == items
        assert run.sql("SELECT batch FROM batches WHERE list_contains(indices, 5) LIMIT 0").fetchall() == []
    assert seal(path).processes == 2


def test_several_folders_are_one_run(tmp_path: Path) -> None:
    """With processes of the same names, sealed and raw beside each other."""
    first, second = trained(tmp_path / "a"), trained(tmp_path / "b")
    with open_run([first, second]) as run:
        raw = run.sql("SELECT process, batch, indices FROM batches ORDER BY ALL").fetchall()
    seal(second)
    with open_run([first, second]) as run:
        assert run.sql("SELECT process, batch, indices FROM batches ORDER BY ALL").fetchall() == raw
    assert len(raw) == 48
    assert all(row[2] for row in raw)


def test_the_ledger_is_not_read_unless_it_is_asked_for(tmp_path: Path) -> None:
    """A table of a million steps must not load what nobody looks at."""
    with open_run(trained(tmp_path / "run")) as run:
        assert run.sql("SELECT count(*), sum(wait_ns) FROM batches").fetchall()[0][0] == 24
        assert run.database.ledgers._read_already == {}
        run.sql("SELECT indices FROM batches").fetchall()
        assert len(run.database.ledgers._read_already) == 2


def test_a_key_that_stands_there_twice_is_not_known(tmp_path: Path) -> None:
    """Wrong items would be worse than none."""
    path = build_training(tmp_path / "run", steps=2, batch_size=2)
    (folder,) = path.glob("*-1000-0")
    write_ledger(folder / "ledger.bin", [(0, (4, 2)), (1, (7, 5)), (0, (9, 1))])
    with open_run(path) as run:
        assert [row[6] for row in run.sql(BATCHES).fetchall()] == [None, [7, 5]]


def test_what_a_ledger_lacks_is_among_the_notes(tmp_path: Path) -> None:
    """Of a run that was only opened, and of a sealed one."""
    path = trained(tmp_path / "run")
    (file,) = path.glob("*-1000-0/ledger.bin")
    with file.open("r+b") as opened:
        opened.seek(8 * 3)
        opened.write((17).to_bytes(8, "little"))
    with open_run(path) as run:
        (note,) = run.notes
        assert "ledger.bin lacks 17 batches that could not be written" in note
    seal(path)
    with open_run(path) as run:
        assert run.notes == [note]


def test_a_damaged_sealed_ledger_is_a_note(tmp_path: Path) -> None:
    """The rest of the run can be read."""
    path = seal_in_one(trained(tmp_path / "run"))
    (path / "ledger.parquet").write_bytes(b"PAR1" * 30)
    with open_run(path) as run:
        assert {row[6] for row in run.sql(BATCHES).fetchall()} == {None}
        assert "Cannot read the ledger" in run.notes[0]


@pytest.mark.filterwarnings("ignore::sonde.errors.IncompleteRun")
def test_a_damaged_ledger_of_a_part_is_a_note(tmp_path: Path) -> None:
    """Cut or changed, the rest of the part can be read."""
    path = trained(tmp_path / "run")
    seal(path)
    table = path / "parts" / f"{host()}-0000" / "ledger.parquet"
    whole = table.read_bytes()
    for damaged in (whole[:-20], whole.replace(b"flags", b"fLags")):
        table.write_bytes(damaged)
        with open_run(path) as run:
            assert {row[6] for row in run.sql(BATCHES).fetchall()} == {None}
            assert f"parts/{host()}-0000/ledger.parquet" in run.notes[0]


# ── the items of a step ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_items_of_a_step_with_its_micro_batches(tmp_path: Path) -> None:
    """In their order, of all ranks or of one."""
    with open_run(trained(tmp_path / "run")) as run:
        found = run.items(step=2).project('rank, loader, batch, position, "index"').fetchall()
        alone = run.items(step=2, rank=1).project('rank, batch, "index"').fetchall()
    assert found == [
        (rank, 0, number, position, index)
        for rank in range(2)
        for number in (4, 5)
        for position, index in enumerate(drawn(rank, number))
    ]
    assert alone == [(rank, batch, index) for rank, _, batch, _, index in found if rank == 1]


def test_items_have_their_times_where_these_were_recorded(tmp_path: Path) -> None:
    """From the table `items`, by the place in the batch."""
    with open_run(trained(tmp_path / "run")) as run:
        times = run.items(step=0, rank=0).project("start_ns, dur_ns, error").fetchall()
        known = run.sql(
            "SELECT start_ns, dur_ns, error FROM items WHERE rank = 0 AND batch < 2 ORDER BY batch, position"
        )
        assert times == known.fetchall()
        assert all(time for time, _, _ in times)


def test_without_a_ledger_the_recorded_items_answer(tmp_path: Path) -> None:
    """As far as they were recorded."""
    with open_run(build_training(tmp_path / "run", steps=3, batch_size=4)) as run:
        assert [index for (index,) in run.items(step=1).project('"index"').fetchall()] == [4, 5, 6, 7]


def test_keys_that_are_no_numbers_are_ids(tmp_path: Path) -> None:
    """What was cut off is not known."""
    path = build_training(tmp_path / "run", steps=1, batch_size=3)
    (folder,) = path.glob("*-1000-0")
    write_ledger(folder / "ledger.bin", [], pack_text(0, 3, b'{"keys":["a",7]}'))
    for _ in range(2):
        with open_run(path) as run:
            found = run.items(step=0).project('position, "index", id').fetchall()
            assert [(place, id) for place, _, id in found] == [(0, "a"), (1, "7"), (2, None)]
            assert run.sql("SELECT indices FROM batches").fetchall() == [(None,)]
        seal(path)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"step": 99}, "Step 99 is not in the run run, which has steps 0 to 5."),
        ({"step": 99, "rank": 1}, "Step 99 of rank 1 is not in the run run, which has steps 0 to 5."),
        ({"step": 1, "rank": 7}, "No rank 7 in the run run. Ranks with steps: 0, 1."),
    ],
)
def test_an_unknown_step_is_an_error_that_says_which_there_are(
    tmp_path: Path, asked: dict[str, int], answer: str
) -> None:
    """And an unknown rank likewise."""
    with open_run(trained(tmp_path / "run")) as run, pytest.raises(UnknownName) as caught:
        run.items(**asked)
    assert str(caught.value) == answer


def test_a_run_without_steps(tmp_path: Path) -> None:
    """Nothing can be asked of it."""
    with open_run(build_training(tmp_path / "run", steps=0)) as run, pytest.raises(UnknownName, match="has no steps"):
        run.items(step=0)


# ── sealing ──────────────────────────────────────────────────────────────────────────────────────────────────────────

whole = st.integers(-(2**63), 2**63 - 1)
items = st.lists(st.integers(0, 300) | st.integers(0, 2**33) | whole, max_size=30).map(tuple)


@QUICK
@given(batches=st.lists(st.tuples(st.integers(0, 2**60 - 1), items), min_size=1, max_size=30))
def test_any_ledger_is_sealed_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[int, tuple[int, ...]]]
) -> None:
    """Numbers of any size and sign, empty batches, digests, texts, keys that stand there twice."""
    folder = tmp_path_factory.mktemp("ledger")
    digests = [pack_digest(batches[0][0], 2**64 - 1, whole=True), pack_digest(batches[-1][0], 5, whole=False)]
    write_ledger(folder / "ledger.bin", batches, *digests, pack_text(1, 2, b'{"keys":["x"]}', None, ALONE))
    raw = read_ledger(folder / "ledger.bin", [])
    assert raw is not None
    with duckdb.connect() as connection:
        write_sealed(connection, [("it's", raw), ("other", raw)], folder / "ledger.parquet")
    ledgers = Ledgers()
    ledgers.add_sealed("b", folder / "ledger.parquet", "it's", [])
    assert ledgers.of("b") == raw
    assert int(raw.digest_of[len(batches) - 1]) in (SAMPLE, WHOLE)


def sealed_bytes(tmp_path: Path, dataset: int, batch: int, count: int) -> float:
    """Bytes of the sealed ledger for each item of a shuffled dataset."""
    path = build_training(tmp_path / f"{dataset}", steps=1)
    (folder,) = path.glob("*-1000-0")
    shuffled: list[int] = []
    while len(shuffled) < count:
        shuffled += random.Random(len(shuffled)).sample(range(dataset), dataset)
    batches = [(number, tuple(shuffled[number * batch : (number + 1) * batch])) for number in range(count // batch)]
    write_ledger(folder / "ledger.bin", batches)
    seal(path)
    return (path / "parts" / f"{host()}-0000" / "ledger.parquet").stat().st_size / (count // batch * batch)


def test_a_shuffled_item_costs_at_most_two_bytes(tmp_path: Path) -> None:
    """Of a dataset of 50,000 items; sequential ones cost next to nothing."""
    assert sealed_bytes(tmp_path, 50_000, 64, 300_000) <= 2.0
    path = build_training(tmp_path / "plain", steps=1)
    (folder,) = path.glob("*-1000-0")
    write_ledger(folder / "ledger.bin", [(n, tuple(range(64 * n, 64 * n + 64))) for n in range(2000)])
    seal(path)
    assert (path / "parts" / f"{host()}-0000" / "ledger.parquet").stat().st_size / 128_000 < 0.2


def sealed_with_recipes(path: Path) -> Path:
    """A run as an earlier version sealed it: the batches 0 to 5 of each rank are places in an order."""
    run = seal_in_one(trained(path))
    table = run / "ledger.parquet"
    with duckdb.connect() as connection:
        connection.execute(
            f"""
            CREATE TABLE t AS SELECT * REPLACE ((CASE WHEN key < 6 THEN 1 ELSE 0 END)::UINTEGER AS shuffle,
                   CASE WHEN key < 6 THEN 3 ELSE length END::UINTEGER AS length),
                   (CASE WHEN key = 0 AND position = 0 THEN 'recipe'::BLOB END) AS recipe
            FROM read_parquet('{table}') WHERE key >= 6 OR position = 0
            """
        )
        connection.execute(f"COPY t TO '{table}' (FORMAT parquet)")
    return run


def test_items_that_an_earlier_version_kept_as_a_recipe_are_not_available(tmp_path: Path) -> None:
    """One sentence says so; everything else of the run reads as before, also after sealing again."""
    path = sealed_with_recipes(tmp_path / "run")
    later = build_training(tmp_path / "later", steps=2)
    shutil.copytree(next(later.glob("*-1000-0")), path / "other-1-0")
    for _ in range(2):
        with open_run(path) as run:
            known = run.sql(
                "SELECT batch, indices FROM batches WHERE process = 'testhost-1000-0' ORDER BY batch"
            ).fetchall()
            assert [indices for batch, indices in known if batch < 6] == [None] * 6
            assert [indices for batch, indices in known if batch >= 6] == [drawn(0, number) for number in range(6, 12)]
            assert run.sql("SELECT count(*) FROM steps WHERE process LIKE 'testhost%'").fetchall() == [(12,)]
            (note,) = [note for note in run.notes if "-1000-0" in note]
            assert note.startswith("The items of 6 batches of testhost-1000-0 are no longer available: an earlier")
        seal(path)


def test_sealing_takes_in_a_process_that_joined_later(tmp_path: Path) -> None:
    """The ledgers that were sealed before stay."""
    path, other = trained(tmp_path / "run"), build_training(tmp_path / "other", steps=2, batch_size=2)
    seal(path)
    (folder,) = other.glob("*-1000-0")
    write_ledger(folder / "ledger.bin", [(0, (4, 2)), (1, (7, 5))])
    shutil.copytree(folder, path / folder.name.replace("1000", "1009"))
    with open_run(path) as run:
        before = run.sql("SELECT process, batch, indices FROM batches ORDER BY ALL").fetchall()
    seal(path)
    with open_run(path) as run:
        assert run.sql("SELECT process, batch, indices FROM batches ORDER BY ALL").fetchall() == before
    assert [7, 5] in [row[2] for row in before]
    assert len(before) == 26


def test_a_ledger_of_a_run_that_still_grows(tmp_path: Path) -> None:
    """What is in the buffer is there."""
    path = build_training(tmp_path / "run", steps=2, batch_size=2)
    (folder,) = path.glob("*-1000-0")
    file = folder / "ledger.bin"
    writer = LedgerWriter(os.open(file, os.O_RDWR | os.O_CREAT, 0o600), lambda _: True)
    entry = EntryMaker().batch(0, (8, 3))
    assert entry is not None
    writer.put(entry)
    assert file.stat().st_size == DATA
    with open_run(path) as run:
        assert [row[6] for row in run.sql(BATCHES).fetchall()] == [[8, 3], None]


def test_an_empty_book_is_none(tmp_path: Path) -> None:
    """A process that got no batch has no ledger."""
    write_ledger(tmp_path / "ledger.bin", [])
    assert read_ledger(tmp_path / "ledger.bin", []) is None


def test_a_damaged_column_of_a_sealed_ledger_is_a_note(tmp_path: Path) -> None:
    """One bit makes another name of it."""
    path = seal_in_one(trained(tmp_path / "run"))
    table = path / "ledger.parquet"
    table.write_bytes(table.read_bytes().replace(b"flags", b"fLags"))
    with open_run(path) as run:
        assert {row[6] for row in run.sql(BATCHES).fetchall()} == {None}
        assert "is damaged (it has no column" in " ".join(run.notes)
