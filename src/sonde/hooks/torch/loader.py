"""`DataLoader`: its iterations, the batches it delivers with number, indices and worker, and fetching in the workers.

    loader_iter    `DataLoader.__iter__(loader)`
    loader_len     `DataLoader.__len__(loader)`
    next_index     the iterator asks its sampler for the next list of indices (replace it to change what is loaded)
    next_batch     `__next__` of the iterator; in `after`, `delivered(iterator)` says which batch it was
                   (in a fast path: `end_fetch(iterator)`, when the original has returned)
    fetch          `fetch(fetcher, indices)`, in the worker or, without workers, in the main process; in `before` and
                   during the call, `fetching()` says for which batch. A subscriber may swap `fetcher.dataset` and
                   `fetcher.collate_fn` for the time of the call.

Forked workers inherit the subscribers of the main process. Into others nothing is inherited: name a function by
`start_in_workers`, and it is called in every worker, forked or not, before its work begins. Workers that were started
before the first subscriber came (persistent ones) are not seen.
"""

from __future__ import annotations

import operator
import sys
import threading
from functools import partial
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from sonde.guard import guard
from sonde.hooks.points import Point, dressed, notifying
from sonde.hooks.torch import private
from sonde.hooks.torch.status import native
from sonde.native import loader as fast
from sonde.store.probe import HIGHEST_NUMBER, batch_key
from sonde.weak import WeakTable

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from sonde.hooks.points import Arguments, Attribute, Keywords, Link


_WHOLE = {int}
ONE_BY_ONE, AT_ONCE, SINGLY, FLOWING = range(4)  # how a loader makes its batches: as in native/loader.c


class Batch(NamedTuple):
    """Which batch of which loader.

    `number` counts what the sampler gave, from 0 in each round, whatever the order of delivery; with workers that read an
    iterable dataset, numbers of workers that had no more data are left out. `indices` are those that the loader's
    dataset is asked for. An iterable dataset has none: they are ordinals then, from 0 in each worker and round, and the
    last batch may have fewer items. None stands for what is not known, as for batches that were under way when the first
    subscriber came.
    """

    loader: int | None  # loaders are numbered from 0 in each process
    number: int | None
    indices: tuple[Any, ...] | None
    worker: int | None  # None: loaded by the main process
    round: int | None = None  # which iteration over this loader, from 0


class _LoaderRounds:
    """One loader."""

    __slots__ = ("begun", "number")

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.begun = 0


class _IteratorState:
    """What is known of one iterator."""

    __slots__ = ("asked", "batch", "filed", "loader", "ordinals", "round")

    def __init__(self) -> None:
        self.loader: int | None = None
        self.round: int | None = None
        self.renew()

    def renew(self) -> None:
        """A new round begins (an iterator with persistent workers is used again)."""
        self.loader, self.round = _thread.starting or (self.loader, None)
        self.batch: Batch | None = None  # the one that was delivered last, not by the fast path
        self.asked: object = None  # the list that the sampler gave last
        self.filed: dict[int, tuple[tuple[Any, ...] | None, int]] = {}  # number -> indices, worker
        self.ordinals: dict[int | None, int] = {}  # worker -> items of an iterable dataset asked for so far


class _KnownIterator(NamedTuple):
    """The iterator whose books were asked for last."""

    iterator: Callable[[], Any]
    iteration: _IteratorState


class _Thread(threading.local):
    known: _KnownIterator | None = None
    starting: tuple[int, int] | None = None  # the loader and round whose iterator is being made
    iterator: Any = None  # the one whose __next__ runs
    iteration: _IteratorState | None = None  # its books
    fetching: Batch | None = None


class _Worker:
    """This process, if it is a worker."""

    id: int | None = None  # of the workers of its loader, from 0
    loader: int | None = None
    round: int | None = None  # of the fetcher that was made last
    number: int | None = None  # of the batch that it is at
    ordinals = 0


class _Fast:
    """The fast path of plain batches."""

    parts: dict[str, Any] | None = None
    inspect: Callable[[Any], int | None] | None = None


