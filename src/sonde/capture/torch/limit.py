"""Limits loaders to one batch of a few items, so that a loop over them ends.

The program's loader is left as it is: its iterator is made of a copy, whose sampler gives the one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sonde.capture import tape
from sonde.capture.context import plain
from sonde.guard import guard
from sonde.hooks.torch import private

DRAWS = 100  # draws from a sampler for each item, at most: one that repeats itself may never have enough of them
AT_LEAST = 10_000


class OneBatch:
    """Stands for the sampler of a loader, and gives `count` different items of it, as one batch."""

    def __init__(self, source: Any, count: int) -> None:
        self.source = source
        self.count = count

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[list[Any]]:
        chosen = list(_different(_flat(self.source), self.count))
        if chosen:
            yield chosen


class FewItems:
    """The same for a loader that gives items one by one; a sampler that gives lists is asked for one list."""

    def __init__(self, source: Any, count: int) -> None:
        self.source = source
        self.count = count

    def __len__(self) -> int:
        return 1 if hasattr(self.source, "batch_size") else self.count

    def __iter__(self) -> Iterator[Any]:
        drawn = iter(self.source)
        for first in drawn:
            again = _chain(first, drawn)
            if isinstance(first, list):
                yield list(_different(_flat(again), self.count))
            else:
                yield from _different(again, self.count)
            return


class Ordinals:
    """For an iterable dataset, which is asked for a number of items, and not for certain ones."""

    def __init__(self, count: int, *, batched: bool) -> None:
        self.asked: list[Any] = [[None] * count] if batched else [None] * count

    def __len__(self) -> int:
        return len(self.asked)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.asked)


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _flat(batches: Any) -> Iterator[Any]:
    for batch in batches:
        yield from batch


def _different(indices: Iterator[Any], count: int) -> Iterator[Any]:
    seen: set[object] = set()
    for draws, index in enumerate(indices):
        key = plain(index)
        if key not in seen:
            seen.add(key)
            yield index
        if len(seen) >= count or draws >= max(AT_LEAST, DRAWS * count):
            return


def limited_iter(original: Callable[[Any], Any], loader: Any) -> Any:
    """In the place of `DataLoader.__iter__`: the iterator of a copy that ends after one batch."""
    count = _asked()
    made = None if count is None else view(loader, count)
    if made is None:
        return original(loader)
    iterator = original(made)
    _feed(iterator)
    return iterator


@guard("feeding the workers of a limited loader")
def _feed(iterator: Any) -> None:
    """Let each worker have the thread that feeds it, as in a whole loop, also those that get nothing of the one batch.

    Else the thread starts when the iterator ends. If that is in the garbage collector, as after an exception of a worker, the
    collector closes its pipe first, and the thread writes to and closes a number that may be the program's by then.
    """
    for queue in private.index_queues(iterator):
        with queue._notempty:
            if queue._thread is None:
                queue._start_thread()


@guard("limiting a loader", default=None)
def view(loader: Any, count: int) -> Any:
    """A copy of the loader that gives one batch of `count` items, with workers of its own; None if that cannot be."""
    copy = object.__new__(type(loader))
    copy.__dict__.update(loader.__dict__)
    batched = loader.batch_sampler is not None
    sampler: Any
    if private.has_endless_sampler(loader):
        sampler = Ordinals(count, batched=batched)
    else:
        sampler = OneBatch(_batches(loader), count) if batched else FewItems(loader.sampler, count)
    # Past __setattr__, which forbids all this on a loader that is in use.
    copy.__dict__.update(drop_last=False, persistent_workers=False, **private.WITHOUT_ITERATOR)
    copy.__dict__["batch_sampler" if batched else "sampler"] = sampler
    return copy


def _batches(loader: Any) -> Any:
    """What gives the loader's indices, in groups. Torch's own sampler of batches may drop some: they are one group."""
    own = type(loader.batch_sampler).__name__ == "BatchSampler" and loader.batch_size is not None
    return [loader.sampler] if own else loader.batch_sampler


def limited_len(original: Callable[[Any], int], loader: Any) -> int:
    """In the place of `DataLoader.__len__`: as many batches as a loop over it now gives."""
    count = _asked()
    length = original(loader)
    if count is None:
        return length
    if not length and loader.drop_last and not private.has_endless_sampler(loader):
        length = len(loader.sampler)  # too few for a whole batch, but not for a small one
    several = loader.batch_sampler is None and not hasattr(loader.sampler, "batch_size")
    return min(length, count if several else 1)


def _asked() -> int | None:
    return tape.limit()
