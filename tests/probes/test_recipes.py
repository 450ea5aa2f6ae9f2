"""Real samplers of torch under the probe of loaders: sealed as recipes, with the very same items as before."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.probes.data import Numbers  # noqa: E402

import sonde  # noqa: E402
from sonde.analysis.ledger import Book  # noqa: E402
from sonde.analysis.run import open_run  # noqa: E402
from sonde.analysis.seal import seal  # noqa: E402
from sonde.hooks.torch import order  # noqa: E402

DataLoader = torch.utils.data.DataLoader
DistributedSampler = torch.utils.data.DistributedSampler
RandomSampler = torch.utils.data.RandomSampler
Subset = torch.utils.data.Subset

ITEMS = 60

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # on a small machine
    pytest.mark.usefixtures("nothing_left", "small"),
]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Datasets of few items count."""
    monkeypatch.setattr(order, "LEAST_ITEMS", 10)


def recorded(folder: Path, loader: Any, epochs: int = 2) -> tuple[Path, list[list[int]]]:
    """A run of some epochs, and what came."""
    came = []
    with sonde.init(dir=folder) as session:
        for epoch in range(epochs):
            if hasattr(loader.sampler, "set_epoch"):
                loader.sampler.set_epoch(epoch)
            came += [batch.tolist() for batch in loader]
    assert session.path is not None
    return session.path, came


def contents(path: Path) -> tuple[Book, list[list[int] | None]]:
    """The ledger of the only process that has one, and its batches."""
    with open_run(path) as run:
        ((_, book),) = run.database.ledgers.books()
        assert run.notes == []
    return book, [book.indices(key) for key in book.key.tolist()]


def share(path: Path, came: list[list[int]]) -> float:
    """Seal a run that had these batches: which share of them are places in an order."""
    raw, before = contents(path)
    assert before == came
    assert not raw.shuffle.any()
    seal(path)
    book, after = contents(path)
    assert after == came
    return float((book.shuffle > 0).mean())


@pytest.mark.parametrize(
    ("context", "workers", "own"),
    [(None, 0, False), (None, 0, True), ("fork", 2, False), ("fork", 2, True), ("spawn", 1, False)],
)
def test_a_shuffled_loader_with_and_without_workers(
    tmp_path: Path, context: str | None, workers: int, own: bool
) -> None:
    """Workers stay for several epochs; with a generator of the user's, the loader draws from it too."""
    generator = torch.Generator().manual_seed(5) if own else None
    options = {
        "num_workers": workers, "multiprocessing_context": context, "persistent_workers": bool(workers),
        "generator": generator,
    }  # fmt: skip
    path, came = recorded(tmp_path, DataLoader(Numbers(ITEMS), 3, shuffle=True, **options), epochs=3)
    assert share(path, came) == 1.0  # the workers went with the loader