_batch = partial(tuple.__new__, Batch)  # without a Python frame
_thread = _Thread()
_worker = _Worker()
_numbers = count()
_loaders: WeakTable[_LoaderRounds] = WeakTable()
_iterations: WeakTable[_IteratorState] = WeakTable()
_starters: list[tuple[str, tuple[Any, ...]]] = []


def delivered(iterator: Any) -> Batch | None:
    """The batch that this iterator delivered last, or failed to deliver; None at its end, and for foreign iterators."""
    iteration = _iterations.get(iterator)
    return iteration.batch if iteration else None


def end_fetch(iterator: Any) -> Batch | None:
    """The same inside a fast path of `next_batch`, when the original has returned or failed; not at the end of the loop."""
    iteration = _thread.iteration if _thread.iterator is iterator else None
    if iteration is None:
        return None
    if iteration.filed:
        _find_delivered(iterator, iteration)
    return iteration.batch


def round_of(iterator: Any) -> tuple[int, int] | None:
    """The loader of an iterator and the round that this is; None: it began before anybody looked."""
    iteration = _iteration(iterator)
    return None if iteration.loader is None or iteration.round is None else (iteration.loader, iteration.round)


def fetching() -> Batch | None:
    """The batch that is being fetched in this thread, in a worker or in the main process."""
    batch = _thread.fetching
    if batch is None and native is not None:
        plain = fast.fetching()
        return None if plain is None else fast.coming() or _worker_batch(*plain)
    return batch


def waiting() -> bool:
    """Is a batch waited for in this thread by the fast path?"""
    return native is not None and fast.waiting()


def made_fast() -> bool:
    """Is a batch made in this thread by the fast path?"""
    return native is not None and fast.fetching() is not None


def use_fast_path(parts: dict[str, Any], inspect: Callable[[Any], int | None] | None = None) -> None:
    """Let plain batches take the fast path from now on, until `rest`; see `batches` in `native/loader.pyi`.

    `parts`: those of the probe. `inspect`: this is a loader worker, and what is known of a fetcher. Where a point of loaders has
    subscribers it is not taken. Without the C module nothing happens.
    """
    _Fast.parts, _Fast.inspect = parts, inspect
    _review()


def rest() -> None:
    """Let batches take the fast path no more."""
    _Fast.parts = None
    _review()


def worker_number() -> int | None:
    """Which of the workers of its loader this process is; None: it is none."""
    return _worker.id


def at_work() -> tuple[int, int] | None:
    """The loader that this worker works for, and its round; None: not known, or this is no worker."""
    if _worker.loader is None or _worker.round is None or sys.modules["torch"].utils.data.get_worker_info() is None:
        return None
    return _worker.loader, _worker.round


def starting() -> tuple[int, int] | None:
    """The loader, and its round, whose iterator is being made in this thread."""
    return _thread.starting


def loader_number(loader: Any) -> int:
    """The number of this loader, as in `Batch.loader`."""
    return _rounds(loader).number


def original_index(dataset: Any, index: Any) -> Any:
    """The index in the innermost dataset, where `dataset` is a subset (of a subset...) of it."""
    subset = sys.modules["torch"].utils.data.Subset
    while isinstance(dataset, subset):
        dataset, index = dataset.dataset, dataset.indices[index]
    return index


def start_in_workers(function: Callable[..., object], *arguments: Any) -> Callable[[], None]:
    """Call a function of a module with these arguments in each worker that starts from now on.

    The arguments travel with the worker's task: small values that can be pickled. Returns the function that ends it.
    """
    # By name: a spawned worker could not be started if unpickling the function failed.
    starter = (f"{function.__module__}:{function.__qualname__}", arguments)
    _starters.append(starter)
    worker_loop.hold()

    def leave() -> None:
        if any(one is starter for one in _starters):
            _starters[:] = [one for one in _starters if one is not starter]
            worker_loop.release()

    return leave


# ── bookkeeping ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _rounds(loader: Any) -> _LoaderRounds:
    rounds = _loaders.get(loader)
    if rounds is None:
        rounds = _loaders[loader] = _LoaderRounds()
    return rounds


