"""The batch that training is at: which items are in it, and, if it is not finite, in which stage of the data that showed first.

A batch is looked at where it is collated, in the loader's worker or here, and its items only if it is not finite. A worker
tells the main process through a small file in the run folder, which is there only if something was found.
"""

from __future__ import annotations

import json
import os
import sys
import weakref
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde import config
from sonde.flow import finite, leaves
from sonde.guard import guard
from sonde.hooks.torch import loader as hooks
from sonde.probes import loader
from sonde.probes.graph import tensors_of
from sonde.store.probe import batch_key

if TYPE_CHECKING:
    from collections.abc import Callable

DATASET, COLLATE, LOADER, LOOP = "dataset", "collate", "loader", "loop"
MOST_FOUND = 64  # batches of one process that are told of; a dataset may be full of them
ID_FIELDS = ("object_id", "id", "ids")
MOST_TEXT = 200

_looking = guard("looking at a batch for the watch of non-finite values")


class Arrival(NamedTuple):
    """The newest batch."""

    batch: hooks.Batch | None
    key: int | None
    ids: Any  # as many as items, or None
    tensors: tuple[weakref.ref[Any], ...]  # where only a look at them can tell whether they are finite

    @property
    def indices(self) -> tuple[Any, ...] | None:
        """The numbers of its items in the dataset."""
        return None if self.batch is None else self.batch.indices


class _State:
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.newest: tuple[Any, ...] | None = None  # an Arrival that nobody has asked for
        self.count = 0  # batches that came
        self.renew: Callable[[], None] = leaves.engine().renew
        self.found: dict[int, str] = {}  # stage by key
        self.told = 0
        self.file: str | None = None  # of a worker
        self.leave: list[Callable[[], None]] = []


_state = _State()


def install() -> Callable[[], None]:
    """Follow batches from now on, here and in workers that start from now on."""
    _state.forget()
    _state.leave = [
        loader.at_delivery(_arrived, _arriving()),
        loader.around_collate(_collating()),
        hooks.start_in_workers(f"{__name__}:begin_worker", _path()),
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
        _state.leave = [loader.around_collate(_collating())]
    _state.file = path


def newest() -> Arrival | None:
    """The batch that was delivered last to this process."""
    return None if _state.newest is None else Arrival(*_state.newest)


def count() -> int:
    """How many were delivered."""
    return _state.count


def stage() -> str | None:
    """In which stage the newest batch was first seen not to be finite; None: it was finite when it left the loader."""
    arrival = newest()
    if arrival is None:
        return None
    if arrival.key is not None and arrival.key not in _state.found:
        _read_workers()
    found = _state.found.get(arrival.key) if arrival.key is not None else None
    if found is None and (_state.told >= MOST_FOUND or arrival.key is None) and is_bad():
        return LOADER
    return found


def is_bad() -> bool:
    """Is the newest batch, as far as it is still there, not finite now?"""
    arrival = newest()
    tensors = () if arrival is None else arrival.tensors
    return any(finite.look(one) for reference in tensors if (one := reference()) is not None)


# ── batches that come ────────────────────────────────────────────────────────────────────────────────────────────────


def _arriving() -> Callable[[Any], Any] | None:
    """What makes, of what is told of batches, something that knows the plain ones without a Python frame."""
    return None if finite.native is None else partial(finite.native.arriving, _state, ID_FIELDS, MOST_FOUND)


def _arrived(batch: hooks.Batch | None, key: int | None, data: Any) -> None:
    state, kind = _state, type(data)
    ids = None if kind is list or kind is tuple else _ids(data)
    state.newest = batch, key, ids, () if key is not None and state.told < MOST_FOUND else _weak(data)
    state.count += 1
    state.renew()


def _weak(data: Any) -> tuple[weakref.ref[Any], ...]:
    return tuple(weakref.ref(one) for one in tensors_of(data, sys.modules["torch"].Tensor))


def _ids(data: Any) -> Any:
    if not isinstance(data, Mapping):
        return None
    return next((data[field] for field in ID_FIELDS if field in data), None)


def identity(arrival: Arrival, position: int) -> str | None:
    """The id of an item of a batch."""
    ids, indices = arrival.ids, arrival.indices
    if ids is None or not hasattr(ids, "__len__") or isinstance(ids, str):
        return None
    if position >= len(ids) or (indices is not None and len(ids) != len(indices)):
        return None
    one = ids[position]
    return str(one.item() if hasattr(one, "item") and getattr(one, "ndim", 1) == 0 else one)[:MOST_TEXT]


# ── batches that are made ────────────────────────────────────────────────────────────────────────────────────────────


def _collating() -> Callable[[Any], Any]:
    """What makes, of what collates, something that looks at the batch too."""
    if finite.native is not None:
        return partial(finite.native.collating, _collated)
    return lambda collate: partial(_collate, collate)


def _collate(collate: Callable[[Any], Any], samples: Any) -> Any:
    made = collate(samples)
    _collated(samples, made)
    return made


def _collated(samples: Any, made: Any) -> None:
    """A batch was made, and is perhaps not finite."""
    with _looking:
        batch = hooks.fetching()
        if batch is not None and _state.told < MOST_FOUND and finite.look_into(made):
            _tell(batch, DATASET if finite.look_into(samples) else COLLATE)


def _tell(batch: hooks.Batch, where: str) -> None:
    key = batch_key(batch.loader, batch.round, batch.number)
    _state.told += 1
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
