"""Tasks of an event loop: spans held across `await` by many of them."""

from __future__ import annotations

import asyncio
import contextvars
import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.events.harness import ERROR, process, run as run_program

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

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


TASKS = """
import asyncio, contextvars
core.task_mode(True)
span = core.Span("x")
async def hold(turns):
    with span:
        for _ in range(turns):
            await asyncio.sleep(0)
async def both(other):
    await asyncio.gather(hold(9), other())
"""


def test_a_span_that_is_off_in_one_task_leaves_that_of_another_open(core_name: str, tmp_path: Path) -> None:
    """One task enters a span that is off while another holds it open: no crash, and the other's ends when it is left."""
    program = """
async def other():
    await asyncio.sleep(0)
    span.on = False
    with span:
        core.mark("inside")
    core.mark("after")
    span.on = True
asyncio.run(both(other))
"""
    run_program(core_name, tmp_path, TASKS + program)
    found = process(tmp_path)
    assert found.tree() == [("x", None), ("inside", None), ("after", None)]
    span, _, after = found.listed()
    assert span.start + span.dur > after.start


def test_a_span_that_was_off_when_entered_does_not_close_one_entered_later(core_name: str, tmp_path: Path) -> None:
    """A task enters a span that is off, another then enters it switched on, and the first one leaves."""
    program = """
async def off():
    span.on = False
    with span:
        span.on = True
        await asyncio.sleep(0)
    core.mark("left")
async def main():
    await asyncio.gather(off(), hold(5))
asyncio.run(main())
"""
    run_program(core_name, tmp_path, TASKS + program)
    span, left = process(tmp_path).listed()
    assert span.start + span.dur > left.start


def test_a_span_in_a_task_beyond_the_size_cap_does_no_harm(core_name: str, tmp_path: Path) -> None:
    """The size cap is reached while a task holds a span open, and another task enters the same one."""
    program = """
async def other():
    await asyncio.sleep(0)
    for _ in range(3000):
        core.mark("many")
    with span:
        pass
    print("alive")
asyncio.run(both(other))
"""
    assert run_program(core_name, tmp_path, TASKS + program, cap=100_000).stdout == "alive\n"


def test_a_program_may_set_every_context_variable(core_name: str, tmp_path: Path) -> None:
    """Whatever the program puts into our variable, the spans around and after it are recorded."""
    program = """
async def main():
    with span:
        for value in ("reset", None, [1], 7):
            for variable in contextvars.copy_context():
                variable.set(value)
            with core.Span("y"):
                await asyncio.sleep(0)
asyncio.run(main())
"""
    run_program(core_name, tmp_path, TASKS + program)
    assert [name for name, _ in process(tmp_path).tree()] == ["x", "y", "y", "y", "y"]
    assert not any(event.open for event in process(tmp_path).listed())


def test_a_task_may_stop_what_another_started_around_a_span_that_was_off(
    recording: Any, done: Callable[[], Process]
) -> None:
    """A span that is off inside of one that was started in a task leaves that one to be found."""
    span = recording.Span("x")

    async def start() -> None:
        span.start()
        span.on = False
        with span:
            pass
        span.on = True

    async def main() -> None:
        await asyncio.create_task(start())
        span.stop()

    run(recording, main)
    assert not done().only("x").open
