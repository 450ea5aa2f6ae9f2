"""Draws views in a terminal."""

from __future__ import annotations

import collections
import math
import shlex

from rich.console import Console
from rich.text import Text

from sonde import units
from sonde.terminal.layout import INDENT, block, grid, heading, items, note, pairs
from sonde.terminal.table import TextColumn, fit, lines
from sonde.views.doctor import Examination
from sonde.views.listing import TELLING, Listing
from sonde.views.runs import BROKEN, Runs
from sonde.views.safe import printable, shorten
from sonde.views.show import Counter, LostRecords, Mark, Name, OpenRow, ProcessRow, Show

STATE_STYLES = {"recording": "green", "running": "green", "died": "red", BROKEN: "red", "unknown": "yellow"}
ENDED_STYLES = {
    "running": "green",
    "crashed": "red",
    "killed": "red",
    BROKEN: "red",
    "interrupted": "yellow",
    "unknown": "yellow",
}
SEVERITY_STYLES = {"warn": "yellow", "critical": "red"}
WIDE, WHOLE_ID, END_OF_ID = 90, 30, 12  # columns of a terminal that shows ids whole, and of an id
MOST_PROCESSES = 16
MOST_OPEN = 20
MOST_PATCHED = 3  # for one reason
MOST_ARGS = 60
NOT_KNOWN = "n/a"
SHOWN_NUMBERS = 6  # of a list in a cell
MOMENTS = ("start_ns", "end_ns", "time_ns", "last_ns")
SIZES = ("rss", "allocated", "reserved", "peak")
WORDS = {"running": "are running", "unknown": "ran on other hosts"}


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def draw_runs(found: Runs, console: Console) -> None:
    """One line for each run; what is wrong with a broken one stands below it."""
    runs = found.runs
    known = [one.outcome for one in runs]
    least = WHOLE_ID if console.width >= WIDE else END_OF_ID
    columns = [
        TextColumn(
            "run", [one.id for one in runs], right=False, styles=["bold"] * len(runs), least=least, keep_end=True
        ),
        TextColumn(
            "ended",
            [one.ended for one in runs],
            right=False,
            styles=[ENDED_STYLES.get(one.ended.split()[0], "") for one in runs],
            least=11,
        ),
        TextColumn("ran", [units.duration(one.dur_ns) for one in runs], need=4),
        TextColumn(
            "started", [units.when(one.started_ns) for one in runs], need=7, right=False
        ),  # the id begins with it
        TextColumn("size", [units.size(one.size) for one in runs], need=6),
    ]
    if any(known):
        columns[1:1] = [
            TextColumn(
                "verdict",
                [one.verdict if one else units.NOTHING for one in known],
                need=1,
                right=False,
                styles=[SEVERITY_STYLES.get(one.severity, "") if one else "" for one in known],
            )
        ]
        columns[3:3] = [
            TextColumn("steps", [units.count(one.steps) if one else units.NOTHING for one in known], need=3),
            TextColumn("median step", [units.duration(one.p50_ns) if one else units.NOTHING for one in known], need=2),
            TextColumn("loss", [_loss(one.loss if one else None) for one in known], need=5),
        ]
    table = lines(columns, console.width)
    console.print(table[0])
    for one, line in zip(runs, table[1:], strict=True):
        console.print(line)
        if one.problem:
            note(console, one.problem, "red")
    if found.left_out:
        note(console, f"and {units.plural(found.left_out, 'older run')}; --limit 0 shows all", "dim")


def _loss(loss: float | None) -> str:
    return units.NOTHING if loss is None else f"{loss:.4g}"


def _state_style(state: str) -> str:
    return STATE_STYLES.get(state, "")


# ── show ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def draw_show(view: Show, console: Console) -> None:
    """One run: what it was, where its time went, what was open, what was lost."""
    _head(view, console)
    _names(view, console)
    _counters(view.counters, console)
    _marks(view.marks, console)
    _open(view.open, console)
    _drops(view.drops, console)
    for text in view.notes:
        note(console, f"Note: {text}.", "yellow")


def _head(view: Show, console: Console) -> None:
    title = Text(printable(view.name), "bold")
    title.append("  ")
    title.append(printable(view.id), "dim")
    console.print(title, soft_wrap=False)
    if view.command:
        note(console, shlex.join(view.command))
    facts = [
        f"{view.ended}, sealed" if view.sealed else view.ended,
        f"started {units.when(view.started_ns)}",
        f"ran {units.duration(view.dur_ns)}",
        units.plural(view.events, "event"),
        units.size(view.size),
    ]
    note(console, " · ".join(facts))
    _processes(view.processes, console)


def _processes(found: list[ProcessRow], console: Console) -> None:
    if not found:
        return
    processes = _most_notable(found)
    hosts = len({one.host for one in processes}) > 1
    heading(console, units.plural(len(found), "process", "processes"))
    columns = [
        TextColumn("process", [one.label for one in processes], right=False, least=12),
        TextColumn("pid", [str(one.pid) for one in processes]),
        TextColumn(
            "state",
            [_ended(one) for one in processes],
            right=False,
            styles=[_state_style(one.state) for one in processes],
        ),
        TextColumn("ran", [units.duration(one.dur_ns) for one in processes]),
        TextColumn("events", [units.count(one.events) for one in processes], need=1),
    ]
    if hosts:
        columns.insert(1, TextColumn("host", [one.host for one in processes], need=2, right=False, least=8))
    grid(console, columns)
    if len(found) > len(processes):
        note(console, f"and {_states(found, processes)}", "dim")


