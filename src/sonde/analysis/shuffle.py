"""Makes the order of a round again from its recipe, and finds batches in it; `draws` and `weighted` do it where items come again.

A recipe was read from the sampler when the round began. Whether it is true only the comparison with what was delivered shows:
nothing is kept as a place in an order that does not give the very same items.
"""

from __future__ import annotations

import zlib
from array import array
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from sonde.analysis import draws, weighted
from sonde.store.ledger import DRAWN, SEEDED, SORTED, STATE, STATED, WEIGHTED, Recipe, read_recipe, recipe_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from sonde.analysis.draws import Ints, Order
    from sonde.analysis.weighted import Spans

MOST_ITEMS = 1 << 26  # of an order that is made: a second for 4 million
MOST_SKIP = 16  # draws that a loader may have made between the recipe and its order
SEED_DRAWS = 2  # for the seed of its workers
MOST_KEPT = 4  # orders in memory; a loop for training and one for checking take turns
FIRST_ITEMS = 8  # by which it is found how many these were, where items come again
FIRST_WEIGHTED = 1024  # the same by weights
_CHUNK = 1 << 16
_WIDTH = 4  # bytes of a number
_UNKNOWN = 2**32 - 1


def is_known(recipe: Recipe) -> bool:
    """Can this version make such an order?"""
    return recipe.kind in (SEEDED, STATED, DRAWN, SORTED)


def is_sound(recipe: Recipe) -> bool:
    """Can there be such an order, and does this version know how to make it?"""
    if not (0 < recipe.items <= MOST_ITEMS and 0 < recipe.total <= MOST_ITEMS and 0 <= recipe.rank < recipe.replicas):
        return False
    if recipe.kind == SEEDED:
        return len(recipe.state) in (0, _WIDTH * recipe.items)
    if recipe.kind == STATED:
        return draws.is_state(recipe.state) and not recipe.subset
    return draws.is_sound(recipe)


def make(recipe: Recipe) -> Order:
    """The order: of a whole round, as far as it was for this rank."""
    import numpy as np

    shuffled = _shuffled(recipe)
    if recipe.total != recipe.items:
        shuffled = np.resize(shuffled, recipe.total)  # beyond its end it begins again
    return np.ascontiguousarray(shuffled[recipe.rank :: recipe.replicas])


def _shuffled(recipe: Recipe) -> Order:
    """What `torch.randperm` gives: from the first place on, each is swapped with a later one or itself."""
    import numpy as np

    count, twister = recipe.items, draws.twister(recipe)
    twister.random_raw(recipe.skip, output=False)
    order = array("I", range(count))
    for begin in range(0, count - 1, _CHUNK):
        place = np.arange(begin, min(begin + _CHUNK, count - 1), dtype=np.uint64)
        others = twister.random_raw(len(place)) % (np.uint64(count) - place) + place
        for one, other in enumerate(others.tolist(), begin):
            item = order[other]
            order[other] = order[one]
            order[one] = item
    return np.frombuffer(order, np.uint32)


