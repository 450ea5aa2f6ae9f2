"""Datasets that the tests of the probes share, and that workers can import; and the shape of what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from sonde.store.probe import FETCH, INPUT_WAIT, ITEM, ITER, ITER_END, PREFETCH, SAMPLES, read_batch_key
from sonde.testing import Recorded, record


class Numbers(Dataset[Any]):
    """Item i is the number i; the item `bad` raises."""

    def __init__(self, length: int, bad: int | None = None) -> None:
        self.length = length
        self.bad = bad

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        """The number, or several for a list."""
        if index == self.bad:
            raise ValueError(f"item {index} is bad")
        return torch.as_tensor(index)


class Together(Numbers):
    """Makes a whole batch itself, and insists on a plain list of indices."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """The items."""
        assert type(indices) is list
        return [self[index] for index in indices]


class Words(Dataset[Any]):
    """Items by name."""

    def __getitem__(self, index: Any) -> Any:
        """The length of the name."""
        return len(index)


class Pair(NamedTuple):
    """A batch with names."""

    x: Any
    y: Any


KINDS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda rows: rows,
    "tuple": lambda rows: (rows, 7),
    "list": lambda rows: ["word", rows],
    "dict": lambda rows: {"name": "word", "x": rows},
    "deep": lambda rows: {"a": {"b": [None, (1.5, rows)]}},
    "names": lambda rows: Pair(rows, 3),
    "numpy": lambda rows: {"x": rows.numpy()},
    "scalar": lambda rows: rows.sum(),
    "none": lambda _rows: ("word", 1, None, 2.5, True),
    "odd": lambda rows: (..., rows),
    "ninth": lambda rows: (*range(8), rows),
    "empty": lambda _rows: [],
}


class Rows(Dataset[Any]):
    """Whole batches of three rows, as what a program makes of them."""

    def __init__(self, kind: str, length: int = 4) -> None:
        self.kind = kind
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        """The batch."""
        return KINDS[self.kind](torch.full((3, 2), float(index)))


class Stream(IterableDataset[Any]):
    """So many numbers in each worker; with `fail`, an exception instead of the last one."""

    def __init__(self, *lengths: int, fail: bool = False) -> None:
        self.lengths = lengths
        self.fail = fail

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        length = self.lengths[info.id if info else 0]
        for number in range(length):
            if self.fail and number == length - 1:
                raise ValueError("the stream is broken")
            yield torch.tensor(number)


class Anew(Stream):
    """Is its own iterator, and begins anew each time that it is asked for one."""

    def __iter__(self) -> Iterator[Any]:
        self.numbers = super().__iter__()
        return self

    def __next__(self) -> Any:
        return next(self.numbers)


class Nested(Dataset[Any]):
    """Each item is the sum over a loader of its own."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        """The sum."""
        return sum(batch.sum() for batch in DataLoader(Numbers(4), batch_size=2)) + index


class Fetched(NamedTuple):
    """One batch as it was made."""

    round: int
    number: int
    items: tuple[int, ...]


def fetched(recorded: Recorded) -> list[Fetched]:
    """The fetches of all processes, each with the keys of its items."""
    found = []
    for fetch in recorded.named(FETCH):
        key = read_batch_key(fetch["key"])
        items = [e for e in recorded.named(ITEM) if (e["pid"], e["parent"]) == (fetch["pid"], fetch["seq"])]
        found.append(Fetched(key.round, key.number, tuple(item["key"] for item in items)))
    return sorted(found)


def waits(recorded: Recorded, name: str = INPUT_WAIT) -> list[tuple[int, int]]:
    """Round and number of each batch that was waited for, in order."""
    return [read_batch_key(event["key"])[1:] for event in recorded.named(name)]


def shape(recorded: Recorded) -> list[tuple[str, str | None]]:
    """The names of what loaders did in this order, each with that of its parent."""
    ours = [e for e in recorded.events if e["name"] in (INPUT_WAIT, PREFETCH, FETCH, ITEM, ITER, ITER_END, SAMPLES)]
    names = {(event["pid"], event["seq"]): event["name"] for event in recorded.events}
    return [(event["name"], names.get((event["pid"], event["parent"]))) for event in ours]


def record_epochs(data: Any, epochs: int = 1) -> Recorded:
    """The recording of so many loops over a loader."""
    with record() as recorded:
        for _ in range(epochs):
            for _ in data:
                pass
    return recorded
