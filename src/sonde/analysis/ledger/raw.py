"""Reads the ledger of a process from its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonde.analysis.ledger.ledger import HIGHEST, NO_DIGEST, SAMPLE, WHOLE, Ledger, narrow
from sonde.lazy import numpy as np
from sonde.store import ledger
from sonde.store.reading.ledger import LedgerEntry, read_entries

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

PIECE = 1 << 16  # batches that are taken together


def read_ledger(path: Path, notes: list[str]) -> Ledger | None:
    """The ledger in a file; None if there is none, or nothing in it."""
    taken = _Taken()
    for entry in read_entries(path, notes):
        taken.add(entry)
    return taken.ledger() if taken.count else None


class _Taken:
    """Takes entries, and keeps them in narrow arrays."""

    def __init__(self) -> None:
        self._types: dict[int, Any] = {
            ledger.U16: np.dtype("<u2"),
            ledger.U32: np.dtype("<u4"),
            ledger.I64: np.dtype("<i8"),
        }
        self.count = 0
        self._heads: list[tuple[int, int, int, int]] = []  # key, worker, flags, rows
        self._rows: list[NDArray[Any]] = []
        self._runs: list[tuple[int, int]] = []  # how many rows have a run of how many
        self._done: list[dict[str, NDArray[Any]]] = []
        self._texts: dict[int, str] = {}
        self._digests: dict[int, tuple[int, int]] = {}

    def add(self, entry: LedgerEntry) -> None:
        if entry.code == ledger.DIGEST:
            of = WHOLE if entry.flags & ledger.WHOLE else SAMPLE
            self._digests[entry.key] = (ledger.HASH.unpack(entry.content)[0], of)
            return
        if entry.code == ledger.RECIPE:
            return
        rows = entry.count
        if rows and entry.code in self._types:
            self._rows.append(np.frombuffer(entry.content, self._types[entry.code]))
            self._runs.append((rows, 1))
        else:
            rows = 1
            first = ledger.FIRST.unpack(entry.content)[0] if entry.code == ledger.RANGE else 0
            self._rows.append(np.array([min(first, HIGHEST - entry.count)], np.int64))  # beyond it is damage
            self._runs.append((1, entry.count))
        if entry.code == ledger.TEXT:
            self._texts[self.count] = json.dumps(entry.keys())
        self._heads.append((entry.key, -1 if entry.worker is None else entry.worker, entry.flags, rows))
        self.count += 1
        if len(self._heads) >= PIECE:
            self._close()

    def ledger(self) -> Ledger:
        self._close()
        whole = {name: np.concatenate([piece[name] for piece in self._done]) for name in self._done[0]}
        rows, first, run = whole.pop("rows"), whole.pop("first"), whole.pop("run")
        start = np.append(0, np.cumsum(rows))
        whole["digest"], whole["digest_of"] = self._digest_columns(whole["key"])
        whole["shuffle"] = np.zeros(len(rows), np.uint32)
        return Ledger(whole, start, first, run, self._texts)

    def _digest_columns(self, keys: Ints) -> tuple[NDArray[Any], NDArray[Any]]:
        found = [self._digests.get(key, (0, NO_DIGEST)) for key in keys.tolist()] if self._digests else []
        if not found:
            return np.zeros(len(keys), np.uint64), np.zeros(len(keys), np.uint8)
        return np.array([one for one, _ in found], np.uint64), np.array([of for _, of in found], np.uint8)

    def _close(self) -> None:
        if not self._heads:
            return
        heads = np.array(self._heads, np.int64)
        counts, runs = np.array(self._runs, np.int64).T
        self._done.append(
            {
                "key": heads[:, 0].copy(),
                "worker": heads[:, 1].astype(np.int16),
                "flags": heads[:, 2].astype(np.uint8),
                "rows": heads[:, 3].copy(),
                "first": narrow(np.concatenate(self._rows)),
                "run": np.repeat(narrow(runs), counts),
            }
        )
        self._heads, self._rows, self._runs = [], [], []
