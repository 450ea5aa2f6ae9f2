"""Event loops: while one runs in a thread, each task has its own innermost span."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import sonde
from sonde import ai, hooks
from sonde.testing import record


async def hold(number: int) -> None:
    """A bare `with` across awaits that interleave."""
    with ai.compute.forward:
        await asyncio.sleep(0.001 * (number % 7))
        with ai.compute.backward:
            await asyncio.sleep(0.001 * (number * 3 % 5))


async def hold_many() -> None:
    """A hundred at once."""
    await asyncio.gather(*(hold(number) for number in range(100)))


def check(path: Path) -> None:
    """Every inner span lies in an outer one of its own task, and all of them in `train`."""
    with sonde.open_run(path) as run:
        rows = run.sql(
            """select count(*), count(distinct o.seq), count(*) filter (i.start_ns >= o.start_ns
            and i.start_ns + i.dur_ns <= o.start_ns + o.dur_ns), count(*) filter (t.name = 'train'), min(i.depth), max(i.depth)
            from events i join events o on i.parent = o.seq join events t on o.parent = t.seq
            where i.name = 'backward' and o.name = 'forward'"""
        ).fetchall()
        assert rows == [(100, 100, 100, 100, 2, 2)]
        assert run.sql("select count(*) from events where open").fetchall() == [(0,)]


def test_a_hundred_tasks_that_hold_one_span_across_awaits_have_the_right_parents() -> None:
    """Enter A, enter B, leave A closes A."""
    with record() as recorded:
        with ai.pipeline.train:
            asyncio.run(hold_many())
        check(recorded.path)


def test_a_loop_that_runs_already_when_recording_starts_is_seen() -> None:
    """As in a notebook, where each cell runs inside a loop."""

    async def cell() -> None:
        with record() as recorded:
            with ai.pipeline.train:
                await hold_many()
            check(recorded.path)

    asyncio.run(cell())


LATE = """
import sys, sonde
from sonde import ai
assert "asyncio" not in sys.modules
session = sonde.init(dir=sys.argv[1])
import asyncio
async def task():
    with ai.compute.forward:
        await asyncio.sleep(0.01)
        with ai.compute.backward:
            await asyncio.sleep(0.01)
async def main():
    await asyncio.gather(task(), task())
asyncio.run(main())
print(session.path)
"""


def test_asyncio_imported_after_the_start_is_seen_too(tmp_path: Path) -> None:
    """Nothing is imported that the program does not import, and nothing is missed when it does."""
    done = subprocess.run([sys.executable, "-c", LATE, str(tmp_path)], check=True, capture_output=True, text=True)
    with sonde.open_run(done.stdout.strip()) as run:
        parents = run.sql("select parent from events where name = 'backward'").fetchall()
    assert len(set(parents)) == 2


def test_asyncio_is_as_it_was_after_the_end() -> None:
    """The patch is undone."""
    before = asyncio.events._set_running_loop
    with record():
        assert asyncio.events._set_running_loop is not before
        assert "asyncio.events._set_running_loop: to know which threads run an event loop" in hooks.describe()
    assert asyncio.events._set_running_loop is before


@pytest.mark.parametrize("text", hooks.BLIND_SPOTS)
def test_blind_spots_are_one_line_each(text: str) -> None:
    """They are shown by `sonde doctor`."""
    assert "\n" not in text
