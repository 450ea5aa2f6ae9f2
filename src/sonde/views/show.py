"""What `sonde show` shows of one run, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sonde.analysis.questions.names import NameSummary, summarize, wall_ns
from sonde.analysis.questions.spans import OpenSpan, open_spans
from sonde.analysis.records import label
from sonde.analysis.training.trainers import phase_of
from sonde.store import probe
from sonde.store.alive import DIED, ENDED, RUNNING, UNKNOWN
from sonde.views.drops import LostRecords, lost_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.analysis.run import Run

UNNAMED = "(unknown)"
OF_BOTH = ("cpu", "disk.read", "disk.write")  # counters of the host, and of each process
STATES = (DIED, UNKNOWN, RUNNING, ENDED)  # in which order open spans are shown: the dead first


@dataclass(frozen=True)
class ProcessRow:
    """One process of the run."""

    label: str
    host: str
    pid: int | None
    state: str  # running, ended, died, unknown
    how: str  # how it ended, as far as that is known: "signal 9", "exit code 1", "ValueError"
    start_ns: int | None
    dur_ns: int | None
    events: int
    drops: int | None  # None is not known


@dataclass(frozen=True)
class Name:
    """All completed spans of one category and name."""

    cat: str
    name: str
    label: str
    count: int
    total_ns: int
    share: float | None  # of the time that the run took; more than 1 where several ran at once
    p50_ns: int | None
    p95_ns: int | None
    p99_ns: int | None
    max_ns: int | None
    errors: int
    open: int


@dataclass(frozen=True)
class Counter:
    """All values of one counter; `low` and `high` are those of the finite ones."""

    cat: str
    name: str
    label: str
    unit: str  # bytes, ns, %, °C, W; nothing: a plain number
    count: int
    first: float
    last: float
    low: float | None
    high: float | None
    nonfinite: int


@dataclass(frozen=True)
class Mark:
    """All marks of one name."""

    label: str
    count: int


@dataclass(frozen=True)
class OpenRow:
    """A span that was entered and not left, with no other open span inside it; `within` are those around it."""

    process: str
    host: str
    pid: int | None
    state: str
    thread: str
    cat: str
    name: str
    label: str
    for_ns: int | None
    key: int | None
    epoch: int | None
    step: int | None
    args: str | None  # a JSON object
    within: list[str]


@dataclass(frozen=True)
class Show:
    """One run, ready to be drawn."""

    id: str
    name: str
    path: str
    state: str  # recording, ended, died, unknown
    ended: str  # running, finished, crashed, interrupted, killed or unknown, and by what
    sealed: bool
    command: list[str]
    host: str
    started_ns: int | None
    dur_ns: int | None
    size: int
    events: int
    processes: list[ProcessRow]
    names: list[Name]
    names_left_out: int
    counters: list[Counter]
    marks: list[Mark]
    open: list[OpenRow]
    drops: list[LostRecords]
    notes: list[str]


# How the names are sorted: (word, key).
SORTS: dict[str, Callable[[Name], Any]] = {
    "total": lambda name: -name.total_ns,
    "count": lambda name: -name.count,
    "p99": lambda name: -(name.p99_ns or 0),
    "name": lambda name: name.label,
}


def show(run: Run, sort: str = "total", limit: int = 0) -> Show:
    """Everything about a run; `limit` 0 is all names."""
    names = sorted(_once(list(map(_name, summarize(run)))), key=SORTS[sort])
    kept = names[:limit] if limit > 0 else names
    processes = _processes(run)
    command, host = run.meta.get("command"), run.meta.get("host")
    return Show(
        id=run.id,
        name=run.name,
        path=str(run.path),
        state=run.state,
        ended=str(run.ending),
        sealed=run.sealed,
        command=[str(word) for word in command] if isinstance(command, list) else [],
        host=host if isinstance(host, str) else "",
        started_ns=run.started,
        dur_ns=wall_ns(run),
        size=run.size,
        events=sum(one.events for one in processes),
        processes=processes,
        names=kept,
        names_left_out=len(names) - len(kept),
        counters=_counters(run),
        marks=_marks(run),
        open=_open(run),
        drops=lost_records(run),
        notes=run.notes,
    )


def _once(names: list[Name]) -> list[Name]:
    """Without what the probes recorded of calls that the program marked itself: each phase is listed once, by its own name."""
    phases = {(one.cat, one.name): phase_of(one.cat, one.name) for one in names}
    marked = [(found[0], one.count) for one in names if (found := phases[one.cat, one.name]) and not found[1]]

    def twice(one: Name) -> bool:
        found = phases[one.cat, one.name]
        return (
            found is not None and found[1] and any(found[0] == phase and abs(one.count - n) <= 1 for phase, n in marked)
        )

    return [one for one in names if not twice(one)]


def _name(one: NameSummary) -> Name:
    cat, name = one.cat or "", one.name or UNNAMED
    points = (one.p50_ns, one.p95_ns, one.p99_ns, one.max_ns)
    return Name(cat, name, label.event(cat, name), one.count, one.total_ns, one.share, *points, one.errors, one.open)


def _processes(run: Run) -> list[ProcessRow]:
    found = run.sql(
        """
        SELECT role, rank, worker, host, pid, state, exception, signal, exit_code, start_ns,
               greatest(coalesce(end_ns, last_ns), last_ns) - start_ns, coalesce(events, 0), drops
        FROM processes ORDER BY rank NULLS FIRST, worker NULLS FIRST, start_ns, process
        """
    ).fetchall()
    return [
        ProcessRow(label.process(*row[:3]), *row[3:6], _how(*row[6:9]), *row[9:])  # type: ignore[call-arg]
        for row in found
    ]


def _how(exception: str | None, signal: int | None, exit_code: int | None) -> str:
    if exception:
        return exception
    if signal is not None:
        return f"signal {signal}"
    return f"exit code {exit_code}" if exit_code else ""


def _counters(run: Run) -> list[Counter]:
    found = run.sql(
        f"""
        SELECT coalesce(cat, ''), name, coalesce(cat = '{probe.SYSTEM}' AND name IN {OF_BOTH} AND key = 0, false),
               count(*), arg_min(value, (start_ns, seq)), arg_max(value, (start_ns, seq)),
               min(value) FILTER (isfinite(value)), max(value) FILTER (isfinite(value)),
               count(*) FILTER (NOT isfinite(value))
        FROM events WHERE kind = 'counter' AND value IS NOT NULL GROUP BY ALL ORDER BY 1, 2, 3
        """  # noqa: S608  our own names
    ).fetchall()
    return [
        Counter(
            cat, name or UNNAMED, label.event(cat, name or UNNAMED) + " (host)" * host, _unit(cat, name or ""), *rest
        )
        for cat, name, host, *rest in found
    ]


def _unit(cat: str, name: str) -> str:
    """What the probes' own counters are measured in."""
    if cat == probe.MEMORY or (cat == probe.PROBE and name.startswith(probe.DEVICE_PEAK)):
        return "bytes"
    if cat == probe.PROBE and name.startswith((probe.DDP, probe.DEVICE)):
        return "ns"
    if cat != probe.SYSTEM:
        return ""
    if name.startswith(("ram.", "rss.", "disk.", "cgroup.", "gpu.memory.")):
        return "bytes"
    return {
        "cpu": "%",
        "cpu.delay": "%",
        probe.WAITED: "ns",
        "gpu.load": "%",
        "gpu.power": "W",
        "gpu.energy": "J",
        "energy": "J",
        "gpu.temperature": "°C",
    }.get(name, "")


