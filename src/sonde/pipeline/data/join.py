"""Ids of items: texts, each once, and which item of a second dataset belongs to which of the first."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from sonde.errors import DataError


def id_text(value: Any) -> str:
    """An id as a text: the number 7, the text "7" and b"7" are one id."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if value is None or (isinstance(value, float) and math.isnan(value)):
        raise ValueError("there is no id")
    return str(value)


def refuse_duplicates(where: str, rows: Sequence[int], id_of: Callable[[int], str]) -> None:
    """Raise DataError if two items have the same id. Only a hash of each id is held, so that millions are no burden."""
    hashes = np.fromiter((hash(id_of(row)) for row in rows), dtype=np.int64, count=len(rows))
    hashes.sort()
    suspect = set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
    del hashes
    if not suspect:
        return
    seen: dict[str, int] = {}
    for row in rows:
        text = id_of(row)
        if hash(text) in suspect and seen.setdefault(text, row) != row:
            raise DataError(
                f"{where}: items {seen[text]} and {row} have the same id {text!r}, and there may be more. Ids must "
                "be unique: choose another primary_id_field, or set data.check_ids to false."
            )


def matches(
    where: str, ids: Iterable[str], count: int, join_id: Callable[[int], str], what: tuple[str, str]
) -> array[int]:
    """For each id the item among `count` that has it as its join id, or -1. `what`: the join field, the primary's name."""
    field, primary = what
    known: dict[str, int] = {}
    for row in range(count):
        text = join_id(row)
        if known.setdefault(text, row) != row:
            raise DataError(
                f"{where}: items {known[text]} and {row} have the same {field} {text!r}, so it is unclear which one "
                f"belongs to an item of {primary!r}. Values of a join_field must be unique."
            )
    found = array("q", (known.get(text, -1) for text in ids))
    if found and max(found) < 0:
        example = next(iter(known), None)
        raise DataError(
            f"{where}: no {field} matches the id of an item of {primary!r}, so there is nothing to join. "
            + (f"A value of {field} is {example!r}. " if known else "The dataset is empty. ")
            + "Choose another join_field or primary_id_field."
        )
    return found
