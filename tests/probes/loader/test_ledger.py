"""The ledger that the probe of loaders keeps: the items of each batch that the program got, in the process that got it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.probes.data import Nested, Numbers, Stream, Together, Words  # noqa: E402

import sonde  # noqa: E402
from sonde.analysis.ledger.ledger import Ledger, LedgerBatch  # noqa: E402
from sonde.analysis.ledger.raw import read_ledger  # noqa: E402
from sonde.probes.loader import ledger as probe, listeners as loader  # noqa: E402
from sonde.store.ledger import ALONE, DATA, STREAM  # noqa: E402
from sonde.store.probe import batch_key  # noqa: E402

DataLoader = torch.utils.data.DataLoader
BatchSampler = torch.utils.data.BatchSampler
Subset = torch.utils.data.Subset

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # on a small machine
    pytest.mark.usefixtures("nothing_left"),
]


def books(path: Path | None) -> list[Ledger]:
    """The ledgers of a run."""
    assert path is not None
    notes: list[str] = []
    found = [read_ledger(file, notes) for file in sorted(path.glob("*/ledger.bin"))]
    assert notes == []
    return [book for book in found if book is not None]


def kept(tmp_path: Path, *loaders: Any, epochs: int = 1, **settings: Any) -> tuple[Ledger, list[list[Any]]]:
    """Iterate over loaders; the ledger, and the batches as lists."""
    came = []
    with sonde.init(dir=tmp_path, **settings) as session:
        for data in loaders:
            for _ in range(epochs):
                came += [batch.tolist() if hasattr(batch, "tolist") else batch for batch in data]
    (book,) = books(session.path)
    return book, came


def contents(book: Ledger) -> list[list[int] | None]:
    """The items of all batches."""
    return [book.indices(key) for key in book.key.tolist()]


def one(book: Ledger, loader: int = 0, round: int = 0, number: int = 0) -> LedgerBatch:
    """One batch of a ledger."""
    found = book.batch(batch_key(book.key[0] >> 44, round, number) + (loader << 44))
    assert found is not None
    return found


# ── what is kept ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("context", "workers"), [(None, 0), ("fork", 2), ("spawn", 1)])
def test_what_came_is_what_is_written_down(tmp_path: Path, context: str | None, workers: int) -> None:
    """Shuffled, twice, with workers that stay."""
    data = DataLoader(
        Numbers(20), batch_size=3, shuffle=True, num_workers=workers, multiprocessing_context=context,
        persistent_workers=bool(workers),
    )  # fmt: skip
    book, came = kept(tmp_path, data, epochs=2)
    assert contents(book) == came
    assert [key & (2**28 - 1) for key in book.key.tolist()] == [*range(7), *range(7)]
    assert (one(book).worker is None) == (workers == 0)


def test_a_sampler_that_repeats_items(tmp_path: Path) -> None:
    """Weighted sampling draws the same item again."""
    sampler = torch.utils.data.WeightedRandomSampler([1.0, 5.0, 0.0, 1.0], 40)
    book, came = kept(tmp_path, DataLoader(Numbers(4), batch_size=8, sampler=sampler))
    assert contents(book) == came


def test_a_sampler_of_batches_from_the_user(tmp_path: Path) -> None:
    """Batches of different sizes."""
    given = [[3, 1], [9], [4, 5, 6], [8, 2, 7, 0]]
    book, came = kept(tmp_path, DataLoader(Numbers(10), batch_sampler=given))
    assert contents(book) == came == given


def test_a_dataset_that_makes_whole_batches(tmp_path: Path) -> None:
    """`__getitems__` is asked for the same items."""
    book, came = kept(tmp_path, DataLoader(Together(9), batch_size=4, shuffle=True))
    assert contents(book) == came


def test_numbers_are_those_of_the_innermost_dataset(tmp_path: Path) -> None:
    """Through a subset of a subset, as in the table of items."""
    data = Subset(Subset(Numbers(10), [9, 8, 7, 6, 5]), torch.tensor([4, 2, 0]))
    book, came = kept(tmp_path, DataLoader(data, batch_size=2))
    assert contents(book) == came == [[5, 7], [9]]


def test_without_batches_each_item_is_alone(tmp_path: Path) -> None:
    """`batch_size=None`, with single items and with lists of them."""
    lists = BatchSampler(range(5), 2, drop_last=False)
    book, _ = kept(
        tmp_path, DataLoader(Numbers(3), batch_size=None), DataLoader(Numbers(5), batch_size=None, sampler=lists)
    )
    assert contents(book) == [[0], [1], [2], [0, 1], [2, 3], [4]]
    assert all(flags == ALONE for flags in book.flags.tolist())
    assert (book.largest(int(book.key[0] >> 44)), book.largest(int(book.key[-1] >> 44))) == (1, 2)


@pytest.mark.parametrize("workers", [0, 2])
def test_iterable_datasets_by_order_of_arrival(tmp_path: Path, workers: int) -> None:
    """Counted in each worker, and the last batch is as short as it was."""
    book, came = kept(tmp_path, DataLoader(Stream(5, 3), batch_size=2, num_workers=workers), epochs=2)
    assert contents(book) == came
    assert all(flags == STREAM for flags in book.flags.tolist())


def test_keys_that_are_no_numbers_are_kept_as_text(tmp_path: Path) -> None:
    """Their indices are not known; many and long ones are cut."""
    names = ["a", "b" * 500, *map(str, range(400))]
    book, _ = kept(tmp_path, DataLoader(Words(), sampler=names, batch_size=402))
    batch = one(book)
    assert (batch.indices, batch.size) == (None, 402)
    assert batch.keys is not None
    assert batch.keys[0] == "a"
    assert batch.keys[1].startswith("bbb")
    assert len(batch.keys[1]) < 120
    assert len(batch.keys) <= 402


def test_loaders_inside_a_dataset_are_not_in_it(tmp_path: Path) -> None:
    """Only what the program got itself."""
    book, _ = kept(tmp_path, DataLoader(Nested(), batch_size=1))
    assert contents(book) == [[0], [1]]


def test_steps_that_were_not_chosen_are_in_it(tmp_path: Path) -> None:
    """It is always on with the probe of loaders, whatever else is recorded."""
    book, came = kept(tmp_path, DataLoader(Numbers(12), batch_size=2, shuffle=True), every=1000)
    assert contents(book) == came


def test_without_mappings_it_is_written_in_blocks(tmp_path: Path) -> None:
    """As on a network file system."""
    book, came = kept(tmp_path, DataLoader(Numbers(900), batch_size=2, shuffle=True), writes="block")
    assert contents(book) == came


def test_the_digest_of_a_batch_stands_beside_it(tmp_path: Path) -> None:
    """The black box notes it at the delivery."""
    keys = []

    def note(_batch: object, key: int | None, _data: object) -> None:
        assert key is not None
        keys.append(key)
        probe.note_digest(key, 2**64 - key - 1, key % 2 == 0)

    with sonde.init(dir=tmp_path) as session:
        leave = loader.at_delivery(note)
        for _ in DataLoader(Numbers(6), batch_size=2):
            pass
        leave()
        for _ in DataLoader(Numbers(2), batch_size=2):
            pass
    (book,) = books(session.path)
    found = [book.batch(key) for key in book.key.tolist()]
    assert [one and one.digest for one in found] == [*(2**64 - key - 1 for key in keys), None]
    assert len(keys) == 3


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_forked_child_has_a_ledger_of_its_own(tmp_path: Path) -> None:
    """And writes nothing into its parent's."""
    with sonde.init(dir=tmp_path) as session:
        list(DataLoader(Numbers(4), batch_size=2))
        pid = os.fork()
        if not pid:
            try:
                list(DataLoader(Numbers(9), batch_size=3))
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        list(DataLoader(Numbers(2), batch_size=2))
    found = [contents(book) for book in books(session.path)]
    assert sorted(found) == [[[0, 1], [2, 3], [0, 1]], [[0, 1, 2], [3, 4, 5], [6, 7, 8]]]


