"""The stream of a growing run: one reader for all, the steps since the last event, and an end."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.web.growing import growing

from sonde.testing import build_training
from sonde.web.endpoints.live import Feed

SECONDS = 60


async def event(stream: AsyncIterator[str]) -> tuple[str, Any]:
    """The name and the data of the next event."""
    async with asyncio.timeout(SECONDS):
        async for text in stream:
            if text.startswith("event:"):
                name, data = text.strip().split("\n")
                return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))
    return "", None


def steps(data: Any, whose: str = "all") -> list[int]:
    """The steps that an event brings."""
    found: list[int] = data["recent"][whose]["step"]
    return found


async def up_to(stream: AsyncIterator[str], last: int) -> tuple[list[int], Any]:
    """The steps of all events until that of this step, and its data. A look may come while the program still makes them."""
    found: list[int] = []
    while last not in found:
        _, data = await event(stream)
        found += steps(data) if data["recent"] else []
    return found, data


def test_each_event_has_the_steps_since_the_last(tmp_path: Path) -> None:
    """They can be drawn without reading the run again."""

    async def listen() -> None:
        stream = Feed(tmp_path / program.id).events()
        name, first = await event(stream)
        assert (name, steps(first)) == ("grown", list(range(20)))
        (found, second), _ = await asyncio.gather(up_to(stream, 24), asyncio.to_thread(program.grow, 5))
        assert found == list(range(20, 25))
        assert set(second["recent"]["all"]["phases"]) >= {"input_wait", "forward", "backward"}
        await stream.aclose()

    with growing(tmp_path, 20) as program:
        asyncio.run(listen())


def test_all_who_look_at_a_run_share_one_reader(tmp_path: Path) -> None:
    """Two tabs cost as much as one: who comes later gets the newest look, and then the same events."""

    async def listen() -> None:
        feed = Feed(tmp_path / program.id)
        one, two = feed.events(), feed.events()
        (_, first), (_, other) = await asyncio.gather(event(one), event(two))
        assert first["version"] == other["version"]
        growth = asyncio.to_thread(program.grow, 3)
        (first, _), (other, _), _ = await asyncio.gather(up_to(one, 12), up_to(two, 12), growth)
        assert first == other == list(range(10, 13))
        await one.aclose()
        await two.aclose()

    with growing(tmp_path, 10) as program:
        asyncio.run(listen())


def test_the_reader_rests_when_nobody_listens(tmp_path: Path) -> None:
    """A closed tab costs nothing."""

    async def listen() -> None:
        feed = Feed(tmp_path / program.id)
        stream = feed.events()
        await event(stream)
        await stream.aclose()
        assert feed._task is not None
        async with asyncio.timeout(SECONDS):
            await feed._task

    with growing(tmp_path, 5) as program:
        asyncio.run(listen())


def test_a_run_that_ends_or_goes_ends_the_stream(tmp_path: Path) -> None:
    """The page says so, and stops asking."""

    async def listen(path: Path) -> list[str]:
        return [text.partition("\n")[0] async for text in Feed(path).events()]

    path = build_training(tmp_path / "one", steps=12)
    assert asyncio.run(listen(path)) == ["event: grown", "event: ended"]
    shutil.rmtree(path)
    assert asyncio.run(listen(path)) == ["event: gone"]


def test_few_ranks_are_also_given_one_by_one(tmp_path: Path) -> None:
    """A page that shows one rank goes on with that rank."""
    path = build_training(tmp_path / "one", steps=12, ranks=2)
    (grown, _) = Feed(path)._look()
    data = json.loads(grown.split("data: ")[1])
    assert set(data["recent"]) == {"all", "0", "1"}
    assert steps(data, "1") == list(range(12))
