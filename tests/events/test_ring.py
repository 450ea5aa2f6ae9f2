"""Rings and spilling: every record is in exactly one place, and open spans survive the move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.events.harness import AGAIN, HALF, PLENTY, RING, FolderHost, process

from sonde.store import record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.events.conftest import Clock
    from tests.events.harness import Process

MUST_AGREE = (
    "FORMAT_VERSION", "RECORD_SIZE", "HEADER_BYTES", "RING_BYTES", "RING_RECORDS", "SPILL_RECORDS", "BLOCK_MAGIC",
    "NO_KEY", "NO_STEP", "NO_EPOCH", "OPEN", "AGAIN", "MAX_NAMES", "MAX_NAMES_CHARS", "MAX_NAME_CHARS",
)  # fmt: skip


def test_the_layout_is_that_of_the_store(core: Any) -> None:
    """The core has the same numbers as `store/record.py`."""
    layout = core.layout()
    assert {name: layout[name] for name in MUST_AGREE} == {name: getattr(record, name) for name in MUST_AGREE}


@pytest.mark.parametrize("count", [1, 681, 682, 683, 1363, 1364, 1365, 2046, 2047, 2728, 2729, 5000])
def test_counts_around_a_spill(recording: Any, tmp_path: Path, count: int) -> None:
    """While recording, each of n records is there once: the newest in the ring, the others in the file."""
    span = recording.Span("x")
    for _ in range(count):
        with span:
            pass
    found = process(tmp_path)
    assert [event.seq for event in found.raw] == list(range(1, count + 1))
    assert len(found.in_rings) <= RING
    assert len(found.in_file) % HALF == 0
    assert found.header["next_seq"] == count + 1  # readers doubt a record with a number that was not given out
    assert not any(event.open for event in found.raw)
    assert not found.gaps


def test_a_ring_that_is_not_full_spills_nothing(recording: Any, tmp_path: Path) -> None:
    """Up to a ring's worth of records costs no write."""
    for _ in range(RING - 1):
        recording.mark("m")
    found = process(tmp_path)
    assert (len(found.in_file), len(found.in_rings)) == (0, RING - 1)


def test_blocks_follow_each_other(recording: Any, done: Callable[[], Process]) -> None:
    """The blocks of a thread name their first index without gap or overlap, the rest comes at the end."""
    for _ in range(5000):
        recording.mark("m")
    found = done()
    reached = 0
    for thread, first, count in found.blocks:
        assert (thread, first) == (1, reached)
        reached += count
    assert (reached, found.in_rings) == (5000, [])


def test_end_spills_everything(recording: Any, done: Callable[[], Process]) -> None:
    """After the end all records are in the file, and the header counts them."""
    for _ in range(10):
        recording.mark("m")
    found = done()
    assert (len(found.in_file), len(found.in_rings), found.header["next_seq"]) == (10, 0, 11)


def test_flush_spills_and_goes_on(recording: Any, tmp_path: Path, done: Callable[[], Process]) -> None:
    """flush() brings all records to the file; later ones follow."""
    for _ in range(10):
        recording.mark("m")
    recording.flush()
    assert (len(process(tmp_path).in_file), process(tmp_path).in_rings) == (10, [])
    recording.flush()
    recording.mark("m")
    assert len(done().listed()) == 11


def test_flush_without_a_record_opens_nothing(recording: Any, host: FolderHost) -> None:
    """Flushing and ending an unused recording asks for no files."""
    recording.flush()
    recording.end()
    assert host.asked == 0


@pytest.mark.parametrize("between", [1362, 1363, 1364, 1365, 5000])
def test_an_open_span_survives_spills(recording: Any, clock: Clock, tmp_path: Path, between: int) -> None:
    """A span that is left after its record went to the file is complete all the same, with equal fields."""
    outer, inner = recording.Span("outer", key=7, args={"a": 1}), recording.Span("inner")
    recording.set_context(5, 2)
    with outer:
        recording.set_context(6, 3)
        for _ in range(between):
            with inner:
                clock.now += 1
    found = process(tmp_path)
    event = found.only("outer")
    assert (event.dur, event.seq, event.key, event.step, event.epoch, event.open) == (between, 1, 7, 5, 2, False)
    assert found.args(event) == {"a": 1}
    assert len(found.listed()) == between + 1
    assert all(e.parent == 1 and e.depth == 1 for e in found.named("inner"))


