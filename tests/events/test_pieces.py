"""Spans that run in pieces: loops, generators, coroutines, async generators."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
from operator import length_hint
from typing import TYPE_CHECKING, Any

import pytest
from tests.events.harness import AGAIN, ERROR, RING, SPAN, VOID, process

from sonde.events.decorate import decorate as decorate_function

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterator
    from pathlib import Path

    from tests.events.conftest import Clock
    from tests.events.harness import Process


# ── loops ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def loop(recording: Any) -> Callable[[Any], Any]:
    wait, block = recording.Span("fetch.iter"), recording.Span("fetch.block")
    return lambda iterable: recording.iterate(iterable, wait, block)


def slow(clock: Clock, count: int) -> Iterator[int]:
    for i in range(count):
        clock.now += 10
        yield i
    clock.now += 10


def test_waits_and_blocks(loop: Any, clock: Clock, done: Callable[[], Process]) -> None:
    """Each item has a wait and a block, numbered from 1; the last, empty wait is no event."""
    seen = []
    for item in loop(slow(clock, 3)):
        clock.now += 3
        seen.append(item)
    assert seen == [0, 1, 2]
    found = done()
    assert [(found.name(e), e.key, e.dur, e.kind) for e in found.listed()] == [
        (name, count, dur, SPAN) for count in (1, 2, 3) for name, dur in (("fetch.iter", 10), ("fetch.block", 3))
    ]
    assert sum(event.sort == VOID for event in found.events.values()) == 1
    assert not found.gaps


def test_an_empty_loop_is_no_event(loop: Any, done: Callable[[], Process]) -> None:
    """Iterating over nothing records nothing that counts."""
    assert list(loop([])) == []
    assert done().listed() == []


def test_spans_belong_to_their_wait_or_block(recording: Any, loop: Any, done: Callable[[], Process]) -> None:
    """What the iterator does is inside the wait, what the body does inside the block."""

    def items() -> Iterator[int]:
        with recording.Span("read"):
            pass
        yield 1

    with recording.Span("epoch"):
        for _ in loop(items()):
            with recording.Span("train"):
                pass
    assert done().tree() == [
        ("epoch", None), ("fetch.iter", "epoch"), ("read", "fetch.iter"), ("fetch.block", "epoch"), ("train", "fetch.block"),
    ]  # fmt: skip


def test_break_closes_the_block(recording: Any, loop: Any, clock: Clock, done: Callable[[], Process]) -> None:
    """The block of a loop that is left early ends there, without an error."""
    for item in loop(range(10)):
        clock.now += 1
        if item == 1:
            break
    clock.now += 100
    recording.mark("after")
    found = done()
    assert [(e.dur, e.kind) for e in found.named("fetch.block")] == [(1, SPAN), (1, SPAN)]
    assert found.only("after").parent == 0


def test_return_closes_the_block(loop: Any, done: Callable[[], Process]) -> None:
    """The same for a return from the body, also inside the handler of an exception."""

    def search() -> int:
        try:
            raise KeyError  # noqa: TRY301  a frame that a traceback holds is what this is about
        except KeyError:
            for item in loop(range(10)):
                return int(item)
        return -1

    assert search() == 0
    assert done().only("fetch.block").kind == SPAN


def test_an_exception_in_the_body_marks_the_block(loop: Any, done: Callable[[], Process]) -> None:
    """The block that an exception ends is closed and marked."""

    def fail(item: int) -> None:
        if item == 1:
            raise KeyError

    def work() -> None:
        for item in loop(range(5)):
            fail(item)

    with pytest.raises(KeyError):
        work()
    found = done()
    assert [event.flags for event in found.named("fetch.block")] == [0, ERROR]
    assert [event.flags for event in found.named("fetch.iter")] == [0, 0]


def test_an_exception_handled_around_the_loop_marks_the_block(loop: Any, done: Callable[[], Process]) -> None:
    """The same when the function itself handles the exception."""
    try:
        for _ in loop(range(5)):
            raise KeyError  # noqa: TRY301
    except KeyError:
        pass
    assert [event.flags for event in done().named("fetch.block")] == [ERROR]


def test_an_exception_in_the_iterator_marks_the_wait(loop: Any, done: Callable[[], Process]) -> None:
    """When fetching fails, the wait is marked and the exception passes."""

    def items() -> Iterator[int]:
        yield 1
        raise OSError

    with pytest.raises(OSError):
        for _ in loop(items()):
            pass
    found = done()
    assert [event.flags for event in found.named("fetch.iter")] == [0, ERROR]
    assert found.args(found.named("fetch.iter")[1]) == {"error": "OSError"}


def test_a_cancelled_wait_that_was_spilled(recording: Any, loop: Any, tmp_path: Path) -> None:
    """The last wait stays cancelled when its record has already left the ring."""

    def items() -> Iterator[int]:
        yield 1
        recording.flush()

    assert list(loop(items())) == [1]
    found = process(tmp_path)
    assert len(found.listed()) == 2
    assert any(event.kind == VOID | AGAIN for event in found.raw)


def test_either_span_can_be_left_out(recording: Any, done: Callable[[], Process]) -> None:
    """Without a wait or a block, only the other is recorded; without both, nothing."""
    span = recording.Span("x")
    assert list(recording.iterate([1, 2], span, None)) == [1, 2]
    assert list(recording.iterate([1, 2, 3], None, span)) == [1, 2, 3]
    assert list(recording.iterate([1], None, None)) == [1]
    assert [event.key for event in done().listed()] == [1, 2, 1, 2, 3]


def test_the_iterator_is_its_own(loop: Any) -> None:
    """It can be advanced by hand, and knows how much is left."""
    items = loop([1, 2, 3])
    assert iter(items) is items
    assert length_hint(items) == 3
    assert next(items) == 1
    assert length_hint(items) == 2
    assert length_hint(loop(x for x in [1]), 7) == 7


def test_what_cannot_be_iterated_is_refused(loop: Any) -> None:
    """A wrong iterable raises as iter() does."""
    with pytest.raises(TypeError):
        loop(5)


def test_switching_in_a_loop(recording: Any, done: Callable[[], Process]) -> None:
    """The switch is read at each wait and block; the count goes on."""
    wait = recording.Span("x")
    for item in recording.iterate(range(1, 5), wait, None):
        wait.on = item % 2 == 0
    assert [event.key for event in done().listed()] == [1, 3]


def test_a_loop_works_without_a_recording(core: Any) -> None:
    """Iterating through the core gives the items, recording or not."""
    assert list(core.iterate([1, 2], core.Span("x"), core.Span("y"))) == [1, 2]


# ── life ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_life_is_a_parent_only_while_it_runs(recording: Any, clock: Clock, done: Callable[[], Process]) -> None:
    """Between suspend and resume the span is open, and nobody's parent."""
    life = recording.Life(recording.Span("life"))
    with recording.Span("outer"):
        life.resume()
        recording.mark("inside")
        clock.now += 1
        life.suspend()
        recording.mark("between")
        clock.now += 1
    life.resume()
    recording.mark("inside")
    clock.now += 1
    life.suspend()
    life.close()
    recording.mark("after")
    found = done()
    assert found.tree() == [
        ("outer", None), ("life", "outer"), ("inside", "life"), ("between", "outer"), ("inside", "life"), ("after", None),
    ]  # fmt: skip
    assert found.only("life").dur == 3


