"""Draws with replacement as torch makes them, of all items alike; and the Mersenne Twister of a recipe. `weighted` has weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.store.ledger import DRAWN, SEEDED, SORTED, STATE, WEIGHTED, Recipe

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Order = NDArray[np.uint32]
    Ints = NDArray[np.int64]

WORDS = 624  # of the state of a Mersenne Twister
_CHUNK = 1 << 18
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
    state = recipe.state[: STATE.size] if recipe.kind == SORTED else recipe.state
    return recipe.kind in (WEIGHTED, SORTED) and recipe.replicas == 1 and is_state(state)


def make(recipe: Recipe) -> Order:
    """The items of all draws."""
    import numpy as np

    source = twister(recipe)
    source.random_raw(recipe.skip, output=False)
    order = np.empty(recipe.total, np.uint32)
    for begin in range(0, recipe.total, _CHUNK):
        part = order[begin : begin + _CHUNK]
        part[:] = source.random_raw(len(part)) % np.uint64(recipe.items)
    return order


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
    found = order[np.minimum(steps(numbers, sizes), len(order) - 1)]
    wrong = np.append(0, np.cumsum(found != items))
    there = (sizes > 0) & (begins + sizes <= len(order)) & (wrong[ends] == wrong[ends - sizes])
    return begins, there


def steps(numbers: Ints, sizes: Ints) -> Ints:
    """Which draw each item of some batches was."""
    import numpy as np

    begins = _begins(numbers, sizes) - (np.cumsum(sizes) - sizes)
    found: Ints = np.arange(int(sizes.sum())) + np.repeat(begins, sizes)
    return found


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