def _iteration(iterator: Any) -> _IteratorState:
    """The books of this iterator; of one that was at work before, as far as it can be known."""
    last = _thread.known
    if last is not None and last.iterator() is iterator:
        return last.iteration
    iteration = _iterations.get(iterator)
    if iteration is None:
        iteration = _iterations[iterator] = _IteratorState()
        for number, task in private.tasks(iterator).items():
            iteration.filed[number] = (None, task[0])
    _thread.known = _KnownIterator(ref(iterator), iteration)
    return iteration


class _IterKeeper:
    """Knows which loader an iterator belongs to, and which round this is."""

    def before(self, args: Arguments, _kwargs: Keywords) -> tuple[int, int] | None:
        outer = _thread.starting
        rounds = _rounds(args[0])
        _thread.starting = (rounds.number, rounds.begun)
        rounds.begun += 1
        return outer

    def after(self, outer: tuple[int, int] | None, iterator: Any, error: BaseException | None) -> None:
        starting, _thread.starting = _thread.starting, outer
        if native is not None:
            fast.forget()
        if error is None and private.is_loader_iterator(iterator):
            iteration = _iteration(iterator)
            iteration.loader, iteration.round = starting or (None, None)


class _IndexKeeper:
    """Remembers what the sampler gave."""

    token_is_first = True

    def before(self, args: Arguments, _kwargs: Keywords) -> Any:
        return args[0]

    def after(self, iterator: Any, index: Any, error: BaseException | None) -> None:
        iteration = _thread.iteration if _thread.iterator is iterator else None
        if iteration is None:
            iteration = _iteration(iterator)
        iteration.asked = index
        if error is None and not private.has_workers(iterator):  # no workers: what is asked for is loaded at once
            indices = _indices(iterator, iteration, None)
            iteration.batch = _batch((iteration.loader, private.num_yielded(iterator), indices, None, iteration.round))


class _PutKeeper:
    """Files what was sent to which worker."""

    def before(self, args: Arguments, _kwargs: Keywords) -> tuple[Any, _IteratorState, int]:
        iterator = args[0]
        iteration = _iteration(iterator)
        if private.send_index(iterator) == 0:
            iteration.renew()
        return iterator, iteration, private.send_index(iterator)

    def after(self, token: tuple[Any, _IteratorState, int], _result: None, _error: BaseException | None) -> None:
        iterator, iteration, number = token
        if private.send_index(iterator) > number:
            worker = private.tasks(iterator)[number][0]
            iteration.filed[number] = (_indices(iterator, iteration, worker), worker)


class _NextKeeper:
    """Finds out which batch is delivered."""

    def before(self, args: Arguments, _kwargs: Keywords) -> tuple[Any, _IteratorState, Any, _IteratorState | None]:
        iterator, outer, outer_iteration = args[0], _thread.iterator, _thread.iteration
        iteration = _iteration(iterator)
        iteration.batch = None
        _thread.iterator, _thread.iteration = iterator, iteration
        return iterator, iteration, outer, outer_iteration

    def after(
        self, token: tuple[Any, _IteratorState, Any, _IteratorState | None], _data: Any, error: BaseException | None
    ) -> None:
        iterator, iteration, _thread.iterator, _thread.iteration = token
        if isinstance(error, StopIteration):
            iteration.batch = None
        elif iteration.filed:
            _find_delivered(iterator, iteration)


def _find_delivered(iterator: Any, iteration: _IteratorState) -> None:
    """With workers, it is the one with the highest number that is outstanding no more."""
    gone = [number for number in iteration.filed if number not in private.tasks(iterator)]
    if gone:
        filed = {number: iteration.filed.pop(number) for number in gone}
        iteration.batch = _batch((iteration.loader, max(gone), *filed[max(gone)], iteration.round))


class _FetcherKeeper:
    """In a worker, each round begins with a new fetcher."""

    def before(self, _args: Arguments, _kwargs: Keywords) -> None:
        if _worker.round is not None:
            _worker.round += 1
            _worker.ordinals = 0

    def after(self, _token: None, _result: None, _error: BaseException | None) -> None:
        pass


