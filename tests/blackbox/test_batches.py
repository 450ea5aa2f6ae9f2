"""The ring of the last batches: what C keeps of usual ones is what Python would have kept, and nothing longer."""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import HealthCheck, given, settings, strategies
from tests.blackbox.test_fingerprint import BATCHES
from tests.flow.boxes import loader
from tests.hooks.torch.data import read_in_c

import sonde
from sonde import config
from sonde.blackbox import fingerprint
from sonde.blackbox.batches import FACTOR, DeliveredBatch, Ring
from sonde.blackbox.box import _box
from sonde.events import core
from sonde.hooks.torch.loader import Batch
from sonde.probes.loader import ledger
from sonde.store.ledger import Writer, pack_digest
from sonde.testing import record

pytestmark = pytest.mark.skipif(fingerprint.native is None, reason="the C part was not built")
MOST = 3
NEVER = 2**62
BATCH = Batch(0, 1, (4, 5), None, 0)


class Book:
    """The ledger of a test: a real file."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self.settings: object | None = True
        self.path = path
        self.writer: Any = Writer(fd, lambda _count: True, at_once=False)

    def note(self, key: int, digest: int, of_all: bool) -> None:
        """As `note_digest` does it."""
        self.writer.put(pack_digest(key, digest, whole=of_all), 0)

    def content(self) -> bytes:
        """All that was written."""
        self.writer.flush()
        return self.path.read_bytes()


_State: Any = object if fingerprint.native is None else fingerprint.native.State


class Box(_State):
    """As much of a black box as C asks for; `slow` does what the real one does."""

    def __init__(self, folder: Path, native: bool, limit: int = 1 << 20) -> None:
        self.suspect, self.due = False, NEVER
        self.ring: Ring | None = Ring(MOST, config.load(values_limit=limit, exclude="patient"))
        self.book = Book(folder / f"{native}.ledger")
        self.asked = 0  # batches of which Python had to see to it
        self.error: BaseException | None = None
        self.deliver: Callable[..., None] = self.slow
        if native:
            whole, part = (pack_digest(0, 0, whole=whole)[:8] for whole in (True, False))
            delivery = fingerprint.native.delivery(
                self.slow, box=self, context=core.get_context, kept=DeliveredBatch, book=self.book, sampled=part,
                read=whole, note=self.book.note,
            )  # fmt: skip
            self.deliver, self.ring.newer = delivery, delivery.newer

    def slow(self, batch: Any, key: Any, data: Any) -> None:
        """In Python."""
        self.asked += 1
        if self.error is not None:
            raise self.error
        if self.ring is not None:
            self.ring.keep(batch, key, data)

    def kept(self) -> list[Any]:
        """All of what is kept, as plain values."""
        assert self.ring is not None
        return [(one.batch, one.key, id(one.data), one.seen, one.step, one.epoch, one.state, len(one.parts))
                for one in self.ring.kept]  # fmt: skip


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    """One whose usual batches C keeps."""
    fingerprint.glance([torch.ones(2)])  # from now on C knows torch
    made = Box(tmp_path, native=True)
    monkeypatch.setattr(ledger, "note_digest", made.book.note)
    yield made
    made.book.writer.close()


def same(box: Box, other: Box) -> None:
    """Do both keep the same?"""
    assert box.kept() == other.kept()
    assert box.ring is not None
    assert other.ring is not None
    for one, two in zip(box.ring.kept, other.ring.kept, strict=True):
        assert [way for way, _ in one.parts] == [way for way, _ in two.parts]
        assert one.state or all(mine is yours for (_, mine), (_, yours) in zip(one.parts, two.parts, strict=True))
        assert isinstance(one.seen, fingerprint.Fingerprint)


ACTIONS = strategies.one_of(
    strategies.tuples(strategies.just("batch"), BATCHES),
    strategies.tuples(strategies.just("look"), strategies.none()),
    strategies.tuples(strategies.just("step"), strategies.integers(0, 9)),
)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(actions=strategies.lists(ACTIONS, max_size=20), limit=strategies.sampled_from([4, 40, 1 << 20]))
def test_c_keeps_what_python_would_keep(tmp_path_factory: pytest.TempPathFactory, actions: Any, limit: int) -> None:
    """Of any batches, in any order; also the ledger is the same, byte for byte."""
    folder = tmp_path_factory.mktemp("ring")
    fingerprint.glance([torch.ones(2)])
    boxes = [Box(folder, native=True, limit=limit), Box(folder, native=False, limit=limit)]
    original = ledger.note_digest
    try:
        for number, (action, value) in enumerate(actions):
            if action == "step":
                core.set_context(value, -1)
            for each in boxes:
                ledger.note_digest = each.book.note
                if action == "batch":
                    each.deliver(BATCH, number or None, value)
            if action == "look":
                same(*boxes)
        same(*boxes)
        assert boxes[0].book.content() == boxes[1].book.content()
    finally:
        ledger.note_digest = original
        core.set_context(-1, -1)
        for each in boxes:
            each.book.writer.close()


class Own(torch.Tensor):
    """A class of the program."""


x = torch.arange(24.0).reshape(4, 6)
USUAL: dict[str, Any] = {
    "a tuple": (x, x.long()),
    "a dictionary": {"a": x.half(), "b": {"c": x > 3}, "name": ["p", "q"]},
    "one tensor": x,
    "shared memory": [x, x[1:], x.view(6, 4)],
    "not in order": [x.t(), x[::2]],
    "large": [torch.zeros(50_000)],
    "nothing but texts": ["a", "b"],
}
UNUSUAL: dict[str, Any] = {
    "a class of its own": [x.as_subclass(Own)],
    "one number": [torch.tensor(1.0)],
    "empty": [torch.empty(0, 3)],
    "too large": [torch.empty((FACTOR << 18) + 1)],
    "nowhere": [torch.ones(3, device="meta")],
}


@read_in_c
@pytest.mark.parametrize("name", [*USUAL, *UNUSUAL])
def test_usual_batches_never_come_to_python(box: Box, tmp_path: Path, name: str) -> None:
    """All others do, and both are kept as Python keeps them."""
    other = Box(tmp_path, native=False)
    data = (USUAL | UNUSUAL)[name]
    for each in (box, other):
        for number in range(MOST + 1):
            each.deliver(BATCH, number, data)
    assert box.asked == (0 if name in USUAL else MOST + 1)
    same(box, other)
    other.book.writer.close()


@read_in_c
def test_a_usual_batch_makes_no_python_frame(box: Box) -> None:
    """Not even for its digest in the ledger."""
    box.deliver(BATCH, 1, [x])
    frames: list[str] = []
    sys.setprofile(lambda frame, event, _: frames.append(frame.f_code.co_name) if event == "call" else None)
    box.deliver(BATCH, 2, [x])
    sys.setprofile(None)
    assert frames == []
    assert len(box.kept()) == 2
    assert len(box.book.content()) > len(pack_digest(0, 0, whole=True))


def _suspect(box: Box) -> None:
    box.suspect = True


def _due(box: Box) -> None:
    box.due = 0


def _without(box: Box) -> None:
    box.ring = None


def _unread(box: Box) -> None:
    box.ring = Ring(MOST, config.load(values="off"))


@pytest.mark.parametrize("change", [_suspect, _due, _without, _unread])
def test_python_is_asked_when_there_is_something_to_be_done(box: Box, change: Callable[[Box], None]) -> None:
    """A loss to be judged, a look around, a ring that is gone or may read nothing."""
    change(box)
    box.deliver(BATCH, 1, [x])
    assert box.asked == 1


def test_what_was_kept_in_c_comes_before_what_python_keeps(box: Box) -> None:
    """The order is that of the deliveries, whoever keeps them, and there are never more than asked for."""
    batches = [[x], [torch.tensor(1.0)], [x], [x], [torch.tensor(2.0)], [x], [x]]
    for number, data in enumerate(batches):
        box.deliver(BATCH, number, data)
        assert [one[1] for one in box.kept()] == list(range(max(0, number - MOST + 1), number + 1))


def test_batches_are_free_when_they_leave_the_ring(box: Box) -> None:
    """At once, without a collection of garbage, whether somebody has looked at them or not."""
    gc.disable()
    try:
        for look in (False, True):
            tensor = torch.ones(5)
            reference = weakref.ref(tensor)
            box.deliver(BATCH, 1, [tensor])
            del tensor
            if look:
                assert box.kept()
            for _ in range(MOST - 1):
                box.deliver(BATCH, 2, [x])
            assert reference() is not None
            box.deliver(BATCH, 3, [x])
            assert reference() is None
    finally:
        gc.enable()


def test_many_batches_leave_nothing_behind(box: Box) -> None:
    """Neither those that C keeps nor others, nor the looks at them."""

    def deliver(count: int) -> int:
        for number in range(count):
            box.deliver(BATCH, number, {"a": [x, x.long()], "b": (x, "text")})
            if number % 10 == 0:
                box.kept()
                box.deliver(BATCH, number, [torch.tensor(1.0)])
        gc.collect()
        return sys.getallocatedblocks()

    before = deliver(200)
    assert deliver(5000) - before < 500


@read_in_c
def test_a_ledger_that_cannot_be_written_quickly_is_written_by_python(box: Box) -> None:
    """As while another thread is at it, or where the buffer is full: the entries are the same."""
    lock = box.book.writer._lock
    for number in range(500):  # more than the buffer of one without a mapping
        if number == 5:
            lock.acquire()
            threading.Timer(0.05, lock.release).start()
        box.deliver(BATCH, number, [x])
    digest = fingerprint.glance([x])[1].digest
    assert digest is not None
    wanted = [pack_digest(number, digest, whole=True) for number in range(500)]
    assert b"".join(wanted) in box.book.content()
    assert box.asked == 0


@read_in_c
def test_what_stands_in_the_ledger_s_place_is_asked_by_its_function(box: Box) -> None:
    """Something that C does not know is Python's business."""
    written: list[bytes] = []

    class Other:
        def put(self, entry: bytes, _batches: int) -> None:
            written.append(entry)

        def close(self) -> None:
            pass

    box.book.writer.close()
    box.book.writer = Other()
    box.deliver(BATCH, 9, [x])
    digest = fingerprint.glance([x])[1].digest
    assert digest is not None
    assert written == [pack_digest(9, digest, whole=True)]
    box.book.settings = None
    box.deliver(BATCH, 10, [x])
    assert len(written) == 1