def test_a_spilled_span_is_written_again(recording: Any, tmp_path: Path) -> None:
    """The completed record has the flag `again` and the same number; the old one stays open in the file."""
    with recording.Span("x"):
        recording.flush()
    found = process(tmp_path)
    assert [(event.seq, event.open, bool(event.kind & AGAIN)) for event in found.raw] == [
        (1, True, False),
        (1, False, True),
    ]
    assert not found.gaps


def test_a_spilled_span_left_by_an_exception_is_marked(recording: Any, tmp_path: Path) -> None:
    """Error and arguments reach the record that is written again."""

    def fail() -> None:
        recording.flush()
        raise KeyError

    with pytest.raises(KeyError), recording.Span("x", args={"a": 1}):
        fail()
    found = process(tmp_path)
    assert found.args(found.only("x")) == {"a": 1, "error": "KeyError"}
    assert found.only("x").flags & 0x10


def test_many_open_spans_survive_spills(recording: Any, done: Callable[[], Process]) -> None:
    """Two thousand nested spans, all left after their records were spilled, are all complete."""
    spans = [recording.Span("x") for _ in range(2000)]
    for span in spans:
        span.start()
    for span in reversed(spans):
        span.stop()
    found = done()
    assert len(found.events) == 2000
    assert not any(event.open for event in found.listed())
    assert [event.parent for event in found.listed()] == list(range(2000))


def test_names_are_in_the_file_before_their_records(recording: Any, tmp_path: Path) -> None:
    """At any time a reader knows every name and thread that a record cites."""
    for i in range(50):
        with recording.Span(f"name {i}"):
            found = process(tmp_path)
            assert {event.name for event in found.raw} <= set(found.names)
            assert {event.thread for event in found.raw} <= set(found.threads)


def test_names_known_before_the_start_are_written(core: Any, tmp_path: Path) -> None:
    """A name that is older than the recording is in its file."""
    span = core.Span("an old name")
    core.begin(FolderHost(tmp_path), PLENTY)
    with span:
        pass
    core.end()
    assert process(tmp_path).tree() == [("an old name", None)]


def test_equal_names_have_one_id(recording: Any, done: Callable[[], Process]) -> None:
    """Many spans, counters and marks of one name cite the same id."""
    for _ in range(5):
        with recording.Span("x", "c"):
            recording.mark("x", "c")
            recording.counter("x", 1.0, "c")
    assert len({event.name for event in done().listed()}) == 1


def test_step_and_epoch_are_in_the_header(recording: Any, tmp_path: Path) -> None:
    """A live view can read the current step and epoch without looking at records."""
    recording.mark("m")
    recording.set_context(12, 3)
    header = process(tmp_path).header
    assert (header["step"], header["epoch"]) == (12, 3)


@pytest.mark.parametrize("count", [1, RING, RING + 1, 5000])
def test_block_writes(core: Any, tmp_path: Path, count: int) -> None:
    """With rings in plain memory, everything is in the file after the end."""
    core.begin(FolderHost(tmp_path, mapped=False), PLENTY)
    span = core.Span("x", args={"a": 1})
    with core.Span("outer"):
        for _ in range(count):
            with span:
                pass
    assert core.info()["mapped"] is False
    core.end()
    found = process(tmp_path)
    assert not (found.folder / "rings").exists()
    assert (len(found.events), len(found.named("x")), found.only("outer").open) == (count + 1, count, False)
    assert found.args(found.named("x")[-1]) == {"a": 1}


def test_descriptors_are_given_back(core: Any, tmp_path: Path) -> None:
    """Recording many times leaves no descriptor open."""
    from os import listdir

    def once(part: str) -> None:
        (tmp_path / part).mkdir()
        core.begin(FolderHost(tmp_path / part), PLENTY)
        with core.Span("x", args={"a": 1}):
            pass
        core.end()

    once("first")
    before = len(listdir("/proc/self/fd"))
    for i in range(20):
        once(str(i))
    assert len(listdir("/proc/self/fd")) == before