def test_spans_inside_a_life_go_with_it(recording: Any, done: Callable[[], Process]) -> None:
    """A span held inside a generator is suspended with it."""
    life, inner = recording.Life(recording.Span("life")), recording.Span("inner")
    life.resume()
    inner.start()
    life.suspend()
    recording.mark("between")
    life.resume()
    recording.mark("inside")
    inner.stop()
    life.close()
    found = done()
    assert found.tree() == [("life", None), ("inner", "life"), ("between", None), ("inside", "inner")]
    assert not any(event.open for event in found.listed())


def test_a_life_that_never_runs_is_no_event(recording: Any, host: Any) -> None:
    """Without a resume there is nothing to record."""
    life = recording.Life(recording.Span("x"))
    life.suspend()
    life.close()
    del life
    assert host.asked == 0


def test_a_life_can_end_in_an_error(recording: Any, done: Callable[[], Process]) -> None:
    """An exception's type marks the event; a closed generator is none."""
    for error in (None, KeyError, GeneratorExit):
        life = recording.Life(recording.Span("x"))
        life.resume()
        life.close(error)
        life.close(ValueError)
    found = done()
    assert [(event.flags, found.args(event)) for event in found.listed()] == [
        (0, {}),
        (ERROR, {"error": "KeyError"}),
        (0, {}),
    ]


