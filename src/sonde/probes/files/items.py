"""Separates the items of a batch, so that reads are counted per item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.guard import guard
from sonde.probes.files.reads import begin, end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sonde.probes.files.kernel import Counted

_following = guard("following the files of items")
begin_item = _following(begin)
end_item = _following(end)


class _Each:
    """An iterator over the items of a batch. `key`: of the batch."""

    def __init__(self, inner: Iterator[Any], key: int | None) -> None:
        self.inner, self.key = inner, key
        self.position = 0
        self.since: Counted | None = None

    def begin(self) -> None:
        begin_item(self.key, self.position, self.since)
        self.position += 1


class Asked(_Each):
    """Over what a dataset is asked for: an item is made until the next one is asked for."""

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self.since = end_item()
        index = next(self.inner)
        self.begin()
        return index


class AwaitedItems(_Each):
    """Over the items of an iterable dataset: an item is made while it is waited for."""

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self.begin()
        try:
            return next(self.inner)
        finally:
            self.since = end_item()
