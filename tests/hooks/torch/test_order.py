"""How samplers shuffle: recipes read from them give their orders, and reading them draws nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

torch: Any = pytest.importorskip("torch")

from tests.hooks.torch.data import Count  # noqa: E402

from sonde.analysis import draws, weighted  # noqa: E402
from sonde.analysis.shuffle import make  # noqa: E402
from sonde.hooks.torch import order  # noqa: E402
from sonde.store.ledger import DRAWN, STATED, WEIGHTED, Recipe  # noqa: E402

BatchSampler = torch.utils.data.BatchSampler
DataLoader = torch.utils.data.DataLoader
DistributedSampler = torch.utils.data.DistributedSampler
RandomSampler = torch.utils.data.RandomSampler
Subset = torch.utils.data.Subset
WeightedRandomSampler = torch.utils.data.WeightedRandomSampler
QUICK = settings(max_examples=60, deadline=None)


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    """Datasets of any size count."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "LEAST_ITEMS", 1)
        yield


def begun(loader: Any) -> Any:
    """An iterator over a loader that has given its first batch."""
    iterator = iter(loader)
    next(iterator)
    return iterator


def shuffled(recipe: Recipe | None) -> list[int]:
    """The order of a recipe."""
    assert recipe is not None
    return make(recipe).tolist()  # type: ignore[no-any-return]


@QUICK
@given(count=st.integers(1, 3000), seed=st.integers(-(2**63), 2**64 - 1))
def test_an_order_is_that_of_torch(count: int, seed: int) -> None:
    """By its seed, whatever that is."""
    generator = torch.Generator().manual_seed(seed)
    recipe = Recipe(1, count, count, seed=generator.initial_seed())
    assert shuffled(recipe) == torch.randperm(count, generator=generator).tolist()


def test_an_order_of_many_items_is_that_of_torch() -> None:
    """More than fit into 16 bits, and more than are drawn at once."""
    generator = torch.Generator().manual_seed(99)
    assert shuffled(Recipe(1, 150_000, 150_000, seed=99)) == torch.randperm(150_000, generator=generator).tolist()


@QUICK
@given(count=st.integers(2, 500), seed=st.integers(0, 2**40), drawn=st.integers(0, 1300))
def test_a_state_gives_the_order_that_comes_next(count: int, seed: int, drawn: int) -> None:
    """However many numbers were drawn from the generator before."""
    generator = torch.Generator().manual_seed(seed)
    torch.randint(10, (drawn,), generator=generator)
    recipe = order.stated(DataLoader(Count(count), sampler=RandomSampler(Count(count), generator=generator)))
    assert recipe is not None
    assert recipe.kind == STATED
    assert shuffled(recipe) == torch.randperm(count, generator=generator).tolist()


@QUICK
@given(
    count=st.integers(1, 400),
    world=st.integers(1, 9),
    which=st.integers(0, 8),
    drop=st.booleans(),
    seed=st.integers(-5, 2**40),
    epoch=st.integers(0, 1000),
)
def test_each_rank_has_its_part(count: int, world: int, which: int, drop: bool, seed: int, epoch: int) -> None:
    """Filled up or cut to the same length, also where there are more ranks than items."""
    sampler = DistributedSampler(Count(count), world, which % world, seed=seed, drop_last=drop)
    sampler.set_epoch(epoch)
    expected = list(sampler)
    if expected:
        assert shuffled(order.seeded(begun(DataLoader(Count(count), 2, sampler=sampler)))) == expected


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("batch", [None, 1, 7])
def test_the_seed_that_a_sampler_has_drawn(batch: int | None, drop: bool) -> None:
    """While it runs, in batches or without."""
    drop = drop and batch is not None
    loader = DataLoader(Count(50), batch_size=batch, sampler=RandomSampler(Count(50)), drop_last=drop)
    iterator = iter(loader)
    assert order.seeded(iterator) is None  # nothing drawn yet
    first = next(iterator)
    found = shuffled(order.seeded(iterator))
    rest = list(iterator)
    came = [first.item(), *(one.item() for one in rest)] if batch is None else torch.cat([first, *rest]).tolist()
    assert came == found[: len(came)]
    assert order.seeded(iterator) is None  # and it has ended


class Reseeded(torch.utils.data.RandomSampler):
    """Seeds its generator for each round, as samplers of training frameworks do."""

    def __iter__(self) -> Iterator[int]:
        self.generator.manual_seed(17)
        yield from super().__iter__()


