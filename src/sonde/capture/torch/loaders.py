"""Follows the loaders of torch: items as their datasets give them, batches as they are collated and delivered.

During a fetch, the collate function of torch's fetcher and the iterator of an iterable dataset are replaced by ones that
note their calls. Getters (`__getitem__`, `get_*`) are patched on their classes for as long as the trace runs in this process.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sonde.capture import tape as tapes
from sonde.capture.context import ID_KEYS, UnfinishedBatch, Where, items_of
from sonde.capture.decorate import Noted, is_traced
from sonde.capture.definition import TraceDef, shown_name
from sonde.capture.torch.patched import (
    current_fetch,
    followed,
    is_module,
    name_item,
    note_calls,
    patch_class,
    patchable,
    restore,
)
from sonde.capture.torch.transforms import follow_transforms
from sonde.capture.traceable import traceable
from sonde.guard import guard
from sonde.hooks.torch import loader as hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sonde.values.note import Item

MAX_DATASETS = 16  # of datasets inside each other

_getitem = TraceDef(func_name="__getitem__", result_name="item", stage_name="dataset_getter")
_getitems = TraceDef(func_name="__getitems__", result_name="items", stage_name="dataset_getter")
_iter = TraceDef(func_name="__iter__", result_name="item", stage_name="dataset_getter")


class _State:
    watching: Callable[[], None] | None = None


def watch() -> None:
    """Follow fetches from now on, in this process. A forked worker does so already."""
    if _State.watching is None:
        _State.watching = hooks.fetch.subscribe(_FetchCalls())


def unwatch() -> None:
    """Follow them no longer, and put back what was patched on datasets and transforms."""
    if _State.watching is not None:
        _State.watching()
        _State.watching = None
    restore()


# ── one fetch ────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Swapped:
    """What was replaced for the time of one fetch."""

    def __init__(self, tape: tapes.Tape, fetch: UnfinishedBatch, outer: UnfinishedBatch | None) -> None:
        self.tape = tape
        self.fetch = fetch
        self.outer = outer
        self.undo: list[Callable[[], None]] = []

    def swap(self, owner: Any, name: str, value: Any) -> None:
        original = owner.__dict__[name]
        owner.__dict__[name] = value

        def back() -> None:
            owner.__dict__[name] = original

        self.undo.append(back)


class _FetchCalls:
    """Told of each fetch, in a worker or in the main process."""

    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> _Swapped | None:
        tape = tapes.current()
        if tape is not None and tape.over():
            tapes.become(None)
            restore()
            return None
        if tape is None:
            return None
        fetcher, asked = args[:2]
        fetch = _begun(tape, fetcher, asked)
        swapped = _Swapped(tape, fetch, tape.place.thread.fetch)
        tape.place.thread.fetch = fetch
        if fetch.wanted:
            with guard("following a fetch"):  # there has to be an end of what has begun
                _follow(swapped, fetcher)
        return swapped

    def after(self, swapped: _Swapped | None, _result: Any, _error: BaseException | None) -> None:
        if swapped is None:
            return
        swapped.tape.place.thread.fetch = swapped.outer
        for undo in reversed(swapped.undo):
            with guard("restoring what a fetch uses"):
                undo()


def _begun(tape: tapes.Tape, fetcher: Any, asked: Any) -> UnfinishedBatch:
    place = tape.place
    batch = hooks.fetching()
    own = tape.deliver is None  # this process uses what it fetches
    number = None if batch is None else batch.number
    passed = None if batch is None else batch.round
    indices = asked if batch is None or batch.indices is None else list(batch.indices)
    items = _items(fetcher, indices, hides=tape.hides)
    loader = None if batch is None else place.loader(batch.loader) if own else batch.loader
    if own:
        wanted = place.fetch_wanted(loader)
        where = Where(loader, number, tuple(items), place.epoch(passed), place.step() or 0)
    else:
        wanted = tape.near() if tape.plan.steps is not None else (number or 0) < (tape.plan.batches or sys.maxsize)
        where = Where(loader, number, tuple(items), passed, None)
    return UnfinishedBatch(where, wanted=wanted, hides=tape.hides)


def _items(fetcher: Any, indices: Any, *, hides: bool) -> list[Item]:
    if hasattr(fetcher, "dataset_iter"):
        return items_of(indices, _among_others(), hides=hides)
    return items_of(original(fetcher.dataset, indices), hides=hides)


def _among_others() -> int | None:
    """The number of this worker, if there are more of them."""
    info = sys.modules["torch"].utils.data.get_worker_info()
    return info.id if info is not None and info.num_workers > 1 else None


def original(dataset: Any, indices: Any) -> Any:
    """The indices in the innermost dataset, where `dataset` is a subset of one."""
    if not isinstance(indices, list | tuple):
        return indices
    with guard("finding the items of a subset", default=None):
        return [hooks.original_index(dataset, index) for index in indices]
    return indices


def _follow(swapped: _Swapped, fetcher: Any) -> None:
    fetch, dataset = swapped.fetch, fetcher.dataset
    swapped.swap(fetcher, "collate_fn", _collating(fetch, fetcher.collate_fn))
    if hasattr(fetcher, "dataset_iter"):
        swapped.swap(fetcher, "dataset_iter", _Iterating(fetch, fetcher.dataset_iter, type(dataset).__name__))
    elif not patchable(type(dataset)):
        swapped.swap(fetcher, "dataset", _DatasetProxy(fetch, dataset))
    for one in datasets(dataset):
        _follow_class(type(one))
        swapped.undo += follow_transforms(one)


# ── collating, iterating, lists as datasets ──────────────────────────────────────────────────────────────────────────


def _collating(fetch: UnfinishedBatch, function: Callable[..., Any]) -> Callable[[Any], Any]:
    name = str(getattr(function, "__name__", type(function).__name__))
    owner = getattr(function, "__self__", None)
    shown = tapes.name_of(owner, name) if owner is not None and not is_module(owner) else name
    definition = TraceDef(shown, name, result_name="batch", stage_name="collate")
    notes_itself = is_traced(getattr(function, "__func__", function))

    def collate(samples: Any) -> Any:
        fetch.all = True
        if isinstance(samples, list) and 0 < len(samples) < len(fetch.items):
            del fetch.items[len(samples) :]
        frame = None if notes_itself else tapes.follow(definition, shown, lambda: [("samples", samples)])
        return tapes.finish_call(frame, lambda: function(samples))

    return collate


class _Iterating:
    """The iterator of an iterable dataset, which notes each item that is taken from it."""

    def __init__(self, fetch: UnfinishedBatch, iterator: Iterator[Any], name: str) -> None:
        self.fetch = fetch
        self.iterator = iterator
        self.name = shown_name(name, "__iter__")

    def __iter__(self) -> _Iterating:
        return self

    def __next__(self) -> Any:
        fetch = self.fetch
        fetch.position += 1
        frame = tapes.follow(_iter, self.name, list)
        try:
            item = next(self.iterator)
        except StopIteration as error:
            tapes.withdraw(frame)
            raise error from None
        except BaseException as error:
            tapes.leave(frame, error=error)
            raise
        name_item(fetch, frame, item)
        tapes.leave(frame, item)
        return item


class _DatasetProxy:
    """Stands for a dataset whose class cannot be patched, such as a list or an array."""

    def __init__(self, fetch: UnfinishedBatch, dataset: Any) -> None:
        self._fetch = fetch
        self._dataset = dataset

    def __getitem__(self, index: Any) -> Any:
        return _got(self._fetch, type(self._dataset).__name__, index, lambda: self._dataset[index])

    def __len__(self) -> int:
        return len(self._dataset)


# ── getters ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _got(fetch: UnfinishedBatch, owner: str, index: Any, call: Callable[[], Any]) -> Any:
    """Get an item; the outermost getter of a fetch goes on to the next position."""
    if fetch.depth == 0:
        fetch.position += 1
    fetch.depth += 1
    try:
        frame = tapes.follow(_getitem, shown_name(owner, "__getitem__"), lambda: [("index", index)])
        try:
            result = call()
        except BaseException as error:
            tapes.leave(frame, error=error)
            raise
        if fetch.depth == 1:
            name_item(fetch, frame, result)
        tapes.leave(frame, result)
    finally:
        fetch.depth -= 1
    return result


def datasets(dataset: Any) -> list[Any]:
    """A dataset and those inside it: what a subset is a part of, what a chain is made of."""
    found: list[Any] = []
    waiting = [dataset]
    while waiting and len(found) < MAX_DATASETS:
        one = waiting.pop(0)
        if any(one is other for other in found):
            continue
        found.append(one)
        inside = getattr(one, "__dict__", {})
        several = inside.get("datasets")
        waiting += list(several) if isinstance(several, list | tuple) else []
        if patchable(type(inside.get("dataset"))):
            waiting.append(inside["dataset"])
    return found


def _follow_class(kind: type) -> None:
    """Note the getters of this class, if that is not done already."""
    if kind in followed or not patchable(kind):
        return
    followed.append(kind)
    if kind.__name__ == "Subset" and kind.__module__.startswith("torch."):
        return  # it only passes on
    for name in dir(kind):
        function = getattr(kind, name, None)
        if not callable(function) or is_traced(function):
            continue
        if name == "__getitem__":
            patch_class(kind, name, _item_getter)
        elif name == "__getitems__":
            patch_class(kind, name, _items_getter)
        elif name.startswith("get_"):
            patch_class(kind, name, _field_getter)


def _item_getter(function: Callable[..., Any]) -> Callable[..., Any]:
    def handler(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        fetch = current_fetch()
        if fetch is None or not fetch.wanted or len(args) < 2:
            return function(*args, **kwargs)
        return _got(fetch, type(args[0]).__name__, args[1], lambda: function(*args, **kwargs))

    return traceable(function, handler)


def _items_getter(function: Callable[..., Any]) -> Callable[..., Any]:
    def handler(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        fetch = current_fetch()
        if fetch is None or not fetch.wanted or fetch.depth or len(args) < 2:
            return function(*args, **kwargs)
        name = shown_name(type(args[0]).__name__, "__getitems__")
        frame = tapes.follow(_getitems, name, lambda: [("indices", args[1])], tuple(fetch.items))
        return tapes.finish_call(frame, lambda: function(*args, **kwargs))

    return traceable(function, handler)


def _field_getter(function: Callable[..., Any]) -> Callable[..., Any]:
    field = function.__name__.removeprefix("get_") or "return_value"
    noted = Noted(function, TraceDef(func_name=function.__name__, result_name=field, stage_name="dataset_getter"))
    return traceable(function, note_calls(function, noted, field if field in ID_KEYS else None))