def test_two_recordings_one_after_the_other(tmp_path: Path) -> None:
    """Each has its own."""
    for length in (4, 6):
        book, _ = kept(tmp_path, DataLoader(Numbers(length), batch_size=2))
        assert len(book) == length // 2


KILLED = """
import os, signal
import torch, sonde
from tests.probes.data import Numbers
sonde.init(dir={dir!r})
for number, batch in enumerate(torch.utils.data.DataLoader(Numbers(5000), batch_size=2)):
    if number == 1000:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_loses_no_batch(tmp_path: Path) -> None:
    """What was delivered is written down."""
    ended = subprocess.run([sys.executable, "-c", KILLED.format(dir=str(tmp_path))], check=False, timeout=120)
    assert ended.returncode == -9
    (run,) = (one for one in tmp_path.iterdir() if one.is_dir())
    (book,) = books(run)
    assert contents(book) == [[2 * number, 2 * number + 1] for number in range(1001)]


# ── trouble ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_size_cap_counts_it(tmp_path: Path) -> None:
    """Beyond the cap batches are dropped, and told."""
    with sonde.init(dir=tmp_path, cap="300KB") as session:
        list(DataLoader(Numbers(4), batch_size=2))
        for number in range(3000):
            probe.note(batch_key(9, 0, number), tuple(range(100, 0, -1)), None, 0)
    assert session.path is not None
    notes: list[str] = []
    (file,) = session.path.glob("*/ledger.bin")
    book = read_ledger(file, notes)
    assert book is not None
    assert notes == [f"ledger.bin lacks {3002 - len(book)} batches that came after the size cap was reached"]
    assert file.stat().st_size < 300_000


def test_the_bytes_of_the_ledger_are_counted(tmp_path: Path) -> None:
    """The run's count grows by what it takes on the disk."""
    with sonde.init(dir=tmp_path) as session:
        list(DataLoader(Numbers(4), batch_size=2))
        assert session.path is not None
        usage = session.path / "usage"
        before = int.from_bytes(usage.read_bytes(), "little")
        for number in range(3000):
            probe.note(batch_key(9, 0, number), tuple(range(100, 0, -1)), None, 0)
        taken = int.from_bytes(usage.read_bytes(), "little") - before
    (file,) = session.path.glob("*/ledger.bin")
    assert taken == file.stat().st_size - DATA


