"""Learning rates over the run: for how many steps one was near zero, and where it jumped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sonde.diagnosis.figures import NOTHING, Asker, Figure, Figures, literal
from sonde.store import probe

if TYPE_CHECKING:
    from sonde.diagnosis.policy import Policy


@dataclass(frozen=True)
class Rate:
    """That of one parameter group. `most`: the highest; `zero_steps`: with next to none, once it had been high; `first_zero`: the first of them."""

    optimizer: int
    group: int
    figures: Figures  # most, first, last, zero_steps, first_zero, jump, jump_step, before, after

    @property
    def name(self) -> str:
        """`parameter group 1`, and whose, if there are several optimizers."""
        return f"parameter group {self.group} of optimizer {self.optimizer}"


@dataclass(frozen=True)
class LearningRates:
    """Those of one process."""

    steps: Figure = NOTHING
    groups: list[Rate] = field(default_factory=list)


def gather_rates(ask: Asker, policy: Policy, process: str) -> LearningRates:
    """Ask about the rates of a process."""
    here = f"process = {literal(process)}"
    steps = ask.one(f"steps WHERE {here}", {"count": "count(*)", "last": "max(step)"})
    if not ask.seen(probe.PROBE, (probe.RATE,)) or not steps["count"].or_zero():
        return LearningRates(steps["count"])
    end = int(steps["last"].or_zero()) + 1
    changes = (
        f"(SELECT key, step, value, coalesce(lead(step) OVER w, {end}) - step AS steps, lag(value) OVER w AS before, "
        "max(value) OVER (PARTITION BY key ORDER BY step, start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier, "
        "max(value) OVER (PARTITION BY key) AS most FROM events "
        f"WHERE kind = 'counter' AND cat = '{probe.PROBE}' AND name = '{probe.RATE}' AND {here} AND step IS NOT NULL "
        "WINDOW w AS (PARTITION BY key ORDER BY step, start_ns))"
    )
    low = f"value <= {policy['learning_rate.zero_share']!r} * most AND (earlier >= 0.1 * most OR most = 0)"
    jump = "value / nullif(earlier, 0)"
    columns = {
        "most": "max(most)",
        "first": "arg_min(value, step)",
        "last": "arg_max(value, step)",
        "zero_steps": f"sum(steps) FILTER ({low})",
        "first_zero": f"min(step) FILTER ({low})",
        "jump": f"max({jump})",
        "jump_step": f"arg_max(step, {jump})",
        "before": f"arg_max(earlier, {jump})",
        "after": f"arg_max(value, {jump})",
    }
    rows = ask.by(["key"], changes, columns)
    mask = (1 << probe.GROUP_BITS) - 1
    return LearningRates(
        steps["count"],
        [Rate(int(row.which["key"]) >> probe.GROUP_BITS, int(row.which["key"]) & mask, row) for row in rows],
    )
