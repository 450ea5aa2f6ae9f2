"""Draws by weights, made again without the weights: by which items came in all rounds that the same weights drew.

A draw is a fraction from 0 to 1, and its item is the first up to which the weights sum to no less. So the larger
the fraction, the larger the number of the item. The fractions are made again from the state of the generator. Sorted, they stand
beside the items that were drawn, sorted as well: and a sorted list of numbers takes little room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sonde.analysis import draws

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from sonde.analysis.draws import Ints, Order
    from sonde.store.ledger import Recipe

    Fractions = NDArray[np.float64]

_CHUNK = 1 << 18
_FRACTION_BITS = 53


class Spans(NamedTuple):
    """For each item that was drawn, the lowest and the highest fraction that gave it; no two of them overlap."""

    items: Ints
    lowest: Fractions
    highest: Fractions


def make(recipe: Recipe, spans: Spans) -> Order:
    """The items of all draws. Fractions between two spans were never used: they count for the next one, or the last."""
    import numpy as np

    fractions = _fractions(recipe, recipe.total)
    by_size = np.argsort(fractions)  # neighbours are found much quicker
    places = np.searchsorted(spans.highest, fractions[by_size])
    order = np.empty(recipe.total, np.uint32)
    order[by_size] = spans.items[np.minimum(places, len(spans.items) - 1)]
    return order


def _fractions(recipe: Recipe, count: int) -> Fractions:
    """The first fractions of a round, each of two words, the upper one first."""
    import numpy as np

    source = draws.twister(recipe)
    source.random_raw(recipe.skip, output=False)
    found = np.empty(count)
    for begin in range(0, count, _CHUNK):
        part = found[begin : begin + _CHUNK]
        words = source.random_raw(2 * len(part)).reshape(-1, 2)
        bits = (words[:, 0] << np.uint64(32) | words[:, 1]) & np.uint64((1 << _FRACTION_BITS) - 1)
        part[:] = bits * np.float64(2.0**-_FRACTION_BITS)
    return found


# ── sealing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def learn(recipe: Recipe, steps: Ints, items: Ints) -> Spans | None:
    """What a round tells, whose draws at these steps gave these items; None: no weights could have drawn them so."""
    beyond = int(steps.max()) + 1
    if beyond > recipe.total or int(items.min()) < 0 or int(items.max()) >= recipe.items:
        return None
    return _spans(items, _fractions(recipe, beyond)[steps])


def merge(one: Spans, other: Spans) -> Spans | None:
    """What two rounds tell together; None: the same weights could not have drawn both."""
    import numpy as np

    items = np.concatenate((one.items, one.items, other.items, other.items))
    return _spans(items, np.concatenate((one.lowest, one.highest, other.lowest, other.highest)))


def _spans(items: Ints, fractions: Fractions) -> Spans | None:
    import numpy as np

    by_size = np.argsort(fractions)
    return _ascending(items[by_size], fractions[by_size])


def _ascending(items: Ints, fractions: Fractions) -> Spans | None:
    """The spans of sorted fractions; None: the items are not sorted beside them."""
    import numpy as np

    last = np.append(np.flatnonzero(np.diff(items)), len(items) - 1)
    first = np.append(0, last[:-1] + 1)
    spans = Spans(items[last], fractions[first], fractions[last])
    apart = (spans.items[:-1] < spans.items[1:]) & (spans.highest[:-1] < spans.lowest[1:])
    return spans if apart.all() else None


# ── as bytes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def packed(orders: Sequence[Order], items: int) -> bytes:
    """The draws of some rounds by size, of so many items: their lowest bits, then one bit for each draw and each step between them."""
    import numpy as np

    drawn = np.sort(np.concatenate(orders)).astype(np.int64)
    low = _low_bits(items, len(drawn))
    steps = drawn >> low
    path = np.zeros(len(drawn) + int(steps[-1]), np.uint8)
    path[steps + np.arange(len(drawn))] = 1
    return b"".join(np.packbits(part).tobytes() for part in (*(drawn >> bit & 1 for bit in range(low)), path))


def unpacked(content: bytes, rounds: Sequence[Recipe]) -> Spans | None:
    """What these bytes tell of these rounds; None: they are of others."""
    import numpy as np

    count, items = sum(one.total for one in rounds), min((one.items for one in rounds), default=0)
    if not 0 < count <= 8 * len(content):
        return None
    low, width = _low_bits(items, count), -(-count // 8)
    bits = np.frombuffer(content, np.uint8)
    found = np.flatnonzero(np.unpackbits(bits[low * width :]))
    if len(found) != count:
        return None
    drawn: Ints = found - np.arange(count) << low
    for bit in range(low):
        drawn |= np.unpackbits(bits[bit * width : (bit + 1) * width], count=count).astype(np.int64) << bit
    if int(drawn[-1]) >= items:
        return None
    return _ascending(drawn, np.sort(np.concatenate([_fractions(one, one.total) for one in rounds])))


def _low_bits(items: int, count: int) -> int:
    """How many bits of a number lie below the usual step to the next one."""
    return max(0, (items // count).bit_length() - 1)