def test_a_file_in_its_place_costs_the_ledger_and_not_the_loop(tmp_path: Path, expected: set[str]) -> None:
    """It is tried again later, and counted as a failure of ours."""
    expected.add("opening the ledger")
    with sonde.init(dir=tmp_path) as session:
        sonde.mark("begun")
        assert session.path is not None
        (folder,) = (one for one in session.path.iterdir() if one.is_dir())
        (folder / "ledger.bin").write_text("mine")
        assert len(list(DataLoader(Numbers(6), batch_size=2))) == 3
    assert (folder / "ledger.bin").read_text() == "mine"


# ── listeners ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_listeners_get_each_batch_and_a_failing_one_is_dropped(tmp_path: Path, expected: set[str]) -> None:
    """The probe and the other listeners go on."""
    expected.add("reporting a batch")
    seen: list[tuple[Any, int | None, list[int]]] = []
    calls = []

    def fail(batch: object, _key: int | None, _data: object) -> None:
        calls.append(batch)
        raise ValueError("no")

    def keep(batch: Any, key: int | None, data: Any) -> None:
        seen.append((batch.indices, key, data.tolist()))

    with sonde.init(dir=tmp_path) as session:
        ends = [loader.at_delivery(fail), loader.at_delivery(keep)]
        list(DataLoader(Subset(Numbers(9), [8, 7, 6]), batch_size=2))
        for end in ends:
            end()
        list(DataLoader(Numbers(2)))
    (book,) = books(session.path)
    assert len(calls) == 1
    assert [(list(indices), data) for indices, _, data in seen] == [([8, 7], [8, 7]), ([6], [6])]
    assert [key for _, key, _ in seen] == book.key.tolist()[:2]
    assert len(book) == 4
