"""One request about a run: its parameters, a worker thread with limits, and every failure as one sentence."""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from sonde.errors import QueryRefused, RunBusy, RunNotFound, RunUnreadable, SondeError, UnknownName
from sonde.exchange import jsonvalues
from sonde.guard import guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.requests import Request

    from sonde.analysis.run import Run
    from sonde.web.endpoints.traces import TraceReader
    from sonde.web.folder import OpenRun, RunsFolder

SECONDS = 30.0  # for one question
DEAR_SECONDS = 120.0  # for one whose answer takes long anyway: asked again, it would only begin anew
WORKERS = 8
LEVELS = 160  # of an answer: a flame graph has 64 calls inside of each other, two levels each
INTERRUPT_EVERY = 0.05  # seconds: what is not a query at the moment notices with its next one
TOO_LONG = "This took too long and was stopped. Request less: a shorter range, fewer rows. Or try again when the machine is less busy."
TOO_LARGE = "This needs more memory than one request may use. Request less: a shorter range, fewer rows."
GONE = "This run was deleted while it was open."
BROKEN = "An error inside Sonde: this cannot be answered. The log of `sonde ui` has the details."
NOW = "now"  # the parameter that asks for a new answer
_NUMBER = re.compile(r"-?\d{1,18}")


class BadRequest(SondeError):
    """A parameter has a wrong value."""


class Stopped(Exception):
    """Nobody waits for the answer any more."""


class Ask:
    """One request: parts of its path, and its parameters."""

    def __init__(self, path: dict[str, str], query: dict[str, str], traces: TraceReader | None = None) -> None:
        self.path = path
        self.query = query
        self.traces = traces

    def integer(self, name: str, default: int, low: int | None = None, high: int | None = None) -> int:
        """A parameter that is a whole number. What lies beyond the limits is refused."""
        found = self.optional(name)
        value = default if found is None else found
        if (low is not None and value < low) or (high is not None and value > high):
            raise BadRequest(f"{name} must be from {low} to {high}, not {value}.")
        return value

    def optional(self, name: str) -> int | None:
        """A whole number, or None if it is not given."""
        given = self.query.get(name, "")
        if given and not _NUMBER.fullmatch(given):
            raise BadRequest(f"{name} must be a whole number, not {given!r}.")
        return int(given) if given else None

    def number(self, name: str, default: float) -> float:
        """A parameter that is a number."""
        given = self.query.get(name, "")
        try:
            return float(given) if given else default
        except ValueError:
            raise BadRequest(f"{name} must be a number, not {given!r}.") from None

    def choice(self, name: str, valid: tuple[str, ...]) -> str:
        """One of some words; the first is the default."""
        given = self.query.get(name) or valid[0]
        if given not in valid:
            raise BadRequest(f"{name} must be one of {', '.join(valid)}, not {given!r}.")
        return given

    def choices(self, name: str, valid: tuple[str, ...]) -> list[str]:
        """Some of some words, with commas between them; the first is the default."""
        given = [one for one in self.query.get(name, "").split(",") if one] or [valid[0]]
        for one in given:
            if one not in valid:
                raise BadRequest(f"{name} must be one or more of {', '.join(valid)}, not {one!r}.")
        return given

    def rank(self) -> int | None:
        """The rank in the path: a number, or `-` for a process without one."""
        given = self.path["rank"]
        if given != "-" and not _NUMBER.fullmatch(given):
            raise BadRequest(f"The rank must be a number or -, not {given!r}.")
        return None if given == "-" else int(given)

    def place(self, name: str) -> int:
        """A number in the path."""
        if not _NUMBER.fullmatch(self.path[name]):
            raise BadRequest(f"The {name} must be a whole number, not {self.path[name]!r}.")
        return int(self.path[name])


class Dear:
    """A question whose answer takes long: while a run grows, the last answer is given again for some time. `?now=1` asks anew."""

    def __init__(self, answer: Callable[[Run, Ask], object]) -> None:
        self._answer = answer

    def __call__(self, run: Run, ask: Ask) -> object:
        """The answer."""
        return self._answer(run, ask)


