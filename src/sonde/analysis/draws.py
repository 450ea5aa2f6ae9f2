"""Draws with replacement as torch makes them, of all items alike or by weights; and the Mersenne Twister of a recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.store.ledger import (
    DISTINCT,
    DRAWN,
    MOST_WEIGHTS,
    SEEDED,
    STATE,
    WEIGHT_BYTES,
    WEIGHTED,
    Recipe,
    code_bytes,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Order = NDArray[np.uint32]
    Ints = NDArray[np.int64]
    Table = NDArray[np.float64]

KINDS = (DRAWN, WEIGHTED)
WORDS = 624  # of the state of a Mersenne Twister
_CHUNK = 1 << 18
_FRACTION_BITS = 53
_NUMBER_BYTES = 4


def twister(recipe: Recipe) -> np.random.MT19937:
    """In the state that the recipe says, or just seeded."""
    import numpy as np

    made = np.random.MT19937(0)
    if recipe.kind == SEEDED or not recipe.state:
        state: Any = np.random.RandomState(recipe.seed & 0xFFFFFFFF).get_state(legacy=False)
    else:
        place, *words = STATE.unpack_from(recipe.state)
        state = {"bit_generator": "MT19937", "state": {"key": np.array(words, np.uint32), "pos": place}}
    made.state = state
    return made


def is_state(state: bytes) -> bool:
    """Can a Mersenne Twister be in it?"""
    return len(state) == STATE.size and int(STATE.unpack(state)[0]) <= WORDS


def is_sound(recipe: Recipe) -> bool:
    """Can there be such draws? How many there are is not looked at."""
    if recipe.kind == DRAWN:
        return recipe.replicas == 1 and not recipe.subset and (not recipe.state or is_state(recipe.state))
    stated = recipe.kind == WEIGHTED and is_state(recipe.state[: STATE.size])
    return stated and recipe.replicas == 1 and recipe.items <= MOST_WEIGHTS


def make(recipe: Recipe, table: Table | None = None) -> Order:
    """The items of all draws; `table` is that of their weights."""
    import numpy as np

    source = twister(recipe)
    source.random_raw(recipe.skip, output=False)
    order = np.empty(recipe.total, np.uint32)
    for begin in range(0, recipe.total, _CHUNK):
        part = order[begin : begin + _CHUNK]
        if table is None:
            part[:] = source.random_raw(len(part)) % np.uint64(recipe.items)
        else:
            part[:] = np.searchsorted(table, _fractions(source, len(part)))
    return order


def _fractions(source: np.random.MT19937, count: int) -> Table:
    """From 0 to 1, each of two words, the upper one first."""
    import numpy as np

    words = source.random_raw(2 * count).reshape(count, 2)
    bits = (words[:, 0] << np.uint64(32) | words[:, 1]) & np.uint64((1 << _FRACTION_BITS) - 1)
    return bits * np.float64(2.0**-_FRACTION_BITS)


def table(content: bytes, items: int) -> Table | None:
    """The sums of all weights up to each, as parts of their whole sum; None: these bytes are no weights of so many items."""
    import numpy as np

    weights = _weights(content, items)
    if weights is None or not np.isfinite(weights).all() or weights.min() < 0:
        return None
    with np.errstate(over="ignore"):
        sums = np.cumsum(weights)
    if not 0 < sums[-1] < np.inf:
        return None
    sums /= sums[-1]
    sums[-1] = 1.0
    return sums


def _weights(content: bytes, items: int) -> Table | None:
    import numpy as np

    distinct = DISTINCT.unpack_from(content)[0] if len(content) >= DISTINCT.size else 0
    begin, width = DISTINCT.size + WEIGHT_BYTES * distinct, code_bytes(distinct)
    if not 0 < items <= MOST_WEIGHTS or len(content) != begin + width * items:
        return None
    planes = np.frombuffer(content, np.uint8, offset=begin).reshape(width, items)
    codes = np.ascontiguousarray(planes.T).view("<f8" if not distinct else f"<u{width}").ravel()
    if not distinct:
        return codes
    values = np.frombuffer(content, "<f8", distinct, DISTINCT.size)
    return values[codes] if int(codes.max()) < distinct else None


# ── sealing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def cut(recipe: Recipe, numbers: Ints, sizes: Ints) -> Recipe:
    """The same recipe for no more draws than these batches had."""
    return recipe._replace(total=min(recipe.total, int((_begins(numbers, sizes) + sizes).max())))


def places(order: Order, numbers: Ints, sizes: Ints, items: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Where in the order each batch begins, and which of them really stand there.

    An item comes several times, so its place tells nothing: batches follow each other, all of one size but for the last.
    """
    import numpy as np

    begins, ends = _begins(numbers, sizes), np.cumsum(sizes)
    steps = np.arange(len(items)) + np.repeat(begins - (ends - sizes), sizes)
    wrong = np.append(0, np.cumsum(order[np.minimum(steps, len(order) - 1)] != items))
    there = (sizes > 0) & (begins + sizes <= len(order)) & (wrong[ends] == wrong[ends - sizes])
    return begins, there


def _begins(numbers: Ints, sizes: Ints) -> Ints:
    found: Ints = numbers * sizes.max()
    return found


def room(items: Ints) -> int:
    """About how many bytes these numbers take in a sealed table: what the bits of each of their bytes tell."""
    import numpy as np

    planes = items.astype("<u4").view(np.uint8).reshape(-1, _NUMBER_BYTES)
    bits = 0.0
    for plane in planes.T:
        counts = np.bincount(plane)
        counts = counts[counts > 0]
        bits += float(counts @ np.log2(len(items) / counts))
    return int(bits / 8)