def test_a_dropped_life_is_closed(recording: Any, done: Callable[[], Process]) -> None:
    """A life that is collected ends there."""
    life = recording.Life(recording.Span("x"))
    life.resume()
    life.suspend()
    del life
    gc.collect()
    assert not done().only("x").open


def test_a_life_may_move_between_threads(recording: Any, clock: Clock, done: Callable[[], Process]) -> None:
    """Started in one thread and ended in another, it is one complete event of the first thread."""
    life = recording.Life(recording.Span("life"))
    life.resume()
    life.suspend()

    def elsewhere() -> None:
        life.resume()
        recording.mark("inside")
        clock.now += 5
        life.close()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    found = done()
    event = found.only("life")
    assert (event.dur, event.thread, event.open) == (5, 1, False)
    assert (found.only("inside").thread, found.only("inside").parent) == (2, event.seq)


# ── generators ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def decorate(core: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """decorate(), with the core under test."""
    monkeypatch.setitem(decorate_function.__globals__, "core", core)
    return decorate_function


@pytest.fixture(name="span")
def a_span(recording: Any) -> Any:
    return recording.Span("x")


def test_a_generator_is_timed_over_its_life(recording: Any, span: Any, decorate: Any, clock: Clock, done: Any) -> None:
    """From the first item to the end; its spans are inside, those of the consumer are not."""

    def items(count: int) -> Generator[int, None, str]:
        for i in range(count):
            with recording.Span("make"):
                clock.now += 1
            yield i
        return "end"

    recorded = decorate(span, items)
    assert inspect.isgeneratorfunction(recorded)
    assert inspect.signature(recorded) == inspect.signature(items)
    generator = recorded(2)
    clock.now += 100
    for _ in generator:
        with recording.Span("use"):
            clock.now += 10
    found = done()
    assert found.tree() == [("x", None), ("make", "x"), ("use", None), ("make", "x"), ("use", None)]
    assert found.only("x").dur == 22


def test_a_generator_that_never_starts_is_no_event(span: Any, decorate: Any, host: Any) -> None:
    """Calling a generator function alone runs nothing."""

    def items() -> Iterator[int]:
        yield 1

    generator = decorate(span, items)()
    generator.close()
    del generator
    assert host.asked == 0


def test_send_throw_and_return_pass_through(span: Any, decorate: Any, done: Any) -> None:
    """A decorated generator behaves as the one inside."""

    def echo() -> Generator[object, object, str]:
        got: object = "start"
        while got != "stop":
            try:
                got = yield got
            except KeyError as error:
                got = f"caught {error.args[0]}"
        return "value"

    generator = decorate(span, echo)()
    assert next(generator) == "start"
    assert generator.send(5) == 5
    assert generator.throw(KeyError("k")) == "caught k"
    with pytest.raises(StopIteration) as stop:
        generator.send("stop")
    assert stop.value.value == "value"
    assert done().only("x").kind == SPAN


def test_closing_a_generator_closes_the_inner_one(recording: Any, span: Any, decorate: Any, done: Any) -> None:
    """close() runs the generator's own clean-up, inside its span, and is no error."""

    def items() -> Iterator[int]:
        try:
            yield 1
        finally:
            recording.mark("clean")

    generator = decorate(span, items)()
    next(generator)
    generator.close()
    found = done()
    assert found.tree() == [("x", None), ("clean", "x")]
    assert found.only("x").kind == SPAN


def test_a_generator_dropped_half_way_is_closed(span: Any, decorate: Any, done: Any) -> None:
    """A generator that is collected ends there."""

    def items() -> Iterator[int]:
        yield 1

    generator = decorate(span, items)()
    next(generator)
    del generator
    gc.collect()
    assert done().only("x").kind == SPAN


def test_a_generator_that_raises_is_marked(span: Any, decorate: Any, done: Any) -> None:
    """An exception of the generator passes, and marks its event."""

    def items() -> Iterator[int]:
        yield 1
        raise OSError

    with pytest.raises(OSError):
        list(decorate(span, items)())
    found = done()
    assert (found.only("x").kind, found.args(found.only("x"))) == (SPAN | ERROR, {"error": "OSError"})