class Aside:
    """A question that may take long, and is another one each time: the pages of the run do not wait for it."""

    def __init__(self, answer: Callable[[Run, Ask], object]) -> None:
        self._answer = answer

    def __call__(self, run: Run, ask: Ask) -> object:
        """The answer."""
        return self._answer(run, ask)


class Binary:
    """An answer that is no JSON."""

    def __init__(self, content: bytes, media_type: str = "application/octet-stream", **headers: str) -> None:
        self.content = content
        self.media_type = media_type
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Asking:
    """Answers requests in worker threads."""

    def __init__(self, folder: RunsFolder) -> None:
        self.folder = folder
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="sonde ui")

    def close(self) -> None:
        """Stop all that runs."""
        self.folder.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def run(self, request: Request, answer: Callable[[Run, Ask], object]) -> Response:
        """Answer with what a function says of the run in the path. It is not asked if the browser has its answer already."""
        job = _Task(self.folder, request, answer)
        seconds = DEAR_SECONDS if isinstance(answer, Dear) else SECONDS
        return await self._wait(request, job.do, job.stop, seconds)

    async def plain(self, request: Request, answer: Callable[[Ask], object]) -> Response:
        """Answer with what a function says that needs no open run."""
        ask = Ask(dict(request.path_params), dict(request.query_params))
        stop: Callable[[], None] = getattr(answer, "stop", _nothing)  # what takes long can be stopped
        seconds = SECONDS if stop is _nothing else DEAR_SECONDS
        return await self._wait(request, lambda: ("", answer(ask)), stop, seconds)

    async def _wait(
        self, request: Request, do: Callable[[], tuple[str, object]], stop: Callable[[], None], seconds: float = SECONDS
    ) -> Response:
        known = request.headers.get("if-none-match", "")

        def work() -> Response:
            return _respond(do, request, known)

        working = asyncio.get_running_loop().run_in_executor(self._pool, work)
        gone = asyncio.ensure_future(_gone(request))
        try:
            both: set[asyncio.Future[Any]] = {working, gone}
            await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            late = not working.done() and not gone.done()
            while not working.done():
                stop()
                await asyncio.wait({working}, timeout=INTERRUPT_EVERY)
            return error(503, TOO_LONG) if late else await working
        finally:
            gone.cancel()


def _nothing() -> None:
    pass


