"""The batch that training is at: which items are in it, and, if it is not finite, in which stage of the data that first appeared.

A batch is looked at where it is collated, in the loader's worker or here, and its items only if it is not finite. A worker
tells the main process through a small file in the run folder, which is there only if something was found.

That is not always the batch that came last: some loops fetch ahead, and some take turns between loaders. The last few are
known by their tensors.
"""

from __future__ import annotations

import json
import os
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, NamedTuple

from sonde import config
from sonde.events.recorder import serving
from sonde.guard import guard
from sonde.hooks.torch import dlpack, loader as hooks, private
from sonde.nonfinite import check, fallback
from sonde.probes.layers.backward import tensors_of
from sonde.probes.loader import listeners
from sonde.store.probe import batch_key

DATASET, COLLATE, LOADER, LOOP = "dataset", "collate", "loader", "loop"
MOST_FOUND = 64  # batches of one process that are reported; a dataset may be full of them
RECENT = 4  # batches that are known
MOST_REFERENCES = 4  # to tensors of each
IN_FRAME = 1  # CO_OPTIMIZED of `inspect`: variables are in no dict of the program
HELD_BY_FRAME = 3  # references to its copy of variables while it is looked at: the frame, a variable, an argument
MOST_FRAMES = 60  # of the stack, and of each so many variables, that are searched for a batch
MOST_LOCALS = 100
ID_FIELDS = ("object_id", "id", "ids")
MOST_TEXT = 200

_looking = guard("checking a batch for non-finite values")


class Arrival(NamedTuple):
    """The newest batch."""

    batch: hooks.Batch | None
    key: int | None
    ids: Any  # as many as items, or None
    # Where only a look at them can tell whether they are finite; None: nobody could look into the batch.
    tensors: tuple[weakref.ref[Any], ...] | None
    held: tuple[weakref.ref[Any], ...] = ()  # the first of its tensors, by which it is known again

    @property
    def indices(self) -> tuple[Any, ...] | None:
        """The numbers of its items in the dataset."""
        return None if self.batch is None else self.batch.indices


class _State:
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.recent: deque[Arrival] = deque(maxlen=RECENT)
        self.count = 0  # batches that came
        self.reported = 0  # batches that were not finite
        self.renew: Callable[[], None] = fallback.engine().renew
        self.fields: tuple[str, ...] = ID_FIELDS
        self.found: dict[int, str] = {}  # stage by key
        self.file: str | None = None  # of a worker
        self.leave: list[Callable[[], None]] = []


_state = _State()
_holders: list[Callable[[], Iterable[tuple[Any, int]]]] = []


def install() -> Callable[[], None]:
    """Follow batches from now on, here and in workers that start from now on."""
    _state.forget()
    _state.fields = _id_fields()
    _state.leave = [
        listeners.at_delivery(_arrived),
        listeners.around_collate(_collating),
        hooks.start_in_workers(begin_worker, _path()),
    ]
    return leave


def leave() -> None:
    """Follow none any more."""
    undo, _state.leave = _state.leave, []
    for each in reversed(undo):
        each()
    path = _path()
    if path is not None and os.path.exists(path):
        os.unlink(path)


def begin_worker(path: str | None) -> None:
    """Called in each worker: look at what it collates, and tell the main process."""
    inherited = bool(_state.leave)
    if not inherited:
        _state.forget()
        _state.leave = [listeners.around_collate(_collating)]
    _state.file = path


def newest() -> Arrival | None:
    """The batch that was delivered last to this process."""
    return _state.recent[-1] if _state.recent else None


def count() -> int:
    """How many were delivered."""
    return _state.count


def meant(given: Iterable[Any] = ()) -> Arrival | None:
    """The batch that these tensors are of, or else those that the program has in hand; the newest if that is not known."""
    owners = {place: key for part, key in _held() if (place := address(part)) is not None}
    known: dict[int | None, Arrival] = {one.key: one for one in _state.recent if one.key is not None}
    for group in chain((given,), in_hand()) if owners else ():
        keys = {owners.get(place) for one in group if (place := address(one)) is not None}
        keys &= known.keys()
        if len(keys) == 1:
            return known[keys.pop()]
        if keys:  # of several at once: a loop that has fetched ahead, or one that remembers
            break
    return newest()


def stage(arrival: Arrival | None) -> str | None:
    """In which stage this batch was first seen not to be finite; None: it was finite when it left the loader."""
    if arrival is None:
        return None
    if arrival.key is not None and arrival.key not in _state.found:
        _read_workers()
    found = _state.found.get(arrival.key) if arrival.key is not None else None
    if found is None and (_state.reported >= MOST_FOUND or arrival.key is None) and is_bad(arrival):
        return LOADER
    return found


def broken(arrival: Arrival | None) -> Arrival | None:
    """A batch that was not finite when it came: this one, or else the newest of the last ones; None: there is none."""
    if stage(arrival) is not None:
        return arrival
    return next((one for one in reversed(list(_state.recent)) if stage(one) is not None), None)


def is_bad(arrival: Arrival) -> bool:
    """Is this batch, as far as it is still there, not finite now?"""
    return any(check.look(one) for reference in arrival.tensors or () if (one := reference()) is not None)


def also_held(parts: Callable[[], Iterable[tuple[Any, int]]]) -> Callable[[], None]:
    """Let `parts()` name further parts of the last batches that are still there, with their keys; returns the end of it."""
    _holders.append(parts)
    return lambda: _holders.remove(parts)


