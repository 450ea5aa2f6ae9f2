"""Samplers of torch that draw with replacement, under the probe of loaders: sealed as recipes, with the very same items."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.probes.data import Numbers  # noqa: E402
from tests.probes.test_recipes import contents, recorded, share  # noqa: E402

import sonde  # noqa: E402
from sonde.guard import counts  # noqa: E402
from sonde.store.ledger import read_recipe  # noqa: E402

DataLoader = torch.utils.data.DataLoader
RandomSampler = torch.utils.data.RandomSampler
WeightedRandomSampler = torch.utils.data.WeightedRandomSampler

ITEMS = 300
DRAWS = 8192  # fewer have no recipe
CLASSES = [0.5, 0.1, 0.0] * (ITEMS // 3)

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # on a small machine
    pytest.mark.usefixtures("nothing_left"),
]


def loader(kind: str, generator: Any = None, of_loader: Any = None, workers: int = 0) -> Any:
    """Over numbers, drawn of all alike or by the weights of classes."""
    sampler = (
        RandomSampler(Numbers(ITEMS), True, DRAWS, generator)
        if kind == "alike"
        else WeightedRandomSampler(CLASSES, DRAWS, generator=generator)
    )
    return DataLoader(Numbers(ITEMS), 300, sampler=sampler, generator=of_loader, num_workers=workers)


@pytest.mark.parametrize("kind", ["alike", "weighted"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("own", ["none", "sampler", "both"])
def test_draws_with_and_without_workers_and_generators(tmp_path: Path, kind: str, workers: int, own: str) -> None:
    """The loader draws a seed for its workers from the same generator, or from another one."""
    generator = None if own == "none" else torch.Generator().manual_seed(5)
    data = loader(kind, generator, generator if own == "both" else None, workers)
    assert share(*recorded(tmp_path, data)) == 1.0


def test_epochs_by_the_same_weights_are_kept_together(tmp_path: Path) -> None:
    """The first recipe has the draws of all of them."""
    path, came = recorded(tmp_path, loader("weighted"), epochs=3)
    assert share(path, came) == 1.0
    book, _ = contents(path)
    first, *others = map(len, book.recipes)
    assert others == [others[0]] * 2
    assert first > others[0]


def test_weights_that_change_between_epochs(tmp_path: Path) -> None:
    """Each epoch by those that it had, in place and by others, also of another type."""
    data, came = loader("weighted"), []
    with sonde.init(dir=tmp_path) as session:
        for _ in range(2):
            came += [batch.tolist() for batch in data]
            data.sampler.weights[2] += 1.0
        data.sampler.weights = torch.rand(ITEMS)
        came += [batch.tolist() for batch in data]
    assert session.path is not None
    assert share(session.path, came) == 1.0
    book, _ = contents(session.path)
    recipes = [read_recipe(one) for one in book.recipes]
    assert [one.subset for one in recipes if one is not None] == [1, 2, 3]


@pytest.mark.parametrize("epochs", [1, 2])
def test_weights_that_are_all_different(tmp_path: Path, epochs: int) -> None:
    """No weight is written down, and already one epoch is a recipe."""
    sampler = WeightedRandomSampler(torch.rand(2 * DRAWS, dtype=torch.double), DRAWS)
    path, came = recorded(tmp_path, DataLoader(Numbers(2 * DRAWS), 300, sampler=sampler), epochs)
    assert share(path, came) == 1.0


def test_a_round_that_is_left_early(tmp_path: Path) -> None:
    """The recipe is for as many draws as came; of few the numbers take less."""
    data, came = loader("weighted", workers=2), []
    with sonde.init(dir=tmp_path) as session:
        for ends in (2, 20):
            for number, batch in enumerate(data):
                came.append(batch.tolist())
                if number == ends:
                    break
    assert session.path is not None
    assert share(session.path, came) == 21 / 24


def test_without_batches_each_item_stands_alone(tmp_path: Path) -> None:
    """What the sampler gives is what is asked for."""
    sampler = WeightedRandomSampler(CLASSES, DRAWS)
    path, came = recorded(tmp_path, DataLoader(Numbers(ITEMS), batch_size=None, sampler=sampler), epochs=1)
    assert share(path, [[one] for one in came]) == 1.0  # type: ignore[list-item]


def test_what_has_no_recipe_stays_as_it_is(tmp_path: Path) -> None:
    """A subset, weights without replacement, few draws."""
    subset = torch.utils.data.Subset(Numbers(2 * ITEMS), range(1, ITEMS + 1))
    for place, data in enumerate(
        [
            DataLoader(subset, 300, sampler=WeightedRandomSampler(CLASSES, DRAWS)),
            DataLoader(subset, 300, sampler=RandomSampler(subset, True, DRAWS)),
            DataLoader(Numbers(DRAWS), 300, sampler=WeightedRandomSampler([1.0] * DRAWS, DRAWS, replacement=False)),
            DataLoader(Numbers(ITEMS), 300, sampler=WeightedRandomSampler(CLASSES, DRAWS - 1)),
            DataLoader(Numbers(ITEMS), 300, sampler=WeightedRandomSampler(CLASSES, 1)),
        ]
    ):
        assert share(*recorded(tmp_path / str(place), data, epochs=1)) == 0.0


def test_recording_changes_no_draw_and_no_generator(tmp_path: Path) -> None:
    """What comes is the same with and without, and nothing of ours fails."""
    found, before = [], counts()
    for record in (False, True):
        torch.manual_seed(1)
        own = torch.Generator().manual_seed(2)
        pair = [loader(kind, given, own) for kind in ("alike", "weighted") for given in (None, own)]
        with sonde.init(dir=tmp_path) if record else nullcontext():
            came = [batch.tolist() for data in pair for _ in range(2) for batch in data]
        found.append((came, torch.get_rng_state().tolist(), own.get_state().tolist()))
    assert found[0] == found[1]
    assert counts() == before