def test_a_generator_that_only_the_sampler_has(tmp_path: Path) -> None:
    """The loader draws from another one."""
    sampler = RandomSampler(Numbers(ITEMS), generator=torch.Generator().manual_seed(5))
    assert share(*recorded(tmp_path, DataLoader(Numbers(ITEMS), 4, sampler=sampler, drop_last=True))) == 1.0


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("rank", [0, 2])
def test_a_distributed_sampler_and_its_epochs(tmp_path: Path, rank: int, drop: bool) -> None:
    """Each epoch has another order, of which this rank gets a part."""
    sampler = DistributedSampler(Numbers(ITEMS + 1), 3, rank, seed=11, drop_last=drop)
    path, came = recorded(tmp_path, DataLoader(Numbers(ITEMS + 1), 4, sampler=sampler), epochs=3)
    assert came[0] != came[len(came) // 3]
    assert share(path, came) == 1.0


def test_an_epoch_that_was_left_early_and_one_that_was_not(tmp_path: Path) -> None:
    """The workers had fetched further than the program came."""
    data = DataLoader(Numbers(ITEMS), batch_size=2, shuffle=True, num_workers=2)
    came = []
    with sonde.init(dir=tmp_path) as session:
        for number, batch in enumerate(data):
            came.append(batch.tolist())
            if number == 7:
                break
        came += [batch.tolist() for batch in data]
    assert session.path is not None
    assert share(session.path, came) == 1.0


def test_workers_that_fetch_all_at_once(tmp_path: Path) -> None:
    """The sampler has ended before the first batch comes."""
    assert share(*recorded(tmp_path, DataLoader(Numbers(ITEMS), 20, shuffle=True, num_workers=2))) == 1.0


def test_two_loaders_that_take_turns(tmp_path: Path) -> None:
    """Each with its own order, from one generator."""
    generator = torch.Generator().manual_seed(2)
    pair = [DataLoader(Numbers(ITEMS), 5, True, generator=generator) for _ in range(2)]
    came = []
    with sonde.init(dir=tmp_path) as session:
        for _ in range(2):
            for one, other in zip(*pair, strict=True):
                came += [one.tolist(), other.tolist()]
    assert session.path is not None
    # Both draw a seed for workers when they begin, then the first its order, then the other: too many draws between.
    assert share(session.path, came) == 0.5


def test_what_has_no_recipe_stays_as_it_is(tmp_path: Path) -> None:
    """Repetitions, subsets with a generator of the user's, and what the user shuffles."""
    for place, data in enumerate(
        [
            DataLoader(Numbers(ITEMS), 4, sampler=torch.utils.data.WeightedRandomSampler([1.0] * ITEMS, ITEMS)),
            DataLoader(Subset(Numbers(ITEMS), range(ITEMS)), 4, shuffle=True, generator=torch.Generator()),
            DataLoader(Numbers(ITEMS), 4, sampler=torch.randperm(ITEMS).tolist()),
        ]
    ):
        assert share(*recorded(tmp_path / str(place), data)) == 0.0


def split(count: int) -> Any:
    """Some of the items of a dataset, by chance."""
    return torch.utils.data.random_split(Numbers(3 * count), [count, 2 * count])[0]


@pytest.mark.parametrize(("epochs", "expected"), [(1, 0.0), (2, 1.0), (4, 1.0)])
def test_the_items_of_a_subset_are_kept_once(tmp_path: Path, epochs: int, expected: float) -> None:
    """Which they are its first epoch tells; of one epoch alone there is nothing to gain."""
    path, came = recorded(tmp_path, DataLoader(Subset(split(2 * ITEMS), range(ITEMS)), 4, shuffle=True), epochs)
    assert share(path, came) == expected
    book, _ = contents(path)
    assert [len(recipe) > 4 * ITEMS for recipe in book.recipes] == [True, *[False] * (epochs - 1)][: len(book.recipes)]


def test_a_rank_learns_its_subset_from_many_epochs(tmp_path: Path) -> None:
    """Of each it sees a part only."""
    data = split(ITEMS)
    sampler = DistributedSampler(data, 3, 1)
    assert share(*recorded(tmp_path, DataLoader(data, 4, sampler=sampler), epochs=8)) == 1.0


def test_a_subset_that_changes_stays_as_it_is(tmp_path: Path) -> None:
    """What one epoch tells is not true in the next."""
    data = Subset(Numbers(2 * ITEMS), list(range(ITEMS)))
    loader, came = DataLoader(data, 4, shuffle=True), []
    with sonde.init(dir=tmp_path) as session:
        for _ in range(3):
            came += [batch.tolist() for batch in loader]
            data.indices = [index + 1 for index in data.indices]
    assert session.path is not None
    assert share(session.path, came) <= 1 / 3


def test_a_sampler_that_gives_more_than_one_order(tmp_path: Path) -> None:
    """The first of two is known; the other costs what it costs."""
    sampler = RandomSampler(Numbers(ITEMS), num_samples=2 * ITEMS)
    assert share(*recorded(tmp_path, DataLoader(Numbers(ITEMS), 4, sampler=sampler))) == 0.5


def test_recording_changes_no_order_and_no_generator(tmp_path: Path) -> None:
    """What comes is the same with and without."""
    found = []
    for record in (False, True):
        torch.manual_seed(1)
        own = torch.Generator().manual_seed(2)
        loaders = [
            DataLoader(Numbers(ITEMS), 4, shuffle=True),
            DataLoader(Numbers(ITEMS), 4, shuffle=True, generator=own, num_workers=1),
        ]
        with sonde.init(dir=tmp_path) if record else nullcontext():
            came = [batch.tolist() for data in loaders for _ in range(2) for batch in data]
        found.append((came, torch.get_rng_state().tolist(), own.get_state().tolist()))
    assert found[0] == found[1]


def test_a_recipe_is_noted_once_for_each_round(tmp_path: Path) -> None:
    """Nothing is added to the cost of a batch."""
    path, came = recorded(tmp_path, DataLoader(Numbers(ITEMS), 2, shuffle=True), epochs=3)
    book, _ = contents(path)
    assert [len(noted) for noted in book.noted.values()] == [1, 1, 1]
    assert len(came) == 3 * ITEMS // 2


KILLED = """
import os, signal
import torch, sonde
from sonde.hooks.torch import order
from tests.probes.data import Numbers
order.LEAST_ITEMS = 10
sonde.init(dir={dir!r})
for number, batch in enumerate(torch.utils.data.DataLoader(Numbers(5000), batch_size=2, shuffle=True)):
    print(*batch.tolist(), flush=True)
    if number == 1000:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_that_was_killed_is_sealed_with_its_recipe(tmp_path: Path) -> None:
    """All that was delivered is there, before and after."""
    ended = subprocess.run(
        [sys.executable, "-c", KILLED.format(dir=str(tmp_path))], check=False, timeout=120, capture_output=True,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert ended.returncode == -9
    (run,) = (one for one in tmp_path.iterdir() if one.is_dir())
    came = [[int(number) for number in line.split()] for line in ended.stdout.splitlines()]
    assert len(came) == 1001
    with open_run(run) as opened:
        ((_, raw),) = opened.database.ledgers.books()
    assert [raw.indices(key) for key in raw.key.tolist()] == came
    seal(run)
    with open_run(run) as opened:
        ((_, book),) = opened.database.ledgers.books()
    assert [book.indices(key) for key in book.key.tolist()] == came
    assert (book.shuffle == 1).all()