async def _gone(request: Request) -> None:
    """Returns when the browser has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _Task:
    """One question to one run, in a worker thread."""

    def __init__(self, folder: RunsFolder, request: Request, answer: Callable[[Run, Ask], object]) -> None:
        self._folder = folder
        self._ask = Ask(dict(request.path_params), dict(request.query_params), folder.traces)
        self._answer = answer
        self._query = str(request.url.query)
        self._known = request.headers.get("if-none-match", "")
        self._question = f"{request.url.path}?{sorted(item for item in self._ask.query.items() if item[0] != NOW)}"
        self._opened: OpenRun | None = None
        self._stopped = threading.Event()

    def do(self) -> tuple[str, object]:
        """The version of the run, and the answer."""
        id = self._ask.path["id"]
        known = self._folder.knows(id)
        try:
            opened = self._folder.get(id)
        except RunNotFound as problem:
            self._folder.forget(id)
            raise (RunGone(GONE) if known else problem) from None
        if isinstance(self._answer, Dear):
            return self._dear(opened, self._answer)
        if isinstance(self._answer, Aside):
            opened = opened.aside()
        with self._using(opened):
            opened.bring_up_to_date()
            if self._has(opened.version):
                return opened.version, None
            return opened.version, opened.answer(partial(self._answer, opened.run, self._ask))

    def _dear(self, opened: OpenRun, answer: Dear) -> tuple[str, object]:
        """What takes long is asked of the run opened once more, so that other questions need not wait; and of two who ask, once."""
        with opened.dear_lock:
            with self._using(opened):
                opened.bring_up_to_date()
                version, kept = opened.version, opened.seldom(self._question)
            if kept is None or NOW in self._ask.query:
                with closing(opened.again()) as again, self._using(again):
                    kept = opened.keep(self._question, version, partial(answer, again.run, self._ask))
        return kept.version, None if self._has(kept.version) else kept.answer

    def _has(self, version: str) -> bool:
        """Whether the browser has the answer of this version."""
        return bool(self._known) and self._known == tag_of(version, self._query)

    @contextmanager
    def _using(self, opened: OpenRun) -> Iterator[None]:
        """Have a run for oneself, as long as somebody waits for the answer."""
        with opened.lock:
            if self._stopped.is_set():
                raise Stopped
            self._opened = opened
            try:
                yield
            finally:
                self._opened = None
                if opened.broken:
                    opened.run.close()

    def stop(self) -> None:
        """Nobody waits any more."""
        self._stopped.set()
        if self._opened is not None:
            self._opened.interrupt()


class RunGone(SondeError):
    """The run was there, and is not any more."""


_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (BadRequest, 400), (QueryRefused, 400), (RunGone, 410), (RunNotFound, 404), (UnknownName, 404), (RunUnreadable, 422),
    (RunBusy, 409), (SondeError, 422),
)  # fmt: skip


def _respond(do: Callable[[], tuple[str, object]], request: Request, known: str) -> Response:
    """The answer as HTTP; every failure is one sentence."""
    with guard(
        f"answering {request.url.path}"
    ):  # the last line before the browser: it gets a sentence, the log the rest
        return _answered(do, request, known)
    return error(500, BROKEN)


def _answered(do: Callable[[], tuple[str, object]], request: Request, known: str) -> Response:
    import duckdb

    try:
        version, found = do()
        return respond(found, version, str(request.url.query), known)
    except Stopped:
        return error(503, TOO_LONG)
    except SondeError as problem:
        return error(next(status for kind, status in _STATUS if isinstance(problem, kind)), str(problem))
    except duckdb.InterruptException:
        return error(503, TOO_LONG)
    except (duckdb.OutOfMemoryException, MemoryError):
        return error(503, TOO_LARGE)
    except (
        duckdb.ParserException,
        duckdb.BinderException,
        duckdb.CatalogException,
        duckdb.ConversionException,
    ) as problem:
        return error(400, str(problem))
    except FileNotFoundError:
        return error(410, GONE)


def respond(found: object, version: str, query: str, known: str) -> Response:
    """An answer, with its version; nothing but the version if the browser has it already."""
    headers = {"cache-control": "no-store"}
    if version:
        tag = tag_of(version, query)
        headers = {"etag": tag, "cache-control": "no-cache"}
        if known == tag:
            return Response(status_code=304, headers=headers)
    if isinstance(found, Binary):
        return Response(found.content, media_type=found.media_type, headers=headers | found.headers)
    return Response(encoded(found), media_type="application/json", headers=headers)


def tag_of(version: str, query: str) -> str:
    """What an answer is known by: the version of its run, and the question."""
    return f'"{hashlib.sha1(f"{version} {query}".encode(), usedforsecurity=False).hexdigest()[:20]}"'


def encoded(found: object) -> bytes:
    """As JSON: text of our own as it is, everything else without what JSON lacks."""
    return found if isinstance(found, bytes) else jsonvalues.text(jsonvalues.plain(found, LEVELS)).encode()


def error(status: int, sentence: str) -> Response:
    """A failure, in one sentence."""
    return Response(jsonvalues.text({"error": sentence}), status, {"cache-control": "no-store"}, "application/json")


def rows(found: Any) -> list[dict[str, Any]]:
    """The rows of a relation, each with the names of its columns."""
    names = found.columns
    with suppress(AttributeError):
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    return []
