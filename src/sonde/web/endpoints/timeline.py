"""`/lanes`, `/timeline`, `/search`, `/selection` and `/events`: what the timeline draws, and what is asked of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from sonde.analysis.questions.timeline.lanes import chosen, lanes as all_lanes
from sonde.analysis.questions.timeline.slices import names_like, slices, span, sums
from sonde.lazy import numpy as np
from sonde.web.asking import Ask, BadRequest
from sonde.web.endpoints.series import packed

if TYPE_CHECKING:
    from sonde.analysis.questions.timeline.lanes import Lane
    from sonde.analysis.run import Run


def lanes(run: Run, ask: Ask) -> object:
    """All lanes, and from when to when the run reaches."""
    first, last = _extent(run)
    found = [{key: value for key, value in asdict(one).items() if key != "threads"} for one in all_lanes(run)]
    return {"start_ns": first, "end_ns": last, "lanes": found}


def timeline(run: Run, ask: Ask) -> object:
    """The slices of some lanes, in as much detail as there are pixels."""
    first, last = _window(run, ask)
    names, found = slices(run, _wanted(run, ask), first, last, ask.integer("pixels", 1000, 10, 10_000))
    head = {"from": first, "to": last, "names": [name for _, name in names], "cats": [cat for cat, _ in names]}
    if ask.choice("format", ("json", "bin")) == "json":
        return head | {"lanes": [{"lane": id, "slices": rows} for id, rows in found.items()]}
    rows = [row for some_rows in found.values() for row in some_rows]
    columns = np.array(rows, np.float64).reshape(-1, 7).T
    counts = [{"lane": id, "slices": len(some_rows)} for id, some_rows in found.items()]
    return packed(head | {"lanes": counts}, list(columns))


def search(run: Run, ask: Ask) -> object:
    """Names that hold a text, and where each is first."""
    sought = ask.query.get("q", "").strip()
    if not sought:
        raise BadRequest("Give a text to search for: ?q=forward")
    return {"names": names_like(run, sought, ask.integer("limit", 50, 1, 1000))}


def selection(run: Run, ask: Ask) -> object:
    """The sum of each name in a stretch of time."""
    first, last = _window(run, ask)
    return {"from": first, "to": last, "names": sums(run, _wanted(run, ask), first, last)}


def event(run: Run, ask: Ask) -> object:
    """One span, and the path from its item to its batch and its step."""
    some = chosen(all_lanes(run), [ask.path["lane"]])
    return span(run, ask.path["lane"], some, ask.place("seq"), ask.optional("start"))


def _wanted(run: Run, ask: Ask) -> list[Lane]:
    return chosen(all_lanes(run), [one for one in ask.query.get("lanes", "").split(",") if one])


def _window(run: Run, ask: Ask) -> tuple[int, int]:
    first, last = _extent(run)
    low, high = ask.optional("from"), ask.optional("to")
    first, last = first if low is None else low, last if high is None else high
    if last < first:
        raise BadRequest(f"from ({first}) lies behind to ({last}).")
    return first, max(last, first + 1)


def _extent(run: Run) -> tuple[int, int]:
    started = run.started or 0
    begun = [row["start_ns"] for row in run.rows if row["start_ns"] is not None]
    ended = [row["last_ns"] for row in run.rows if row["last_ns"] is not None]
    return min(0, min(begun, default=started) - started), max(max(ended, default=started) - started, 1)
