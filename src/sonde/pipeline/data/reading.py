"""Reads items: the functions of a dataset, put together once for each field, with errors that name field, index and id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sonde.errors import DataError, SondeError
from sonde.pipeline.data.join import id_text
from sonde.pipeline.data.request import ID

if TYPE_CHECKING:
    from sonde.pipeline.data.collate import Item, Whose

Get = Callable[[int], Any]


class FieldSource(NamedTuple):
    """A source: what gives each of its fields for a row, and the words for an item of it in an error."""

    whose: Whose
    getters: Sequence[tuple[str, Get]]
    words: Callable[[int], str]


def reader(part: FieldSource) -> Callable[[int], Item]:
    """What reads the fields of one source."""
    whose, getters, words = part

    def read(row: int) -> Item:
        item: Item = {}
        field = ""
        try:
            for field, get in getters:
                item[field] = get(row)
        except Exception as error:
            _blame(whose, f"get_{field}", words(row), error)
            raise
        return item

    return read


def resolver(
    rows: Sequence[int], primary: FieldSource, id_field: str, get_id: Get | None
) -> Callable[[Iterable[int]], list[Item]]:
    """What reads items of a single source, one after the other. Without `get_id` the id is one of the fields."""
    whose, getters, words = primary
    name = whose.friendly

    def resolve(indices: Iterable[int]) -> list[Item]:
        # All in one function: a call for each item, or for each of its parts, would be a good part of the whole time.
        items: list[Item] = []
        row, field = 0, ""
        try:
            for index in indices:
                field = ""
                row = rows[index]
                fields: Item = {}
                for field, get in getters:
                    fields[field] = get(row)
                field = id_field
                text = fields[field] if get_id is None else get_id(row)
                items.append({name: fields, ID: text if type(text) is str else id_text(text)})
        except Exception as error:
            if field:  # else there is no such index, which is the caller's mistake
                _blame(whose, f"get_{field}", words(row), error)
            raise
        return items

    return resolve


def joining(
    resolve: Callable[[Iterable[int]], list[Item]], joined: Sequence[tuple[FieldSource, Sequence[int]]]
) -> Callable[[Iterable[int]], list[Item]]:
    """The same, with further sources: each has a row for each item, or -1 if there is none."""
    others = [(part.whose.friendly, reader(part), matched) for part, matched in joined]

    def resolve_joined(indices: Iterable[int]) -> list[Item]:
        return [join(index) for index in indices]

    def join(index: int) -> Item:
        (item,) = resolve((index,))
        text = item.pop(ID)
        for friendly, read, matched in others:
            row = matched[index]
            item[friendly] = None if row < 0 else read(row)
        item[ID] = text
        return item

    return resolve_joined


def identity(whose: Whose, field: str, get: Get) -> Callable[[int], str]:
    """What gives the id of a row as a text."""

    def text(row: int) -> str:
        try:
            value = get(row)
            return value if type(value) is str else id_text(value)
        except Exception as error:
            _blame(whose, f"get_{field}", f"item {row}", error)
            raise

    return text


def augmented(whose: Whose, field: str, get: Get, function: Callable[..., Any], seed_of: Callable[[int], int]) -> Get:
    """The getter, with its values changed by the dataset's `augment_<field>(value, index, seed)`."""

    def changed(row: int) -> Any:
        value = get(row)
        try:
            return function(_shown(value), row, seed_of(row))
        except Exception as error:
            _blame(whose, f"augment_{field}", f"item {row}", error)
            raise

    return changed


def _shown(value: Any) -> Any:
    """An array that cannot be written to: the one behind it may be the dataset's own."""
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return value


def mixed(seed: int, epoch: int, row: int) -> int:
    """A seed for one item in one epoch; its fields share it."""
    key = (seed * 0x9E3779B97F4A7C15 + epoch * 0xC2B2AE3D27D4EB4F + row * 0x165667B19E3779F9) % 2**64
    key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    return (key ^ (key >> 27)) >> 1


def _blame(whose: Whose, method: str, item: str, error: Exception) -> None:
    """Raise what says where it happened, unless the error says so already: then it has been through here, with a cause."""
    if not isinstance(error, SondeError) or (isinstance(error, DataError) and error.__cause__ is None):
        raise DataError(f"{whose.words(method)} failed on {item}: {type(error).__name__}: {error}") from error
