"""How the sampler of a loader shuffles or draws: read from it, without drawing a number or asking it for one.

The order of a round follows from few bytes, and takes many to write down. What these say need not be true: whoever uses them
makes the order again and compares.
"""

from __future__ import annotations

import gc
import struct
import sys
from types import GeneratorType
from typing import Any

from sonde.store.ledger import DRAWN, SEEDED, STATE, STATED, WEIGHTED, Recipe

LEAST_ITEMS = 8192  # of an order; smaller ones take little room
MOST_DEPTH = 6  # iterators inside each other

# The state of a generator of torch: its seed, how many words are left and one more, whether it is seeded, the place of the
# next word, the words, and what is left of a normal distribution.
_STATE = struct.Struct("<QiiQ624Q")


def stated(loader: Any) -> Recipe | None:
    """Before a round of a loader: by the state of the generator that its sampler will use; None if that tells nothing.

    That is the one that the user gave to it. Weights are drawn with torch's own generator if there is none.
    """
    sampler, data = _innermost(loader._index_sampler), sys.modules["torch"].utils.data
    if isinstance(loader.dataset, data.Subset):  # then nobody could tell which draws were others'
        return None
    if type(sampler) is data.WeightedRandomSampler:
        return _weighted(sampler)
    if type(sampler) is not data.RandomSampler or sampler.generator is None:
        return None
    kind = DRAWN if sampler.replacement else STATED
    items = len(sampler.data_source)
    total = sampler.num_samples if sampler.replacement else items
    state = _state(sampler.generator) if total >= LEAST_ITEMS else None
    return None if state is None else Recipe(kind, items, total, state=state)


def _weighted(sampler: Any) -> Recipe | None:
    """The weights are not needed: what they drew tells enough of them."""
    torch = sys.modules["torch"]
    if not sampler.replacement or sampler.num_samples < LEAST_ITEMS:
        return None
    if type(sampler.weights) is not torch.Tensor or sampler.weights.device.type != "cpu":
        return None
    state = _state(sampler.generator or torch.default_generator)
    return None if state is None else Recipe(WEIGHTED, len(sampler.weights), sampler.num_samples, state=state)


def _state(generator: Any) -> bytes | None:
    """As a recipe has it; None: it is none of a Mersenne Twister."""
    if generator.device.type != "cpu":
        return None
    state = bytes(generator.get_state().tolist())
    if len(state) < _STATE.size:
        return None
    _, left, _, _, *words = _STATE.unpack_from(state)
    return STATE.pack(len(words) + 1 - left, *words)


def seeded(iterator: Any) -> Recipe | None:
    """When a round has begun and its sampler has given numbers: by its seed; None if that is not known."""
    data = sys.modules["torch"].utils.data
    sampler, subset = _innermost(iterator._index_sampler), int(isinstance(iterator._dataset, data.Subset))
    if type(sampler) is data.DistributedSampler:
        return _distributed(sampler, subset)
    running = _running(iterator._sampler_iter, data.RandomSampler.__iter__.__code__, MOST_DEPTH)
    if running is None or running.gi_frame is None:
        return None
    local = running.gi_frame.f_locals
    sampler, items, generator = local["self"], local.get("n"), local.get("generator")
    if items is None or generator is None:  # it has not begun
        return None
    given = type(sampler) is data.RandomSampler and sampler.generator is not None  # `stated` knows more of it
    total = sampler.num_samples if sampler.replacement else items
    if given or total < LEAST_ITEMS or (sampler.replacement and subset):
        return None
    kind = DRAWN if sampler.replacement else SEEDED
    return Recipe(kind, items, total, subset=subset, seed=generator.initial_seed())


def _distributed(sampler: Any, subset: int) -> Recipe | None:
    items = len(sampler.dataset)
    if not sampler.shuffle or items < LEAST_ITEMS:
        return None
    seed = (sampler.seed + sampler.epoch) % 2**64
    return Recipe(SEEDED, items, sampler.total_size, sampler.num_replicas, sampler.rank, subset, seed)


def _innermost(sampler: Any) -> Any:
    """What a sampler of batches gets its numbers from."""
    batches = sys.modules["torch"].utils.data.BatchSampler
    for _ in range(MOST_DEPTH):
        if not isinstance(sampler, batches):
            break
        sampler = getattr(sampler, "sampler", None)
    return sampler


def _running(iterator: Any, code: object, deeper: int) -> Any:
    """The generator of this code that an iterator works with, however it holds it; None if there is none."""
    if type(iterator) is GeneratorType and iterator.gi_code is code:
        return iterator
    if not deeper or type(iterator) not in (GeneratorType, enumerate):
        return None
    inside = (_running(one, code, deeper - 1) for one in gc.get_referents(iterator))
    return next((one for one in inside if one is not None), None)