class _FetchKeeper:
    """Knows for which batch items are fetched. Modules that are called meanwhile take no fast path, on which one cannot ask."""

    def before(self, args: Arguments, _kwargs: Keywords) -> Batch | None:
        outer = _thread.fetching
        iteration = _thread.iteration
        _thread.fetching = _coming(*args[:2]) if iteration is None else iteration.batch
        if native is not None:
            native.mute(True)
        return outer

    def after(self, outer: Batch | None, _data: Any, _error: BaseException | None) -> None:
        _thread.fetching = outer
        if native is not None:
            native.mute(outer is not None)


def _indices(iterator: Any, iteration: _IteratorState, worker: int | None) -> tuple[Any, ...] | None:
    indices = plain(iteration.asked, batched=private.auto_collation(iterator))
    if indices is None or not private.is_iterable(iterator):
        return indices
    start = iteration.ordinals.get(worker, 0)
    iteration.ordinals[worker] = start + len(indices)
    return tuple(range(start, start + len(indices)))


def plain(asked: object, batched: bool) -> tuple[Any, ...] | None:
    """The indices in what a sampler gave; None if they cannot be read without being used up.

    Without automatic batching (`batch_size=None`) a list stands for several, and anything else is one key.
    """
    several: tuple[type, ...] = (list, tuple, range) if batched else (list,)
    if isinstance(asked, several) or hasattr(asked, "tolist"):
        rows = asked.tolist() if hasattr(asked, "tolist") else asked
        if type(rows) is list and set(map(type, rows)) == _WHOLE:  # as nearly always
            return tuple(rows)
        return tuple(map(as_number, rows)) if isinstance(rows, list | tuple | range) else (as_number(rows),)
    return None if batched else (as_number(asked),)


def as_number(index: Any) -> Any:
    """A plain number where it is one (NumPy's, or a tensor), else the key as it is."""
    try:
        return operator.index(index)
    except TypeError:
        return index


def _coming(fetcher: Any, asked: Any) -> Batch | None:
    """The batch that is made for a wait by the fast path, or in a worker."""
    coming: Batch | None = None if native is None else fast.coming()
    return coming or _worker_batch(fetcher, asked)


# ── the fast path ────────────────────────────────────────────────────────────────────────────────────────────────────


def _review() -> None:
    """Say anew whether there is a fast path, and what happens on it."""
    if native is None:
        return
    crowded = any(point.subscribers or point.replaced for point in (next_index, _put, next_batch, fetch))
    if crowded or _Fast.parts is None:
        fast.rest()
        return
    inspect, worker = _Fast.inspect, _Fast.inspect is not None
    fast.batches(
        **_Fast.parts, most=HIGHEST_NUMBER, main=threading.main_thread().ident, batch=Batch, account=_accounting(_account),
        plain=_accounting(plain), worker=_worker if worker else None,
        fetcher=private.fetcher_class(iterable=False) if worker else None, inspect_fetcher=inspect,
    )  # fmt: skip


_accounting = guard("classifying a loader")


def _account(iterator: Any) -> dict[str, Any] | None:
    """What the fast path has to know of an iterator; None: its first batch does not take it."""
    iteration = _iterations.get(iterator)
    if iteration is None or iteration.loader is None or iteration.round is None or iteration.batch is None:
        return None
    torch = sys.modules["torch"]
    data, stream = torch.utils.data, private.is_iterable(iterator)
    plain = type(iterator) in private.iterator_classes()
    key = batch_key(iteration.loader, iteration.round, 0) if plain and not unpacks(iterator) else -1
    filed, ordinals = iteration.filed if private.has_workers(iterator) else None, iteration.ordinals if stream else None
    fetcher = private.fetcher(iterator)
    if type(fetcher) is not private.fetcher_class(iterable=stream):
        fetcher = None
    subset = not stream and isinstance(private.dataset(iterator), data.Subset)
    return {
        "reference": ref(iterator), "key": key, "loader": iteration.loader, "round": iteration.round, "filed": filed, "ordinals": ordinals,
        "fetcher": fetcher, "subset": subset, "batched": private.auto_collation(iterator), "making": _making(iterator, stream=stream),
        "tensor": torch.Tensor,
    }  # fmt: skip


