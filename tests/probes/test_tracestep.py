"""`trace_step`: explicit steps, inside each other, left by exceptions, with numbers of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest
from tests.probes.training import loss_of, model, sgd, train, updates

from sonde import ai
from sonde.errors import WrapRefused
from sonde.events import core
from sonde.probes import tracestep as boundary
from sonde.probes.tracestep import Block
from sonde.store.probe import UPDATE_ABORTED, UPDATE_EXPLICIT
from sonde.testing import Recorded, record

ABORTED = UPDATE_EXPLICIT | UPDATE_ABORTED


class InPython(Block):
    """The same without C."""

    __slots__ = ()
    __call__ = boundary.trace_step.__call__


@pytest.fixture(params=[boundary.trace_step, InPython])
def trace_step(request: pytest.FixtureRequest) -> Any:
    """Both of them."""
    return request.param


def steps(recorded: Recorded) -> list[tuple[int, bool]]:
    """Step and error of each span of a step."""
    return [(event["step"], event["error"]) for event in recorded.named("step")]


def test_a_block_is_a_step(trace_step: Any) -> None:
    """Its updates of optimizers end nothing."""
    net = model()
    optimizer = sgd(net)
    with record() as recorded:
        for _ in range(3):
            with trace_step(net):
                train(net, optimizer, 2)
    assert steps(recorded) == [(0, False), (1, False), (2, False)]
    assert updates(recorded) == [(number, UPDATE_EXPLICIT) for number in range(3)]
    assert [event["step"] for event in recorded.named("optimizer")] == [0, 0, 1, 1, 2, 2]


def test_from_the_first_block_on_optimizers_end_nothing(trace_step: Any) -> None:
    """Also where the update comes behind the block, and was plain before."""
    net = model()
    optimizer = sgd(net)
    with record() as recorded:
        train(net, optimizer, 4)
        for _ in range(2):
            with trace_step(net):
                loss_of(net).backward()
            optimizer.step()
    assert updates(recorded) == [(0, 0), (1, 0), (2, 0), (3, 0), (4, UPDATE_EXPLICIT), (5, UPDATE_EXPLICIT)]


def test_a_block_inside_another_is_a_part_of_it(trace_step: Any) -> None:
    """Also with the same object."""
    block = trace_step(model())
    with record() as recorded:
        for _ in range(2):
            with block, block, trace_step(None):
                pass
    assert steps(recorded) == [(0, False), (1, False)]


def test_an_exception_aborts_the_step_and_passes(trace_step: Any) -> None:
    """The next one has the next number."""
    with record() as recorded:
        with pytest.raises(KeyError, match="theirs"), trace_step(None), trace_step(None):
            raise KeyError("theirs")
        with trace_step(None):
            pass
    assert steps(recorded) == [(0, True), (1, False)]
    assert updates(recorded) == [(0, ABORTED), (1, UPDATE_EXPLICIT)]


def test_a_block_may_have_a_number(trace_step: Any) -> None:
    """What follows goes on from it, unless somebody says otherwise."""
    with record() as recorded:
        with trace_step(None, step=40):
            pass
        with trace_step(None):
            pass
        ai.update(step=7)
        with trace_step(None):
            pass
    assert steps(recorded) == [(40, False), (41, False), (7, False)]


def test_a_decorated_function_is_a_step_each_time(trace_step: Any) -> None:
    """It returns what it returned, and keeps its name."""

    @trace_step()  # type: ignore[untyped-decorator]
    def train_step(number: int) -> int:
        return number + 1

    with record() as recorded:
        assert [train_step(number) for number in range(3)] == [1, 2, 3]
    assert train_step.__name__ == "train_step"
    assert [number for number, _ in steps(recorded)] == [0, 1, 2]


def test_a_decorated_coroutine_is_a_step_until_its_end(trace_step: Any) -> None:
    """What it does after it has waited belongs to it too."""

    @trace_step()  # type: ignore[untyped-decorator]
    async def train_step(number: int) -> int:
        await asyncio.sleep(0)
        core.mark("inside")
        return number + 1

    with record() as recorded:
        assert asyncio.run(train_step(1)) == 2
        core.mark("outside")
    assert asyncio.iscoroutinefunction(train_step)
    assert [event["step"] for name in ("inside", "outside") for event in recorded.named(name)] == [0, 1]


def test_a_decorated_generator_is_a_step_until_its_end(trace_step: Any) -> None:
    """What is sent to it and what it returns pass."""

    @trace_step()  # type: ignore[untyped-decorator]
    def train_step() -> Generator[int, int, str]:
        return "got" + str((yield 1))

    with record() as recorded:
        going = train_step()
        assert next(going) == 1
        with pytest.raises(StopIteration, match="got5"):
            going.send(5)
    assert steps(recorded) == [(0, False)]


def test_an_asynchronous_generator_is_not_decorated(trace_step: Any) -> None:
    """The message says what to do instead."""

    async def train_step() -> AsyncGenerator[int, None]:
        yield 1

    with pytest.raises(WrapRefused, match="around each step in the loop"):
        trace_step()(train_step)


def test_steps_that_were_not_chosen_have_only_an_end(trace_step: Any) -> None:
    """Blocks too."""
    with record(steps="1") as recorded:
        for _ in range(3):
            with trace_step(None):
                pass
    assert [number for number, _ in steps(recorded)] == [1]
    assert len(updates(recorded)) == 3


def test_without_a_recording_a_block_does_nothing(trace_step: Any) -> None:
    """Before, and across the end of one."""
    block = trace_step(model())
    with block:
        pass
    with record() as recorded:
        block.__enter__()
    block.__exit__(None, None, None)
    assert [event["open"] for event in recorded.named("step")] == [True]


def test_a_block_takes_what_it_takes_and_nothing_else(trace_step: Any) -> None:
    """A wrong argument is an error of the program, as with any function."""
    with pytest.raises(TypeError):
        trace_step(None, 3)
    with pytest.raises(TypeError):
        trace_step(stepp=3)


def test_a_block_in_a_recording_that_came_while_it_was_open_is_a_step_of_its_own(trace_step: Any) -> None:
    """The outer entry of the same object belongs to the recording before."""
    block = trace_step()
    with record():
        block.__enter__()
    with record() as recorded:
        for _ in range(3):
            with block:
                pass
        block.__exit__(None, None, None)
    assert steps(recorded) == [(0, False), (1, False), (2, False)]
    assert updates(recorded) == [(number, UPDATE_EXPLICIT) for number in range(3)]


@pytest.mark.skipif(not hasattr(boundary, "PARTS"), reason="the C module is not built")
def test_a_block_that_a_signal_interrupts_is_not_entered() -> None:
    """What the handler raised reaches the program, and the next block is a step again."""
    made: Any = boundary
    native, parts = made.native, made.PARTS

    def interrupted(_span: Any) -> None:
        raise SystemExit(9)

    with record() as recorded:
        with boundary.trace_step():  # the first one says that blocks are steps from now on
            pass
        native.blocks(**{**parts, "enter": interrupted})
        try:
            with pytest.raises(SystemExit), boundary.trace_step():
                pass
        finally:
            native.blocks(**parts)
        with boundary.trace_step():
            pass
    assert steps(recorded) == [(0, False), (1, False)]
    assert [flags for _, flags in updates(recorded)] == [UPDATE_EXPLICIT] * 2