# ── whose tensors ────────────────────────────────────────────────────────────────────────────────────────────────────


def tensors(arrival: Arrival) -> list[Any]:
    """The tensors of a batch that are still there."""
    return [part for part, key in _held() if key == arrival.key and isinstance(part, sys.modules["torch"].Tensor)]


def _held() -> Iterator[tuple[Any, int]]:
    """The parts of the last batches that the program, or who else keeps batches, still holds, and their keys."""
    for one in list(_state.recent):
        if one.key is not None:
            yield from ((part, one.key) for reference in one.held if (part := reference()) is not None)
    for parts in _holders:
        yield from parts()


def in_hand() -> list[list[Any]]:
    """The tensors among the variables of each function that runs, the innermost first."""
    found: list[list[Any]] = []
    frame: Any = sys._getframe(1)
    while frame is not None and len(found) < MOST_FRAMES:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] != "sonde":
            found.append(list(_inside(_variables(frame), 3)))
        frame = frame.f_back
    return found


def _variables(frame: Any) -> list[Any]:
    """What the variables of a function that runs hold. Before Python 3.13 looking makes a copy that would hold it until the function ends."""
    code, seen = frame.f_code, frame.f_locals
    values = list(seen.values())
    # The copy is also what the program gets by `locals()`: if it has it, that stays as it is.
    if sys.version_info < (3, 13) and code.co_flags & IN_FRAME and sys.getrefcount(seen) == HELD_BY_FRAME:
        for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
            seen.pop(name, None)
    return values


def _inside(value: Any, deeper: int) -> Iterator[Any]:
    """The tensors in a variable. Only plain containers are opened: others may be files, or read what they give."""
    kind = type(value)
    if kind is sys.modules["torch"].Tensor:
        yield value
    elif deeper and kind in (dict, list, tuple):
        for one in islice(value.values() if kind is dict else value, MOST_LOCALS):
            yield from _inside(one, deeper - 1)


def address(value: Any) -> int | None:
    """The number of the storage of a plain tensor, as long as it lives; views have the same."""
    torch = sys.modules["torch"]
    if type(value) is not torch.Tensor or value.layout is not torch.strided or value.device.type == "meta":
        return None
    return None if private.is_wrapped(value) else id(value.untyped_storage())


# ── batches that come ────────────────────────────────────────────────────────────────────────────────────────────────


def _id_fields() -> tuple[str, ...]:
    """Where ids may stand: not in fields that are never looked at."""
    recorder = serving()
    exclude = config.peek("exclude") if recorder is None else recorder.settings.exclude
    return tuple(field for field in ID_FIELDS if field not in exclude)


def _arrived(batch: hooks.Batch | None, key: int | None, data: Any) -> None:
    references = tuple(weakref.ref(one) for one in tensors_of(data, sys.modules["torch"].Tensor))
    known = key is not None and _state.reported < MOST_FOUND  # what was found where it was made has its key
    looked_at = None if not references and _is_closed(data) else () if known else references
    _state.recent.append(Arrival(batch, key, _ids(data), looked_at, references[:MOST_REFERENCES]))
    _state.count += 1
    _state.renew()


def _is_closed(data: Any) -> bool:
    """Is this an object of a kind that is not looked into?"""
    return not isinstance(data, Mapping | list | tuple | int | float | str | bytes) and check.as_tensor(data) is None


def _ids(data: Any) -> Any:
    if not isinstance(data, Mapping):
        return None
    return next((data[field] for field in _state.fields if field in data), None)


def identity(arrival: Arrival, position: int) -> str | None:
    """The id of an item of a batch."""
    ids, indices = arrival.ids, arrival.indices
    if ids is None or not hasattr(ids, "__len__") or isinstance(ids, str) or dlpack.is_gone(ids):
        return None
    if position >= len(ids) or (indices is not None and len(ids) != len(indices)):
        return None
    one = ids[position]
    return str(one.item() if hasattr(one, "item") and getattr(one, "ndim", 1) == 0 else one)[:MOST_TEXT]


# ── batches that are made ────────────────────────────────────────────────────────────────────────────────────────────


def _collating(collate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What collates, and a look at the batch it makes."""

    def collating(samples: Any) -> Any:
        made = collate(samples)
        _collated(samples, made)
        return made

    return collating


def _collated(samples: Any, made: Any) -> None:
    """A batch was made, and is perhaps not finite."""
    with _looking:
        batch = hooks.fetching()
        if batch is not None and _state.reported < MOST_FOUND and check.look_into(made):
            _report(batch, DATASET if check.look_into(samples) else COLLATE)


def _report(batch: hooks.Batch, where: str) -> None:
    key = batch_key(batch.loader, batch.round, batch.number)
    _state.reported += 1
    if _state.file is None:
        _state.found[key] = where
        return
    with open(_state.file, "a", opener=_private) as file:
        file.write(json.dumps([key, where]) + "\n")  # one write: lines of several workers do not mix


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _path() -> str | None:
    run = config.peek("run")
    return None if run is None else os.path.join(run, f".nonfinite-{os.getpid()}.jsonl")


def _read_workers() -> None:
    path = _path()
    if path is None or not os.path.exists(path):
        return
    with open(path, opener=_private) as file:
        for line in file.read(1 << 20).splitlines():
            if line.endswith("]"):  # else it is being written
                key, where = json.loads(line)
                _state.found[key] = where
