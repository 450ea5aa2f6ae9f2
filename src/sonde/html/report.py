"""The page of a report: verdict first, then charts over the run, then what is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.html import charts as draw
from sonde.html.document import document
from sonde.html.flame import flame
from sonde.html.markup import bullets, safe, section, table, tag
from sonde.html.style import STYLE
from sonde.html.verdict import finding_box, verdict_box
from sonde.views import hosts as words, loader as loader_words
from sonde.views.charts import Line
from sonde.views.report import PhaseRow, RankRow, Report, SlowStep, newest_attempt, rank_name
from sonde.views.words import (
    black_box_line,
    deep_line,
    flops_line,
    hard_items_line,
    item_name,
    measured,
    notable_items,
    own_cost,
    phase_name,
    value_at,
)

if TYPE_CHECKING:
    from sonde.analysis.questions.hard import HardItem, HardItems
    from sonde.analysis.questions.items import StepItem
    from sonde.html.interactive import Interactive
    from sonde.views.charts import Charts

MOST_LAYERS = 40
MOST_RANKS = 32


def page(view: Report, charts: Charts, live: Interactive | None = None) -> str:
    """The whole file, in ASCII. `live`: charts that can be zoomed take the place of the drawn ones, where scripts run."""
    title = f"{view.verdict.kind}: {view.run.name}"
    if live is None:
        return document(title, "report", STYLE, _main(view, charts, in_place=False))
    content = _main(view, charts, in_place=True)
    return document(title, "report", STYLE + live.style, content, script=live.script, data=live.data)


def _main(view: Report, charts: Charts, *, in_place: bool) -> str:
    drawn = [_over_time(view, charts), _loss(charts), *([_memory_chart(charts), _usage(charts)] if in_place else [])]
    parts = [
        _head(view),
        verdict_box(view),
        "".join(finding_box(one) for one in view.findings[1:] if one.because != view.verdict.kind),
        _breakdown(view),
        _first_step(view),
        f'<div id="charts">{"".join(drawn)}</div>' if in_place else "".join(drawn),
        _loader(view),
        _sampled(view, charts),
        _evaluation(view, charts),
        _learning(charts),
        _ranks(view, charts),
        _host_heat(charts),
        _attempts(view),
        _hosts(view),
        _slowest(view),
        _items(view),
        "".join(map(_hard_items, view.hard_items)),
        _memory(view, None if in_place else charts),
        "" if in_place else _usage(charts),
        _layers(view),
        _foot(view),
    ]
    return "\n".join(part for part in parts if part)


# ── the head ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _head(view: Report) -> str:
    run, steps = view.run, view.steps
    facts = {
        "ended": run.ended,
        "ran": units.duration(run.dur_ns),
        "steps": units.count(words.steps_done(view.goodput) or steps.count + steps.warmup),
        "goodput": None if view.goodput is None else units.share(view.goodput.share),
        "median step": units.duration(steps.p50_ns),
        "steps/s": None if steps.per_s is None else units.rate(steps.per_s),
        "samples/s": None if steps.samples_per_s is None else units.rate(steps.samples_per_s),
        "tokens/s": None if view.tokens is None else units.rate(view.tokens.per_s),
        "padding": None if view.tokens is None or view.tokens.padding is None else units.share(view.tokens.padding),
        "operations": None if view.flops is None else flops_line(view.flops),
        "energy per step": None if view.energy is None else units.joules(view.energy.per_step_j),
        "last loss": None if steps.loss is None else units.brief(steps.loss),
        "ranks": None if (run.world_size or 1) < 2 else f"{run.ranks} of {run.world_size}",
        "separate trainings": None if run.trainings < 2 else units.count(run.trainings),
    }
    shown = "".join(
        tag("div", tag("b", safe(value)) + tag("span", safe(name)))
        for name, value in facts.items()
        if value is not None
    )
    started = f" &middot; {safe(run.started.replace('T', ' ').replace('Z', ' UTC'))}" if run.started else ""
    command = tag("p", safe(run.command), "id") if run.command else ""
    return tag(
        "header",
        tag("h1", safe(run.name)) + tag("p", safe(run.id) + started, "id") + command + tag("div", shown, "facts"),
    )


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _breakdown(view: Report) -> str:
    steps, phases = view.steps, view.phases
    if not phases:
        return ""
    whole = [(one.phase, one.share or 0.0) for one in phases]
    device = any(one.device_ns is not None for one in phases)
    rows = [
        [
            tag("b", "step"),
            "",
            *(tag("b", units.duration(ns)) for ns in (steps.p50_ns, steps.p95_ns, steps.p99_ns)),
            units.duration(steps.warmup_p50_ns),
            "",
            *[""] * device,
        ],
        *(_phase(one, steps.count, device) for one in phases),
    ]
    caption = (
        f"{units.plural(steps.count, 'step')} after warm-up; the first {steps.warmup} are in the last column. Shares "
        "are of the total time of these steps, here and in the verdict. Percentiles are over the steps that have "
        "the phase."
    )
    bar = draw.bar([(phase, share * (steps.mean_ns or 0.0)) for phase, share in whole], steps.mean_ns or 0.0)
    return section(
        "Where the time of a step goes",
        safe(caption),
        bar + table(["<phase", "share", "p50", "p95", "p99", "warm-up", "in steps", *["device"] * device], rows),
    )


def _phase(one: PhaseRow, steps: int, device: bool) -> list[str]:
    share = "n/a" if one.share is None else units.share(one.share)
    seen = "" if one.steps >= steps else units.count(one.steps)
    name = f'<i class="dot k-{one.phase}"></i>{safe(phase_name(one.phase))}'
    return [name, share, *map(units.duration, (one.p50_ns, one.p95_ns, one.p99_ns, one.warmup_p50_ns)), seen] + [
        "" if one.device_ns is None else units.duration(one.device_ns)
    ] * device


def _first_step(view: Report) -> str:
    """What happened until the first step was done."""
    found = view.first_step
    if found is None or not found.ns:
        return ""
    rows = [
        [
            safe(one.name),
            draw.meter(one.ns / found.ns, "f-residual"),
            units.share(one.ns / found.ns),
            units.duration(one.ns),
        ]
        for one in found.parts
    ]
    rank = "" if found.rank is None else f", rank {found.rank}"
    caption = f"{units.duration(found.ns)} from the start of the {found.since}{rank}. Untracked: reading data, building datasets and models."
    return section("Time to the first step", safe(caption), table(["<part", "<", "share", "time"], rows))


def _over_time(view: Report, charts: Charts) -> str:
    if charts.axis is None:
        return ""
    each = "" if charts.axis.width <= 1 else f" Each column is the mean of {_several(charts)}."
    stack = draw.stacked(charts.pieces, charts.axis, [one.phase for one in view.phases])
    drawn = section("Step time by phase, over the run", safe(f"Hover over a column for its numbers.{each}"), stack)
    if charts.axis.width <= 1 and len(view.ranks) < 2:
        caption = "All steps, on a logarithmic scale."
        return drawn + section(
            "Step time, from the fastest to the slowest", caption, draw.ordered(charts.pieces, charts.axis)
        )
    caption = "Logarithmic scale. Every slow step is included."
    return drawn + section("Step time distribution over the run", caption, draw.spread(charts.pieces, charts.axis))


def _loss(charts: Charts) -> str:
    drawn = draw.lines(charts.losses, charts.losses_ns, lambda value: f"{value:.3g}", from_zero=False)
    return section("Loss", "Non-finite values are left out.", drawn)


def _loader(view: Report) -> str:
    """How batches come to the training: stages, the depth of the queue over time, and what other settings would bring."""
    found = view.loader
    if found is None:
        return ""
    rows = [
        [
            tag("b", safe(one.name)) if one.name == found.limit else safe(one.name),
            units.duration(one.ns),
            loader_words.gain(one),
        ]
        for one in found.stages
    ]
    content = table(["<stage", "each batch", "as fast without it"], rows)
    if found.depth is not None and len(found.depth.at_ns) > 1:
        last = found.depth.at_ns[-1] or 1.0
        points = [(at / last, ready) for at, ready in zip(found.depth.at_ns, found.depth.ready, strict=True)]
        most = (found.prefetch or 1) * found.workers
        content += tag("h3", "Finished batches that are ready") + tag(
            "p", safe(f"At most {most} are prefetched."), "soft"
        )
        content += draw.lines([Line("ready batches", "", points)], round(last), units.brief)
    if found.settings:
        settings = [
            [safe(loader_words.setting_name(one, found)), units.duration(one.ns), units.times(one.speedup)]
            for one in found.settings
        ]
        content += tag("h3", "Predictions for other settings")
        content += table(["<setting", "each batch", "as fast"], settings)
    told = [loader_words.ready_line(found), _simulated(view) or loader_words.why_not(found)]
    content += "".join(tag("p", safe(_sentence(one)), "soft") for one in told if one)
    caption = f"{loader_words.setting_line(found)}; {units.duration(found.ns)} for each batch."
    return section("Loader", safe(caption), content)


def _simulated(view: Report) -> str | None:
    found = view.loader
    if found is None or not found.settings or found.error is None:
        return None
    return f"From a simulation with the recorded times; for the recorded setting it is off by {units.share(abs(found.error))}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _sampled(view: Report, charts: Charts) -> str:
    """Where the training was seen, if stacks were sampled."""
    drawn = flame(charts.flame)
    rows = [
        [
            safe(one.function),
            tag("div", safe(f"{one.file}:{one.line}"), "long"),
            draw.meter(one.share, "f-residual"),
            units.share(one.share),
            units.duration(one.dur_ns),
        ]
        for one in view.lines
    ]
    listed = table(["<untracked time in", "<line", "<", "share", "time"], rows) if rows else ""
    caption = (
        "The training thread. Width is time, and each box is called by the one above it. Hover over a box for its time."
    )
    return section("Sampled stacks", caption, drawn and tag("div", drawn, "scroll") + listed)


def _evaluation(view: Report, charts: Charts) -> str:
    if not view.evaluation:
        return ""
    rows = [
        [
            safe(one.name),
            safe(one.source),
            units.brief(one.first),
            units.brief(one.last),
            value_at(one.low, one.low_step),
            value_at(one.high, one.high_step),
            units.count(one.count),
        ]
        for one in view.evaluation
    ]
    drawn = "".join(
        tag("h3", safe(one.title)) + draw.lines(one.lines, one.lasted_ns, units.brief, from_zero=False)
        for one in charts.evaluation
    )
    titles = ["<metric", "<logged by", "first", "last", "lowest", "highest", "times"]
    return section("Evaluation", "Losses and metrics as they were logged.", table(titles, rows) + drawn)


def _learning(charts: Charts) -> str:
    """Learning rates and, of sampled steps, gradients, updates and activations."""
    drawn = "".join(
        tag("h3", safe(one.title)) + draw.lines(one.lines, one.lasted_ns, units.brief, from_zero=False)
        for one in charts.learning
    )
    return (
        section(
            "Learning",
            "Rates and scales as they changed; layers and fields with the highest values, sampled by --learning.",
            drawn,
        )
        if drawn
        else ""
    )


def _several(charts: Charts) -> str:
    assert charts.axis is not None
    if charts.axis.unit == "step":
        return f"about {charts.axis.width:,.0f} steps" if charts.axis.width >= 2 else "one or two steps"
    return f"the steps in {units.duration(charts.axis.width)}"


def _ranks(view: Report, charts: Charts) -> str:
    if len(view.ranks) < 2:
        return ""
    shown = _slowest_ranks(newest_attempt(view.ranks))
    rows = [_rank(one) for one in shown]
    caption = (
        "Ranks that wait for each other take equally long. Their own time, without communication, shows which "
        "one is late."
    )
    titles = ["<rank", "<host", "steps", "p50", "p95", "own time", "", "<largest", "<state"]
    if view.run.trainings > 1:
        caption, titles = "Separate processes without ranks.", ["<process", *titles[1:]]
    return section(
        "Trainings" if view.run.trainings > 1 else "Ranks", caption, draw.heat(charts) + "<br>" + table(titles, rows)
    )


def _slowest_ranks(ranks: list[RankRow]) -> list[RankRow]:
    """All of a few ranks; of many the slowest, in their order."""
    least = sorted((one.own_ns or 0 for one in ranks), reverse=True)[:MOST_RANKS][-1]
    return ranks if len(ranks) <= MOST_RANKS else [one for one in ranks if (one.own_ns or 0) >= least][:MOST_RANKS]


def _rank(one: RankRow) -> list[str]:
    slow = "" if one.slow is None else f"{one.slow:.2f}x"
    largest = max(one.phases, key=lambda name: one.phases[name], default=None)
    return [
        safe(rank_name(one, True)),
        safe(one.host),
        "n/a" if one.steps is None else units.count(one.steps),
        units.duration(one.p50_ns),
        units.duration(one.p95_ns),
        units.duration(one.own_ns),
        tag("span", slow, "bad" if one.worst else "soft"),
        "n/a" if largest is None else f"{safe(phase_name(largest))} {units.duration(one.phases[largest])}",
        safe(f"{one.state} ({one.how})" if one.how else one.state),
    ]


def _attempts(view: Report) -> str:
    found = view.goodput
    if found is None:
        return ""
    rows = [
        [
            str(one.number),
            units.count(one.ranks),
            "" if one.waited_ns is None else units.duration(one.waited_ns),
            units.duration(one.ran_ns),
            words.steps_of(one),
            units.count(one.repeated),
            "n/a" if one.repeated_ns is None else units.duration(one.repeated_ns),
        ]
        for one in found.attempts
    ]
    titles = ["attempt", "ranks", "after", "ran", "steps", "repeated later", "time repeated"]
    caption = f"{words.goodput_line(found)}. {words.goodput_advice(found) or ''}"
    return section("Attempts", safe(caption), table(titles, rows))


def _host_heat(charts: Charts) -> str:
    caption = "How much longer the slowest rank of each host takes than that of the median host. The host that is late most comes first."
    return section("Hosts over the run", caption, draw.host_heat(charts)) if charts.hosts else ""


def _hosts(view: Report) -> str:
    if not words.has_clocks(view.hosts):
        return ""
    shown = words.notable(view.hosts, MOST_RANKS)
    rows = [
        [
            safe(one.host),
            units.count(one.ranks),
            words.ahead(one),
            words.error(one),
            words.drift(one),
            words.basis(one),
            tag("span", words.was_set(one), "bad" if one.jumps else "soft"),
        ]
        for one in shown
    ]
    titles = ["<host", "ranks", "ahead", "maximum error", "drift", "<based on", "<clock was set"]
    more = "" if len(shown) == len(view.hosts) else f" {len(view.hosts) - len(shown)} more hosts are not shown."
    return section("Clocks of the hosts", f"{words.CLOCKS_OF_PAGE}{more}", table(titles, rows))


# ── the slowest ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _slowest(view: Report) -> str:
    slowest = view.steps.slowest
    if not slowest:
        return ""
    longest = max(one.dur_ns for one in slowest)
    several = len(view.ranks) > 1 and any(one.rank is not None for one in slowest)
    rows = [_slow_step(one, longest, several) for one in slowest]
    titles = ["step", *(["rank"] if several else []), "took", "", "<mostly", "<slowest items", "<phases"]
    return section(
        "Slowest steps",
        "After warm-up, with the slowest items of their batches.",
        tag("div", table(titles, rows), "cards"),
    )


def _slow_step(one: SlowStep, longest: int, several: bool) -> list[str]:
    rank = ["n/a" if one.rank is None else str(one.rank)] if several else []
    extra = (
        "n/a"
        if one.phase is None or not one.extra_ns or one.extra_ns < 0
        else f"{safe(phase_name(one.phase))} +{units.duration(one.extra_ns)}"
    )
    phases = [(phase, float(ns)) for phase, ns in one.phases.items()]
    return [
        units.count(one.step),
        *rank,
        units.duration(one.dur_ns),
        tag("span", "" if one.times is None else units.times(one.times), "soft"),
        extra,
        _culprits(one),
        draw.bar(phases, float(longest)),
    ]


def _culprits(one: SlowStep) -> str:
    items = ", ".join(map(_item, notable_items(one)))
    return tag("div", items, "long") if items else ""


def _item(one: StepItem) -> str:
    worker = "" if one.worker is None else f", worker {one.worker}"
    took_it = "" if one.dur_ns is None else tag("span", f" {units.duration(one.dur_ns)}{worker}", "soft")
    return tag("b", safe(one.name)) + took_it


def _items(view: Report) -> str:
    found = view.items
    if not found.slowest:
        return ""
    longest = max(one.median_ns for one in found.slowest)
    rows = [
        [
            safe(one.id if one.id is not None else "n/a" if one.index is None else one.index),
            draw.meter(one.median_ns / longest if longest else 0, "f-input_wait"),
            units.duration(one.median_ns),
            units.duration(one.max_ns),
            "n/a" if one.times is None else units.times(one.times),
            units.count(one.fetched),
        ]
        for one in found.slowest
    ]
    caption = (
        f"{units.count(found.seen)} seen: median {units.duration(found.p50_ns)}, p99 {units.duration(found.p99_ns)}, longest "
        f"{units.duration(found.max_ns)}."
    )
    return section(
        "Slowest items of the dataset",
        safe(caption),
        table(["<item", "<", "median", "max", "of median", "loads"], rows),
    )


def _hard_items(found: HardItems) -> str:
    caption = hard_items_line(found)
    highest = max((one.mean for one in found.hardest if one.mean is not None), default=0.0)
    rows = [
        [
            safe(item_name(one.index, one.id)),
            draw.meter(max(one.mean or 0.0, 0.0) / highest if highest > 0 else 0, "f-forward"),
            measured(one.mean),
            measured(one.highest),
            measured(one.latest),
            _rise(one),
            units.count(one.times),
            tag("span", units.count(one.nonfinite), "bad" if one.nonfinite else "soft"),
        ]
        for one in found.hardest
    ]
    titles = ["<item", "<", "mean", "highest", "latest", "<largest rise", "times", "not finite"]
    return section(
        f"Hardest items: {safe(found.name)}", safe(caption), table(titles, rows) if rows else tag("p", safe(caption))
    )


def _rise(one: HardItem) -> str:
    return units.MISSING if one.rise is None else f"+{measured(one.rise)} at step {one.rise_step:,}"


# ── memory and layers ────────────────────────────────────────────────────────────────────────────────────────────────


def _memory_chart(charts: Charts) -> str:
    return section("Memory over time", "", draw.memory(charts))


def _memory(view: Report, charts: Charts | None) -> str:
    if not view.memory:
        return ""
    drawn = "" if charts is None else draw.memory(charts)
    rows = [
        [
            safe(one.who if one.what in ("rss", "used") else f"{one.who}, device {one.what}"),
            safe(one.host),
            *map(units.size, (one.first, one.last, one.peak)),
            "" if one.limit is None else units.size(one.limit),
        ]
        for one in view.memory
    ]
    return section("Memory", "", drawn + table(["<", "<host", "after warm-up", "last", "peak", "limit"], rows))


def _usage(charts: Charts) -> str:
    cpu = draw.lines(charts.cpu, charts.usage_ns, lambda value: f"{value:.0f} %")
    disk = draw.lines(charts.disk, charts.usage_ns, lambda value: f"{units.size(round(value))}/s")
    caption = "100 % is one core for a process and all cores for the host."
    return section("CPU", caption, cpu) + section("Disk", "Bytes read and written per second.", disk)


def _layers(view: Report) -> str:
    shown = view.layers[:MOST_LAYERS]
    if not shown:
        return ""
    rows = [
        [
            safe(one.layer or "(the model)"),
            safe(one.type or "n/a"),
            draw.meter(one.share or 0.0, "cost"),
            "n/a" if one.share is None else units.share(one.share),
            units.duration(one.forward_ns),
            units.duration(one.backward_ns),
            units.size(one.activation_bytes),
            units.size(one.parameter_bytes),
        ]
        for one in shown
    ]
    more = f" The {MOST_LAYERS} most expensive of {len(view.layers)}." if len(view.layers) > len(shown) else ""
    titles = ["<layer", "<type", "<", "share", "forward", "backward", "activations", "parameters"]
    return section("Layers", safe(f"Mean per step; a layer includes its children.{more}"), table(titles, rows))


# ── what stands below ────────────────────────────────────────────────────────────────────────────────────────────────


def _foot(view: Report) -> str:
    run = view.run
    here = [one.what for one in view.blind_spots if one.scope == "run"]
    always = [one.what for one in view.blind_spots if one.scope != "run"]
    lost = [f"{units.records(drop.count)} {drop.reason}" for drop in view.drops]
    box = tag("h3", "Black box") + tag("p", safe(black_box_line(view))) if view.black_box.command is not None else ""
    parts = [
        box,
        tag("h3", "Cost of recording") + tag("p", safe(own_cost(view))) + tag("p", safe(view.overhead.basis), "note"),
        tag("h3", "Recorded in depth") + bullets([deep_line(one) for one in view.deepened]) if view.deepened else "",
        tag("h3", "Not seen in this run") + bullets(here),
        tag("details", tag("summary", f"{len(always)} known limitations of every run") + bullets(always)),
        tag("h3", "Lost records") + (bullets(lost) or tag("p", "No records lost.")),
        tag("h3", "Notes") + bullets(run.notes) if run.notes else "",
    ]
    about = [
        f"sonde {run.sonde or 'n/a'}",
        f"Python {run.python or 'n/a'}",
        *([units.listed(run.hosts)] if run.hosts else []),
    ]
    about += [f"commit {run.commit[:12]}"] if run.commit else []
    return tag("footer", "".join(parts) + tag("p", safe(" · ".join(about)), "note"))
