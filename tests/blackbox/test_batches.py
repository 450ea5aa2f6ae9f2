"""The ring of the last batches: which are kept, in which order, and for how long."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from tests.flow.boxes import loader

import sonde
from sonde import config
from sonde.blackbox import checksum
from sonde.blackbox.batches import FACTOR, GONE, TOO_LARGE, Ring
from sonde.blackbox.box import _box
from sonde.events import core
from sonde.hooks.torch.loader import Batch
from sonde.probes.loader import ledger
from sonde.testing import record

MOST = 3
LIMIT = 1 << 20
BATCH = Batch(0, 1, (4, 5), None, 0)
x = torch.arange(24.0).reshape(4, 6)


@pytest.fixture
def ring() -> Ring:
    """An empty one."""
    return Ring(MOST, config.load(values_limit=LIMIT, exclude="patient"))


@pytest.fixture(autouse=True)
def noted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The digests that go into the ledger."""
    found: list[Any] = []
    monkeypatch.setattr(ledger, "note_digest", lambda *given: found.append(given))
    return found


def test_the_newest_batches_are_kept_in_their_order(ring: Ring) -> None:
    """Whatever they hold, and never more than asked for."""
    batches = [[x], [torch.tensor(1.0)], {"a": x.half(), "name": ["p"]}, x, [], ["a", "b"], [x.t()]]
    for number, data in enumerate(batches):
        ring.keep(BATCH, number, data)
        assert [one.key for one in ring.kept] == list(range(max(0, number - MOST + 1), number + 1))
        newest = ring.newest()
        assert newest is not None
        assert newest.data is data


def test_a_batch_is_kept_with_step_and_epoch_and_a_look_at_it(ring: Ring, noted: list[Any]) -> None:
    """Fields that are excluded are not looked at; the digest goes into the ledger."""
    core.set_context(7, 2)
    try:
        ring.keep(BATCH, 9, {"x": x, "patient": x})
    finally:
        core.set_context(-1, -1)
    (kept,) = ring.kept
    assert (kept.batch, kept.key, kept.step, kept.epoch, kept.indices) == (BATCH, 9, 7, 2, (4, 5))
    assert [way for way, _ in kept.parts] == [("x",)]
    assert kept.seen == checksum.glance({"x": x})[1]
    assert noted == [(9, kept.seen.digest, True)]


def test_without_values_nothing_is_read(noted: list[Any]) -> None:
    """Only the size is known."""
    ring = Ring(MOST, config.load(values="off"))
    ring.keep(BATCH, 9, [x])
    assert (ring.kept[0].seen.digest, ring.kept[0].seen.size) == (None, x.nbytes)
    assert noted == []


def test_what_is_too_large_is_only_described(ring: Ring) -> None:
    """And so is what lies on a device."""
    ring.keep(BATCH, 1, [torch.empty(FACTOR * LIMIT // 4 + 1)])
    ring.keep(BATCH, 2, [torch.ones(3, device="meta")])
    assert [(one.state, one.data) for one in ring.kept] == [(TOO_LARGE, None), (GONE, None)]


def test_the_oldest_go_until_the_rest_fits(ring: Ring) -> None:
    """The newest stays."""
    for number in range(MOST):
        ring.keep(BATCH, number, [torch.zeros(FACTOR * LIMIT // 4 // 2)])
    assert [one.state for one in ring.kept] == [GONE, "", ""]


def test_batches_are_free_when_they_leave_the_ring(ring: Ring) -> None:
    """At once, without a collection of garbage."""
    gc.disable()
    try:
        tensor = torch.ones(5)
        reference = weakref.ref(tensor)
        ring.keep(BATCH, 1, [tensor])
        del tensor
        for _ in range(MOST - 1):
            ring.keep(BATCH, 2, [x])
        assert reference() is not None
        ring.keep(BATCH, 3, [x])
        assert reference() is None
    finally:
        gc.enable()


def test_many_batches_leave_nothing_behind(ring: Ring, noted: list[Any]) -> None:
    """Neither they nor the looks at them."""

    def deliver(count: int) -> int:
        for number in range(count):
            ring.keep(BATCH, number, {"a": [x, x.long()], "b": (x, "text")})
            ring.keep(BATCH, number, [torch.tensor(1.0)])
        noted.clear()
        gc.collect()
        return sys.getallocatedblocks()

    before = deliver(200)
    assert deliver(3000) - before < 500


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
