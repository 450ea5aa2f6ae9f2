"""Making a batch, in a worker or here: the fetch, and each of its items.

Items are timed without touching the dataset: torch iterates over a list of indices, and gets one that notes when the next
is asked for. Where the dataset makes a whole batch itself (`__getitems__`) only the fetch is seen, and its indices are
among its arguments.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.hooks.torch import loader as hooks
from sonde.probes import step
from sonde.probes.files import items as files, reads
from sonde.probes.loader.listeners import Failed, report_unmade, reporting, subscribed
from sonde.probes.loader.state import following, key_of, process, thread
from sonde.probes.process import sampler
from sonde.store.probe import FETCH, ITEM, PROBE, batch_key
from sonde.store.record import DETAIL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sonde.events.cores import core as types

MOST_INDICES = 256  # of a batch whose items cannot be seen

fetch_span = core.Span(FETCH, PROBE, base=step.phases)
item_span = core.Span(ITEM, PROBE, level=DETAIL, base=step.phases)


class Items(list[Any]):
    """The indices of a batch; the time between two requests for the next one is that of an item."""

    # Without `__init__` and slots: a batch costs as many Python frames less.
    keys: Sequence[int | types.Span] = ()
    inner: Any = None
    loop: Any = None
    batch: int | None = None  # its key, where files are watched

    def __iter__(self) -> Iterator[Any]:
        self.inner = list.__iter__(self)
        self.loop = core.iterate_keyed(self.inner, self.keys, item_span)
        return files.Asked(self.loop, self.batch) if reads.process.on else self.loop

    def at(self) -> int | None:
        """The place of the item that is being made; None: all are made, or none."""
        handed = self.loop.count if self.loop is not None else 0
        all_made = handed and len(self.inner.__reduce__()) < 3  # an iterator that has ended knows its list no more
        return handed - 1 if handed and not all_made else None


class Fetch:
    """One call of `fetch`, and what was replaced for the time of it."""

    fetcher: Any
    asked: Any
    given: Items | None = None  # what is given to torch in place of `asked`
    span = fetch_span
    key: int | None = None
    loop: Any = None  # over the items of an iterable dataset
    first = 0  # the number of the first of these
    item: types.Span | None = None  # of the only item, where there is no automatic batching
    index: int | None = None  # its number
    swapped: str | None = None  # an attribute of the fetcher
    original: Any = None
    collate: Any = None  # what collates, where something else is called around it

    def prepare(self, indices: tuple[Any, ...] | None) -> None:
        """See that the items are seen."""
        fetcher, asked = self.fetcher, self.asked
        if hasattr(fetcher, "dataset_iter"):
            self.first = indices[0] if indices else 0
            if hasattr(type(fetcher.dataset_iter), "__next__"):  # else torch says what is wrong
                inner = fetcher.dataset_iter
                watched = files.AwaitedItems(inner, self.key) if reads.process.on else inner
                self.loop = core.iterate_on(watched, item_span, self.first)
                self._swap("dataset_iter", self.loop)
            return
        if indices is None:
            indices = hooks.plain(asked, batched=fetcher.auto_collation)
        if indices is None:
            return
        if not fetcher.auto_collation and not isinstance(asked, list) and len(indices) == 1:
            only = _keys(indices, fetcher.dataset)[0]
            self.item, self.index = (item_span, only) if type(only) is int else (only, None)
            self._swap("collate_fn", partial(_collate, self, fetcher.collate_fn))
        elif fetcher.auto_collation and hooks.item_by_item(fetcher.dataset):
            self.given = Items(asked)
            self.given.keys, self.given.batch = _keys(indices, fetcher.dataset), self.key
        else:
            self.span = _batch_span(original_numbers(indices[:MOST_INDICES], fetcher.dataset), len(indices))

    def _swap(self, name: str, value: Any) -> None:
        self.swapped, self.original = name, getattr(self.fetcher, name)
        setattr(self.fetcher, name, value)

    def blame(self) -> tuple[int | None, Any]:
        """The place and the number of the item that is being made. To be asked before `end`."""
        if self.item is not None:
            return 0, self.index
        if self.loop is not None:
            made, asked = self.loop.count, hooks.plain(self.asked, batched=self.fetcher.auto_collation)
            return (made, self.first + made) if asked is None or made < len(asked) else (None, None)
        place = self.given.at() if self.given is not None else None
        if self.given is None or place is None:
            return None, None
        key = self.given.keys[place] if place < len(self.given.keys) else None
        return place, key if type(key) is int else None

    def end_item(self, error: type[BaseException] | None) -> None:
        """The item has been made, or failed."""
        item, self.item = self.item, None
        if item is not None:
            files.end_item()
            core.leave(item, None, error)

    def end(self, error: type[BaseException] | None) -> None:
        """Put back what was replaced, and close what is open."""
        if self.collate is not None:
            self.fetcher.collate_fn = self.collate
        if self.swapped is not None:
            setattr(self.fetcher, self.swapped, self.original)
        if reads.process.on:
            files.end_item()  # one that failed, or a batch that is made at once
        self.end_item(error)
        if self.given is not None and self.given.loop is not None:
            self.given.loop.close(error)
        if error is not None and issubclass(error, StopIteration) and not (self.loop and self.loop.count):
            core.cancel(self.span)  # a stream that had ended
        else:
            core.leave(self.span, None, error)


def fetching(original: Callable[..., Any]) -> Callable[..., Any]:
    """What is called in the place of torch's `fetch`."""

    def fetch(fetcher: Any, asked: Any) -> Any:
        begun = _begin_fetch(fetcher, asked)
        if begun is None:
            return original(fetcher, asked)
        try:
            data = original(fetcher, asked if begun.given is None else begun.given)
        except BaseException as error:
            _end_fetch(begun, type(error))
            raise
        _end_fetch(begun, None)
        return data

    return fetch