class Every(torch.utils.data.BatchSampler):
    """Gives each second batch of another sampler of batches."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __iter__(self) -> Iterator[list[int]]:
        for number, batch in enumerate(self.inner):
            if number % 2:
                yield batch


@pytest.mark.parametrize("own", [False, True])
def test_draws_with_replacement_are_told_by_seed_or_state(own: bool) -> None:
    """As many as the sampler gives, however many items there are."""
    generator = torch.Generator().manual_seed(8) if own else None
    loader = DataLoader(Count(30), 7, sampler=RandomSampler(Count(30), True, 100, generator))
    before = order.stated(loader)
    iterator = iter(loader)
    first = next(iterator)
    recipe = before if own else order.seeded(iterator)
    assert recipe is not None
    assert (recipe.kind, recipe.items, recipe.total) == (DRAWN, 30, 100)
    assert draws.make(recipe).tolist() == torch.cat([first, *iterator]).tolist()


@pytest.mark.parametrize("own", [False, True])
def test_draws_by_weights_are_told_by_a_state(own: bool) -> None:
    """Of the generator that the sampler has, or of torch's."""
    generator = torch.Generator().manual_seed(8) if own else None
    sampler = WeightedRandomSampler([1.0, 2.0, 3.0], 100, generator=generator)
    recipe = order.stated(DataLoader(Count(3), 7, sampler=sampler))
    assert recipe is not None
    assert (recipe.kind, recipe.items, recipe.total) == (WEIGHTED, 3, 100)
    assert weighted.learn(recipe, torch.arange(100).numpy(), torch.tensor(list(sampler)).numpy()) is not None


@pytest.mark.parametrize("strange", [[1.0, 2.0, 3.0], torch.ones(3, device="meta"), torch.nn.Parameter(torch.ones(3))])
def test_weights_that_are_no_plain_tensor_on_the_cpu_tell_nothing(strange: Any) -> None:
    """Nobody knows how they are drawn by."""
    sampler = WeightedRandomSampler([1.0, 2.0, 3.0], 100)
    sampler.weights = strange
    assert order.stated(DataLoader(Count(3), 7, sampler=sampler)) is None


def test_a_generator_that_is_no_mersenne_twister_tells_nothing() -> None:
    """Its state is another one."""

    class Other(torch.Generator):
        def get_state(self) -> Any:
            return torch.zeros(16, dtype=torch.uint8)

    sampler = WeightedRandomSampler([1.0] * 9, 9, generator=Other())
    assert order.stated(DataLoader(Count(9), 2, sampler=sampler)) is None


def test_samplers_around_samplers() -> None:
    """The one that shuffles is found where it runs."""
    sampler = Reseeded(Count(40), generator=torch.Generator())
    loader = DataLoader(Count(40), batch_sampler=Every(BatchSampler(sampler, 4, False)))
    found = shuffled(order.seeded(begun(loader)))
    assert found == torch.randperm(40, generator=torch.Generator().manual_seed(17)).tolist()
    assert order.stated(loader) is None


def test_reading_draws_nothing() -> None:
    """The states of all generators are the same, and so is what comes."""
    came = []
    for read in (False, True):
        torch.manual_seed(3)
        given_one = torch.Generator().manual_seed(4)
        orders = []
        samplers = (
            RandomSampler(Count(60)),
            RandomSampler(Count(60), generator=given_one),
            RandomSampler(Count(60), True),
            RandomSampler(Count(60), True, generator=given_one),
            WeightedRandomSampler([1.0] * 60, 60),
            WeightedRandomSampler([1.0] * 60, 60, generator=given_one),
        )
        for sampler in samplers:
            loader = DataLoader(Count(60), 4, sampler=sampler, generator=given_one)
            if read:
                order.stated(loader)
            iterator = iter(loader)
            first = next(iterator)
            if read:
                order.seeded(iterator)
            orders.append([first.tolist(), *(one.tolist() for one in iterator)])
        came.append((orders, torch.get_rng_state().tolist(), given_one.get_state().tolist()))
    assert came[0] == came[1]


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(Count(9), 2),
        DataLoader(Subset(Count(9), range(9)), 2, sampler=RandomSampler(Count(9), replacement=True)),
        DataLoader(Subset(Count(9), range(9)), 2, sampler=WeightedRandomSampler([1.0] * 9, 9)),
        DataLoader(Count(9), 2, sampler=WeightedRandomSampler([1.0] * 9, 9, replacement=False)),
        DataLoader(Count(9), 2, sampler=torch.utils.data.SubsetRandomSampler([8, 7, 6])),
        DataLoader(Count(9), 2, sampler=DistributedSampler(Count(9), 2, 0, shuffle=False)),
        DataLoader(Count(9), batch_sampler=[[1, 2], [3, 4]]),
    ],
)
def test_other_samplers_have_no_recipe(loader: Any) -> None:
    """In order, weighted without replacement, drawn from a subset, or of the user's own."""
    assert order.stated(loader) is None
    assert order.seeded(begun(loader)) is None


def test_small_datasets_have_no_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their orders take no room."""
    monkeypatch.setattr(order, "LEAST_ITEMS", 10)
    generator = torch.Generator()
    for count, expected in ((9, False), (10, True)):
        loader = DataLoader(Count(count), 2, shuffle=True, generator=generator)
        assert (order.stated(loader) is not None) == expected
        sampler = DistributedSampler(Count(count), 1, 0)
        for one in (DataLoader(Count(count), 2, shuffle=True), DataLoader(Count(count), 2, sampler=sampler)):
            assert (order.seeded(begun(one)) is not None) == expected