def _most_notable(found: list[ProcessRow]) -> list[ProcessRow]:
    """All of a few processes; of many those that did not end properly first, in their order."""
    if len(found) <= MOST_PROCESSES:
        return found
    order = sorted(range(len(found)), key=lambda index: (found[index].state == "ended", index))
    return [found[index] for index in sorted(order[:MOST_PROCESSES])]


def _states(found: list[ProcessRow], shown: list[ProcessRow]) -> str:
    """How many processes of which state are not shown."""
    counts = collections.Counter(one.state for one in found) - collections.Counter(one.state for one in shown)
    return ", ".join(f"{units.count(count)} more that {WORDS.get(state, state)}" for state, count in counts.items())


def _ended(process: ProcessRow) -> str:
    return f"{process.state} ({process.how})" if process.how else process.state


def _names(view: Show, console: Console) -> None:
    names = view.names
    if not names:
        heading(console, "no spans")
        return
    heading(console, "where the time went")
    columns = [
        TextColumn("span", [one.label for one in names], right=False, styles=["bold"] * len(names), least=22),
        TextColumn("count", [units.count(one.count) for one in names]),
        TextColumn("total", [units.duration(one.total_ns if one.count else None) for one in names]),
        TextColumn("share", [units.share(one.share if one.count else None) for one in names], need=1),
        TextColumn("p50", [units.duration(one.p50_ns) for one in names], need=2),
        TextColumn("p95", [units.duration(one.p95_ns) for one in names], need=5),
        TextColumn("p99", [units.duration(one.p99_ns) for one in names], need=3),
        TextColumn("max", [units.duration(one.max_ns) for one in names], need=4),
    ]
    if any(one.errors for one in names):
        columns.append(_errors(names))
    grid(console, columns)
    if view.names_left_out:
        note(console, f"and {units.plural(view.names_left_out, 'more name')}; --limit 0 shows all", "dim")


def _errors(names: list[Name]) -> TextColumn:
    cells = [units.count(one.errors) if one.errors else "" for one in names]
    return TextColumn("errors", cells, styles=["red"] * len(names))


def _counters(counters: list[Counter], console: Console) -> None:
    if not counters:
        return
    heading(console, "values")
    grid(
        console,
        [
            TextColumn(
                "counter", [one.label for one in counters], right=False, styles=["bold"] * len(counters), least=18
            ),
            TextColumn("count", [units.count(one.count) for one in counters]),
            TextColumn("first", [_measured(one, one.first) for one in counters], need=2),
            TextColumn("last", [_measured(one, one.last) for one in counters]),
            TextColumn("min", [_measured(one, one.low) for one in counters], need=1),
            TextColumn("max", [_measured(one, one.high) for one in counters], need=1),
            *_nonfinite(counters),
        ],
    )


def _measured(counter: Counter, value: float | None) -> str:
    """A value in the unit of its counter."""
    if value is None or not counter.unit or not math.isfinite(value):
        return units.number(value)
    if counter.unit == "bytes":
        return units.size(round(value))
    return units.duration(value) if counter.unit == "ns" else f"{round(value, 1):g} {counter.unit}"


def _nonfinite(counters: list[Counter]) -> list[TextColumn]:
    if not any(one.nonfinite for one in counters):
        return []
    cells = [units.count(one.nonfinite) if one.nonfinite else "" for one in counters]
    return [TextColumn("NaN/Inf", cells, styles=["red"] * len(counters))]


def _marks(marks: list[Mark], console: Console) -> None:
    if marks:
        heading(console, "marks")
        note(console, ", ".join(f"{one.label} ({units.count(one.count)})" for one in marks))


def _open(spans: list[OpenRow], console: Console) -> None:
    if not spans:
        return
    heading(console, "still open")
    for span in spans[:MOST_OPEN]:
        line = Text()
        line.append(f"{span.process} (pid {span.pid}, {span.state}): ", _state_style(span.state))
        line.append(printable(span.label), "bold")
        line.append(f" for {units.duration(span.for_ns)}")
        line.append("".join(f", {word} {number}" for word, number in _about(span) if number is not None))
        if span.thread not in ("MainThread", ""):
            line.append(f", thread {printable(span.thread)}")
        if span.args:
            line.append(f", {shorten(printable(span.args), MOST_ARGS)}", "dim")
        if span.within:
            line.append(f", in {' in '.join(map(printable, span.within))}", "dim")
        block(console, line, hang=INDENT)
    if len(spans) > MOST_OPEN:
        note(console, f"and {units.count(len(spans) - MOST_OPEN)} more; --json has all", "dim")


