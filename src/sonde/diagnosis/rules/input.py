"""INPUT_BOUND: training waits for its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import enough_steps, finding, graded
from sonde.diagnosis.figures import Figure
from sonde.diagnosis.speed import TRAIN
from sonde.finding import WARN

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy
    from sonde.finding import Finding


SEQUENCE = (1, 2, 4, 8, 16, 32, 64)


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
    better, shown = what_if(facts, policy), facts.speed.shown("input_wait")
    why = f"Steps wait {units.duration(facts.speed.each('input_wait'))} for data on average, {units.share(shown.value)} of the step time."
    if facts.speed.inferred:
        why += " No loader was seen, so this is the time between an update and the next forward."
    elif facts.loading.main is not None and facts.loading.batches["fetch"].value is not None:
        workers = facts.loading.main.workers
        by = "in the training process" if not workers else units.plural(workers, "worker")
        why += f" Loading a batch takes {units.duration(facts.loading.batches['fetch'].value)} ({by})."
    if better is not None:
        how = f"With {units.plural(better[0], 'worker')}" if better[0] else "Without workers"
        why += f" {how}: about {units.times(better[1])} as fast."
    return finding(
        "INPUT_BOUND", severity, 0.6 if facts.speed.inferred else 0.95, why, _next(facts, better),
        score=share.value,
        figures={
            "share of the step time": shown, "share of the training time in a median step": share,
            "waiting in a median step ns": waited,
            "median batch load ns": facts.loading.batches["fetch"],
            "mean batch load ns": facts.loading.batches["mean_fetch"],
            "median item load ns": facts.loading.items["p50"],
        },
        ranks=[rank.rank for rank in facts.speed.ranks if rank.share["input_wait"].or_zero() >= (share.value or 0)],
        what_if=None if better is None else {"workers": better[0], "speedup": round(better[1], 2)},
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


def _next(facts: Facts, better: tuple[int, float] | None) -> str:
    main = facts.loading.main
    if better is not None and not better[0]:
        return (
            "Set num_workers=0 or use larger batches: passing a batch between processes takes longer than loading it."
        )
    if better is not None and main is not None:
        return f"The DataLoader has num_workers={main.workers}: try {better[0]}, or make items cheaper to load."
    if main is not None and not main.workers:
        return "Load in DataLoader workers (num_workers), or make items cheaper to load."
    if main is None:
        return (
            "Load the next step's data while the current step computes: in a thread, or with a DataLoader and workers."
        )
    if facts.loading.batches["fetch"].or_zero() < facts.speed.middle("input_wait")[1].or_zero():
        return (
            "Pass less between processes: larger batches with fewer and smaller tensors. Leave the workers a free core."
        )
    return "Make items cheaper to load: cache them, store them decoded, or move work out of __getitem__."


def what_if(facts: Facts, policy: Policy) -> tuple[int, float] | None:
    """How many workers are enough, and the speed-up. It uses the measured time to load a batch and the cost of starting
    workers for each epoch.
    """
    main, fetch = facts.loading.main, facts.loading.batches["mean_fetch"].value
    ranks = [rank for rank in facts.speed.ranks if rank.usual["input_wait"].value is not None]
    if main is None or main.workers is None or not fetch or not ranks:
        return None
    ranks.sort(key=lambda rank: rank.usual["input_wait"].or_zero())
    usual = ranks[(len(ranks) - 1) // 2].usual
    step = usual[TRAIN].or_zero()
    computing = step - usual["input_wait"].or_zero()
    making = fetch * _batches_in_a_step(facts)
    if main.workers and (making / main.workers <= computing or step > 1.5 * making / main.workers):
        # Making batches is not what takes so long, but handing them over: more who make them will not help.
        alone = step / (computing + making)
        return (0, alone) if alone >= 1.1 else None
    tried = [number for number in SEQUENCE if main.workers < number <= _most_workers(facts, policy)]
    if not tried or computing <= 0:
        return None
    start = 1e6 * policy["input_bound.start_ms"] / _steps_in_a_round(facts)
    paces = {number: max(computing, making / number) + number * start for number in tried}
    enough = next(number for number in tried if paces[number] <= 1.05 * min(paces.values()))
    return (enough, step / paces[enough]) if step / paces[enough] >= 1.1 else None


def _steps_in_a_round(facts: Facts) -> float:
    """Over how many steps the start of workers is spread: those of one round over the data."""
    rounds = facts.loading.main.rounds if facts.loading.main is not None else 1.0
    return max(1.0, (facts.speed.steps.or_zero() + facts.speed.warmup.or_zero()) / max(1.0, rounds))


def _most_workers(facts: Facts, policy: Policy) -> float:
    """Loading may wait for disks as well as compute, so that a few more workers than cores can help; many cannot."""
    cores = max((host.figures["cores"].or_zero() for host in facts.health.hosts), default=0.0)
    most: float = policy["input_bound.most_workers"]
    return min(most, max(4.0, 2 * cores)) if cores else most


def _batches_in_a_step(facts: Facts) -> float:
    steps = sum(rank.steps.or_zero() for rank in facts.speed.ranks) + facts.speed.warmup.or_zero() * len(
        facts.speed.ranks
    )
    return max(1.0, round(facts.loading.batches["count"].or_zero() / steps)) if steps else 1.0