@following
def _begin_fetch(fetcher: Any, asked: Any) -> Fetch | None:
    batch = hooks.fetching()
    if thread.fetch is not None or hooks.made_fast() or (process.worker and (batch is None or batch.worker is None)):
        return None
    fetch = Fetch()
    fetch.fetcher, fetch.asked, fetch.key = fetcher, asked, key_of(batch)
    if item_span.on:
        fetch.prepare(None if batch is None else batch.indices)
    thread.fetch = fetch
    core.enter(fetch.span, fetch.key)
    if fetch.item is not None:
        core.enter(fetch.item, fetch.index)
    if reads.process.on and fetch.given is None and fetch.loop is None:
        files.begin_item(fetch.key, None if fetch.item is None else 0)
    if subscribed.around is not None:
        collate = fetcher.collate_fn
        fetcher.collate_fn, fetch.collate = subscribed.around(collate), collate
    return fetch


@following
def _end_fetch(fetch: Fetch, error: type[BaseException] | None) -> None:
    thread.fetch = None
    if error is not None and subscribed.failures and not issubclass(error, StopIteration):
        with reporting:
            batch = hooks.fetching()
            report_unmade(Failed(fetch.key, *fetch.blame(), None if batch is None else batch.worker))
    fetch.end(error)
    if process.worker:
        sampler.tick()


@following
def first_key(fetcher: Any) -> int | None:
    """The key of the first batch of this fetcher, if its batches are made item by item, and the items have their own numbers."""
    begun, dataset = hooks.at_work(), fetcher.dataset
    whole = not fetcher.auto_collation or getattr(dataset, "__getitems__", None)
    if begun is None or whole or isinstance(dataset, sys.modules["torch"].utils.data.Subset):
        return None
    return batch_key(*begun, 0)


@following
def unmade(
    fetcher: Any, asked: Any, key: int, error: type[BaseException], items: Items | None, loop: Any, first: int,
    span: types.Span, index: int | None,
) -> None:  # fmt: skip
    """A batch that was made by the fast path failed. `items`, `loop` with `first`, `index`: of its kind of batch, as in a `Fetch`."""
    fetch = Fetch()
    fetch.fetcher, fetch.asked, fetch.key, fetch.span = fetcher, asked, key, span
    fetch.given, fetch.loop, fetch.first = items, loop, first
    fetch.index, fetch.item = index, None if index is None else item_span
    _end_fetch(fetch, error)


@following
def together(numbers: tuple[int, ...]) -> types.Span:
    """The span of a batch that is made at once, on the fast path."""
    return _batch_span(numbers[:MOST_INDICES], len(numbers)) if item_span.on else fetch_span


def _collate(fetch: Fetch, collate: Callable[[Any], Any], data: Any) -> Any:
    with following:
        fetch.end_item(None)
    return collate(data)


def _keys(indices: Sequence[Any], dataset: Any) -> Sequence[Any]:
    """For each item its number in the dataset; for one that has none, a span with the key among its arguments."""
    found = original_numbers(indices, dataset)
    if set(map(type, found)) <= {int}:
        return found
    return [key if type(key) is int else _named_item(place, key) for place, key in enumerate(found)]


def _named_item(place: int, key: Any) -> types.Span:
    return core.Span(ITEM, PROBE, key=place, args={"key": key}, level=DETAIL, base=step.phases)


def _batch_span(numbers: Sequence[Any], count: int) -> types.Span:
    facts = {"indices": list(numbers), "count": count}
    return core.Span(FETCH, PROBE, args=facts, base=step.phases)


def original_numbers(indices: Sequence[Any], dataset: Any) -> Sequence[Any]:
    """The numbers in the innermost dataset, where this one is a subset (of a subset...) of it."""
    subset = sys.modules["torch"].utils.data.Subset
    if not isinstance(dataset, subset):
        return indices
    while isinstance(dataset, subset):
        chosen, dataset = dataset.indices, dataset.dataset
        indices = [chosen[index] for index in indices]
    return indices if set(map(type, indices)) <= {int} else [hooks.as_number(index) for index in indices]
