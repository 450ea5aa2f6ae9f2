"""Loaders: in which order the items of a group are visited, in which batches, and by which rank."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sonde.ai.tree import ai
from sonde.errors import ConfigError, SondeError
from sonde.pipeline.data.split import counted
from sonde.pipeline.training.distributed import ALONE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.utils.data import DataLoader, Dataset

    from sonde.pipeline.config import Config
    from sonde.pipeline.data.provider import DataProvider
    from sonde.pipeline.job import Job
    from sonde.pipeline.training.distributed import World

_collate = ai.dataloader.derive(name="collate")


class Order:
    """Gives the indices of one epoch in batches: each item once, or, with weights, drawn with replacement.

    The order is made of the seed and the number of the epoch, so that a run that is resumed visits what it would have.
    Several ranks take turns. A rank that has no item left for a batch that others have gets none.
    """

    def __init__(self, indices: Sequence[int], size: int, world: World = ALONE, *, drop_last: bool = False) -> None:
        self.indices = np.asarray(indices, np.int64)
        self.size = size
        self.world = world
        self.drop_last = drop_last
        self.seed: int | None = None  # None: in the order in which they are
        self.weights: np.ndarray[Any, np.dtype[np.float64]] | None = None
        self.epoch = 0

    def shuffled(self, seed: int, weights: np.ndarray[Any, np.dtype[np.float64]] | None = None) -> Order:
        """The same, in a new order each epoch."""
        self.seed = seed
        self.weights = weights
        return self

    def __len__(self) -> int:
        together = self.size * self.world.size
        count = len(self.indices)
        return count // together if self.drop_last else -(-count // together)

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of this rank that have items in them."""
        mine = self._visited()[self.world.rank :: self.world.size]
        for number in range(len(self)):
            batch = mine[number * self.size : (number + 1) * self.size]
            if len(batch):
                yield batch.tolist()

    def filled(self) -> int:
        """How many batches of this rank have items in them."""
        mine = len(range(self.world.rank, len(self.indices), self.world.size))
        return min(len(self), -(-mine // self.size))

    def _visited(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        if self.seed is None:
            return self.indices
        chance = np.random.default_rng((self.seed, self.epoch))
        if self.weights is None:
            return chance.permutation(self.indices)
        return chance.choice(self.indices, len(self.indices), p=self.weights)


class Collating:
    """The provider's collate function, recorded. It can be pickled for workers that are not forked."""

    __slots__ = ("provider",)

    def __init__(self, provider: DataProvider) -> None:
        self.provider = provider

    def __call__(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        with _collate:
            return self.provider.collate(samples)


class Batches:
    """What a loop runs over: a loader, and the order in which it visits the items."""

    def __init__(self, provider: DataProvider, loader: DataLoader[Any], order: Order) -> None:
        self.provider = provider
        self.loader = loader
        self.order = order

    def begin(self, epoch: int) -> None:
        """The next pass is that of this epoch: items come in its order, and are augmented in its way."""
        self.order.epoch = self.provider.epoch = epoch

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[dict[str, Any] | None]:
        """The batches, each fetch recorded; None in the place of those that only other ranks have."""
        with warnings.catch_warnings():
            # Lance warns of every fork after it was loaded. A dataset that uses it is not forked: see `_method`.
            warnings.filterwarnings("ignore", "lance is not fork-safe", UserWarning)
            batches = iter(self.loader)
        filled = self.order.filled()
        for number in range(len(self.order)):
            if number >= filled:
                yield None
                continue
            with ai.dataloader.fetch:
                batch = _next(batches)
            yield batch


def _next(batches: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """The next batch. What torch makes of an error in a worker, a traceback, becomes the error's own message again."""
    try:
        return next(batches)
    except SondeError as error:
        name = f"{type(error).__module__}.{type(error).__qualname__}: "
        _, named, message = str(error).rpartition(name)
        if not named:
            raise
        raise type(error)(message.strip()) from error


def batches(job: Job, provider: DataProvider, world: World = ALONE, *, training: bool = False) -> Batches:
    """The batches of a provider: for training in the order that the config asks for, else in the provider's own."""
    from torch.utils.data import DataLoader

    table = job.config["data_loader"]
    workers = job.number("data_loader", "num_workers", 0)
    order = Order(
        job.indices(provider), job.number("data_loader", "batch_size"), world, drop_last=training and table["drop_last"]
    )
    weights = _weights(job.config, provider) if training else None
    if training and (table["shuffle"] or weights is not None):
        order.shuffled(job.seed, weights)
    loader: DataLoader[Any] = DataLoader(
        cast("Dataset[Any]", provider),  # what has __len__ and __getitem__ is one for torch
        batch_sampler=order,
        collate_fn=Collating(provider),
        num_workers=workers,
        pin_memory=table["pin_memory"],
        timeout=table["timeout"],
        multiprocessing_context=_method(job.config, provider) if workers else None,
    )
    return Batches(provider, loader, order)


def _method(config: Config, provider: DataProvider) -> str | None:
    """How workers are started. Not by forking if a dataset says that it does not work after that."""
    safe = all(getattr(dataset, "fork_safe", True) for dataset in provider.datasets.values())
    return config["data_loader"]["start_method"] or (None if safe else "spawn")


def _weights(config: Config, provider: DataProvider) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """The share of each item in what is drawn, if the config asks for weighting."""
    wanted, balanced = config["data_loader"]["weight_field"], config["data_loader"]["balance_field"]
    if balanced:
        if wanted:
            raise ConfigError("data_loader has both weight_field and balance_field. Keep one.")
        kinds, counts = counted(provider.column(balanced), "data_loader.balance_field")
        equal: np.ndarray[Any, np.dtype[np.float64]] = 1 / counts[kinds] / len(counts)
        return equal
    if not wanted:
        return None
    friendly, _, field = wanted.partition(".")
    where = f"data_loader.weight_field is {wanted!r}"
    try:
        raw = [provider.resolve_data(index)[friendly][field] for index in range(len(provider))]
    except KeyError as error:
        raise ConfigError(f"{where}, but the items have no {error}. Give it as 'name.field'.") from None
    weights = np.asarray(raw, np.float64).reshape(-1)
    if len(weights) != len(provider) or not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum():
        raise ConfigError(
            f"{where}, whose values are not valid weights: they must be finite and not negative, one per item."
        )
    share: np.ndarray[Any, np.dtype[np.float64]] = weights / weights.sum()
    return share
