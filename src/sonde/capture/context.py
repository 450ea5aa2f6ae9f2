"""The position of the program during a trace: which batch, items, step and epoch a call belongs to.

A call that runs inside the fetch of a batch is about the item that is being fetched, or about the whole batch. A call
that is given an array of a delivered batch, or one that was made of it, is about that batch: also where a loop fetches
one batch ahead. Any other call is about what the call around it is about, else about the batch that was delivered last.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.events import get_context
from sonde.hooks.torch import dlpack
from sonde.values import digest
from sonde.values.note import Item
from sonde.values.snapshot import OFF, freeze

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sonde.capture.call import About
    from sonde.capture.plan import Plan
    from sonde.values.note import CapturedValue, Note

RECENT = 4  # deliveries that calls may still be about: some loops fetch ahead
MAX_OWNED = 4_096  # arrays whose batch is remembered
MAX_KNOWN = 100_000  # deliveries that calls of workers are matched with
MAX_LEAVES = 256  # arrays of one delivered batch
ID_KEYS = ("object_id", "id", "ids")
MAX_TEXT = 200


class Where(NamedTuple):
    """What a call is about."""

    loader: int | None = None
    batch: int | None = None
    items: tuple[Item, ...] = ()
    epoch: int | None = None
    step: int | None = None


class Delivery(NamedTuple):
    """A batch that a loader gave to the program."""

    where: Where
    wanted: bool
    note: Note | None = None  # its parts and their numbers, no content


class UnfinishedBatch:
    """A batch that is being put together in this thread."""

    __slots__ = ("all", "depth", "hides", "items", "position", "wanted", "where")

    def __init__(self, where: Where, *, wanted: bool, hides: bool = False) -> None:
        self.where = where
        self.items = list(where.items)
        self.depth = 0  # of getters inside each other
        self.position = -1  # of the item that is being fetched; before the first one none is
        self.all = False  # the whole batch is at hand: it is being collated
        self.wanted = wanted
        self.hides = hides  # ids are texts, and texts are not kept

    def here(self) -> tuple[Item, ...]:
        """The items that a call made now is about."""
        if not self.all and 0 <= self.position < len(self.items):
            return (self.items[self.position],)
        return tuple(self.items) if self.all or self.position < 0 else ()

    def named(self, value: object) -> None:
        """Take the id of the item at hand from what its getter gave."""
        if 0 <= self.position < len(self.items) and self.items[self.position].id is None:
            found = id_of(value)
            if found is not None:
                found = masked(found) if self.hides else found
                self.items[self.position] = self.items[self.position]._replace(id=found)


class _Thread(threading.local):
    fetch: UnfinishedBatch | None = None


class TracePosition:
    """Where one trace is; see the module's text."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.thread = _Thread()
        self.recent: deque[Delivery] = deque(maxlen=RECENT)
        self.delivered: dict[int | None, int] = {}  # how many batches each loader has given
        self.owners: dict[int, Delivery] = {}  # array -> the batch that it belongs to
        self.updates: int | None = None  # of the optimizer; None: there is none that we saw
        self.anchor = 0  # the first optimizer that was seen
        self.numbers: dict[int, int] = {}  # loaders as this process numbers them -> in the order of this trace
        self.known: dict[
            tuple[int | None, int | None, int | None], Delivery
        ] = {}  # loader, pass, batch -> what was captured

    # ── what a call is about ─────────────────────────────────────────────────────────────────────────────────────────

    def wanted(self) -> bool:
        """May a call that is made now have to be noted?"""
        fetch = self.thread.fetch
        if fetch is not None:
            return fetch.wanted
        if self.plan.steps is not None:
            return (self.step() or 0) in self.plan.steps
        return not self.recent or any(delivery.wanted for delivery in self.recent)

    def find(self, inputs: list[CapturedValue], outer: About | None) -> Where | None:
        """What a call is about; None if that is nothing that is to be captured."""
        fetch = self.thread.fetch
        if fetch is not None:
            return fetch.where._replace(items=fetch.here())
        delivery = next((self.owners[key] for key in _identities(inputs) if key in self.owners), None)
        if delivery is None and outer is not None:
            return Where(outer.loader, outer.batch, tuple(outer.items), outer.epoch, self.step())
        if delivery is None and self.recent:
            delivery = self.recent[-1]
        if delivery is None:
            return Where(epoch=self.epoch(None), step=self.step())
        if not delivery.wanted:
            return None
        return delivery.where._replace(step=self.step(), epoch=self.epoch(delivery.where.epoch))

    def claim(self, output: CapturedValue, about: About) -> None:
        """What a call gave belongs to the batch that the call was about."""
        if self.thread.fetch is None and about.batch is not None:
            where = Where(about.loader, about.batch, tuple(about.items), about.epoch, about.step)
            self._own(_identities([output]), Delivery(where, wanted=True))

    def step(self) -> int | None:
        """The step: what the program has said, else the count of updates of its first optimizer."""
        now = get_context()[0]
        if now is not None:
            return now
        return self.updates if self.updates is not None or not self.recent else 0

    @staticmethod
    def epoch(passed: int | None) -> int | None:
        """The epoch: what the program has said, else how often the loader was gone through before."""
        now = get_context()[1]
        return passed if now is None else now

    # ── what happens ─────────────────────────────────────────────────────────────────────────────────────────────────

    def loader(self, number: int | None) -> int | None:
        """The number of a loader in this trace."""
        return None if number is None else self.numbers.setdefault(number, len(self.numbers))

    def arrived(
        self,
        loader: int | None,
        batch: int | None,
        passed: int | None,
        items: list[Item],
        value: object,
    ) -> Delivery:
        """A loader has given a batch to the program, or failed to: then `value` is None."""
        count = self.delivered.get(loader, 0)
        self.delivered[loader] = count + 1
        where = Where(loader, batch, tuple(items), self.epoch(passed), self.step() or 0)
        note = freeze(value, OFF).note
        delivery = Delivery(where, self._chosen(count), note)
        self.recent.append(delivery)
        self._own(_of_note(note), delivery)
        if delivery.wanted and len(self.known) < MAX_KNOWN:
            self.known[loader, passed, batch] = delivery
        return delivery

    def _chosen(self, count: int) -> bool:
        if self.plan.batches is not None:
            return count < self.plan.batches
        return self.plan.steps is None or (self.step() or 0) in self.plan.steps

    def fetch_wanted(self, loader: int | None) -> bool:
        """Is a batch that is about to be fetched in this process, for its own use, to be captured?"""
        return self._chosen(self.delivered.get(loader, 0))

    def belongs(self, about: About) -> bool | None:
        """Is a call of a worker part of what is captured? None: its batch has not been delivered yet."""
        delivery = self.known.get((about.loader, about.epoch, about.batch))
        if delivery is None:
            return True if about.loader is None else None
        about.epoch, about.step = delivery.where.epoch, delivery.where.step
        if about.stage_name == "collate" and about.parent is None and about.output and delivery.note:
            about.output = about.output._replace(note=_delivered(about.output.note, delivery.note))
        return True

    def updated(self, optimizer: int) -> None:
        """An optimizer has made an update; those of the first one count."""
        self.anchor = self.anchor or optimizer
        if optimizer == self.anchor:
            self.updates = (self.updates or 0) + 1

    def leave(self) -> None:
        """In a forked child: the batches of the parent are not the business of this process."""
        self.thread = _Thread()
        self.recent.clear()
        self.owners.clear()

    def _own(self, keys: Iterator[int], delivery: Delivery) -> None:
        for key in keys:
            self.owners.pop(key, None)
            self.owners[key] = delivery
        while len(self.owners) > MAX_OWNED:
            del self.owners[next(iter(self.owners))]