def test_interleaved_generators(recording: Any, span: Any, decorate: Any, clock: Clock, done: Any) -> None:
    """Several generators of one function, advanced in turn, have each their own event."""

    def items(name: str) -> Iterator[int]:
        with recording.Span(name):
            for i in range(3):
                clock.now += 1
                recording.mark(f"{name} {i}")
                yield i

    recorded = decorate(span, items)
    assert list(zip(recorded("a"), recorded("b"), strict=True)) == [(0, 0), (1, 1), (2, 2)]
    found = done()
    tree = found.tree()
    assert [entry for entry in tree if entry[0][0] in "ab" and len(entry[0]) > 1] == [
        (f"{name} {i}", name) for i in range(3) for name in "ab"
    ]
    assert [entry for entry in tree if entry[0] in ("a", "b", "x")] == [
        ("x", None),
        ("a", "x"),
        ("x", None),
        ("b", "x"),
    ]
    assert [event.dur for event in found.named("x")] == [6, 5]


def test_static_and_class_methods_are_decorated(recording: Any, span: Any, decorate: Any, done: Any) -> None:
    """A decorator above @staticmethod or @classmethod keeps them what they are."""

    class Model:
        @staticmethod
        def fixed(value: int) -> int:
            return value

        @classmethod
        def made(cls) -> type:
            return cls

    Model.fixed = decorate(span, Model.__dict__["fixed"])  # type: ignore[method-assign]
    Model.made = decorate(span, Model.__dict__["made"])  # type: ignore[method-assign]
    assert (Model.fixed(1), Model().fixed(2), Model.made(), Model().made()) == (1, 2, Model, Model)
    assert len(done().listed()) == 4


# ── coroutines ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_coroutine_is_timed_over_its_life(recording: Any, span: Any, decorate: Any, clock: Clock, done: Any) -> None:
    """It lasts from its first step to its end, and its value passes."""

    async def fetch(value: int) -> int:
        with recording.Span("first"):
            clock.now += 1
        await asyncio.sleep(0)
        clock.now += 1
        recording.mark("second")
        return value

    recorded = decorate(span, fetch)
    assert inspect.iscoroutinefunction(recorded)
    assert asyncio.run(recorded(5)) == 5
    found = done()
    assert found.tree() == [("x", None), ("first", "x"), ("second", "x")]
    assert found.only("x").dur == 2


def test_concurrent_coroutines_without_task_mode(recording: Any, span: Any, decorate: Any, done: Any) -> None:
    """Decorated coroutines do not become each other's parents, even if nobody told the core of the loop."""

    async def work(name: str) -> None:
        for _ in range(3):
            recording.mark(name)
            await asyncio.sleep(0)

    recorded = decorate(span, work)

    async def main() -> None:
        await asyncio.gather(*(recorded(str(i)) for i in range(10)))

    asyncio.run(main())
    found = done()
    calls = found.named("x")
    assert len(calls) == 10
    assert all(event.parent == 0 and not event.open for event in calls)
    for call in calls:
        inside = [found.name(event) for event in found.listed() if event.parent == call.seq]
        assert len(inside) == 3
        assert len(set(inside)) == 1


def test_a_cancelled_coroutine_is_marked(span: Any, decorate: Any, done: Any) -> None:
    """Cancellation reaches the coroutine inside, and marks the event."""
    cleaned = []

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(1)

    async def main() -> None:
        task = asyncio.create_task(decorate(span, wait)())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    found = done()
    assert cleaned == [1]
    assert found.args(found.only("x")) == {"error": "CancelledError"}


def test_an_async_generator_is_timed_over_its_life(
    recording: Any, span: Any, decorate: Any, clock: Clock, done: Any
) -> None:
    """Its awaits and items are inside, the consumer's spans are not."""

    async def items() -> AsyncGenerator[int, None]:
        for i in range(2):
            clock.now += 1
            recording.mark("make")
            await asyncio.sleep(0)
            recording.mark("made")
            yield i

    recorded = decorate(span, items)
    assert inspect.isasyncgenfunction(recorded)

    async def main() -> list[int]:
        seen = []
        async for item in recorded():
            clock.now += 10
            recording.mark("use")
            seen.append(item)
        return seen

    assert asyncio.run(main()) == [0, 1]
    found = done()
    assert found.tree() == [("x", None)] + [("make", "x"), ("made", "x"), ("use", None)] * 2
    assert found.only("x").dur == 22


