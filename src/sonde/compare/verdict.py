"""The verdict on two runs: whether B is faster, slower or the same as A, how sure that is, and what else differs.

Three statistics of step time decide: the median, a low quantile (p10) and the mean. A low quantile is steady on busy machines
and blind to stalls; the mean sees stalls. A statistic says faster or slower only if its whole confidence interval lies
beyond a margin, since two runs at different times differ by some percent for no reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sonde import units
from sonde.compare import confidence
from sonde.compare.confidence import FASTER, INCONCLUSIVE, SAME, SLOWER, Interval
from sonde.compare.differences import (
    ChangedSetting,
    ComparedItems,
    Findings,
    Named,
    Phase,
    compared_findings,
    compared_items,
    compared_layers,
    compared_memory,
    compared_phase,
    compared_ranks,
    differing,
    shown,
)
from sonde.compare.ratio import CROWDED, MARGINS, Ratio, is_equal, ratio_of, signed
from sonde.compare.summary import OWN, STEP, Summary
from sonde.diagnosis.evidence import PHASE_WORDS
from sonde.diagnosis.speed import PARTS
from sonde.finding import CRITICAL, SEVERITIES
from sonde.lazy import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MIXED, NOT_COMPARABLE = "mixed", "not_comparable"
VERDICTS = (FASTER, SLOWER, SAME, MIXED, INCONCLUSIVE, NOT_COMPARABLE)
LEAST_STEPS = 10
EQUAL = {**MARGINS, "own": MARGINS["mean"]}
BINS = 48  # of the distributions
OTHER_BATCH = 0.02  # samples in a step
HARDWARE = {"cpu": "CPU", "cores": "number of cores", "devices": "devices"}
MODEL = {"model.type": "model", "model.parameters": "number of parameters"}


@dataclass(frozen=True)
class StepTime(Ratio):
    """The median step, and what else was judged: p10 and the mean."""

    margin: float = 0.0
    more_steps: int | None = None  # of each run, to be sure; 0: it is, None: no number of steps would do
    p10: Ratio | None = None
    mean: Ratio | None = None
    own: Ratio | None = None  # the mean without waits for a core, of runs beside other programs


@dataclass(frozen=True)
class Distribution:
    """Step times of both runs in the same bins: the share of the steps in each. `edges_ns` has one more."""

    edges_ns: list[float]
    a: list[float]
    b: list[float]


@dataclass(frozen=True)
class Times:
    """All that was compared of two summaries."""

    verdict: str
    reasons: list[str]
    next: str
    step_time: StepTime
    throughput: Ratio
    phases: list[Phase]
    ranks: list[Named]
    layers: list[Named]
    memory: list[Named]
    items: ComparedItems
    findings: Findings
    settings: list[ChangedSetting]
    distribution: Distribution | None
    notes: list[str] = field(default_factory=list)


def compare_times(a: Summary, b: Summary) -> Times:
    """Compare two runs by what is kept of them."""
    crowded = a.crowded or b.crowded
    margins = CROWDED if crowded else MARGINS
    kept = [_steady(one) for one in (a, b)]
    cuts = [cut if cut < len(one.steps.points) else 0 for one, (_, cut) in zip((a, b), kept, strict=True)]
    step = _step_time(a, b, [blocks for blocks, _ in kept], cuts, margins)
    seen = [part for part in PARTS if part in a.steps.means or part in b.steps.means]
    phases = [compared_phase(a, b, part, margins["mean"], cuts) for part in seen]
    if crowded:
        phases = [replace(one, verdict=_if_agreed(one.verdict, step.mean)) for one in phases]
    settings = differing(a.setup, b.setup)
    findings = compared_findings(a, b)
    verdict, reasons = _verdict(a, b, step, margins)
    if verdict in (FASTER, SLOWER, MIXED):
        reasons += _where(phases)
    return Times(
        verdict=verdict,
        reasons=reasons,
        next=_next(verdict, step, settings, findings, b),
        step_time=step,
        throughput=_throughput(a, b, step),
        phases=phases,
        ranks=compared_ranks(a, b, margins["p50"]),
        layers=compared_layers(a, b, margins["mean"]),
        memory=compared_memory(a, b),
        items=compared_items(a, b, margins["p50"]),
        findings=findings,
        settings=settings,
        distribution=_distribution(a.steps.blocks, b.steps.blocks),
        notes=_notes(a, b, cuts),
    )


# ── step time ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _steady(one: Summary) -> tuple[NDArray[np.float64], int]:
    """The blocks after a warm-up that is longer than usual, and how many were left out; all, if it never gets steady."""
    blocks = one.steps.blocks
    cut = confidence.warmup(np.median(blocks, axis=1)) if len(blocks) else 0
    return (blocks, cut) if cut >= len(blocks) else (blocks[cut:], cut)


def _step_time(
    a: Summary, b: Summary, blocks: list[NDArray[np.float64]], cuts: list[int], margins: dict[str, float]
) -> StepTime:
    means = [one.steps.phase(STEP)[cut:] for one, cut in zip((a, b), cuts, strict=True)]
    found = {
        name: ratio_of(
            _value(a, name, parts[0], cuts[0]),
            _value(b, name, parts[1], cuts[1]),
            confidence.ratio(parts[0], parts[1], name),
            margins[name],
        )
        for name, parts in (("p50", blocks), ("p10", blocks), ("mean", means))
    }
    main, mean = found["p50"], found["mean"]
    own = _own(a, b, cuts, margins["mean"])
    if a.crowded or b.crowded:
        mean = replace(mean, verdict=_if_agreed(mean.verdict, own))
    more: int | None = None
    if main.ratio and main.low and main.high:
        steps = min(a.steps.count, b.steps.count)
        more = confidence.more_steps(Interval(main.ratio, main.low, main.high), margins["p50"], steps)
    return StepTime(**vars(main), margin=margins["p50"], more_steps=more, p10=found["p10"], mean=mean, own=own)


def _value(one: Summary, name: str, blocks: NDArray[np.float64], cut: int) -> float | None:
    """A statistic of all steps, or of those after a long warm-up."""
    if cut:
        return float(confidence.STATISTICS[name](blocks.reshape(1, -1))[0])
    value: float | None = getattr(one.steps, f"{name}_ns")
    return value


def _own(a: Summary, b: Summary, cuts: Sequence[int], margin: float) -> Ratio | None:
    """The mean step without waits for a core. None: no other programs used the cores, or the kernel did not say how long it waited."""
    if not (a.crowded or b.crowded):
        return None
    one, other = (run.steps.phase(OWN)[cut:] for run, cut in zip((a, b), cuts, strict=True))
    interval = confidence.ratio(one, other, "mean")
    return None if interval is None else ratio_of(float(one.mean()), float(other.mean()), interval, margin)


def _if_agreed(verdict: str | None, judge: Ratio | None) -> str | None:
    """Beside other programs, a mean is called different only if it is so without waits for a core too."""
    agreed = verdict not in (FASTER, SLOWER) or (judge is not None and judge.verdict == verdict)
    return verdict if agreed else INCONCLUSIVE


def _distribution(a: NDArray[np.float64], b: NDArray[np.float64]) -> Distribution | None:
    """Bins of equal width on a logarithmic scale."""
    both = np.concatenate([a.ravel(), b.ravel()])
    both = both[both > 0]
    if not a.size or not b.size or not both.size:
        return None
    edges = np.geomspace(both.min() * 0.98, both.max() * 1.02, BINS + 1)
    shares = [(np.histogram(one.ravel(), edges)[0] / one.size).round(4).tolist() for one in (a, b)]
    return Distribution(edges.round().tolist(), *shares)


def _throughput(a: Summary, b: Summary, step: StepTime) -> Ratio:
    """Samples per second; its interval is that of the mean step, turned round."""
    one, other, mean = a.steps.samples_per_s, b.steps.samples_per_s, step.mean
    if not one or not other or mean is None or mean.low is None or mean.high is None or not mean.ratio:
        return Ratio(one, other)
    factor = other / one * mean.ratio  # 1, unless steps have other numbers of samples
    low, high = (factor / end if end else None for end in (mean.high, mean.low))
    return Ratio(one, other, other / one, low, high, mean.verdict)


def _verdict(a: Summary, b: Summary, step: StepTime, margins: dict[str, float]) -> tuple[str, list[str]]:
    reasons = _incomparable(a, b)
    if reasons:
        return NOT_COMPARABLE, reasons
    crowded = a.crowded or b.crowded  # where waits for a core say nothing about the program
    named = {"p50": step, "p10": step.p10, **({"own": step.own} if crowded else {"mean": step.mean})}
    known = {name: one for name, one in named.items() if one is not None and one.verdict is not None}
    texts = {name: _change(name, one) for name, one in known.items()}
    words = {one.verdict for one in known.values()}
    if FASTER in words and SLOWER in words:
        return MIXED, list(texts.values())
    for word in (FASTER, SLOWER):
        if word in words:
            sure = [texts[name] for name, one in known.items() if one.verdict == word]
            against = [texts[name] for name, one in known.items() if _contradicts(one, word)]
            return (word, sure) if not against else (INCONCLUSIVE, [*sure, *against, "These contradict each other."])
    decisive = "p10" if crowded else "p50"  # low quantiles are steady on a busy machine
    if known and known[decisive].verdict == SAME and all(is_equal(one, EQUAL[name]) for name, one in known.items()):
        return SAME, [
            texts[decisive],
            f"That is within the {units.share(margins[decisive])} by which equal runs may differ.",
        ]
    return INCONCLUSIVE, list(texts.values())[:1] + _unsure(a, b)


def _contradicts(one: Ratio, word: str) -> bool:
    """Whether the number itself, however sure, says the opposite."""
    ratio = one.ratio or 1.0
    return ratio > 1 + MARGINS["mean"] if word == FASTER else ratio < 1 / (1 + MARGINS["mean"])


def _unsure(a: Summary, b: Summary) -> list[str]:
    crowded = [one.name for one in (a, b) if one.crowded]
    if not crowded:
        return ["Step times vary too much for a conclusion."]
    return ["Other programs used the cores, so they may cause differences this small."]


_WORDS = {
    "p50": "The median step takes",
    "p10": "The fastest tenth of the steps takes",
    "mean": "The mean step takes",
    "own": "The mean step, without waits for a core, takes",
}


def _change(name: str, one: Ratio) -> str:
    low, high = ("?" if end is None else f"{end:.2f}" for end in (one.low, one.high))
    return f"{_WORDS[name]} {units.duration(one.b)} instead of {units.duration(one.a)}: {one.ratio:.2f}x ({low} to {high})."


def _incomparable(a: Summary, b: Summary) -> list[str]:
    """Why step times say nothing about each other; empty if they do."""
    found = []
    for which, one in (("A", a), ("B", b)):
        if one.steps.count < LEAST_STEPS:
            steps = units.plural(one.steps.count, "step")
            found.append(f"{which} has {steps} after the warm-up; {LEAST_STEPS} are needed.")
        elif len(one.steps.points) and _steady(one)[1] >= len(one.steps.points):
            found.append(f"{which} is still warming up: its steps get faster until the end. Record more steps.")
    for names, what in ((MODEL, "model"), (HARDWARE, "hardware")):
        for name, word in names.items():
            mine, theirs = a.setup.get(name), b.setup.get(name)
            if mine is not None and theirs is not None and mine != theirs:
                found.append(f"Different {what}: {word} {_plain(mine)} in A, {_plain(theirs)} in B.")
    few, many = a.steps.samples, b.steps.samples
    if few and many and abs(many / few - 1) > OTHER_BATCH:
        found.append(f"Different batch size: {few:g} samples per step in A, {many:g} in B.")
    ranks = [one.setup.get("world_size") or 1 for one in (a, b)]
    if ranks[0] != ranks[1]:
        found.append(f"A has {units.plural(ranks[0], 'rank')}, B has {ranks[1]}.")
    return found


def _plain(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


# ── what to know, and what to do next ────────────────────────────────────────────────────────────────────────────────


def _where(phases: list[Phase]) -> list[str]:
    """The phases that explain most of the difference."""
    moved = [one for one in phases if one.verdict in (FASTER, SLOWER) and one.difference_ns is not None]
    moved.sort(key=lambda one: -abs(one.difference_ns or 0.0))
    moves = [f"{PHASE_WORDS[one.phase]} {signed(one.difference_ns)}" for one in moved[:3]]
    return [f"In a step: {', '.join(moves)}."] if moves else []


def _notes(a: Summary, b: Summary, cuts: list[int]) -> list[str]:
    found = []
    if a.crowded or b.crowded:
        whose = "both runs" if a.crowded and b.crowded else "A" if a.crowded else "B"
        found.append(
            f"Other programs used the cores during {whose}: waits for a core are left out, and only large differences count."
        )
    if a.path == b.path:
        found.append("A and B are the same run.")
    for which, one, cut in (("A", a, cuts[0]), ("B", b, cuts[1])):
        if one.state == "recording":
            found.append(f"{which} is still running: this is what it has recorded so far.")
        elif one.ended not in ("finished", "unknown"):
            found.append(f"{which} did not finish: {one.ended}.")
        if cut:
            found.append(
                f"{which} warmed up longer than most runs; the first {cut * 100 // len(one.steps.points)} % of its steps are left out."
            )
        grown = confidence.drift(np.median(one.steps.blocks, axis=1)) if len(one.steps.points) else None
        if grown is not None:
            found.append(f"{which} drifts: its last steps take {grown:.2f}x its first ones.")
        found += [f"{which}: {note.removesuffix('.')}." for note in one.notes]
        if one.drops:
            found.append(f"{which} lost {units.records(one.drops)}.")
    if a.steps.count and b.steps.count and a.steps.count != b.steps.count:
        found.append(f"A has {units.count(a.steps.count)} steps after the warm-up, B {units.count(b.steps.count)}.")
    return found


def _next(verdict: str, step: StepTime, settings: list[ChangedSetting], findings: Findings, b: Summary) -> str:
    if verdict == NOT_COMPARABLE:
        return "Record both runs with the same model, batch size and hardware, for at least 50 steps each."
    if verdict == INCONCLUSIVE:
        if step.more_steps:
            return (
                f"Record {units.count(step.more_steps)} more steps of each run, or alternate both on an idle machine."
            )
        return "Alternate both on an idle machine: more steps of these two runs would not help."
    if verdict in (SLOWER, MIXED):
        worst = [one for one in findings.new if one.severity != SEVERITIES[0]]
        if worst:
            return f"{worst[0].kind} is new in B. {worst[0].next}"
        changed = [f"{one.name} {shown(one.a)} -> {shown(one.b)}" for one in settings if one.name.startswith(CAUSES)]
        if changed:
            return f"First check what differs: {', '.join(changed[:3])}."
    worst = [one for one in b.findings if one.severity != SEVERITIES[0]]
    if worst:
        word = "The worst finding of B" if worst[0].severity == CRITICAL else "What B has left"
        return f"{word} is {worst[0].kind}. {worst[0].next}"
    return (
        "B has no finding left to act on."
        if verdict != SLOWER
        else "See which phase grew, and what changed in its code."
    )


CAUSES = ("loader", "optimizer", "threads", "version", "torch", "git", "precision", "model")
