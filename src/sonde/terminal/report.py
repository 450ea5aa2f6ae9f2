"""Draws a report in a terminal: a card that is read in ten seconds, at most 100 columns wide, or narrow."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from sonde import units
from sonde.terminal.hosts import MOST as MOST_HOSTS, attempt_columns, clock_columns
from sonde.terminal.layout import INDENT, MARGIN, block
from sonde.terminal.table import TextColumn, lines
from sonde.views import hosts as hosts_words, loader as loader_words
from sonde.views.report import MemoryRow, PhaseRow, RankRow, Report, SlowStep, Verdict, newest_attempt, rank_name
from sonde.views.safe import printable, shorten
from sonde.views.words import (
    black_box_line,
    deep_line,
    first_step_line,
    flops_line,
    hard_items_line,
    item_name,
    measured,
    notable_items,
    own_cost,
    phase_name,
    slowest_items,
    value_at,
)

WIDEST = 100
NARROW = 60
MOST_FINDINGS = 4  # beside the verdict
MOST_RANKS = 8
MOST_MEMORY = 6
MOST_HARD = 5
MOST_LAYERS = 6
MOST_METRICS = 6
LONG_START_NS = 1e9  # before the first step: from then on it is shown
BAR = 24  # cells
LABEL = 7  # cells of "why", "next" and the like
STYLES = {"critical": "bold white on red", "warn": "bold black on yellow", "info": "bold black on green"}
COLOURS = {"critical": "red", "warn": "yellow", "info": "green"}
PHASE_COLOURS = {
    "input_wait": "yellow",
    "h2d": "bright_yellow",
    "forward": "blue",
    "backward": "bright_blue",
    "optimizer": "cyan",
    "communication": "magenta",
    "checkpoint": "bright_magenta",
    "evaluation": "green",
    "residual": "bright_black",
}


def draw_card(view: Report, console: Console, *, narrow: bool = False) -> None:
    """The whole card. On a narrow terminal, or if that is wanted, in one column."""
    console.width = min(console.width, NARROW if narrow else WIDEST)
    _head(view, console)
    _verdict(view.verdict, console)
    _others(view.findings[1:], console)
    if view.black_box.command is not None:
        console.print()
        block(console, Text(printable(black_box_line(view))), hang=LABEL)
    _step_time(view, console)
    _loader(view, console)
    _ranks(newest_attempt(view.ranks), console, view.run.trainings > 1)
    _attempts(view, console)
    _hosts(view, console)
    _memory(view.memory, console)
    _evaluation(view, console)
    _slowest(view, console)
    _items(view, console)
    _hard_items(view, console)
    _layers(view, console)
    _foot(view, console)


def _title(console: Console, title: str, rest: str = "") -> None:
    console.print()
    line = Text(title.upper(), "bold cyan")
    if rest:
        line.append(f"  {shorten(printable(rest), max(console.width - len(title) - 2, 0))}", "not bold dim")
    console.print(line, no_wrap=True)


def _grid(console: Console, columns: list[TextColumn]) -> None:
    for line in lines(columns, console.width - INDENT):
        console.print(Text(MARGIN) + line, no_wrap=True, overflow="crop")


# ── the first ten seconds ────────────────────────────────────────────────────────────────────────────────────────────


def _head(view: Report, console: Console) -> None:
    run = view.run
    line = Text(shorten(printable(run.name), 40), "bold")
    line.append(f"  {printable(run.id)}", "dim")
    line.truncate(console.width, overflow="ellipsis")
    console.print(line, no_wrap=True)
    facts = [
        printable(run.ended),
        units.duration(run.dur_ns),
        units.plural(hosts_words.steps_done(view.goodput) or view.steps.count + view.steps.warmup, "step"),
        *_people(view),
        *_speed(view),
    ]
    for line in Text(" · ".join(facts), "dim").wrap(console, console.width):
        line.rstrip()
        console.print(line)


def _speed(view: Report) -> list[str]:
    found = []
    if view.steps.per_s is not None:
        found.append(f"{units.rate(view.steps.per_s)} steps/s")
    if view.steps.samples_per_s is not None:
        found.append(f"{units.rate(view.steps.samples_per_s)} samples/s")
    if view.tokens is not None and view.tokens.per_s is not None:
        padding = view.tokens.padding
        told = "" if padding is None else f" ({units.share(padding)} padding)"
        found.append(f"{units.rate(view.tokens.per_s)} tokens/s{told}")
    if view.flops is not None:
        found.append(flops_line(view.flops))
    if view.energy is not None:
        found.append(f"{units.joules(view.energy.per_step_j)} per step")
    if view.steps.loss is not None:
        parts = view.steps.loss_parts
        found.append(f"loss {units.brief(view.steps.loss)}" + (f" (mean of {parts} backward passes)" if parts else ""))
    return found


def _people(view: Report) -> list[str]:
    run = view.run
    ranks = [] if run.world_size is None or run.world_size < 2 else [f"{run.ranks} of {run.world_size} ranks"]
    if run.trainings > 1:
        ranks.append(f"{run.trainings} separate trainings")
    if view.goodput is not None:
        ranks.append(units.plural(len(view.goodput.attempts), "attempt"))
    return [*ranks, units.plural(len(run.hosts), "host")] if len(run.hosts) > 1 else ranks


def _verdict(verdict: Verdict, console: Console) -> None:
    console.print()
    line = Text(MARGIN)
    line.append(f" {verdict.kind} ", STYLES.get(verdict.severity, "bold reverse"))
    line.append(f"  {verdict.severity}, {verdict.confidence:.0%} sure".replace("%", " %"), "dim")
    console.print(line, no_wrap=True)
    _labelled(console, "why", verdict.why)
    _labelled(console, "next", verdict.next, "bold")


def _labelled(console: Console, label: str, text: str, style: str = "", label_style: str = "dim") -> None:
    line = Text.assemble((f"{label:{LABEL}}", label_style), (printable(text), style))
    block(console, line, hang=LABEL)


def _others(findings: Sequence[Verdict], console: Console) -> None:
    if not findings:
        return
    console.print()
    for one in findings[:MOST_FINDINGS]:
        line = Text.assemble(
            (f"{'also':{LABEL}}", "dim"), (one.kind, COLOURS.get(one.severity, "")), f"  {printable(one.why)}"
        )
        block(console, line, hang=LABEL)
    if len(findings) > MOST_FINDINGS:
        _labelled(
            console, "", f"and {units.plural(len(findings) - MOST_FINDINGS, 'more finding')}: --json has all", "dim"
        )


# ── step time ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _step_time(view: Report, console: Console) -> None:
    steps = view.steps
    if not steps.count and not steps.warmup:
        return
    subtitle = f"{units.plural(steps.count, 'step')} after warm-up"
    if len(view.ranks) > 1:
        subtitle += f", {view.run.ranks} {'trainings' if view.run.trainings > 1 else 'ranks'} together"
    subtitle += "; shares of their total time"
    if steps.aborted:
        subtitle += f"; {steps.aborted:,} aborted, not counted"
    _title(console, "step time", subtitle)
    phases = view.phases
    names = ["step", *(phase_name(one.phase) for one in phases)]
    styles = ["bold", *(PHASE_COLOURS[one.phase] for one in phases)]
    columns = [
        TextColumn("", names, right=False, styles=["bold"] + [""] * len(phases)),
        TextColumn("", _bars(phases, console.width), need=4, right=False, styles=styles),
        TextColumn("share", ["", *(units.share(one.share) for one in phases)]),
        _points("p50", steps.p50_ns, [one.p50_ns for one in phases], 0),
        _points("p95", steps.p95_ns, [one.p95_ns for one in phases], 3),
        _points("p99", steps.p99_ns, [one.p99_ns for one in phases], 1),
        _points("warm-up", steps.warmup_p50_ns, [one.warmup_p50_ns for one in phases], 2),
        *_device(phases),
        *_in_steps(phases, steps.count),
    ]
    _grid(console, columns)
    if steps.startup:
        block(console, Text(f"start-up  {start_up(view)}"), hang=len("start-up  "))
    if view.first_step is not None and view.first_step.ns >= LONG_START_NS:
        block(console, Text(f"first step  {first_step_line(view.first_step)}"), hang=len("first step  "))
    if steps.evaluated_after_ns is not None:
        block(console, Text(f"evaluation after the last step: {units.duration(steps.evaluated_after_ns)}"), hang=2)


def start_up(view: Report) -> str:
    """What the first calls cost, in a sentence."""
    found = view.steps.startup
    first = ", ".join(
        f"{phase_name(one.phase)} {units.duration(one.first_ns)} (later {units.duration(one.later_ns)})"
        for one in found
    )
    return f"first {first}: compiling, caches or other lazy work"


def _points(title: str, whole: float | None, parts: list[float | None], need: int) -> TextColumn:
    cells = [units.duration(ns) for ns in (whole, *parts)]
    return TextColumn(title, cells, need=need, styles=["bold"] + [""] * len(parts))


def _device(phases: list[PhaseRow]) -> list[TextColumn]:
    """What a device took for the phases, where there is one."""
    if all(one.device_ns is None for one in phases):
        return []
    return [
        TextColumn(
            "device",
            ["", *("" if one.device_ns is None else units.duration(one.device_ns) for one in phases)],
            need=1,
        )
    ]


def _in_steps(phases: list[PhaseRow], count: int) -> list[TextColumn]:
    """In how many steps a phase was, if that is not all of them: percentiles are over these."""
    if all(one.steps >= count for one in phases):
        return []
    cells = ["", *(units.count(one.steps) if one.steps < count else "" for one in phases)]
    return [TextColumn("in steps", cells, need=5, styles=["dim"] * len(cells))]


def _bars(phases: list[PhaseRow], width: int) -> list[str]:
    room = BAR if width >= 80 else BAR // 2
    return ["", *("█" * round((one.share or 0) * room) or ("▏" if one.share else "") for one in phases)]


WAITING = {"INPUT_BOUND", "INPUT_STRAGGLER", "WORKER_STARTUP", "SLOW_ITEMS"}


def _loader(view: Report, console: Console) -> None:
    """How batches come to the training, if something is wrong with that."""
    found = view.loader
    if found is None or not WAITING & {one.kind for one in view.findings}:
        return
    _title(console, "loader", f"{loader_words.setting_line(found)}; {units.duration(found.ns)} for each batch")
    columns = [
        TextColumn("", [one.name for one in found.stages], right=False, styles=["bold" if one.name == found.limit else "" for one in found.stages]),
        TextColumn("each batch", [units.duration(one.ns) for one in found.stages]),
        TextColumn("without it", [loader_words.gain(one) for one in found.stages], need=1),
    ]  # fmt: skip
    _grid(console, columns)
    said = {
        "ready": loader_words.ready_line(found),
        "what if": loader_words.what_if_line(found) or loader_words.why_not(found),
    }
    for name, text in said.items():
        if text is not None:
            block(console, Text.assemble((f"{name:9}", "dim"), text), hang=9)


# ── ranks and memory ─────────────────────────────────────────────────────────────────────────────────────────────────


def _ranks(ranks: list[RankRow], console: Console, apart: bool) -> None:
    if len(ranks) < 2:
        return
    shown = _notable(ranks)
    _title(
        console,
        *(("trainings", "separate processes without ranks") if apart else ("ranks", _summary(ranks))),
    )
    hosts = len({one.host for one in ranks}) > 1
    columns = [
        TextColumn(
            "",
            [rank_name(one, True) for one in shown],
            right=False,
            styles=["bold" if one.worst else "" for one in shown],
        ),
        TextColumn("host", [one.host for one in shown] if hosts else [""] * len(shown), need=5, right=False, least=6),
        TextColumn("steps", [units.count(one.steps) for one in shown], need=2),
        TextColumn("p50", [units.duration(one.p50_ns) for one in shown]),
        TextColumn("p95", [units.duration(one.p95_ns) for one in shown], need=4),
        TextColumn("own time", [units.duration(one.own_ns) for one in shown]),
        TextColumn("", [_slower(one) for one in shown], styles=["red" if one.worst else "dim" for one in shown]),
        TextColumn("largest", [_largest(one) for one in shown], need=3, right=False),
        TextColumn(
            "state", [f"{one.state} ({one.how})" if one.how else one.state for one in shown], need=1, right=False
        ),
    ]
    _grid(console, [column for column in columns if column.title != "host" or hosts])
    if len(ranks) > len(shown):
        block(console, Text(f"and {len(ranks) - len(shown)} more; --json has all", "dim"), hang=INDENT)


def _attempts(view: Report, console: Console) -> None:
    if view.goodput is None:
        return
    _title(console, "attempts", hosts_words.goodput_line(view.goodput))
    _grid(console, attempt_columns(view.goodput))
    advice = hosts_words.goodput_advice(view.goodput)
    if advice is not None:
        block(console, Text(advice, "dim"), hang=INDENT)
    if len(view.goodput.attempts) > MOST_HOSTS:
        block(
            console, Text(f"and {len(view.goodput.attempts) - MOST_HOSTS} before; --json has all", "dim"), hang=INDENT
        )


def _hosts(view: Report, console: Console) -> None:
    if not hosts_words.has_clocks(view.hosts):
        return
    _title(console, "hosts", hosts_words.CLOCKS if len(view.hosts) > 1 else "")
    _grid(console, clock_columns(view.hosts))
    if len(view.hosts) > MOST_HOSTS:
        block(console, Text(f"and {len(view.hosts) - MOST_HOSTS} more; --json has all", "dim"), hang=INDENT)


def _notable(ranks: list[RankRow]) -> list[RankRow]:
    """All of a few ranks; of many the slowest, in their order."""
    if len(ranks) <= MOST_RANKS:
        return ranks
    slowest = sorted(range(len(ranks)), key=lambda place: -(ranks[place].own_ns or 0))[:MOST_RANKS]
    return [ranks[place] for place in sorted(slowest)]


def _summary(ranks: list[RankRow]) -> str:
    known = sorted(one.p50_ns for one in ranks if one.p50_ns is not None)
    if not known:
        return ""
    middle = known[(len(known) - 1) // 2]
    worst = next((one for one in ranks if one.worst), None)
    subtitle = f"slowest {rank_name(worst, True)}, {worst.slow:.2f}x" if worst and worst.slow else "no slow rank"
    return f"median {units.duration(middle)}, {subtitle}"


def _slower(one: RankRow) -> str:
    return "" if one.slow is None else f"{one.slow:.2f}x"


def _largest(one: RankRow) -> str:
    if not one.phases:
        return units.MISSING
    phase = max(one.phases, key=lambda name: one.phases[name])
    return f"{phase_name(phase)} {units.duration(one.phases[phase])}"


def _memory(memory: list[MemoryRow], console: Console) -> None:
    if not memory:
        return
    shown = sorted(memory, key=lambda one: one.limit is None and -(one.peak or 0))[: MOST_MEMORY + 2]
    shown = [one for one in memory if one in shown]
    _title(console, "memory")
    several = len({one.host for one in memory}) > 1
    _grid(
        console,
        [
            TextColumn("", [_holder(one) for one in shown], right=False, least=12),
            *([TextColumn("host", [one.host for one in shown], need=1, right=False)] if several else []),
            TextColumn("after warm-up", [units.size(one.first) for one in shown], need=2),
            TextColumn("last", [units.size(one.last) for one in shown]),
            TextColumn("peak", [units.size(one.peak) for one in shown]),
            TextColumn("limit", [units.size(one.limit) if one.limit is not None else "" for one in shown], need=3),
        ],
    )
    if len(memory) > len(shown):
        block(console, Text(f"and {len(memory) - len(shown)} more; --json has all", "dim"), hang=INDENT)


def _evaluation(view: Report, console: Console) -> None:
    shown = view.evaluation[:MOST_METRICS]
    if not shown:
        return
    _title(console, "evaluation")
    _grid(
        console,
        [
            TextColumn("", [printable(one.name) for one in shown], right=False, least=12),
            TextColumn("first", [units.brief(one.first) for one in shown], need=2),
            TextColumn("last", [units.brief(one.last) for one in shown]),
            TextColumn("lowest", [value_at(one.low, one.low_step) for one in shown], need=1),
            TextColumn("highest", [value_at(one.high, one.high_step) for one in shown], need=1),
            TextColumn("times", [units.count(one.count) for one in shown], need=3),
        ],
    )
    if len(view.evaluation) > len(shown):
        block(console, Text(f"and {len(view.evaluation) - len(shown)} more; --json has all", "dim"), hang=INDENT)


def _holder(one: MemoryRow) -> str:
    return one.who if one.what in ("rss", "used") else f"{one.who}, device {one.what}"


# ── the slowest ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _slowest(view: Report, console: Console) -> None:
    slowest = view.steps.slowest
    if not slowest:
        return
    _title(console, "slowest steps")
    several = len(view.ranks) > 1 and any(one.rank is not None for one in slowest)
    columns = [
        TextColumn("step", [units.count(one.step) for one in slowest]),
        TextColumn("rank", [units.text(one.rank) for one in slowest], need=3),
        TextColumn("took", [units.duration(one.dur_ns) for one in slowest]),
        TextColumn(
            "",
            ["" if one.times is None else units.times(one.times) for one in slowest],
            need=4,
            styles=["dim"] * len(slowest),
        ),
        TextColumn("mostly", [_extra(one) for one in slowest], need=1, right=False),
        TextColumn("slowest items", [_culprits(one) for one in slowest], need=2, right=False, least=18),
    ]
    if not several:
        columns = [column for column in columns if column.title != "rank"]
    if not any(map(notable_items, slowest)):
        columns = columns[:-1]
    _grid(console, columns)


def _extra(one: SlowStep) -> str:
    if one.phase is None or one.extra_ns is None or one.extra_ns <= 0:
        return units.MISSING
    return f"{phase_name(one.phase)} +{units.duration(one.extra_ns)}"


def _culprits(one: SlowStep) -> str:
    """`8412 (1.90 s, worker 2), 17 (3.02 ms)`: the items that count in a step that took so long."""
    found = []
    for item in notable_items(one):
        worker = "" if item.worker is None else f", worker {item.worker}"
        found.append(item.name if item.dur_ns is None else f"{item.name} ({units.duration(item.dur_ns)}{worker})")
    return ", ".join(found)


def _items(view: Report, console: Console) -> None:
    found = view.items
    if not found.seen or found.p50_ns is None or not found.slowest:
        return
    subtitle = f"{units.count(found.seen)} seen, median {units.duration(found.p50_ns)}, p99 {units.duration(found.p99_ns)}, max {units.duration(found.max_ns)}"
    _title(console, "items", subtitle)
    block(console, Text.assemble(("slowest  ", "dim"), printable(slowest_items(found))), hang=9)


def _hard_items(view: Report, console: Console) -> None:
    for found in view.hard_items:
        _title(console, f"hardest items: {printable(found.name)}", hard_items_line(found))
        shown = found.hardest[:MOST_HARD]
        if shown:
            _grid(
                console,
                [
                    TextColumn("item", [item_name(one.index, one.id) for one in shown], right=False, least=8),
                    TextColumn("mean", [measured(one.mean) for one in shown]),
                    TextColumn("highest", [measured(one.highest) for one in shown], need=3),
                    TextColumn("latest", [measured(one.latest) for one in shown], need=2),
                    TextColumn("times", [units.count(one.times) for one in shown], need=1),
                    TextColumn("not finite", [units.count(one.nonfinite) for one in shown], need=4),
                ],
            )


def _layers(view: Report, console: Console) -> None:
    shown = view.layers[:MOST_LAYERS]
    if not shown:
        return
    _title(console, "layers", f"{units.plural(len(view.layers), 'layer')}, mean per step")
    _grid(
        console,
        [
            TextColumn("", [one.layer or "(the model)" for one in shown], right=False, least=14),
            TextColumn("type", [one.type or units.MISSING for one in shown], need=3, right=False, least=8),
            TextColumn("share", [units.share(one.share) for one in shown], need=1),
            TextColumn("forward", [units.duration(one.forward_ns) for one in shown]),
            TextColumn("backward", [units.duration(one.backward_ns) for one in shown]),
            TextColumn("activations", [units.size(one.activation_bytes) for one in shown], need=4),
            TextColumn("parameters", [units.size(one.parameter_bytes) for one in shown], need=5),
        ],
    )


# ── what stands below ────────────────────────────────────────────────────────────────────────────────────────────────


def _foot(view: Report, console: Console) -> None:
    _title(console, "about this recording")
    _labelled(console, "cost", own_cost(view))
    for one in view.deepened:
        _labelled(console, "depth", deep_line(one))
    here = [one.what for one in view.blind_spots if one.scope == "run"]
    for text in here:
        _labelled(console, "unseen", text)
    _labelled(console, "limits", "known limitations of every run: sonde doctor", "dim")
    for drop in view.drops:
        _labelled(console, "lost", f"{units.records(drop.count)} {drop.reason}", "red")
    if not view.drops:
        _labelled(console, "lost", "no records")
    for note in view.run.notes:
        _labelled(console, "note", note, "yellow")
