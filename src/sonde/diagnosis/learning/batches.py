"""What batches are like: their classes, and how many of them go into an update."""

from __future__ import annotations

from dataclasses import dataclass, field

from sonde.diagnosis.figures import Asker, Figures, literal
from sonde.store import probe

MOST_LOSSES = 2_000_000  # that are loaded to see by what they were divided


@dataclass(frozen=True)
class SampledBatches:
    """Those of one process."""

    labels: list[Figures] = field(default_factory=list)  # of each field of labels
    micro: Figures = field(default_factory=lambda: Figures({}, {}))  # how losses are divided


def gather_batches(ask: Asker, process: str) -> SampledBatches:
    """Ask about the batches of a process."""
    here = f"process = {literal(process)}"
    labels: list[Figures] = []
    if ask.has(probe.FIELD):
        labels = ask.by(
            ["field"],
            "fields",
            {
                "batches": "count(*)",
                "single": 'count(*) FILTER ("distinct" = 1 AND size >= 8)',
                "classes": 'count(DISTINCT low) FILTER ("distinct" = 1 AND size >= 8)',
                "low": "min(low)",
                "high": "max(high)",
                "size": "median(size)",
                "step": 'min(step) FILTER ("distinct" = 1 AND size >= 8)',
            },
            f'{here} AND "distinct" IS NOT NULL AND step IS NOT NULL',
        )
    if not ask.seen(probe.PROBE, (probe.LOSS,)):
        return SampledBatches(labels)
    micro = ask.one(
        f"steps WHERE {here} AND NOT warmup",
        {"batches": "mode(batches)", "micro": "mode(micro_batches)", "steps": "count(*)"},
    )
    count = micro["steps"].or_zero() * micro["micro"].or_zero()
    if micro["micro"].or_zero() > 1 and count <= MOST_LOSSES:
        losses = f"events WHERE kind = 'counter' AND cat = '{probe.PROBE}' AND name = '{probe.LOSS}' AND {here}"
        usual = f"(SELECT coalesce(key, 0) AS divisor, count(*) AS times FROM {losses} GROUP BY 1)"
        columns = {"divisor": "arg_max(divisor, times)", "times": "max(times)", "losses": "sum(times)"}
        micro = Figures({}, {**micro, **ask.loaded(usual, columns)})
    return SampledBatches(labels, micro)