def test_asend_athrow_and_aclose_pass_through(recording: Any, span: Any, decorate: Any, done: Any) -> None:
    """A decorated async generator behaves as the one inside."""

    async def echo() -> AsyncGenerator[object, object]:
        got: object = "start"
        try:
            while True:
                try:
                    got = yield got
                except KeyError:
                    got = "caught"
        finally:
            recording.mark("clean")

    async def main() -> list[object]:
        generator = decorate(span, echo)()
        seen = [await generator.__anext__(), await generator.asend(5), await generator.athrow(KeyError())]
        await generator.aclose()
        return seen

    assert asyncio.run(main()) == ["start", 5, "caught"]
    found = done()
    assert found.tree() == [("x", None), ("clean", "x")]
    assert found.only("x").kind == SPAN


def test_an_async_generator_that_raises_is_marked(span: Any, decorate: Any, done: Any) -> None:
    """An exception of the async generator passes, and marks its event."""

    async def items() -> AsyncGenerator[int, None]:
        yield 1
        raise OSError

    async def main() -> None:
        async for _ in decorate(span, items)():
            pass

    with pytest.raises(OSError):
        asyncio.run(main())
    assert done().only("x").kind == SPAN | ERROR


def test_an_async_generator_left_half_way_is_closed(span: Any, decorate: Any, done: Any) -> None:
    """Breaking out of `async for` ends the event, without an error."""

    async def items() -> AsyncGenerator[int, None]:
        yield 1
        yield 2

    async def main() -> None:
        async for _ in decorate(span, items)():
            break
        gc.collect()
        await asyncio.sleep(0)  # the loop closes what was dropped

    asyncio.run(main())
    assert done().only("x").kind == SPAN


# ── the step of a round ──────────────────────────────────────────────────────────────────────────────────────────────


def stamps(found: Process, name: str) -> list[tuple[int, int]]:
    return [(event.epoch, event.step) for event in found.named(name)]


@pytest.mark.parametrize("records", [0, 2 * RING])
def test_waits_and_blocks_have_the_step_that_was_set_in_their_round(
    recording: Any, done: Callable[[], Process], records: int
) -> None:
    """The program learns its step from the item: both belong to it, also where their records have left the ring."""
    spans = {
        name: recording.Span(name) for name in ("epoch.iter", "epoch.block", "fetch.iter", "fetch.block", "inside")
    }
    for epoch in recording.iterate(range(2), spans["epoch.iter"], spans["epoch.block"]):
        for step in recording.iterate(range(2), spans["fetch.iter"], spans["fetch.block"]):
            recording.set_context(step, epoch)
            with spans["inside"]:
                for _ in range(records):
                    recording.mark("m")
    found = done()
    each = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert stamps(found, "inside") == stamps(found, "fetch.iter") == stamps(found, "fetch.block") == each
    assert stamps(found, "epoch.iter") == stamps(found, "epoch.block") == [(0, 1), (1, 1)]


def test_counted_steps_end_no_round(recording: Any, loop: Any, done: Callable[[], Process]) -> None:
    """Where Sonde counts the steps, a round ends with its step: what is counted then is the next one."""
    recording.count_steps(0)
    for _ in loop("ab"):
        recording.advance(recording.Span("update"))
    found = done()
    assert (
        [event.step for event in found.named("fetch.iter")]
        == [event.step for event in found.named("fetch.block")]
        == [0, 1]
    )


def test_an_epoch_that_is_set_leaves_counted_steps_alone(
    recording: Any, loop: Any, done: Callable[[], Process]
) -> None:
    """Each of the two is the program's, or not."""
    recording.count_steps(0)
    for epoch, _ in enumerate(loop("ab")):
        recording.set_context(None, epoch)
        recording.advance(recording.Span("update"))
    assert stamps(done(), "fetch.block") == [(0, 0), (1, 1)]


def test_a_round_that_is_broken_off_has_its_step(recording: Any, loop: Any, done: Callable[[], Process]) -> None:
    """`break` ends a round as the next item does."""
    for step, _ in enumerate(loop("ab")):
        recording.set_context(step, None)
        break
    found = done()
    assert [event.step for event in found.named("fetch.iter") + found.named("fetch.block")] == [0, 0]