def _about(span: OpenRow) -> list[tuple[str, int | None]]:
    word = "count" if span.name.endswith((".iter", ".block")) else "item" if span.cat == "data" else "key"
    return [(word, span.key), ("step", span.step), ("epoch", span.epoch)]


def _drops(losses: list[LostRecords], console: Console) -> None:
    console.print()
    if not losses:
        note(console, "No record was lost.", "dim")
    for loss in losses:
        note(console, f"Lost: {units.records(loss.count)} {loss.reason}.", "red")


# ── a table ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def draw_listing(view: Listing, console: Console) -> None:
    """The rows; columns that do not fit are named below."""
    columns = [_listed(view, index) for index in range(len(view.columns))]
    for line in lines(columns, console.width):
        console.print(line, soft_wrap=True)
    kept = {column.title for column in fit(columns, console.width)}
    left_out = [title for title in view.columns if _title(title) not in kept]
    if left_out:
        note(console, f"not shown: {', '.join(left_out)} (use a wider terminal or --json)", "dim")
    if not view.total:
        note(console, "no rows: nothing of this kind was recorded", "dim")
    if view.total > len(view.rows):
        note(console, f"{units.count(len(view.rows))} of {units.count(view.total)} rows; --limit 0 shows all", "dim")


def _listed(view: Listing, index: int) -> TextColumn:
    title = view.columns[index]
    values = [row[index] for row in view.rows]
    cells = [_value(view, title, value) for value in values]
    need = index
    if view.table:  # of an own query, the first columns count most
        need = TELLING.index(title) if title in TELLING else len(TELLING) + index
    if values and all(value == values[0] for value in values) and (values[0] is None or not title.endswith("_ns")):
        need += 100  # what is the same everywhere tells least
    number = all(isinstance(value, int | float | None) for value in values)
    return TextColumn(_title(title), cells, need, right=number, least=None if number else 12)


def _title(column: str) -> str:
    """The name of a column without its unit, which stands in each cell."""
    return column.removesuffix("_ns").removesuffix("_bytes")


def _value(view: Listing, column: str, value: object) -> str:
    """A value as its column says: a moment counted from the start of the run, a duration, a size."""
    if value is None:
        return NOT_KNOWN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and column in MOMENTS and view.started_ns is not None:
        return f"+{units.duration(value - view.started_ns)}".replace("+-", "-")
    if isinstance(value, int) and column.endswith("_ns"):
        return units.duration(value)
    if isinstance(value, int) and (column.endswith("_bytes") or column in SIZES):
        return units.size(value)
    if isinstance(value, list):
        more = f", ... ({len(value)})" if len(value) > SHOWN_NUMBERS else ""
        return ", ".join(map(str, value[:SHOWN_NUMBERS])) + more
    return units.number(value) if isinstance(value, float) else str(value)


# ── health ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def draw_health(found: Examination, console: Console) -> None:
    """The verdict first, then how recording is done here and what it cannot see."""
    _verdict(found, console)
    heading(console, "how")
    folder = found.folder
    pairs(
        console,
        {
            "core": "C" if found.core == "c" else f"Python, because {found.core_note}",
            "writes": f"{folder.writes}: {folder.why}",
            "runs in": folder.path,
            "file system": f"{folder.filesystem or 'unknown'}, {units.size(folder.free)} free",
            "sonde": found.sonde,
            "python": f"{found.python}, {found.program}",
            "platform": found.platform,
        },
    )
    _settings(found, console)
    heading(console, "patched in a recorded program")
    items(console, _by_reason(found.proof.patched) or ["nothing"])
    heading(console, "cannot be seen")
    items(console, found.unseen)
    heading(console, "optional libraries")
    pairs(console, {name: version or "not installed" for name, version in found.extras.items()})


def _by_reason(patched: list[str]) -> list[str]:
    """Each reason once, with the functions that are patched for it."""
    reasons: dict[str, list[str]] = {}
    for one in patched:
        name, _, reason = one.partition(": ")
        reasons.setdefault(reason, []).append(name)
    return [f"{_first(names)}: {reason}" for reason, names in reasons.items()]


def _first(names: list[str]) -> str:
    more = len(names) - MOST_PATCHED
    return ", ".join(names[:MOST_PATCHED]) + (f" and {more} more (--json lists them)" if more > 0 else "")


def _verdict(found: Examination, console: Console) -> None:
    ok = found.proof.ok
    console.print(Text("Recording works" if ok else "Recording does not work", "bold green" if ok else "bold red"))
    note(console, f"{found.proof.told}.")
    for place, count in found.proof.failures.items():
        note(console, f"Failed {units.plural(count, 'time')} while {place}.", "yellow")
    if found.enabled is False:
        note(
            console,
            "Recording is off: the setting `enabled` (SONDE) is 0.",
            "yellow",
        )


def _settings(found: Examination, console: Console) -> None:
    heading(console, "settings")
    rows = found.settings
    grid(
        console,
        [
            TextColumn("setting", [one.name for one in rows], right=False),
            TextColumn("value", [one.value for one in rows], right=False, least=20),
            TextColumn("from", [one.source for one in rows], right=False, need=1, least=7),
        ],
    )