def unpacks(iterator: Any) -> bool:
    """Is a collate function of the program's given one item at a time? Then that may be a batch itself."""
    collate = sys.modules["torch"].utils.data.default_collate
    return (
        getattr(private.index_sampler(iterator), "batch_size", None) == 1
        and private.collate_fn(iterator) is not collate
    )


def _making(iterator: Any, *, stream: bool) -> int:
    """How a loader makes its batches, as C calls it."""
    if stream:
        return FLOWING
    if not private.auto_collation(iterator):
        return SINGLY
    return ONE_BY_ONE if item_by_item(private.dataset(iterator)) else AT_ONCE


def item_by_item(dataset: Any) -> bool:
    """Is this dataset asked for one item after the other? One that makes whole batches itself (`__getitems__`) is not.

    A subset has that function too, and asks its dataset for one after the other, unless that makes whole batches.
    """
    if not getattr(dataset, "__getitems__", None):
        return True
    subset = sys.modules["torch"].utils.data.Subset
    if getattr(type(dataset), "__getitems__", None) is not subset.__getitems__:
        return False
    return not callable(getattr(dataset.dataset, "__getitems__", None))


# ── in a worker ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _worker_batch(fetcher: Any, asked: Any) -> Batch | None:
    info = sys.modules["torch"].utils.data.get_worker_info()
    if info is None:
        return None
    indices = plain(asked, batched=fetcher.auto_collation)
    if indices is not None and hasattr(fetcher, "dataset_iter"):
        indices = tuple(range(_worker.ordinals, _worker.ordinals + len(indices)))
        _worker.ordinals += len(indices)
    return _batch((_worker.loader, _worker.number, indices, info.id, _worker.round))


class Tasks:
    """The queue from which a worker takes its tasks; notes the number of the batch, which torch passes to nobody."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """The next task: number and indices, or a message to the worker."""
        task = self._queue.get(*args, **kwargs)
        _worker.number = task[0] if type(task) is tuple else None
        return task

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class WorkerLoop:
    """Takes the place of the loop that a worker runs: the same loop, after the starters.

    Into a worker that is not forked it travels by pickle, and takes with it which loader this is and what to start.
    """

    def __init__(self, original: Callable[..., None], link: Link) -> None:
        self.original = original
        self.link = link
        dressed(self, original)

    def __call__(self, *args: Any) -> None:
        """In a forked worker: everything is here."""
        if self.link.on:
            run_worker(_thread.starting, tuple(_starters), self.original, args)
        else:
            self.original(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return SpawnedWorkerLoop, (_thread.starting, tuple(_starters))


class SpawnedWorkerLoop:
    """What a `WorkerLoop` is in a worker that is not forked."""

    def __init__(self, starting: tuple[int, int] | None, starters: tuple[tuple[str, tuple[Any, ...]], ...]) -> None:
        self.starting = starting
        self.starters = starters

    def __call__(self, *args: Any) -> None:
        original = private.worker_loop()
        run_worker(self.starting, self.starters, getattr(original, "original", original), args)


def run_worker(
    starting: tuple[int, int] | None,
    starters: tuple[tuple[str, tuple[Any, ...]], ...],
    original: Callable[..., None],
    args: tuple[Any, ...],
) -> None:
    """Call the starters, then the loop."""
    with guard("preparing a loader worker"):
        _enter_worker(starting)
        _worker.id = args[_place(original, "worker_id")]
    for name, arguments in starters:
        with guard(f"starting {name} in a loader worker"):
            _named(name)(*arguments)
    with guard("following the tasks of a loader worker"):
        args = _noting(original, args)
    original(*args)


def _noting(loop: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of the loop of a worker, with a queue that notes what is taken."""
    place = _place(loop, "index_queue")
    return (*args[:place], Tasks(args[place]), *args[place + 1 :])


def _place(loop: Any, name: str) -> int:
    """Where in its arguments the loop of a worker gets this."""
    place: int = loop.__code__.co_varnames.index(name)
    return place


