"""Slots as a damaged file may have them, and what C does done by NumPy."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from sonde import native
from sonde.store import record

KINDS = [record.SPAN, record.COUNTER, record.MARK]
ODD = [record.VOID, record.BLOCK, record.EMPTY, record.SPAN | record.OPEN, record.SPAN | record.AGAIN, 0x55, 0xFF]


def slots(seed: int, count: int, threads: int = 3) -> NDArray[np.void]:
    """Some slots: mostly plain records in blocks, here and there something else."""
    chance = np.random.default_rng(seed)
    found = np.zeros(count, dtype=list(record.RECORD_FIELDS))
    for name in ("start", "dur", "key"):
        found[name] = chance.integers(0, 2**40, count)
    found["name"] = chance.integers(0, 14, count)
    found["seq"] = np.arange(1, count + 1)
    found["kind"] = chance.choice(KINDS, count)
    odd = np.flatnonzero(chance.random(count) < 0.1)
    found["kind"][odd] = chance.choice(ODD, len(odd))
    found["seq"][odd] = chance.choice([0, 1, 5, 2**31], len(odd))
    found["start"][odd] = chance.choice(np.array([0, 2**62, 2**64 - 1], np.uint64), len(odd))
    found["dur"][odd] = chance.choice([-1, 0, 2**63 - 1], len(odd))
    heads = np.flatnonzero(chance.random(count) < 0.05)
    found["kind"][heads] = record.BLOCK
    found["start"][heads] = record.BLOCK_MAGIC
    found["key"][heads] = chance.choice([-1, 0, 1, 30, record.RING_RECORDS, record.RING_RECORDS + 1], len(heads))
    found["name"][heads] = chance.integers(0, threads, len(heads))
    return found


def by_numpy() -> Any:
    """NumPy does what C would do."""
    return patch.object(native, "slots", None)
