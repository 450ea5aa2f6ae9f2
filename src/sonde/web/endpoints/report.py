"""`/api/runs/ID`, `/layers`, `/blackbox` and `/api/compare`: the same documents as the commands print."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING
from urllib.parse import quote

from sonde.analysis.postmortem.blackbox import black_box
from sonde.analysis.questions.layers import layer_history, layer_learning, layer_tree
from sonde.analysis.run import RECORDING, Run
from sonde.compare.runs import compare_runs
from sonde.views.blackbox import blackbox as page_of, chosen
from sonde.views.items import Case, Exhibit, ItemValue, cases
from sonde.views.report import report as report_of
from sonde.web.asking import Ask, BadRequest, Stopped
from sonde.web.endpoints.arrays import as_address
from sonde.web.endpoints.head import has
from sonde.web.folder import MEMORY, interrupt

if TYPE_CHECKING:
    from sonde.analysis.postmortem.dumps import Dump, DumpedBatch
    from sonde.web.folder import RunsFolder


def report(run: Run, ask: Ask) -> object:
    """The document of `sonde report --json`, and how far the run was then."""
    (last,) = run.sql("SELECT max(step) FROM steps").fetchall()[0]
    more = {"live": run.state == RECORDING, "as_of_step": last, "start_ns": 0, "has": has(run)}
    return asdict(report_of(run)) | more


def layers(run: Run, ask: Ask) -> object:
    """The model as a tree, parents first."""
    return {"layers": [asdict(one) for one in layer_tree(run)]}


def layer(run: Run, ask: Ask) -> object:
    """One layer over the steps."""
    name = ask.path["name"]
    found, history = layer_history(run, name, ask.integer("points", 1000, 2, 10_000))
    return {"layer": asdict(found), **asdict(history), "learning": [asdict(one) for one in layer_learning(run, name)]}


def blackbox(run: Run, ask: Ask) -> object:
    """The document of `sonde blackbox --json`, and the items of its batches with pictures."""
    number = ask.optional("dump")
    box = black_box(run)
    dump = chosen(box, number)
    page = page_of(run, box, number)
    batches = list(enumerate(dump.batches)) if dump is not None and dump.batches else []
    shown = []
    for place, case in enumerate(cases(page, dump, box)):
        at, batch = batches[-1 - place] if batches else (0, None)
        where = {} if dump is None or batch is None else _arrays(dump, at, batch)
        items = [_exhibit(one, where) for one in (*case.exhibits, *case.rest)]
        more = {"first": len(case.exhibits), "more": case.more, "notes": case.notes, "scales": _scales(case)}
        shown.append({"batch": place, "items": items, **more})
    return asdict(page) | {"cases": shown}


def _arrays(dump: Dump, at: int, batch: DumpedBatch) -> dict[str, str]:
    """Where the array of each value is, without the position of the item."""
    return {value.path: f"/arrays/{quote(dump.name, safe='')}/{at}/{place}" for place, value in enumerate(batch.values)}


def _scales(case: Case) -> dict[str, list[float]]:
    """What black and white stand for in the pictures of each value: the range of all items that did not go wrong."""
    known = [one for one in (*case.exhibits, *case.rest) if not one.guilty] or case.exhibits
    found: dict[str, list[float]] = {}
    for value in (value for one in known for value in one.sights):
        if value.low is not None and value.high is not None:
            low, high = found.get(value.path, (value.low, value.high))
            found[value.path] = [min(low, value.low), max(high, value.high)]
    return found


def _exhibit(one: Exhibit, where: dict[str, str]) -> dict[str, object]:
    return {
        "name": one.name,
        "position": one.position,
        "guilty": one.guilty,
        "values": [_value(value, where.get(value.path), one.position) for value in one.sights],
    }


def _value(one: ItemValue, where: str | None, position: int) -> dict[str, object]:
    array = None if where is None else f"{where}/{position}"
    return asdict(one) | {"picture": as_address(one.picture), "array": array}


class Comparing:
    """`/api/compare`: two runs, opened for one question; it ends when nobody waits for the answer any more."""

    def __init__(self, folder: RunsFolder) -> None:
        self._folder = folder
        self._runs: list[Run] = []
        self._stopped = False

    def __call__(self, ask: Ask) -> object:
        """The document of `sonde compare --json`."""
        names = [ask.query.get(name, "") for name in ("a", "b")]
        if not all(names):
            raise BadRequest("Give two runs: /api/compare?a=ID&b=ID.")
        with ExitStack() as opened:
            for name in names:
                self._runs.append(opened.enter_context(Run([self._folder.find(name)], threads=1, memory=MEMORY)))
            if self._stopped:
                raise Stopped
            return asdict(compare_runs(*self._runs))

    def stop(self) -> None:
        """Nobody waits any more."""
        self._stopped = True
        for run in list(self._runs):
            interrupt(run)