# ── reading batches ──────────────────────────────────────────────────────────────────────────────────────────────────


def items_of(indices: Any, worker: int | None = None, *, hides: bool = False) -> list[Item]:
    """The items that a sampler's answer names: a list of indices, or one index.

    `worker` is given where the indices are only ordinals, and other workers count theirs from 0 too. `hides`: indices that
    are texts are masked.
    """
    several = isinstance(indices, list | tuple | range) or type(indices).__name__ == "ndarray"
    named = [plain(index) for index in (indices if several else [indices])]
    if hides:
        named = [masked(index) if isinstance(index, str) else index for index in named]
    if worker is not None:
        named = [f"{worker}:{index}" for index in named]
    return [Item(n, index) for n, index in enumerate(named)]


def masked(text: str) -> str:
    """Stands for an id or an index where texts are not kept: its digest."""
    return f"#{digest.of_text('str', text):016x}"


def plain(index: Any) -> int | str | None:
    """An index of a dataset as a number or a text."""
    if index is None or isinstance(index, str):
        return index
    if isinstance(index, int) and not isinstance(index, bool):
        return int(index)
    if hasattr(index, "__index__") and getattr(index, "ndim", 0) == 0:
        return int(index.__index__())
    return str(index)[:MAX_TEXT]


def id_of(value: object) -> str | None:
    """The id that an item itself says: under the key object_id, id or ids."""
    if not isinstance(value, dict):
        return None
    for key in ID_KEYS:
        if key in value:
            return text_of(value[key])
    return None


def text_of(value: Any) -> str | None:
    """An id as text: of a plain value, or of an array with one element."""
    if getattr(value, "shape", None) is not None and hasattr(value, "item"):
        if getattr(value, "size", 0) != 1 and tuple(value.shape) not in ((), (1,)):
            return None
        value = None if dlpack.is_gone(value) else value.item()
    return str(value)[:MAX_TEXT] if isinstance(value, str | int | float | bytes) else None


def leaves(value: object) -> Iterator[object]:
    """The arrays of a batch, as far as its containers are plain ones."""
    waiting, found = [value], 0
    while waiting and found < MAX_LEAVES:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part[:MAX_LEAVES]
        elif getattr(part, "shape", None) is not None:
            found += 1
            yield part


def rows(value: object, most: int) -> int:
    """How many items a batch has, by its first array."""
    for leaf in leaves(value):
        shape: Any = getattr(leaf, "shape", ())
        if len(shape) and isinstance(shape[0], int):
            return min(shape[0], most)
    return most


def _identities(captured: list[CapturedValue]) -> Iterator[int]:
    for kept in captured:
        yield from _of_note(kept.note)


def _delivered(made: Note, given: Note) -> Note:
    """What collate made in a worker is what the loader gave here: its arrays get the numbers that they have here."""
    if (made.kind, made.shape, len(made.children)) != (given.kind, given.shape, len(given.children)):
        return made
    pairs = zip(made.children, given.children, strict=True)
    children = tuple((name, _delivered(one, other)) for (name, one), (_, other) in pairs)
    return made._replace(identity=given.identity, children=children)


def _of_note(note: Note) -> Iterator[int]:
    if note.identity is not None:
        yield note.identity
    for _, child in note.children:
        yield from _of_note(child)
