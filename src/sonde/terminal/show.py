"""Draws `sonde show`: what a run was, where its time went, what was open, what was lost."""

from __future__ import annotations

import collections
import math
import shlex

from rich.console import Console
from rich.text import Text

from sonde import units
from sonde.terminal.layout import INDENT, block, grid, heading, note
from sonde.terminal.table import TextColumn
from sonde.views.drops import LostRecords
from sonde.views.runs import BROKEN
from sonde.views.safe import printable, shorten
from sonde.views.show import Counter, Mark, Name, OpenRow, ProcessRow, Show

STATE_STYLES = {"recording": "green", "running": "green", "died": "red", BROKEN: "red", "unknown": "yellow"}
MOST_PROCESSES = 16
MOST_OPEN = 20
MOST_ARGS = 60
WORDS = {"running": "are running", "unknown": "ran on other hosts"}


def draw_show(view: Show, console: Console) -> None:
    """One run: what it was, where its time went, what was open, what was lost."""
    _head(view, console)
    _names(view, console)
    _counters(view.counters, console)
    _marks(view.marks, console)
    _open(view.open, console)
    _drops(view.drops, console)
    for text in view.notes:
        note(console, f"Note: {text.removesuffix('.')}.", "yellow")


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
        TextColumn("of run", [units.share(one.share if one.count else None) for one in names], need=1),
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


def _state_style(state: str) -> str:
    return STATE_STYLES.get(state, "")
