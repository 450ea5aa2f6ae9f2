"""A report in a few lines: the verdict, its evidence, the slowest of each kind, and where to look next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde import units
from sonde.mcp.answer import Hint, fit, hint
from sonde.views.report import Report, SlowStep, rank_name
from sonde.views.safe import printable
from sonde.views.words import notable_items, phase_name, slowest_items

if TYPE_CHECKING:
    from sonde.views.report import Verdict

MOST_FINDINGS = 4  # beside the verdict
MOST_STEPS = 3
MOST_LAYERS = 3
MOST_RANKS = 8
MOST_EVIDENCE = 8
MOST_UNSEEN = 3


def digest(view: Report, *, commands: bool = False) -> str:
    """The digest; `commands` gives commands instead of calls."""
    lines = [
        _head(view),
        *_verdict(view.verdict),
        *(_other(one) for one in view.findings[1 : 1 + MOST_FINDINGS]),
        *_time(view),
        *_ranks(view),
        *_memory(view),
        *_slowest(view),
        *_items(view),
        *_layers(view),
        *_box(view),
        *(f"not seen: {one.what}" for one in view.blind_spots[:MOST_UNSEEN] if one.scope == "run"),
    ]
    return fit([printable(line) for line in lines], hints(view), commands=commands)


def hints(view: Report) -> list[Hint]:
    """Where to look next; what the verdict is about stands first."""
    run, found = view.run.id, []
    kinds = {view.verdict.kind, *(one.kind for one in view.findings)}
    if view.black_box.births or "NON_FINITE" in kinds:
        found.append(hint("first_nan", "the layer, batch and items of the first NaN", run=run))
        found += _first_loss(view)
    if view.black_box.dumps or "CRASHED" in kinds:
        found.append(hint("first_nan", "the exception, its item, and the last batches", run=run))
    if "HUNG" in kinds:
        found.append(hint("stacks", "where each thread is", run=run))
    layers = [hint("layers", "the costliest layers", run=run)] if view.layers else []
    if view.verdict.kind == "COMPUTE_BOUND":
        found += layers
    if view.items.slowest:
        found.append(hint("items", "the slowest items", run=run))
    if view.steps.slowest:
        worst = view.steps.slowest[0]
        given = {"run": run, "step": worst.step} | ({} if worst.rank is None else {"rank": worst.rank})
        found.append(hint("step", "the slowest step: phases and items", **given))
    found += layers
    if view.steps.count + view.steps.warmup:
        found.append(hint("steps", "single steps", run=run))
    found.append(hint("query", "tables and columns, for SQL", run=run))
    first: dict[str, Hint] = {}
    for one in found:
        first.setdefault(one.call, one)
    return list(first.values())


def _first_loss(view: Report) -> list[Hint]:
    """The step whose loss was the first that is not finite."""
    numbers: dict[str, Any] = next(
        (one.evidence.get("numbers", {}) for one in view.findings if one.kind == "NON_FINITE"), {}
    )
    step = numbers.get("first step")
    return [] if step is None else [hint("step", "the first step with a bad loss", run=view.run.id, step=int(step))]


def _head(view: Report) -> str:
    run, steps = view.run, view.steps
    parts = [run.ended, units.duration(run.dur_ns), units.plural(steps.count + steps.warmup, "step")]
    parts += [] if run.world_size is None else [f"{run.ranks} of {run.world_size} ranks"]
    parts += [] if steps.samples_per_s is None else [f"{units.number(steps.samples_per_s)} samples/s"]
    parts += [] if steps.loss is None else [f"loss {units.brief(steps.loss)}"]
    return f"run {run.id}: {', '.join(parts)}"


def _verdict(one: Verdict) -> list[str]:
    numbers = [_number(name, value) for name, value in one.evidence.get("numbers", {}).items()][:MOST_EVIDENCE]
    sure = units.share(one.confidence)
    evidence = [f"evidence: {', '.join(numbers)}"] if numbers else []
    return [f"verdict: {one.kind} ({one.severity}, {sure} sure)", f"why: {one.why}", f"next: {one.next}", *evidence]


def _number(name: str, value: object) -> str:
    if isinstance(value, int | float) and name.endswith(" ns"):
        return f"{name.removesuffix(' ns')} {units.duration(value)}"
    return f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {str(value)[:80]}"


def _other(one: Verdict) -> str:
    because = f", because of {one.because}" if one.because else ""
    return f"also: {one.kind} ({one.severity}{because}): {one.why}"


def _time(view: Report) -> list[str]:
    steps = view.steps
    if steps.p50_ns is None:
        return []
    phases = [
        f"{phase_name(one.phase)} {units.duration(one.p50_ns)} ({units.share(one.share)})"
        for one in sorted(view.phases, key=lambda one: -(one.share or 0.0))
    ]
    return [f"step: median {units.duration(steps.p50_ns)}, p95 {units.duration(steps.p95_ns)}; {', '.join(phases)}"]


def _ranks(view: Report) -> list[str]:
    if len(view.ranks) < 2:
        return []
    several = view.run.trainings > 1
    found = []
    for one in sorted(view.ranks, key=lambda one: -(one.slow or 0.0))[:MOST_RANKS]:
        slow = "" if one.slow is None else f", {units.times(one.slow)} the median rank without communication"
        how = f", {one.how}" if one.how else ""
        last = units.text(one.last_step)
        mark = " (slowest)" if one.worst else ""
        name = rank_name(one, several)
        found.append(f"{name}{mark}: {one.state}{how}, last step {last}, median {units.duration(one.p50_ns)}{slow}")
    left = len(view.ranks) - len(found)
    return found + ([f"[{left} more ranks]"] if left else [])


def _memory(view: Report) -> list[str]:
    rows = [one for one in view.memory if one.first is not None and one.last is not None]
    grown = sorted(rows, key=lambda one: (one.first or 0) - (one.last or 0))[:2]
    return [f"memory: {one.who} {one.what} {units.size(one.first)} to {units.size(one.last)}" for one in grown]


def _slowest(view: Report) -> list[str]:
    return [_slow(one) for one in view.steps.slowest[:MOST_STEPS]]


def _slow(one: SlowStep) -> str:
    rank = "" if one.rank is None else f" of rank {one.rank}"
    times = "" if one.times is None else f" ({units.times(one.times)} the median)"
    phase = "" if one.phase is None else f", {units.duration(one.extra_ns)} more in {phase_name(one.phase)}"
    items = ", ".join(f"item {item.name} {units.duration(item.dur_ns)}" for item in notable_items(one))
    return f"slow step {one.step}{rank}: {units.duration(one.dur_ns)}{times}{phase}" + (f"; {items}" if items else "")


def _items(view: Report) -> list[str]:
    one = view.items
    if not one.slowest:
        return []
    return [f"items: median {units.duration(one.p50_ns)} to load; slowest: {slowest_items(one)}"]


def _layers(view: Report) -> list[str]:
    own = [one for one in view.layers if one.layer]
    shown = [
        f"{one.layer} {units.duration((one.forward_ns or 0) + (one.backward_ns or 0))}" for one in own[:MOST_LAYERS]
    ]
    return [f"layers: {', '.join(shown)}"] if shown else []


def _box(view: Report) -> list[str]:
    box = view.black_box
    parts = [f"{units.plural(box.dumps, 'dump')} ({', '.join(box.reasons)})"] if box.dumps else []
    parts += ["first NaN found"] if box.births else []
    return [f"black box: {', '.join(parts)}"] if parts else []
