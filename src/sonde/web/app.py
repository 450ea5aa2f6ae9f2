"""The application: which address is answered by which function."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import Route

from sonde.version import __version__
from sonde.web.access import Access
from sonde.web.asking import Aside, Asking, Dear, error
from sonde.web.endpoints import (
    arrays,
    batches,
    hosts,
    items,
    learning,
    metrics,
    perfetto,
    report,
    runs,
    samples,
    series,
    sql,
    steps,
    timeline,
    traces,
)
from sonde.web.endpoints.head import head
from sonde.web.endpoints.live import Feeds
from sonde.web.pages import Pages
from sonde.web.verdicts import Verdicts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from sonde.analysis.run import Run
    from sonde.web.asking import Ask
    from sonde.web.folder import RunsFolder

# Below /api/runs/ID: the path, and the function that answers it.
OF_RUN: tuple[tuple[str, Callable[[Run, Ask], object]], ...] = (
    ("", Dear(report.report)),
    ("/head", head),
    ("/series", series.series),
    ("/counters", series.counters),
    ("/steps", steps.steps),
    ("/steps/{rank}/{step}", steps.step),
    ("/batches/{rank}/{loader}/{round}/{batch}", batches.batch),
    ("/items", items.items),
    ("/items/{index:path}", items.item),
    ("/arrays/{dump}/{batch}/{value}/{position}", arrays.array),
    ("/lanes", timeline.lanes),
    ("/timeline", timeline.timeline),
    ("/events/{lane}/{seq}", timeline.event),
    ("/search", timeline.search),
    ("/selection", timeline.selection),
    ("/layers", report.layers),
    ("/layers/{name:path}", report.layer),
    ("/samples", Dear(samples.samples)),
    ("/learning", Dear(learning.learning)),
    ("/hosts", Dear(hosts.hosts)),
    ("/blackbox", report.blackbox),
    ("/traces", traces.traces),
    ("/traces/{name}", traces.trace),
    ("/traces/{name}/diff/{other}", traces.diff),
    ("/traces/{name}/arrays/{call}/{place}", traces.array),
    ("/schema", sql.schema),
    ("/sql", Aside(sql.sql)),
    ("/perfetto", perfetto.perfetto),
)


def make_app(folder: RunsFolder, token: str, host: str = "127.0.0.1", *, framed: bool = False) -> Access:
    """The whole application, behind its door."""
    asking, verdicts = Asking(folder), Verdicts()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        verdicts.close()
        asking.close()

    about = {"version": __version__, "folder": str(folder.path), "run": folder.chosen, "pid": os.getpid()}
    routes = [
        Route("/api/about", _plain(asking, lambda ask: about)),
        Route("/api/runs", _plain(asking, lambda ask: runs.runs(folder, verdicts))),
        Route("/api/compare", _comparing(asking, folder)),
        Route("/api/runs/{id}/live", Feeds(folder).live),
        *(Route(f"/api/runs/{{id}}{path}", _of_run(asking, answer)) for path, answer in OF_RUN),
        Route("/metrics", _plain(asking, lambda ask: metrics.metrics(folder))),
        Route("/api/{path:path}", _nothing),
        Route("/{path:path}", Pages().__call__),
    ]
    return Access(Starlette(routes=routes, lifespan=lifespan), token, host, framed=framed)


def _plain(asking: Asking, answer: Callable[[Ask], object]) -> Callable[[Request], object]:
    async def endpoint(request: Request) -> Response:
        return await asking.plain(request, answer)

    return endpoint


def _comparing(asking: Asking, folder: RunsFolder) -> Callable[[Request], object]:
    async def endpoint(request: Request) -> Response:
        return await asking.plain(request, report.Comparing(folder))

    return endpoint


def _of_run(asking: Asking, answer: Callable[[Run, Ask], object]) -> Callable[[Request], object]:
    async def endpoint(request: Request) -> Response:
        return await asking.run(request, answer)

    return endpoint


async def _nothing(request: Request) -> Response:
    return error(404, f"There is nothing at {request.url.path}. docs/reference/web.md lists the addresses.")