def _check(order: Order) -> int:
    return zlib.crc32(order.astype("<u4").tobytes())


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Orders:
    """The orders of a sealed ledger, by their numbers from 1 on. Made when they are asked for; the last few are kept."""

    def __init__(self, recipes: list[bytes], whose: str, notes: list[str]) -> None:
        """What is wrong with the ledger of `whose` becomes a note."""
        self.recipes = recipes
        self._made: dict[int, Order | None] = {}
        self._whose = whose
        self._notes = notes
        self._spans = lru_cache(MOST_KEPT)(self._unpack_spans)
        read = [read_recipe(content) for content in recipes]
        strange = sorted({one.kind for one in read if one is not None and not is_known(one)})
        if strange:
            self._note(
                f"keeps orders as recipes of a kind that this version does not know ({', '.join(map(str, strange))}): which "
                "items their batches had cannot be told. The version that sealed it can."
            )

    def order(self, number: int) -> Order | None:
        """One of them; None: it cannot be made."""
        made = dict(self._made)  # queries ask in several threads
        if number not in made:
            made = dict(list(made.items())[1 - MOST_KEPT :])
            made[number] = self._make(number)
            self._made = made
        return made[number]

    def _make(self, number: int) -> Order | None:
        recipe = read_recipe(self.recipes[number - 1]) if number <= len(self.recipes) else None
        if recipe is not None and not is_known(recipe):
            return None
        order = self._items(recipe) if recipe is not None and is_sound(recipe) else None
        if recipe is None or order is None or _check(order) != recipe.check:
            self._note(f"is damaged: recipe {number} does not give the order any more that its batches had")
            return None
        return order

    def _items(self, recipe: Recipe) -> Order | None:
        """The order of a recipe, in numbers of the innermost dataset."""
        if recipe.kind == DRAWN:
            return draws.make(recipe)
        if recipe.kind == SORTED:
            spans = self._spans(recipe.subset)
            return None if spans is None else weighted.make(recipe, spans)
        if not recipe.subset:
            return make(recipe)
        items = self._held(recipe.subset)
        return _unpacked(items)[make(recipe)] if len(items) == _WIDTH * recipe.items else None

    def _unpack_spans(self, holder: int) -> Spans | None:
        """What the rounds tell together whose draws this recipe has."""
        read = (read_recipe(content) for content in self.recipes)
        rounds = [one for one in read if one is not None and one.kind == SORTED and one.subset == holder]
        if not all(map(is_sound, rounds)) or sum(one.total for one in rounds) > MOST_ITEMS:
            return None
        return weighted.unpacked(self._held(holder)[STATE.size :], rounds)

    def _held(self, number: int) -> bytes:
        """The state of a recipe that has something for others; empty: there is none."""
        holder = read_recipe(self.recipes[number - 1]) if 0 < number <= len(self.recipes) else None
        return b"" if holder is None else holder.state

    def _note(self, what: str) -> None:
        note = f"The ledger of {self._whose} {what}"
        if note not in self._notes:
            self._notes.append(note)


# ── sealing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Round(NamedTuple):
    """A round of which recipes were noted: its batches in the order of their numbers."""

    noted: list[Recipe]
    numbers: Ints
    sizes: Ints
    items: Ints  # of all of them


class Found(NamedTuple):
    """Batches of a round in an order: the recipe to be sealed, where each begins, and which of them are there."""

    recipe: Recipe
    places: Ints
    there: NDArray[np.bool_]
    gain: int = 0  # about so many bytes less; of draws only


def find(round: Round, subset: Order | None = None) -> Found | None:
    """Find the batches of a round in an order that was noted; None: most are in none. `subset` is what `learn` found."""
    for recipe in filter(is_sound, round.noted):
        if (
            recipe.kind not in (SEEDED, STATED)
            or bool(recipe.subset) != (subset is not None)
            or (subset is not None and len(subset) != recipe.items)
        ):
            continue
        for skip in _skips(recipe, round):
            exact = recipe._replace(skip=skip)
            order = make(exact) if subset is None else subset[make(exact)]
            places, there = _places(order, round.items, round.sizes)
            if 2 * int(there.sum()) >= len(there):
                return Found(exact._replace(check=_check(order)), places, there)
    return None


def find_drawn(round: Round) -> Found | None:
    """The same for draws with replacement of all items alike; None also if the recipe takes more room than they."""
    for noted in round.noted:
        recipe = draws.cut(noted, round.numbers, round.sizes)
        if recipe.kind != DRAWN or not is_sound(recipe):
            continue
        for skip in _skips_drawn(recipe, round):
            exact = recipe._replace(skip=skip)
            found = _found(exact, draws.make(exact), round)
            if found is not None:
                return found
    return None


def learn_weighted(round: Round) -> tuple[Recipe, Spans] | None:
    """The recipe by which a round was drawn by weights, and what it tells of these; None: none that was noted is true."""
    for noted in round.noted:
        recipe = draws.cut(noted, round.numbers, round.sizes)
        if recipe.kind != WEIGHTED or not is_sound(recipe):
            continue
        steps = draws.steps(round.numbers, round.sizes)
        first = slice(FIRST_WEIGHTED)
        for skip in range(MOST_SKIP):
            exact = recipe._replace(skip=skip)
            if weighted.learn(exact, steps[first], round.items[first]) is not None:
                spans = weighted.learn(exact, steps, round.items)
                if spans is not None:
                    return exact, spans
    return None