def _enter_worker(starting: tuple[int, int] | None) -> None:
    """Nothing that the main process was about is the business of this one."""
    _thread.starting = _thread.iterator = _thread.iteration = _thread.fetching = _thread.known = None
    _iterations.clear()
    _worker.loader = None
    _worker.round = None
    rest()  # that of the main process
    if starting is not None:
        _worker.loader, _worker.round = starting[0], starting[1] - 1  # the first fetcher makes it the right one
    fetcher_made.hold()


def _named(name: str) -> Callable[..., object]:
    module, _, function = name.partition(":")
    found: Callable[..., object] = getattr(import_module(module), function)
    return found


# ── the points ───────────────────────────────────────────────────────────────────────────────────────────────────────


class _LoopPoint(Point):
    def made(self, original: Callable[..., Any], link: Link) -> Callable[..., Any]:
        return WorkerLoop(original, link)


class _TrackedPoint(Point):
    """A point of which every batch comes by: without subscribers it only does the bookkeeping.

    `fast`: the name of its fast path, which plain batches take in C.
    """

    def __init__(self, name: str, reason: str, *, fast: str, **options: Any) -> None:
        super().__init__(name, reason, **options)
        self._fast_name = fast

    @property
    def replaced(self) -> bool:
        """Is something else called in the place of the function?"""
        return bool(self._replacements)

    def made(self, original: Callable[..., Any], link: Link) -> Callable[..., Any]:
        """What stands in the place of the function."""
        subscribed = self.around(original, link)
        return dressed(
            subscribed if native is None else fast.fast_path(self._fast_name, original, subscribed), original
        )

    def _changed(self) -> None:
        super()._changed()
        _review()

    def around(self, original: Callable[..., Any], link: Link) -> Callable[..., Any]:
        subscribed = super().around(original, link)
        keeper: Any = self._keeper
        keeping = guard(f"tracking {self.name}")
        before, after = keeping(keeper.before), keeping(keeper.after)
        first = getattr(keeper, "token_is_first", False)

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.subscribers or self._replacements or not link.on or notifying():
                return subscribed(*args, **kwargs)
            token: Any = args[0] if first else before(args, kwargs)
            try:
                result = (link.fast or original)(*args, **kwargs)
            except BaseException as error:
                after(token, None, error)
                raise
            after(token, result, None)
            return result

        return call


def _iter_place(torch: ModuleType) -> list[Attribute]:
    return [(torch.utils.data.DataLoader, "__iter__")]


def _len_place(torch: ModuleType) -> list[Attribute]:
    return [(torch.utils.data.DataLoader, "__len__")]


loader_iter = Point(
    "torch DataLoader.__iter__", "to see loops over data", library="torch", find=_iter_place, keeper=_IterKeeper()
)
loader_len = Point("torch DataLoader.__len__", "to see how long a loop over data is", library="torch", find=_len_place)
next_index = _TrackedPoint(
    "torch loader's sampler", "to know the indices of a batch", fast="index", library="torch", find=private.next_index_target,
    keeper=_IndexKeeper(), needs=[loader_iter],
)  # fmt: skip
_put = _TrackedPoint(
    "torch loader's index queue", "to know which worker loads which batch", fast="put", library="torch",
    find=private.put_target, keeper=_PutKeeper(),
)  # fmt: skip
next_batch = _TrackedPoint(
    "torch loader's __next__", "to see which batch is delivered", fast="next", library="torch", find=private.next_batch_target,
    keeper=_NextKeeper(), needs=[loader_iter, next_index, _put],
)  # fmt: skip
worker_loop = _LoopPoint(
    "torch loader's worker loop", "to follow workers that are not forked", library="torch", find=private.worker_loop_target,
    needs=[loader_iter],
)  # fmt: skip
fetcher_made = Point(
    "torch loader's fetcher", "to know the rounds in a worker", library="torch", find=private.fetcher_target,
    keeper=_FetcherKeeper(),
)  # fmt: skip
fetch = _TrackedPoint(
    "torch loader's fetch", "to see items and batches being made", fast="fetch", library="torch", find=private.fetch_targets,
    keeper=_FetchKeeper(), needs=[next_batch, worker_loop],
)  # fmt: skip
