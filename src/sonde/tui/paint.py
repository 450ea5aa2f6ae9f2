"""Draws the parts of the screen as text of a given width: pure functions of what is shown."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from sonde import units
from sonde.terminal.table import TextColumn, lines
from sonde.views.safe import printable, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sonde.views.watch import (
        Headline,
        LayerRow,
        LiveStepTime,
        MemoryNow,
        Opinion,
        PhaseShare,
        RankNow,
        SlowItemRow,
        WatchView,
    )

QUIET = "#7d8590"
STRONG = "bold #e6edf3"
ACCENT = "#7cc4ff"
WARN = "#f0b95b"
BAD = "#ff7b7b"
GOOD = "#7ee2a8"
LINE = "#4f7fc4"
DOT = " · "
NARROW = 74  # below this the legend does without times
BLOCKS = " ▁▂▃▄▅▆▇█"
SEVERITIES = {"info": GOOD, "warn": WARN, "critical": BAD}
STATES = {
    "running": ("●", GOOD),
    "starting": ("○", QUIET),
    "ended": ("■", QUIET),
    "died": ("✖", BAD),
    "gone": ("✖", BAD),
    "finished": ("■", QUIET),
    "crashed": ("✖", BAD),
    "killed": ("✖", BAD),
    "interrupted": ("■", WARN),
}


class PhaseStyle(NamedTuple):
    """How a phase is drawn: its colour, and the letter that stands for it where there are no colours."""

    colour: str
    letter: str


LOOKS = {
    "input wait": PhaseStyle("#f0b95b", "I"),
    "host to device": PhaseStyle("#c79bff", "H"),
    "forward": PhaseStyle("#6ea8fe", "F"),
    "backward": PhaseStyle("#38c6b4", "B"),
    "optimizer": PhaseStyle("#9bd46a", "O"),
    "communication": PhaseStyle("#ff7b9c", "C"),
    "checkpoint": PhaseStyle("#c08a5e", "K"),
    "evaluation": PhaseStyle("#b8c7e0", "E"),
    "untracked": PhaseStyle("#5b6472", "U"),
}
OTHER = PhaseStyle("#8b949e", "?")


# ── headline ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def headline(view: WatchView, width: int) -> Text:
    """Two lines: what runs and how it is; how far it got and how fast."""
    head = view.headline
    return Text("\n").join([_first_line(head, width), _fitting(_facts(head), width)])


def verdict(view: WatchView, width: int, rows: int = 1) -> Text:
    """What is wrong and why; what to do first: each in so many rows at most."""
    found = view.verdict
    if found is None:
        return Text()
    kind = Text(f"{found.kind}  ", f"bold {SEVERITIES.get(found.severity, WARN)}").append(
        _age(found), f"not bold {QUIET}"
    )
    why = _below(kind, found.why, "not bold #c9d1d9", width, rows)
    return Text("\n").join([*why, *_below(Text("next  ", QUIET), found.next, STRONG, width, rows)])


def whole_verdict(view: WatchView, width: int, height: int) -> Text:
    """The verdict with every word of it."""
    found = view.verdict
    if found is None:
        return Text("No verdict yet. It updates every few seconds once there are steps.", QUIET)
    colour = SEVERITIES.get(found.severity, WARN)
    drawn = [Text(f"{found.kind}  ", f"bold {colour}").append(found.severity, colour).append(f"  {_age(found)}", QUIET)]
    drawn += [Text(), *_below(Text("why   ", QUIET), found.why, "#c9d1d9", width, height)]
    drawn += [Text(), *_below(Text("next  ", QUIET), found.next, STRONG, width, height)]
    return Text("\n").join(drawn)


def _age(found: Opinion) -> str:
    """How old a verdict is, in steps of 5 seconds: a text that changes each second is restless."""
    seconds = (found.age_ns or 0) // 5_000_000_000 * 5
    return f"{units.duration(seconds * 1_000_000_000)} ago  ".replace(".0 s", " s") if seconds else ""


HELP = (
    ("q", "close the screen; the program continues"),
    ("Ctrl-C", "interrupt the program if it was started here, else close the screen"),
    ("v", "show the full verdict"),
    ("o r m i l", "show only output, ranks, memory, items or layers"),
    ("Esc", "show everything"),
    ("up down PgUp PgDn End", "scroll the output"),
    ("?", "this help"),
)


def help_text(width: int) -> Text:
    """What each key does."""
    room = max(len(keys) for keys, _ in HELP) + 2
    drawn = [line for keys, what in HELP for line in _below(Text(f"{keys:{room}}", ACCENT), what, "#c9d1d9", width, 3)]
    return Text("\n").join([*drawn, Text(), Text("The verdict with its evidence: sonde report", QUIET)])


def _below(label: Text, sentence: str, style: str, width: int, rows: int) -> list[Text]:
    """A label, and beside it a sentence in at most so many rows, which begin below each other."""
    room = max(width - label.cell_len, 1)
    lines = textwrap.wrap(printable(sentence), room) or [""]
    shown = [*lines[: rows - 1], " ".join(lines[rows - 1 :])] if len(lines) > rows else lines
    edges = [label, *[Text(" " * label.cell_len)] * (len(shown) - 1)]
    return [edge + Text(shorten(line, room), style) for edge, line in zip(edges, shown, strict=True)]


def _first_line(head: Headline, width: int) -> Text:
    sign, colour = STATES.get(head.word.split()[0], ("?", WARN))
    right = Text.assemble((f"{sign} {printable(head.word)}", colour))
    right.append(f"  {clock(head.elapsed_ns)}", STRONG)
    room = max(width - right.cell_len - 2, 8)
    left = Text.assemble((shorten(printable(head.name), room), STRONG))
    command = printable(head.command)
    if command and room - left.cell_len > 12:
        left.append("  " + shorten(command, room - left.cell_len - 2), QUIET)
    left.append(" " * max(width - left.cell_len - right.cell_len, 1))
    return left + right


def _facts(head: Headline) -> list[Text]:
    facts = [_fact("step", units.count(head.step))]
    if head.epoch is not None:
        of = "" if head.batch is None or head.batches is None else f" {head.batch:,}/{head.batches:,}"
        left = "" if head.epoch_left_ns is None else f", {clock(head.epoch_left_ns)} left"
        facts.append(_fact("epoch", f"{units.count(head.epoch)}{of}{left if head.state == 'recording' else ''}"))
    facts.append(_fact("loss", units.MISSING if head.loss is None else units.brief(head.loss)))
    facts.append(_fact("", f"{units.rate(head.steps_per_s)} steps/s"))
    facts.append(_fact("", f"{units.rate(head.samples_per_s)} samples/s"))
    if head.ranks > 1:
        facts.append(_fact("", units.plural(head.ranks, "rank")))
    if head.workers:
        facts.append(_fact("", units.plural(head.workers, "worker")))
    if head.deep:
        facts.append(_fact("", "deep"))
    return facts


def _fact(name: str, value: str) -> Text:
    return Text.assemble(
        (f"{name} " if name else "", QUIET), (value, QUIET if value.startswith(units.MISSING) else STRONG)
    )


def _fitting(facts: list[Text], width: int) -> Text:
    """As many facts as fit, the first ones first."""
    line = Text(no_wrap=True)
    for fact in facts:
        gap = len(DOT) if line.plain else 0
        if line.cell_len + gap + fact.cell_len > width:
            break
        line.append(DOT if gap else "", QUIET)
        line.append_text(fact)
    return line


def clock(ns: int | None) -> str:
    """`0:00:41`, `3:12:09`, `2 d 03:12`."""
    if ns is None:
        return units.MISSING
    seconds = max(0, ns) // 1_000_000_000
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    return f"{days} d {hours:02}:{minutes:02}" if days else f"{hours}:{minutes:02}:{seconds % 60:02}"


# ── step time ────────────────────────────────────────────────────────────────────────────────────────────────────────


def step_time(view: WatchView, width: int, *, rows: int, coloured: bool, short: bool = False) -> Text:
    """Percentiles, the stacked bar with its legend, and the history in `rows` rows. `short`: one row of legend."""
    found = view.step_time
    if not found.steps:
        return _waiting(view)
    drawn = [_percentiles(found, width), bar(found.parts, width, coloured=coloured)]
    by_share = sorted(found.parts, key=lambda part: -part.share)
    drawn += legend(by_share, width, coloured=coloured)[:1] if short else legend(found.parts, width, coloured=coloured)
    if rows:
        drawn += _history(found, width, rows) + _losses(found, width, max(rows - 1, 1))
    return Text("\n").join(drawn)


def _waiting(view: WatchView) -> Text:
    if view.headline.state in ("ended", "died", "gone"):
        return Text("No training steps recorded.", QUIET)
    return Text("Waiting for the first training step to finish.", QUIET)


def _percentiles(found: LiveStepTime, width: int) -> Text:
    facts = [
        _fact("mean", units.duration(found.mean_ns)),
        _fact("p50", units.duration(found.p50_ns)),
        _fact("p95", units.duration(found.p95_ns)),
        _fact("p99", units.duration(found.p99_ns)),
        _fact("max", units.duration(found.max_ns)),
    ]
    return _fitting(facts, width)


def steps_title(found: LiveStepTime) -> str:
    """What the numbers of the panel are about."""
    if not found.steps:
        return "step time"
    warmup = f", without {found.warmup} of warm-up" if found.warmup else ""
    return f"step time{DOT}newest {units.plural(found.steps, 'step')}{warmup}"


def bar(parts: Sequence[PhaseShare], width: int, *, coloured: bool) -> Text:
    """One line in which each phase has as many cells as its share is large."""
    line = Text(no_wrap=True)
    for part, cells in zip(parts, shares([part.share for part in parts], width), strict=True):
        look = LOOKS.get(part.name, OTHER)
        line.append(("█" if coloured else look.letter) * cells, look.colour)
    return line


def shares(values: Sequence[float], width: int) -> list[int]:
    """Whole cells for each value, `width` in total: rounded down, and what is left to those that lost the most."""
    total = sum(values)
    if total <= 0:
        return [0] * len(values)
    exact = [value / total * width for value in values]
    cells = [int(one) for one in exact]
    behind = sorted(range(len(values)), key=lambda index: cells[index] - exact[index])
    for index in behind[: width - sum(cells)]:
        cells[index] += 1
    return cells


def legend(parts: Sequence[PhaseShare], width: int, *, coloured: bool) -> list[Text]:
    """What each colour means, with share and time, in as many lines as it takes."""
    entries = [_entry(part, coloured=coloured, times=width >= NARROW) for part in parts]
    widest = max((entry.cell_len for entry in entries), default=0)
    columns = max(1, (width + 3) // (widest + 3))
    found: list[Text] = []
    for first in range(0, len(entries), columns):
        line = Text(no_wrap=True)
        for entry in entries[first : first + columns]:
            line.append_text(entry)
            line.append(" " * (widest + 3 - entry.cell_len))
        line.rstrip()
        found.append(line)
    return found


def _entry(part: PhaseShare, *, coloured: bool, times: bool) -> Text:
    look = LOOKS.get(part.name, OTHER)
    sign = "■" if coloured else look.letter
    entry = Text.assemble((f"{sign} ", look.colour), f"{part.name:<14}", (f"{units.share(part.share):>7}", STRONG))
    return entry.append(f"{units.duration(part.ns):>9}", QUIET) if times else entry


def _history(found: LiveStepTime, width: int, rows: int) -> list[Text]:
    values = found.history
    top = max((value for value in values if value is not None), default=0.0)
    label = f"{units.duration(top)} {found.history_of}".rstrip()
    room = max(width - len(label) - 1, 1)
    drawn = spark(values, room, rows, top)
    drawn[0].append(" " * (room - drawn[0].cell_len + 1) + label, QUIET)
    drawn[-1].append(" " * (room - drawn[-1].cell_len + 1) + "0" if rows > 1 else "", QUIET)
    return drawn


def _losses(found: LiveStepTime, width: int, rows: int) -> list[Text]:
    """The history of the loss, drawn from its lowest to its highest value."""
    known = [value for value in found.losses if value is not None]
    if len(known) < 2:
        return []
    low, high = min(known), max(known)
    label = f"loss {low:.3g} to {high:.3g}"
    room = max(width - len(label) - 1, 1)
    drawn = spark([None if value is None else value - low for value in found.losses], room, rows, high - low)
    drawn[0].append(f" {label}", QUIET)
    return drawn


def spark(values: Sequence[float | None], width: int, rows: int, top: float) -> list[Text]:
    """The newest values as columns of `rows` cells, the newest at the right end; where there is none, nothing."""
    shown = list(values)[-width:]
    levels = [_level(value, top, rows) for value in shown]
    found: list[Text] = []
    for row in reversed(range(rows)):
        cells = [BLOCKS[min(max(level - row * 8, 0), 8)] for level in levels]
        found.append(Text.assemble((" " * (width - len(cells)) + "".join(cells), LINE)))
    return found


def _level(value: float | None, top: float, rows: int) -> int:
    """Eighths of a cell; what is there is never nothing."""
    if value is None:
        return 0
    return max(1, round(value / top * rows * 8)) if top > 0 else 1


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def memory(view: WatchView, width: int, height: int) -> Text:
    """Processes and the host: what they hold, and of how much."""
    rows = view.memory[:height]
    if not rows:
        return Text("No memory samples yet.", QUIET)
    columns = [
        TextColumn("", [one.who for one in rows], right=False, least=16),
        TextColumn("used", [units.size(one.used) for one in rows], styles=[STRONG] * len(rows)),
        TextColumn("peak", [units.size(one.peak) for one in rows], need=2),
        TextColumn("limit", [_limit(one) for one in rows], need=1, styles=[_pressure(one) for one in rows]),
        TextColumn("cpu", [_busy(one) for one in rows], need=3),
    ]
    if any(one.device is not None for one in rows):
        columns.append(TextColumn("device", [units.size(one.device) for one in rows], need=4))
        columns.append(TextColumn("device peak", [units.size(one.device_peak) for one in rows], need=5))
    return _table(columns, width, height, len(view.memory))


def _busy(one: MemoryNow) -> str:
    if one.cpu is not None:
        return f"{one.cpu:.2f} cores"
    return units.MISSING if one.load is None else f"{one.load:.0%}".replace("%", " % of all")


def _limit(one: MemoryNow) -> str:
    if one.limit is None:
        return units.MISSING
    share = "" if one.used is None else f"{units.share(one.used / one.limit)} of "
    return f"{share}{units.size(one.limit)}"


def _pressure(one: MemoryNow) -> str:
    if one.limit is None or one.used is None:
        return QUIET
    return BAD if one.used > 0.95 * one.limit else WARN if one.used > 0.85 * one.limit else ""


def ranks_title(view: WatchView) -> str:
    """The median over the ranks, and the slowest of them."""
    known = sorted(one.p50_ns for one in view.ranks if one.p50_ns is not None)
    if len(known) < 2:
        return "ranks"
    worst = next((one for one in view.ranks if one.worst), None)
    middle = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2
    slow = f"{DOT}slowest is rank {worst.rank}, {units.duration(worst.p50_ns)}" if worst is not None else ""
    return f"ranks{DOT}median {units.duration(middle)}{slow}"


def ranks(view: WatchView, width: int, height: int) -> Text:
    """One row for each rank, the slowest marked; with many ranks the slowest come first."""
    rows = view.ranks
    if not rows:
        return Text("No rank has trained yet.", QUIET)
    if len(rows) > height - 1:
        rows = sorted(rows, key=lambda one: -(one.p50_ns or 0))
    rows = rows[: max(height - 1, 1)]
    columns = [
        TextColumn("rank", ["main" if one.rank is None else str(one.rank) for one in rows]),
        TextColumn("state", [one.state for one in rows], right=False, need=4, styles=[_state(one) for one in rows]),
        TextColumn("step", [units.count(one.step) for one in rows]),
        TextColumn(
            "p50", [units.duration(one.p50_ns) for one in rows], styles=[WARN if one.worst else STRONG for one in rows]
        ),
        TextColumn("p95", [units.duration(one.p95_ns) for one in rows], need=3),
        TextColumn(
            "of median", [_times(one) for one in rows], need=2, styles=[WARN if one.worst else "" for one in rows]
        ),
        TextColumn("most time in", [_largest(one) for one in rows], right=False, need=5, least=12),
        TextColumn("memory", [units.size(one.rss) for one in rows], need=6),
    ]
    return _table(columns, width, height, len(view.ranks))


def _state(one: RankNow) -> str:
    return STATES.get(one.state, ("", WARN))[1]


def _times(one: RankNow) -> str:
    return units.MISSING if one.slow is None else f"{one.slow:.2f}x{' slowest' if one.worst else ''}"


def _largest(one: RankNow) -> str:
    part = max(one.parts, key=lambda part: part.share, default=None)
    return units.MISSING if part is None else f"{part.name} {units.share(part.share)}"


def items(view: WatchView, width: int, height: int) -> Text:
    """The slowest items of the datasets."""
    rows = view.items.slowest[: max(height - 1, 1)]
    if not rows:
        return Text("No items yet." if not view.items.seen else "No slow items yet.", QUIET)
    several = len({one.rank for one in rows}) > 1
    columns = [
        TextColumn(
            "item",
            [units.text(one.index) for one in rows],
            styles=[STRONG] * len(rows),
        ),
        TextColumn("took", [units.duration(one.ns) for one in rows]),
        TextColumn(
            "of median", [units.MISSING if one.times is None else units.times(one.times) for one in rows], need=1
        ),
        TextColumn("worker", [_worker(one) for one in rows], need=2),
        TextColumn("batch", [units.text(one.batch) for one in rows], need=3),
    ]
    if several:
        columns.append(TextColumn("rank", [units.text(one.rank) for one in rows], need=4))
    return _table(columns, width, height, len(rows))


def _worker(one: SlowItemRow) -> str:
    return "main" if one.worker is None else str(one.worker)


def items_title(view: WatchView) -> str:
    """How many items there were, and how long one usually takes."""
    found = view.items
    if not found.seen:
        return "slowest items"
    return f"slowest items{DOT}{units.count(found.seen)} seen{DOT}median {units.duration(found.p50_ns)}"


def layers(view: WatchView, width: int, height: int) -> Text:
    """The layers that take the most time."""
    rows = view.layers[: max(height - 1, 1)]
    if not rows:
        return Text("No layers yet." if view.headline.deep else "Record layers with --deep.", QUIET)
    columns = [
        TextColumn("layer", [one.name for one in rows], right=False, least=10),
        TextColumn("type", [one.type for one in rows], right=False, need=6),
        TextColumn("share", [_seen(one, units.share(one.share)) for one in rows], styles=[STRONG] * len(rows)),
        TextColumn("forward", [_seen(one, units.duration(one.forward_ns)) for one in rows], need=1),
        TextColumn("backward", [_seen(one, units.duration(one.backward_ns)) for one in rows], need=2),
        TextColumn("activation", [units.size(one.activation) for one in rows], need=3),
        TextColumn("parameters", [units.size(one.parameters) for one in rows], need=4),
        TextColumn("gradients", [units.size(one.gradients) for one in rows], need=5),
    ]
    return _table(columns, width, height, len(view.layers))


def _seen(one: LayerRow, text: str) -> str:
    return text if one.visible else "not visible"


def _table(columns: list[TextColumn], width: int, height: int, total: int) -> Text:
    drawn = lines(columns, width, title_style=QUIET)
    if len(drawn) > height > 1:
        drawn = drawn[: height - 1]
        drawn.append(Text(f"and {total - len(drawn) + 1} more", QUIET))
    return Text("\n").join(drawn[:height])


# ── notices and keys ─────────────────────────────────────────────────────────────────────────────────────────────────


def notices(view: WatchView, width: int, most: int) -> Text:
    """What should be known beside the numbers, a line each."""
    shown = [Text(shorten(f"! {printable(one)}", width), WARN) for one in view.notices[:most]]
    if len(view.notices) > most:
        shown[-1] = Text(f"! and {len(view.notices) - most + 1} more notices: sonde show {view.id}", WARN)
    return Text("\n").join(shown)


def keys(names: Sequence[tuple[str, str]], chosen: str | None, width: int) -> Text:
    """What can be pressed; what does not fit is left out from the right."""
    line = Text(no_wrap=True)
    for key, name in names:
        entry = Text.assemble((key, f"bold {ACCENT}"), (f" {name}", STRONG if name == chosen else QUIET))
        if line.cell_len + 2 + cell_len(entry.plain) > width:
            break
        line.append("  " if line.plain else "")
        line.append_text(entry)
    return line
