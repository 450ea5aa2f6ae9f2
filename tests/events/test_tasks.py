"""Tasks of an event loop: spans held across `await` by many of them."""

from __future__ import annotations

import asyncio
import contextvars
import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.events.harness import ERROR

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from tests.events.conftest import Clock
    from tests.events.harness import Process


def run(core: Any, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a main coroutine as Sonde does it: the core is told when the loop runs."""

    async def told() -> None:
        core.task_mode(True)
        try:
            await main()
        finally:
            core.task_mode(False)

    asyncio.run(told())


def test_interleaving_tasks_close_their_own(recording: Any, clock: Clock, done: Callable[[], Process]) -> None:
    """Enter in task a, enter in task b, leave in a: a's event is closed, with a's duration."""
    span = recording.Span("x")

    async def hold(turns: int) -> None:
        with span:
            for _ in range(turns):
                await asyncio.sleep(0)

    async def tick() -> None:
        for _ in range(10):
            clock.now += 1
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(hold(2), hold(7), hold(4), tick())

    run(recording, main)
    events = done().listed()
    assert [event.parent for event in events] == [0, 0, 0]
    assert [event.dur for event in events] == [2, 7, 4]


def test_a_hundred_tasks(recording: Any, done: Callable[[], Process]) -> None:
    """A hundred tasks hold the same spans across random awaits; each has its own, rightly nested."""
    outer, inner, other = (recording.Span(name) for name in ("outer", "inner", "other"))
    order = random.Random(7)

    async def rest() -> None:
        for _ in range(order.randrange(4)):
            await asyncio.sleep(0)

    async def work(number: int) -> None:
        with outer:
            recording.mark("id", key=number)
            await rest()
            for _ in range(3):
                with inner:
                    await rest()
                    recording.mark("in", key=number)
                    with other:
                        await rest()
                await rest()

    async def main() -> None:
        await asyncio.gather(*(work(i) for i in range(100)))

    run(recording, main)
    found = done()
    assert not any(event.open for event in found.listed())
    assert {event.parent for event in found.named("outer")} == {0}
    number_of = {event.parent: event.key for event in found.named("id")}
    assert sorted(number_of.values()) == list(range(100))
    for mark in found.named("in"):
        task = found.events[found.events[mark.parent].parent]
        assert number_of[task.seq] == mark.key
    for event in found.named("other"):
        assert found.name(found.events[event.parent]) == "inner"
    assert len(found.listed()) == 100 * (2 + 3 * 3)


def test_child_tasks_inherit(recording: Any, done: Callable[[], Process]) -> None:
    """A task made inside a span has it as parent, and may end after it."""
    go = asyncio.Event()

    async def child() -> None:
        recording.mark("early")
        await go.wait()
        recording.mark("late")

    async def main() -> None:
        with recording.Span("root"), recording.Span("parent"):
            task = asyncio.create_task(child())
            await asyncio.sleep(0)
        go.set()
        await task

    run(recording, main)
    assert done().tree() == [("root", None), ("parent", "root"), ("early", "parent"), ("late", None)]


def test_tasks_see_the_span_around_the_loop(recording: Any, done: Callable[[], Process]) -> None:
    """What was entered in the thread before the loop started is the parent of what the tasks do."""

    async def work() -> None:
        with recording.Span("in"):
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(work(), work())

    with recording.Span("around"):
        run(recording, main)
    recording.mark("after")
    assert done().tree() == [("around", None), ("in", "around"), ("in", "around"), ("after", None)]


def test_a_span_around_the_loop_can_be_left_inside(recording: Any, clock: Clock, done: Callable[[], Process]) -> None:
    """A task may stop a span that was started in the thread before the loop."""
    span = recording.Span("x")

    async def main() -> None:
        clock.now += 1
        span.stop()
        recording.mark("inside")

    span.start()
    run(recording, main)
    clock.now += 1
    recording.mark("after")
    found = done()
    assert found.only("x").dur == 1
    assert found.tree()[1:] == [("inside", None), ("after", None)]


def test_left_in_another_task_than_entered(recording: Any, clock: Clock, done: Callable[[], Process]) -> None:
    """Without an entry of its own, a task leaves the newest of this thread."""
    span = recording.Span("x")

    async def enter() -> None:
        span.start()
        clock.now += 1

    async def leave() -> None:
        span.stop()

    async def main() -> None:
        for work in (enter, enter, leave, leave, leave):
            await asyncio.get_running_loop().create_task(work(), context=contextvars.Context())

    run(recording, main)
    assert [event.dur for event in done().listed()] == [2, 1]


def test_callbacks_of_the_loop(recording: Any, done: Callable[[], Process]) -> None:
    """A callback runs in the context in which it was asked for."""

    async def main() -> None:
        called = asyncio.Event()

        def callback() -> None:
            recording.mark("m")
            called.set()

        with recording.Span("x"):
            asyncio.get_running_loop().call_soon(callback)
            await called.wait()
        await asyncio.sleep(0)

    run(recording, main)
    assert done().tree() == [("x", None), ("m", "x")]


def test_left_by_cancellation(recording: Any, done: Callable[[], Process]) -> None:
    """A span in a cancelled task is closed and marked."""

    async def work() -> None:
        with recording.Span("x"):
            await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        recording.mark("after")

    run(recording, main)
    found = done()
    assert found.args(found.only("x")) == {"error": "CancelledError"}
    assert found.only("after").parent == 0


def test_open_spans_of_tasks_survive_spills(recording: Any, done: Callable[[], Process]) -> None:
    """Spans of tasks that are left after their records were spilled are complete."""
    span = recording.Span("x")

    async def hold() -> None:
        with span:
            for _ in range(5):
                await asyncio.sleep(0)

    async def fill() -> None:
        await asyncio.sleep(0)
        for _ in range(3000):
            recording.mark("m")

    async def main() -> None:
        await asyncio.gather(*(hold() for _ in range(20)), fill())

    run(recording, main)
    found = done()
    assert [event.open for event in found.named("x")] == [False] * 20
    assert len(found.named("m")) == 3000


def test_a_recording_that_begins_inside_a_loop(core: Any, host: Any, done: Callable[[], Process]) -> None:
    """The loop that already runs counts for a recording that begins later."""
    span = core.Span("x")

    async def hold(turns: int) -> None:
        with span:
            for _ in range(turns):
                await asyncio.sleep(0)

    async def main() -> None:
        core.begin(host, 2**40)
        await asyncio.gather(hold(1), hold(3), hold(2))

    run(core, main)
    events = done().listed()
    assert [(event.parent, event.open) for event in events] == [(0, False)] * 3


def test_a_second_loop_in_the_same_thread(recording: Any, done: Callable[[], Process]) -> None:
    """Nothing of one loop is left over for the next, nor for plain code."""
    span = recording.Span("x")

    async def main() -> None:
        span.start()
        with recording.Span("y"):
            await asyncio.sleep(0)

    run(recording, main)
    recording.mark("between")
    run(recording, main)
    recording.mark("after")
    found = done()
    assert found.tree() == [("x", None), ("y", "x"), ("between", None), ("x", None), ("y", "x"), ("after", None)]


def test_exceptions_pass_through_what_is_recorded_in_a_loop(recording: Any, done: Callable[[], Process]) -> None:
    """Of a recorded function, of an iterator, and of what is done with an item: as they would without us."""

    def fail() -> None:
        raise ZeroDivisionError

    def items() -> Iterator[int]:
        yield 1
        raise KeyError

    def hold() -> None:
        for _ in recording.iterate_keyed([5], [5], recording.Span("item")):
            raise LookupError

    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            recording.Span("call").wrap(fail)()
        with pytest.raises(KeyError):
            list(recording.iterate(items(), recording.Span("wait"), None))
        with pytest.raises(LookupError):
            hold()

    run(recording, main)
    found = done()
    assert [(found.name(event), event.flags) for event in found.listed()] == [
        ("call", ERROR), ("wait", 0), ("wait", ERROR), ("item", ERROR),
    ]  # fmt: skip
