"""Draws a comparison of runs: the verdict, where the time went, what else differs, whether the numbers are the same."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.text import Text

from sonde import units
from sonde.compare.differences import shown
from sonde.compare.ratio import between, signed
from sonde.terminal.layout import block, grid, heading, items, note, pairs
from sonde.terminal.table import TextColumn
from sonde.views.words import phase_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from sonde.compare.differences import Named
    from sonde.compare.ratio import Ratio
    from sonde.compare.resume import Resume
    from sonde.compare.runs import Comparison, Ranking, Restarts

MOST_ROWS = 10
STYLES = {"faster": "bold green", "slower": "bold red", "same": "bold green", "mixed": "bold yellow"}
SIGNS = {"faster": "green", "slower": "red"}


def draw_comparison(view: Comparison, console: Console) -> None:
    """Two runs."""
    console.print(Text(view.verdict.replace("_", " ").upper(), STYLES.get(view.verdict, "bold yellow")))
    pairs(console, {"A": f"{view.a.id} ({view.a.ended})", "B": f"{view.b.id} ({view.b.ended})"})
    console.print()
    for reason in view.reasons:
        note(console, reason)
    block(console, Text(f"Next: {view.next}", "bold"), hang=6)
    _times(view, console)
    _named(console, "Ranks", view.ranks, units.duration)
    _named(console, "Layers", view.layers, units.duration)
    _named(console, "Memory", view.memory, lambda value: units.size(None if value is None else round(value)))
    _items(view, console)
    _evaluation(view, console)
    _findings(view, console)
    _settings(view, console)
    heading(console, "Numbers")
    note(console, view.numbers.text)
    _resumes(console, view.resume)
    if view.notes:
        heading(console, "Notes")
        items(console, view.notes)


def _times(view: Comparison, console: Console) -> None:
    step, rate = view.step_time, view.throughput
    rows = [
        ("median step", step),
        ("fastest tenth", step.p10),
        ("mean step", step.mean),
        ("mean without waits", step.own),
    ]
    known = [(name, one) for name, one in rows if one is not None and one.ratio is not None]
    if not known:
        return
    heading(console, "Step time")
    cells = [(name, units.duration(one.a), units.duration(one.b), *_ratio(one)) for name, one in known]
    if rate.ratio is not None:
        cells.append(("samples per second", units.number(_round(rate.a)), units.number(_round(rate.b)), *_ratio(rate)))
    _table(console, ["", "A", "B", "B / A", "95 % interval", ""], cells)
    _phases(view, console)


def _phases(view: Comparison, console: Console) -> None:
    known = [one for one in view.phases if one.difference_ns is not None]
    if not known:
        return
    heading(console, "Phases, mean of a step")
    cells = [
        (
            phase_name(one.phase),
            units.duration(one.a_ns),
            units.duration(one.b_ns),
            signed(one.difference_ns),
            f"{signed(one.low_ns)} to {signed(one.high_ns)}",
            one.verdict or "",
        )
        for one in known
    ]
    _table(console, ["", "A", "B", "B - A", "95 % interval", ""], cells)


def _ratio(one: Ratio) -> tuple[str, str, str]:
    return ("" if one.ratio is None else f"{one.ratio:.3f}"), between(one.low, one.high), one.verdict or ""


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _table(console: Console, titles: list[str], rows: Sequence[tuple[str, ...]]) -> None:
    columns = [
        TextColumn(
            title, [row[place] for row in rows], need=0 if place < 4 else 6 - place, right=0 < place < len(titles) - 1
        )
        for place, title in enumerate(titles)
    ]
    grid(console, columns)


def _named(console: Console, title: str, rows: Sequence[Named], formatted: Callable[[float | None], str]) -> None:
    if not rows:
        return
    heading(console, title)
    cells = [(one.name, formatted(one.ratio.a), formatted(one.ratio.b), *_ratio(one.ratio)) for one in rows[:MOST_ROWS]]
    _table(console, ["", "A", "B", "B / A", "95 % interval", ""], cells)
    if len(rows) > MOST_ROWS:
        note(console, f"{len(rows) - MOST_ROWS} more in --json.", "dim")


def _items(view: Comparison, console: Console) -> None:
    found = view.items
    if not found.a and not found.b:
        return
    heading(console, "Items")
    note(console, f"Distinct items loaded: {found.a:,} in A, {found.b:,} in B.")
    if found.load.ratio is not None:
        ratio, interval, verdict = _ratio(found.load)
        note(
            console,
            f"The median item takes {units.duration(found.load.b)} instead of {units.duration(found.load.a)}: "
            f"{ratio} ({interval}), {verdict}.",
        )
    rows = found.rows[:MOST_ROWS]
    if rows:
        _table(
            console,
            ["slowest items", "A", "B"],
            [(one.item, units.duration(one.a_ns), units.duration(one.b_ns)) for one in rows],
        )


def _evaluation(view: Comparison, console: Console) -> None:
    rows = view.evaluation[:MOST_ROWS]
    if not rows:
        return
    heading(console, "Evaluation")
    columns = {
        "last in A": [one.a_last for one in rows],
        "last in B": [one.b_last for one in rows],
        "lowest in A": [one.a_low for one in rows],
        "lowest in B": [one.b_low for one in rows],
        "highest in A": [one.a_high for one in rows],
        "highest in B": [one.b_high for one in rows],
    }
    drawn = [TextColumn("", [one.name for one in rows], right=False, least=12)]
    drawn += [
        TextColumn(title, [units.MISSING if value is None else units.brief(value) for value in values], need=place // 2)
        for place, (title, values) in enumerate(columns.items())
    ]
    grid(console, drawn)
    if len(view.evaluation) > MOST_ROWS:
        note(console, f"{len(view.evaluation) - MOST_ROWS} more in --json.", "dim")


def _findings(view: Comparison, console: Console) -> None:
    found = view.findings
    lines = [f"new in B: {one.kind} ({one.severity}). {one.why}" for one in found.new]
    lines += [f"gone in B: {one.kind} ({one.severity}). {one.why}" for one in found.gone]
    lines += [f"in both: {one.kind} ({one.severity})." for one in found.both]
    if lines:
        heading(console, "Findings")
        items(console, lines)


def _settings(view: Comparison, console: Console) -> None:
    heading(console, "What else differs")
    if not view.settings:
        note(console, "No recorded difference.")
        return
    rows = view.settings
    grid(
        console,
        [
            TextColumn("", [one.name for one in rows], right=False),
            TextColumn("A", [shown(one.a) for one in rows], right=False, least=12),
            TextColumn("B", [shown(one.b) for one in rows], right=False, least=12),
        ],
    )


def draw_restarts(view: Restarts, console: Console) -> None:
    """The restarts inside one run."""
    count = max(Counter(one.rank for one in view.resume).values())
    console.print(Text(f"{view.run}: {units.plural(count, 'restart')}", "bold"))
    _resumes(console, view.resume)


def _resumes(console: Console, found: Sequence[Resume]) -> None:
    if found:
        heading(console, "Resume check")
        items(console, [line for one in found for line in one.text])


def draw_ranking(view: Ranking, console: Console) -> None:
    """Several runs."""
    console.print(Text(f"{len(view.ranking)} runs by {view.by}, against {view.baseline}", "bold"))
    rows = view.ranking
    styles = [SIGNS.get(one.verdict or "", "") for one in rows]
    grid(
        console,
        [
            TextColumn("run", [one.run for one in rows], right=False, least=16, keep_end=True),
            TextColumn(
                "verdict",
                ["baseline" if one.baseline else (one.verdict or "") for one in rows],
                right=False,
                styles=styles,
            ),
            TextColumn("median step", [units.duration(one.p50_ns) for one in rows]),
            TextColumn("B / A", ["" if one.ratio is None else f"{one.ratio:.3f}" for one in rows]),
            TextColumn("95 % interval", [between(one.low, one.high) for one in rows], need=1),
            *_metric(view),
            TextColumn("finding", [one.finding or "" for one in rows], need=2, right=False),
        ],
    )


def _metric(view: Ranking) -> list[TextColumn]:
    """The column that they are ranked by, unless it is there in any case."""
    by = view.by
    if by in ("p50", "verdict"):
        return []
    if by in ("p10", "p95", "mean"):
        cells = [units.duration(getattr(one, f"{by}_ns")) for one in view.ranking]
    else:
        formatted = {"peak_rss": units.size, "input_wait_share": units.share}.get(by, units.number)
        cells = [formatted(getattr(one, by)) for one in view.ranking]
    return [TextColumn(by, cells)]
