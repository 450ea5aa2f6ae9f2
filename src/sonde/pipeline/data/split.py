"""Which items of a dataset a group has: all, a fraction, or those of a saved index. Groups that share data share no item."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from sonde.pipeline.data.request import Source

ORDER = ("train", "validate", "test")  # the groups take their parts in this order, then the others by name
INFER = "infer"  # takes the first items in their order, and may take those of other groups
SLACK = 1e-9  # 0.7 + 0.2 + 0.1 is a little more than 1


def rows_of(
    group: str,
    request: Mapping[str, list[Source]],
    length: int,
    seed: int,
    files: Mapping[str, str],
    classes: Callable[[], Any] | None = None,
) -> Sequence[int]:
    """The items of the primary dataset that belong to the group, in order.

    `classes` gives the class of each item: every part then has its share of each class.
    """
    for name in files:
        if name not in request:
            raise ConfigError(f"split.index names the group {name!r}, which data_request does not have.")
    fraction = _fraction(request[group][0])
    if group in files:
        return _from_file(group, request, length, files)
    if group == INFER:
        return _some(group, range(_count(fraction, length)), fraction, length)
    shares = _shares(group, request)
    if any(name in files for name in shares):
        raise ConfigError(
            f"data_request.{group} has the same data as {_others(group, shares)}, and one of them has a saved index "
            "in split.index. Give each of these groups one."
        )
    if all(share == 1 for share in shares.values()):
        return range(length)
    order = shuffled(length, seed)
    return _part(group, shares, order if classes is None else stratified(order, classes()))


def save_index(path: str | PathLike[str], rows: Sequence[int]) -> None:
    """Write the rows to a .npy file that `split.index` takes."""
    np.save(path, np.asarray(rows, dtype=np.int64), allow_pickle=False)


def _fraction(source: Source) -> float:
    return 1.0 if source.split_fraction is None else source.split_fraction


def _count(fraction: float, length: int) -> int:
    return min(length, round(fraction * length))


def _shares(group: str, request: Mapping[str, list[Source]]) -> dict[str, float]:
    """The groups that have the data of this one, itself included, and their fractions."""
    mine = _data(request[group][0])
    found = {name: _fraction(sources[0]) for name, sources in request.items() if _data(sources[0]) == mine}
    found.pop(INFER, None)
    known = [name for name in ORDER if name in found]
    return {name: found[name] for name in [*known, *sorted(set(found) - set(known))]}


def _data(source: Source) -> tuple[Any, ...]:
    return source.dataset_class, source.data_location, repr(sorted(source.dataset_config.items()))


def _others(group: str, shares: Mapping[str, float]) -> str:
    return ", ".join(name for name in shares if name != group)


def _part(group: str, shares: Mapping[str, float], order: Any) -> Sequence[int]:
    length, total = len(order), sum(shares.values())
    if total > 1 + SLACK:
        said = ", ".join(f"{name} {share:g}" for name, share in shares.items())
        raise ConfigError(
            f"data_request: the fractions of the same data add up to {total:g} ({said}; without split_fraction a "
            "group takes 1). Groups must not share items: keep the sum at 1 or less."
        )
    start = 0.0
    for name, share in shares.items():
        if name == group:
            break
        start += share
    first, last = _count(start, length), _count(start + shares[group], length)
    rows = np.sort(order[first:last])
    return _some(group, array("q", rows.tolist()), shares[group], length)


def _some(group: str, rows: Sequence[int], fraction: float, length: int) -> Sequence[int]:
    if not rows and length:
        raise DataError(
            f"data_request.{group}: split_fraction {fraction:g} of {length} item{'s' if length > 1 else ''} leaves "
            "no items. Give a larger fraction."
        )
    return rows


def shuffled(length: int, seed: int) -> Any:
    """The numbers below `length` in an order that depends on the seed only, and on no version of any library."""
    with np.errstate(over="ignore"):
        keys = np.arange(length, dtype=np.uint64) + np.uint64(seed % 2**32) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            keys = (keys ^ (keys >> np.uint64(shift))) * np.uint64(factor)
        keys ^= keys >> np.uint64(31)
    return np.argsort(keys, kind="stable")


def stratified(order: Any, classes: Any) -> Any:
    """The same numbers in an order of which each stretch has its share of each class, as near as whole items allow."""
    kinds, counts = counted(classes[order], "split.stratify_field")
    together = np.argsort(kinds, kind="stable")
    places = np.empty(len(order))
    places[together] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    return order[np.argsort((places + 0.5) / counts[kinds], kind="stable")]


def counted(classes: Any, key: str) -> tuple[Any, Any]:
    """The number of each item's class, and how many items each class has."""
    if classes.ndim != 1 or classes.dtype.kind == "O":
        raise ConfigError(f"{key} names a field without classes. Give one with a number or a string per item.")
    _, kinds, counts = np.unique(classes, return_inverse=True, return_counts=True)
    return kinds, counts


# ── saved index ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _from_file(group: str, request: Mapping[str, list[Source]], length: int, files: Mapping[str, str]) -> Sequence[int]:
    if request[group][0].split_fraction not in (None, 1.0):
        raise ConfigError(f"data_request.{group} has split_fraction, and split.index.{group} names a file. Keep one.")
    rows = _read(group, files[group], length)
    for name in _shares(group, request):
        if name != group and name in files and group != INFER:
            both = np.intersect1d(rows, _read(name, files[name], length))
            if len(both):
                raise DataError(
                    f"split.index: {group} and {name} share {len(both)} items, such as {both[0]}. "
                    f"Make the indices in {files[group]} and {files[name]} disjoint."
                )
    return array("q", rows.tolist())


def _read(group: str, path: str, length: int) -> Any:
    where = f"split.index.{group} ({path})"
    try:
        rows = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ConfigError(f"Cannot read {where} as a .npy file: {error}") from None
    if not isinstance(rows, np.ndarray) or rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows):
        raise ConfigError(f"{where} must hold one row of whole numbers.")
    if rows.min() < 0 or rows.max() >= length:
        raise DataError(f"{where} has the index {rows.max()}, but there are {length} items. It belongs to other data.")
    if len(np.unique(rows)) < len(rows):
        raise DataError(f"{where} has an index twice. Each index may appear once.")
    return rows
