"""The last batches delivered by loaders: references, and their state on delivery."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sonde.blackbox import checksum
from sonde.capture.context import ID_KEYS, text_of
from sonde.events import core
from sonde.hooks.torch import dlpack
from sonde.probes.loader import ledger
from sonde.values.nested import parts_of
from sonde.values.note import Note
from sonde.values.snapshot import OFF, freeze

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sonde.config import Settings
    from sonde.hooks.torch.loader import Batch
    from sonde.values.nested import Parts

FACTOR = 8  # the batches together may hold so many times the setting `values_limit`
MOST_IDS = 4096
MOST_SIZES = 256  # batches of a loader whose sizes are known
MOST_LOADERS = 64

TOO_LARGE = "too large"
GONE = "gone"
_UNREAD = checksum.Checksum(None, False, (), 0, False)


@dataclass(slots=True)
class DeliveredBatch:
    """One delivered batch: `data` is what the program got, or None if it was too large to be held on to.

    `key` is its number in the records, `indices` are those in the innermost dataset; None: not known.
    """

    batch: Batch | None
    key: int | None
    data: Any
    parts: Parts  # a part that is held on to no more is a Note
    seen: checksum.Checksum
    step: int | None
    epoch: int | None
    state: str = ""  # TOO_LARGE or GONE: only described

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
        self.parts = [(path, freeze(part, OFF).note) for path, part in self.parts]


class Ring:
    """The newest batches, oldest first; bounded in number and in bytes."""

    def __init__(self, most: int, settings: Settings) -> None:
        self.kept: deque[DeliveredBatch] = deque(maxlen=most)
        self.limit = FACTOR * settings.values_limit
        self.exclude = frozenset(settings.exclude)
        self.reads = settings.values != "off"
        self.sizes: dict[int | None, deque[int]] = {}  # bytes of the newest batches of each loader

    def keep(self, batch: Batch | None, key: int | None, data: Any) -> None:
        """A batch was delivered."""
        parts, seen = (self.reads and checksum.quick(data, self.exclude)) or self._look(data)
        kept = DeliveredBatch(batch, key, data, parts, seen, *core.get_context())
        digest, whole, _, size, elsewhere = seen
        if elsewhere:  # memory of a device is too scarce to be held
            kept.let_go(GONE)
        elif size > self.limit:
            kept.let_go(TOO_LARGE)
        self.kept.append(kept)
        self._note_size(None if batch is None else batch.loader, size)
        if key is not None and digest is not None:
            ledger.note_digest(key, digest, whole)
        if size * len(self.kept) > self.limit:
            self._shrink()

    def _note_size(self, loader: int | None, size: int) -> None:
        sizes = self.sizes.get(loader)
        if sizes is None:
            if len(self.sizes) >= MOST_LOADERS:  # one for each epoch, say
                self.sizes.clear()
            sizes = self.sizes[loader] = deque(maxlen=MOST_SIZES)
        sizes.append(size)

    def earlier(self) -> list[int]:
        """The bytes of the batches before the newest one, of its loader."""
        newest = self.newest()
        loader = None if newest is None or newest.batch is None else newest.batch.loader
        return list(self.sizes.get(loader, ()))[:-1]

    def _look(self, data: Any) -> tuple[Parts, checksum.Checksum]:
        if self.reads:
            return checksum.glance(data, self.exclude)
        parts = parts_of(data, self.exclude)
        return parts, _UNREAD._replace(size=_size(parts))

    def _shrink(self) -> None:
        """Let the oldest go until the rest fits."""
        held = [kept for kept in self.kept if not kept.state]
        total = sum(kept.seen.size for kept in held)
        for kept in held[:-1]:
            if total <= self.limit:
                return
            total -= kept.seen.size
            kept.let_go(GONE)

    def newest(self) -> DeliveredBatch | None:
        """The batch that was delivered last."""
        return self.kept[-1] if self.kept else None


def ids_of(parts: Parts, size: int | None) -> list[str | None] | None:
    """The ids among the parts of a batch of this size; None: it has none, or what is called so is something else."""
    fields: Mapping[Any, Any] = {path[0]: part for path, part in parts if len(path) == 1}
    found = next((fields[key] for key in ID_KEYS if key in fields), None)
    if found is None or isinstance(found, Note | str | bytes) or dlpack.is_gone(found):
        return None
    rows = found.tolist() if hasattr(found, "tolist") else found
    if not isinstance(rows, list | tuple) or (size is not None and len(rows) != size):
        return None
    return [text_of(row) for row in rows[:MOST_IDS]]


def _size(parts: Parts) -> int:
    sizes = (getattr(part, "nbytes", 0) for _, part in parts)
    return sum(size for size in sizes if isinstance(size, int))
