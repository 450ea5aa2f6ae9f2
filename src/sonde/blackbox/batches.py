"""The last batches that loaders have delivered: references to them, and what they were like then.

Usual batches are kept by C (`delivery` in `native/fingerprint.c`), which makes a `DeliveredBatch` of each only when somebody asks for them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from sonde.blackbox import fingerprint
from sonde.capture.context import ID_KEYS, text_of
from sonde.events import core
from sonde.hooks.torch import memory
from sonde.probes.loader import ledger
from sonde.values.note import Note
from sonde.values.snapshot import OFF, freeze

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sonde.config import Settings
    from sonde.hooks.torch.loader import Batch

FACTOR = 8  # the batches together may hold so many times the setting `values_limit`
MOST_IDS = 4096

TOO_LARGE = "too large"
GONE = "gone"
_UNREAD = fingerprint.Fingerprint(None, False, (), 0, False)


class DeliveredBatch:
    """One delivered batch: `data` is what the program got, or None if it was too large to be held on to.

    `key` is its number in the records, `indices` are those in the innermost dataset; None: not known.
    """

    # Without `__init__`: one is made for each batch that C does not keep, and that is a Python frame less.
    batch: Batch | None
    key: int | None
    data: Any
    parts: fingerprint.Parts  # a part that is held on to no more is a Note
    seen: fingerprint.Fingerprint
    step: int | None
    epoch: int | None
    state = ""  # TOO_LARGE or GONE: only described

    @property
    def indices(self) -> tuple[Any, ...] | None:
        """The numbers of its items in the dataset."""
        return None if self.batch is None else self.batch.indices

    @property
    def ids(self) -> list[str | None] | None:
        """The ids of its items, where the batch says them under `object_id`, `id` or `ids`."""
        return ids_of(self.parts, None if self.indices is None else len(self.indices))

    def let_go(self, state: str) -> None:
        """Hold on to it no longer; types and shapes are kept."""
        self.state, self.data = state, None
        self.parts = [(way, freeze(part, OFF).note) for way, part in self.parts]


class Ring:
    """The newest batches, oldest first; bounded in number and in bytes."""

    def __init__(self, most: int, settings: Settings) -> None:
        self.held: deque[DeliveredBatch] = deque(maxlen=most)
        self.newer: Callable[[], list[DeliveredBatch]] | None = None  # gives those that C keeps in the place of this
        self.limit = FACTOR * settings.values_limit
        self.exclude = frozenset(settings.exclude)
        self.reads = settings.values != "off"

    @property
    def kept(self) -> deque[DeliveredBatch]:
        """All of them, oldest first."""
        if self.newer is not None:
            self.held.extend(self.newer())
        return self.held

    def keep(self, batch: Batch | None, key: int | None, data: Any) -> None:
        """A batch was delivered."""
        kept = DeliveredBatch()
        kept.batch, kept.key, kept.data = batch, key, data
        kept.step, kept.epoch = core.get_context()
        kept.parts, kept.seen = (self.reads and fingerprint.quick(data, self.exclude)) or self._look(data)
        digest, whole, _, size, elsewhere = kept.seen
        if elsewhere:  # memory of a device is too scarce to be held
            kept.let_go(GONE)
        elif size > self.limit:
            kept.let_go(TOO_LARGE)
        everything = self.kept
        everything.append(kept)
        if key is not None and digest is not None:
            ledger.note_digest(key, digest, whole)
        if size * len(everything) > self.limit:
            self._shrink()

    def clear(self) -> None:
        """Hold nothing any more."""
        self.kept.clear()
        self.newer = None

    def _look(self, data: Any) -> tuple[fingerprint.Parts, fingerprint.Fingerprint]:
        if self.reads:
            return fingerprint.glance(data, self.exclude)
        parts = fingerprint.parts_of(data, self.exclude)
        return parts, _UNREAD._replace(size=_size(parts))

    def _shrink(self) -> None:
        """Let the oldest go until the rest fits."""
        held = [kept for kept in self.held if not kept.state]
        total = sum(kept.seen.size for kept in held)
        for kept in held[:-1]:
            if total <= self.limit:
                return
            total -= kept.seen.size
            kept.let_go(GONE)

    def newest(self) -> DeliveredBatch | None:
        """The batch that was delivered last."""
        kept = self.kept
        return kept[-1] if kept else None


def ids_of(parts: fingerprint.Parts, size: int | None) -> list[str | None] | None:
    """The ids among the parts of a batch of this size; None: it has none, or what is called so is something else."""
    fields: Mapping[Any, Any] = {way[0]: part for way, part in parts if len(way) == 1}
    found = next((fields[key] for key in ID_KEYS if key in fields), None)
    if found is None or isinstance(found, Note | str | bytes) or memory.is_gone(found):
        return None
    rows = found.tolist() if hasattr(found, "tolist") else found
    if not isinstance(rows, list | tuple) or (size is not None and len(rows) != size):
        return None
    return [text_of(row) for row in rows[:MOST_IDS]]


def _size(parts: fingerprint.Parts) -> int:
    sizes = (getattr(part, "nbytes", 0) for _, part in parts)
    return sum(size for size in sizes if isinstance(size, int))
