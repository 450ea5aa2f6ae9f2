"""`/live`: events while a run grows. One reader for all clients of a run; it pauses when there are none."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse

from sonde.analysis.live.recent import MOST_RANKS, recent
from sonde.analysis.live.run import GONE, RECORDING, STARTING, Live
from sonde.errors import RunNotFound
from sonde.exchange import jsonvalues
from sonde.views.watch import watch
from sonde.web.asking import error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from sonde.web.folder import RunsFolder

EVERY = 0.5  # seconds between two looks: a step is on the screen within a second
SHARE = (
    0.02  # of a core: if looks cost more, there are fewer. All shares of a server that nobody clicks in add up to 5 %
)
KEEP_OPEN = 15.0  # seconds without an event, before a comment is sent


class Feeds:
    """The runs that are followed."""

    def __init__(self, folder: RunsFolder) -> None:
        self._folder = folder
        self._feeds: dict[str, Feed] = {}

    async def live(self, request: Request) -> Response:
        """A stream of events until the run has ended or the browser goes away."""
        id = request.path_params["id"]
        try:
            path = self._folder.find(id)
        except RunNotFound as problem:
            return error(404, str(problem))
        feed = self._feeds.get(id)
        if feed is None or feed.over:
            feed = self._feeds[id] = Feed(path, partial(self._folder.expire, id))
        return StreamingResponse(feed.events(), media_type="text/event-stream", headers={"cache-control": "no-store"})


class Feed:
    """One run that is followed. Each look makes one event for all listeners."""

    def __init__(self, path: Path, ended: Callable[[], None] = lambda: None) -> None:
        """`ended` is called when the run is over."""
        self._path = path
        self._ended = ended
        self._reader: Live | None = None
        self._listeners = 0
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Condition()
        self._serial = 0
        self._events: list[str] = []  # of the newest look
        self._version = ""
        self._sent = -1  # the newest step that listeners know
        self.over = False

    async def events(self) -> AsyncGenerator[str, None]:
        """What one listener gets."""
        self._listeners += 1
        if self._task is None or self._task.done():
            self._sent = -1
            self._version = ""
            self._task = asyncio.create_task(self._follow())
        seen = 0 if self._serial == 0 else self._serial - 1  # whoever comes later gets the newest look at once
        try:
            while not (self.over and seen == self._serial):
                if await self._newer(seen):
                    seen, fresh = self._serial, self._events
                else:
                    fresh = [": still here\n\n"]
                for one in fresh:
                    yield one
        finally:
            self._listeners -= 1

    async def _newer(self, seen: int) -> bool:
        """Wait for a look after this one; False: there was none for a while."""
        async with self._news:
            try:
                await asyncio.wait_for(self._news.wait_for(lambda: self._serial > seen), KEEP_OPEN)
            except TimeoutError:
                return False
            return True

    async def _follow(self) -> None:
        """Look while there are listeners."""
        while self._listeners and not self.over:
            begun, first = time.monotonic(), self._reader is None
            found, cost = await asyncio.to_thread(self._timed_look)
            if found:
                async with self._news:
                    self._events, self._serial = found, self._serial + 1
                    self._news.notify_all()
            wait = EVERY if first else max(EVERY, cost / SHARE)  # the first look reads all that is there, once
            await asyncio.sleep(max(0.1, begun + wait - time.monotonic()))

    def _timed_look(self) -> tuple[list[str], float]:
        """The events of a look, and the CPU time that it took."""
        begun = time.thread_time()
        return self._look(), time.thread_time() - begun

    def _look(self) -> list[str]:
        """The events of one look at the run; none if nothing has changed."""
        try:
            self._reader = Live(self._path) if self._reader is None else self._reader
        except RunNotFound:
            self.over = True
            return [_event("gone", {})]
        self._reader.look()
        view = watch(self._reader)
        head = view.headline
        if head.state == GONE:
            self.over = True
            return [_event("gone", {})]
        version = f"{head.state}-{head.step}-{head.batch}-{view.step_time.steps}-{len(view.ranks)}"
        self.over = head.state not in (RECORDING, STARTING)
        if version == self._version and not self.over:
            return []
        self._version = version
        grown = {"version": version, "as_of_step": head.step, "view": asdict(view), "recent": self._recent()}
        if self.over:
            self._ended()
        ended = {"version": version, "state": head.state, "ended": head.ended}
        return [_event("grown", grown)] + ([_event("ended", ended)] if self.over else [])

    def _recent(self) -> dict[str, object]:
        """The steps that are new: of all ranks together, and of each, if there are few."""
        assert self._reader is not None
        together = recent(self._reader, self._sent)
        if together is None:
            return {}
        ranks = [one.info.rank for one in self._reader.trainers]
        each = ranks if 1 < len(ranks) <= MOST_RANKS else []
        found: dict[str, object] = {"all": asdict(together)}
        for rank in each:
            own = None if rank is None else recent(self._reader, self._sent, rank)
            found |= {} if own is None else {str(rank): asdict(own)}
        self._sent = together.step[-1]
        return found


def _event(name: str, data: object) -> str:
    return f"event: {name}\ndata: {json.dumps(jsonvalues.plain(data), allow_nan=False)}\n\n"