def test_a_failure_is_not_the_program_s(box: Box) -> None:
    """Only what is no failure of ours, such as Ctrl-C, passes."""
    box.due = 0
    box.error = ValueError("ours")
    box.deliver(BATCH, 1, [x])
    box.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        box.deliver(BATCH, 1, [x])


@read_in_c
def test_without_memory_for_a_look_nothing_is_lost(tmp_path: Path) -> None:
    """What cannot be shown now is shown later."""
    box = Box(tmp_path, native=True)
    wanting = [True]

    def make() -> DeliveredBatch:
        if wanting[0]:
            raise MemoryError
        return DeliveredBatch()

    deliver = fingerprint.native.delivery(
        box.slow, box=box, context=core.get_context, kept=make, book=box.book, sampled=b"", read=b"",
        note=lambda *_: None,
    )  # fmt: skip
    for number in range(2):
        deliver(BATCH, number, [x])
    with pytest.raises(MemoryError):
        deliver.newer()
    wanting[0] = False
    assert [one.key for one in deliver.newer()] == [0, 1]
    assert deliver.newer() == []
    box.book.writer.close()


# ── in a program ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_another_number_and_the_end_free_what_is_kept_no_more(tmp_path: Path) -> None:
    """Without waiting for a collection of garbage."""
    gc.disable()
    try:
        with record(dir=str(tmp_path), blackbox=3):
            references = [weakref.ref(batch["x"]) for _, batch in zip(range(3), loader(), strict=False)]
            batch = None
            sonde.flow.blackbox(2)
            assert [one() is None for one in references] == [True, False, False]
            assert _box.ring is not None
            assert len(_box.ring.kept) == 2
            sonde.flow.blackbox(0)
            assert [one() is None for one in references] == [True] * 3
    finally:
        gc.enable()
    assert batch is None
