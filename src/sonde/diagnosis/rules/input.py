"""INPUT_BOUND: training waits for its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.analysis.questions import loader as stages
from sonde.diagnosis.evidence import enough_steps, finding, graded
from sonde.diagnosis.figures import Figure
from sonde.finding import WARN

if TYPE_CHECKING:
    from sonde.analysis.questions.loader import PredictedSetting
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy
    from sonde.finding import Finding


def input_bound(facts: Facts, policy: Policy) -> Finding | None:
    """The median rank spends a large share of its training time waiting for data."""
    share, waited = facts.speed.middle("input_wait")
    severity = graded(policy, "input_bound", share, waited)
    if severity is None or not enough_steps(facts, policy) or _waits_for_a_core(facts, policy):
        return None
    own = _without_cores(facts, policy, share)
    if own is not None:
        severity = (
            graded(policy, "input_bound", own, waited) or WARN
        )  # with the cores that others take it might wait less
    better, shown = _better(facts), facts.speed.shown("input_wait")
    why = f"Steps wait {units.duration(facts.speed.each('input_wait'))} for data on average, {units.share(shown.value)} of the step time."
    if facts.speed.inferred:
        why += f" No loader was seen, so this is the time between an update and the next forward.{_in_gap(facts)}"
    elif facts.loading.main is not None and facts.loading.batches["fetch"].value is not None:
        workers = facts.loading.main.workers
        by = "in the training process" if not workers else units.plural(workers, "worker")
        why += f" Loading a batch takes {units.duration(facts.loading.batches['fetch'].value)} ({by})."
    if facts.pipeline is not None and facts.pipeline.limit in _LIMITS:
        why += f" The limit is {_LIMITS[facts.pipeline.limit]}."
    if better is not None:
        why += f" {_how(facts, better)}: about {units.times(better.speedup)} as fast."
    return finding(
        "INPUT_BOUND", severity, 0.6 if facts.speed.inferred else 0.95, why, _next(facts, better),
        score=share.value,
        figures={
            "share of the step time": shown, "share of the training time in a median step": share,
            "waiting in a median step ns": waited,
            "median batch load ns": facts.loading.batches["fetch"],
            "mean batch load ns": facts.loading.batches["mean_fetch"],
            "median item load ns": facts.loading.items["p50"],
            "ready batch waits, median ns": facts.loading.batches["ready"],
            "share of requests that found no batch": facts.loading.batches["empty"],
        },
        ranks=[rank.rank for rank in facts.speed.ranks if rank.share["input_wait"].or_zero() >= (share.value or 0)],
        what_if=None if better is None else {
            "workers": better.workers, "prefetch": better.prefetch, "speedup": round(better.speedup, 2),
        },
        stages={} if facts.pipeline is None else {one.name: round(one.ns) for one in facts.pipeline.stages},
    )  # fmt: skip


def _without_cores(facts: Facts, policy: Policy, share: Figure) -> Figure | None:
    """On a host whose cores others use, the share of waiting that is not waiting for a core; None: nobody takes the cores.

    What sleeps or reads needs no core. Where it is not known how long processes waited for one, nothing is sure to be left.
    """
    host = facts.health.crowded_host(policy)
    if host is None:
        return None
    return Figure(
        max(0.0, (share.value or 0.0) - host.delay.or_zero() / 100) if host.delay.value is not None else 0.0, ""
    )


def _waits_for_a_core(facts: Facts, policy: Policy) -> bool:
    """On a host whose cores others use, waiting that the making of batches does not explain is waiting for a core."""
    share, waited = facts.speed.middle("input_wait")
    main, fetch = facts.loading.main, facts.loading.batches["fetch"].value
    own = _without_cores(facts, policy, share)
    if main is None or fetch is None or own is None or graded(policy, "input_bound", own, waited) is not None:
        return False
    return 2 * fetch * _batches_in_a_step(facts) / max(1, main.workers or 0) < waited.or_zero()


def _in_gap(facts: Facts) -> str:
    """The line of the program that this time is spent in, where stacks were sampled."""
    line = facts.gap.leading
    return "" if line is None else f" {units.share(facts.gap.share(line))} of it is in {line}."


def _next(facts: Facts, better: PredictedSetting | None) -> str:
    main, limit = facts.loading.main, None if facts.pipeline is None else facts.pipeline.limit
    if better is not None and not better.workers:
        return (
            "Set num_workers=0 or use larger batches: passing a batch between processes takes longer than loading it."
        )
    if limit == stages.START:
        return "Set persistent_workers=True in the DataLoader, or use fewer workers: starting them limits the loading."
    if better is not None and main is not None and better.workers == main.workers:
        return f"Set prefetch_factor={better.prefetch} in the DataLoader: batches come in bursts."
    if better is not None and main is not None:
        return f"The DataLoader has num_workers={main.workers}: try {better.workers}, or make items cheaper to load."
    if main is not None and not main.workers:
        return "Load in DataLoader workers (num_workers), or make items cheaper to load."
    line = facts.gap.leading
    if main is None and line is not None:
        return f"Make {line.function} cheaper, or do its work while the current step computes."
    if main is None:
        return (
            "Load the next step's data while the current step computes: in a thread, or with a DataLoader and workers."
        )
    if (
        limit == stages.HANDING
        or facts.loading.batches["fetch"].or_zero() < facts.speed.middle("input_wait")[1].or_zero()
    ):
        return (
            "Pass less between processes: larger batches with fewer and smaller tensors. Leave the workers a free core."
        )
    return _CHEAPER.get(
        limit or "", "Make items cheaper to load: cache them, store them decoded, or move work out of __getitem__."
    )


_LIMITS = {  # not the model: next to steps that wait for data it would sound like a contradiction
    stages.READ: "reading files",
    stages.DECODE: "decoding items",
    stages.ITEMS: "loading items",
    stages.COLLATE: "collating",
    stages.START: "starting workers",
    stages.HANDING: "passing batches between processes",
}
_CHEAPER = {
    stages.READ: "Read less or faster: fewer and larger files, a local disk, or data that stays in memory.",
    stages.COLLATE: "Make collate_fn cheaper: let items have the shape of the batch, and pad less.",
}


def _better(facts: Facts) -> PredictedSetting | None:
    """Another setting of the loader that is worth it."""
    return None if facts.pipeline is None else facts.pipeline.better


def _how(facts: Facts, better: PredictedSetting) -> str:
    assert facts.pipeline is not None
    if not better.workers:
        return "Without workers"
    if better.workers == facts.pipeline.workers:
        return f"With prefetch_factor={better.prefetch}"
    return f"With {units.plural(better.workers, 'worker')}"


def _batches_in_a_step(facts: Facts) -> float:
    steps = sum(rank.steps.or_zero() for rank in facts.speed.ranks) + facts.speed.warmup.or_zero() * len(
        facts.speed.ranks
    )
    return max(1.0, round(facts.loading.batches["count"].or_zero() / steps)) if steps else 1.0
