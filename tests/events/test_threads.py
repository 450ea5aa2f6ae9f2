"""Threads: each its own ring, which the next one takes over."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.events.conftest import Clock
    from tests.events.harness import Process

from tests.events.harness import process


def start(works: list[Callable[[], object]]) -> None:
    """Run functions in threads at the same time, and wait for them."""
    failures: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  a thread's failure must fail the test
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize(("count", "times"), [(50, 200), pytest.param(200, 5000, marks=pytest.mark.soak)])
def test_many_threads_at_once(recording: Any, done: Callable[[], Process], count: int, times: int) -> None:
    """All records of many threads are there, each in its thread, with parents of the same thread."""
    outer, inner = recording.Span("outer"), recording.Span("inner")
    together = threading.Barrier(count)

    def work() -> None:
        together.wait()
        for _ in range(times):
            with outer, inner:
                pass
        together.wait()

    start([work] * count)
    found = done()
    assert len(found.events) == count * times * 2
    assert not found.gaps
    assert set(found.threads) == set(range(1, count + 1))
    for event in found.named("inner"):
        assert found.events[event.parent].thread == event.thread
    assert not any(event.open for event in found.listed())


def test_threads_that_spill_at_the_same_time(recording: Any, done: Callable[[], Process]) -> None:
    """Several threads that fill their rings over and over lose nothing."""
    span = recording.Span("x")

    def work() -> None:
        for _ in range(5000):
            with span:
                pass

    start([work] * 6)
    found = done()
    assert len(found.events) == 30_000
    assert not found.gaps


@pytest.mark.parametrize("count", [2000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_short_threads_share_rings(recording: Any, done: Callable[[], Process], count: int) -> None:
    """Thousands of threads, one after the other, need a few rings and lose nothing."""
    span = recording.Span("x")

    def work() -> None:
        with span:
            recording.mark("m")

    with recording.Span("main"):
        for _ in range(count):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    assert recording.info()["rings"] <= 8
    found = done()
    assert len(found.events) == 2 * count + 1
    assert len({event.thread for event in found.named("x")}) == count
    assert set(found.threads) == {event.thread for event in found.listed()}
    assert all(found.events[mark.parent].thread == mark.thread for mark in found.named("m"))


def test_records_of_an_ended_thread_stay_readable(recording: Any, tmp_path: Path) -> None:
    """What a thread recorded is there after it ended, before anyone takes its ring."""
    start([lambda: recording.mark("m")])
    assert process(tmp_path).tree() == [("m", None)]


def test_a_span_left_open_by_an_ended_thread(recording: Any, done: Callable[[], Process]) -> None:
    """It stays open, and is no parent for the thread that takes the ring over."""
    start([recording.Span("x").start])
    start([lambda: recording.mark("m")])
    found = done()
    assert found.only("x").open
    assert found.tree() == [("x", None), ("m", None)]
    assert found.only("x").thread != found.only("m").thread


def test_stop_in_another_thread_does_nothing(recording: Any, clock: Clock, done: Callable[[], Process]) -> None:
    """A span belongs to the thread that entered it."""
    span = recording.Span("x")
    span.start()
    start([span.stop])
    clock.now += 5
    span.stop()
    assert done().only("x").dur == 5


def test_threads_have_their_native_ids(recording: Any, done: Callable[[], Process]) -> None:
    """The line of a thread names the id that the system gave it."""
    ids: list[int] = []

    def work() -> None:
        ids.append(threading.get_native_id())
        recording.mark("m")

    recording.mark("first")
    start([work])
    assert done().threads == {1: threading.get_native_id(), 2: ids[0]}


def test_all_threads_have_the_same_step(recording: Any, done: Callable[[], Process]) -> None:
    """Step and epoch belong to the process."""
    recording.set_context(4, 2)
    start([lambda: recording.mark("m")])
    event = done().only("m")
    assert (event.step, event.epoch) == (4, 2)


def test_flush_while_others_record(recording: Any, done: Callable[[], Process]) -> None:
    """Flushing from one thread while others enter and leave loses no record and no exit."""
    span = recording.Span("x")
    stop = threading.Event()
    together = threading.Barrier(3)

    def work() -> None:
        together.wait()
        for _ in range(4000):
            with span:
                pass

    def flush() -> None:
        while not stop.is_set():
            recording.flush()

    flusher = threading.Thread(target=flush)
    flusher.start()
    start([work] * 3)
    stop.set()
    flusher.join()
    found = done()
    assert len(found.events) == 12_000
    assert not any(event.open for event in found.listed())


def test_begin_and_end_while_others_record(core: Any, tmp_path: Path) -> None:
    """Recordings may come and go while threads work; each file is sound."""
    from tests.events.harness import PLENTY, FolderHost

    span = core.Span("x", args={"a": 1})
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            with span:
                core.mark("m")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for part in range(10):
        folder = tmp_path / str(part)
        folder.mkdir()
        core.begin(FolderHost(folder), PLENTY)
        stop.wait(0.02)
        core.end()
    stop.set()
    for thread in threads:
        thread.join()
    for part in range(10):
        for place in (tmp_path / str(part)).iterdir():
            if place.is_dir():
                found = process(tmp_path / str(part))
                assert {found.name(event) for event in found.listed()} <= {"x", "m"}
