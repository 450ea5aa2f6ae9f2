"""Words for values, the same in the terminal and on pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units

if TYPE_CHECKING:
    from sonde.analysis.questions.deepened import DeepSteps
    from sonde.analysis.questions.firststep import FirstStep
    from sonde.analysis.questions.flops import Flops
    from sonde.analysis.questions.hard import HardItems
    from sonde.analysis.questions.items import ItemSummary, StepItem
    from sonde.views.report import Report, SlowStep

TOLD = 0.005  # of the time to the first step: smaller parts are in the JSON only
MOST_ITEMS = 3
NOTABLE = 0.05  # of a step: what an item must take to be reported
PHASE_NAMES = {"input_wait": "input wait", "h2d": "host to device", "residual": "untracked"}


def phase_name(phase: str) -> str:
    """A phase in words."""
    return PHASE_NAMES.get(phase, phase)


def notable_items(one: SlowStep) -> list[StepItem]:
    """The items that took a part of the step worth reporting."""
    return [item for item in one.items if item.dur_ns is None or item.dur_ns >= NOTABLE * one.dur_ns]


def item_name(index: int | None, id: str | None) -> str:
    """What an item is called: by its key, or else by its index."""
    return id if id is not None else units.MISSING if index is None else str(index)


def slowest_items(items: ItemSummary) -> str:
    """The items that take longest each time they are loaded: `item 77 150 ms, item 236 9.91 ms`."""
    shown = items.slowest[:MOST_ITEMS]
    return ", ".join(f"item {item_name(one.index, one.id)} {units.duration(one.median_ns)}" for one in shown)


def hard_items_line(found: HardItems) -> str:
    """Of how many items something is known: `100 items in training, median 0.31; 8 values fit no batch`."""
    where = {"train": " in training", "evaluate": " in evaluation"}.get(found.purpose, "")
    told = f"{units.plural(found.items, 'item')}{where}, median {measured(found.middle)}"
    return told + (f"; {units.plural(found.untied, 'value fits', 'values fit')} no batch" if found.untied else "")


def flops_line(found: Flops) -> str:
    """`1.25 TFLOP/s (38 % of the peak)`, or why there is none."""
    if found.per_s is None:
        return f"FLOP/s {units.MISSING}" + (f" ({found.uncounted})" if found.uncounted else "")
    reached = "" if found.utilization is None else f" ({units.share(found.utilization)} of the peak)"
    return f"{units.flops(found.per_s)}{reached}"


def measured(value: float | None) -> str:
    """A number in four digits; n/a if it is not known."""
    return units.MISSING if value is None else units.brief(value)


def black_box_line(view: Report) -> str:
    """What the black box has, in a line: `black box: 1 dump (exception) - sonde blackbox RUN`."""
    box = view.black_box
    parts = [f"{units.plural(box.dumps, 'dump')} ({', '.join(box.reasons)})"] if box.dumps else []
    parts += ["first NaN found"] if box.births else []
    return f"black box: {', '.join(parts)} - {box.command}"


def own_cost(view: Report) -> str:
    """What Sonde itself cost, in a sentence."""
    cost = view.overhead
    records = f"{units.plural(cost.records, 'record')}, {units.size(cost.size)} on disk"
    if cost.share is None or cost.record_ns is None:
        return f"{records}; time {units.MISSING} (too few records to measure it)"
    workers = "" if cost.worker_share is None else f", {units.share(cost.worker_share)} in loader workers"
    return (
        f"{units.share(cost.share)} of the time{workers}: {units.count(cost.trainer_records)} records x "
        f"{units.duration(cost.record_ns)} (measured in this run, hooks included); {records}"
    )


def first_step_line(found: FirstStep) -> str:
    """`7.5 s after the start of the process: import torch 2.8 s, first batch 59.2 ms, untracked 1.3 s`."""
    parts = ", ".join(f"{one.name} {units.duration(one.ns)}" for one in found.parts if one.ns >= TOLD * found.ns)
    rank = "" if found.rank is None else f" (rank {found.rank})"
    return f"{units.duration(found.ns)} after the start of the {found.since}{rank}: {parts}"


def later(losses: int) -> str:
    """What came after the first NaN."""
    return f"{units.plural(losses, 'more loss was', 'more losses were')} NaN or infinite"


def extent(one: dict[str, float | None]) -> str:
    """`-1.2 to 3.4e+38, mean 0.1`."""
    if one["min"] is None or one["max"] is None:
        return "not finite" if one.get("finite") is False else "n/a"
    mean = one["mean"]
    return f"{units.brief(one['min'])} to {units.brief(one['max'])}" + (
        "" if mean is None else f", mean {units.brief(mean)}"
    )


def deep_line(one: DeepSteps) -> str:
    """What was recorded in depth: `steps 240 to 259: layers, stacks (sonde deepen)`."""
    until = "until the end" if one.last is None else f"to {one.last}"
    ranks = f", {units.plural(one.ranks, 'rank')}" if one.ranks > 1 else ""
    return f"steps {one.first} {until}: {', '.join(one.parts) or 'nothing new'} ({one.why}{ranks})"


def value_at(value: float, step: int | None) -> str:
    """`0.0123 at step 1,200`."""
    return units.brief(value) if step is None else f"{units.brief(value)} at step {step:,}"