def find_weighted(round: Round, recipe: Recipe, order: Order) -> Found | None:
    """The batches of a round in the order in which it was drawn by weights; None as above, without the draws of its group."""
    return _found(recipe._replace(kind=SORTED, seed=0), order, round)


def _found(recipe: Recipe, order: Order, round: Round) -> Found | None:
    import numpy as np

    places, there = draws.places(order, round.numbers, round.sizes, round.items)
    gain = draws.room(round.items[np.repeat(there, round.sizes)]) - len(recipe_bytes(recipe))
    if 2 * int(there.sum()) < len(there) or gain <= 0:
        return None
    return Found(recipe._replace(check=_check(order)), places, there, gain)


def learn(rounds: Iterable[Round]) -> Order | None:
    """The items of a subset by their places in it, as far as rounds over it tell them; None: they tell nothing."""
    import numpy as np

    known = None
    for round in rounds:
        recipe = next((one for one in round.noted if one.kind == SEEDED and is_sound(one)), None)
        if recipe is None or not len(round.items):
            continue
        known = np.full(recipe.items, _UNKNOWN, np.uint32) if known is None else known
        order, ends = make(recipe), np.cumsum(round.sizes)
        begins = round.numbers * round.sizes.max() - (ends - round.sizes)
        places = np.arange(len(round.items)) + np.repeat(begins, round.sizes)
        if len(known) != recipe.items or places[-1] >= len(order) or not _fits(round.items):
            return None
        known[order[places]] = round.items
        if known.max() < _UNKNOWN:
            break
    return known


def is_worth(subset: Order, count: int) -> bool:
    """Do so many items take more room than those of the subset once?"""
    return count >= 2 * int((subset < _UNKNOWN).sum())


def _fits(items: Ints) -> bool:
    return int(items.min()) >= 0 and int(items.max()) < _UNKNOWN


def packed(subset: Order) -> bytes:
    """The items of a subset as a recipe has them."""
    import numpy as np

    return subset.astype("<u4").view(np.uint8).reshape(-1, _WIDTH).T.tobytes()


def _unpacked(content: bytes) -> Order:
    import numpy as np

    planes = np.frombuffer(content, np.uint8).reshape(_WIDTH, -1)
    return np.ascontiguousarray(planes.T).view("<u4").ravel()


def _skips(recipe: Recipe, round: Round) -> list[int]:
    """How many draws may have come before the order: by its first item, else what is usual."""
    if recipe.subset or recipe.replicas > 1:
        return [0]
    firsts = (draws.twister(recipe).random_raw(MOST_SKIP) % recipe.items).tolist()
    fitting = [skip for skip, first in enumerate(firsts) if len(round.items) and first == round.items[0]]
    usual = [0, SEED_DRAWS] if round.numbers[0] else [0]
    return list(dict.fromkeys([*fitting, *usual]))


def _skips_drawn(recipe: Recipe, round: Round) -> list[int]:
    """The same for draws with replacement, by their first items."""
    if not recipe.state:
        return [0]
    first = round.items[: min(FIRST_ITEMS, int(round.sizes[0]))]
    if round.numbers[0] or not len(first):
        return [0, SEED_DRAWS]
    tries = [recipe._replace(skip=skip, total=len(first)) for skip in range(MOST_SKIP)]
    return [one.skip for one in tries if (draws.make(one) == first).all()]


def _places(order: Order, items: Ints, sizes: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Where in the order each batch begins, and which of them really stand there, one behind the other."""
    import numpy as np

    ends = np.cumsum(sizes)
    begins = ends - sizes
    first = np.append(items, -1)[begins]  # of an empty batch at the end
    sorter = np.argsort(order, kind="stable")
    place = sorter[np.minimum(np.searchsorted(order, first, sorter=sorter), len(order) - 1)]
    steps = np.arange(len(items)) - np.repeat(begins - place, sizes)
    wrong = np.append(0, np.cumsum(order[np.minimum(steps, len(order) - 1)] != items))
    there = (sizes > 0) & (place + sizes <= len(order)) & (wrong[ends] == wrong[begins])
    highest = np.maximum.accumulate(np.where(there, place, -1))
    there &= place > np.append(-1, highest[:-1])
    return place, there