def _marks(run: Run) -> list[Mark]:
    found = run.sql(
        f"""
        SELECT coalesce(cat, ''), name,
               coalesce(cat = '{probe.PROBE}' AND name = '{probe.UPDATE}' AND key & {probe.UPDATE_ABORTED} <> 0, false),
               count(*)
        FROM events WHERE kind = 'mark' GROUP BY ALL ORDER BY ALL
        """  # noqa: S608  our own names
    ).fetchall()
    return [
        Mark(label.event(cat, name or UNNAMED) + (" (aborted)" if aborted else ""), count)
        for cat, name, aborted, count in found
    ]


def _open(run: Run) -> list[OpenRow]:
    spans = open_spans(run)
    above = {(process, seq): parent for process, seq, parent in run.sql(_PARENTS).fetchall()} if spans else {}
    names = {(span.process, span.seq): _label(span) for span in spans}
    inner = [_innermost(span, above, names) for span in spans if span.innermost]
    return sorted(inner, key=lambda one: STATES.index(one.state) if one.state in STATES else 0)


_PARENTS = "SELECT process, seq, parent FROM events WHERE open"


def _label(span: OpenSpan) -> str:
    return label.event(span.cat or "", span.name or UNNAMED)


def _innermost(span: OpenSpan, above: dict[tuple[str, int], int | None], names: dict[tuple[str, int], str]) -> OpenRow:
    within: list[str] = []
    place = (span.process, above.get((span.process, span.seq)) or 0)
    while place in names and len(within) < len(names):  # a damaged file may hold a circle
        within.append(names[place])
        place = (span.process, above.get(place) or 0)
    return OpenRow(
        process=label.process(span.role, span.rank, span.worker),
        host=span.host,
        pid=span.pid,
        state=span.state,
        thread=span.thread or "",
        cat=span.cat or "",
        name=span.name or UNNAMED,
        label=_label(span),
        for_ns=span.for_ns,
        key=span.key,
        epoch=span.epoch,
        step=span.step,
        args=span.args,
        within=within,
    )
