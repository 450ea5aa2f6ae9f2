"""The curve of the loss: where it begins and ends, how much it scatters, and its spikes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sonde.diagnosis.figures import NOTHING, Asker, Figure, literal

if TYPE_CHECKING:
    from sonde.diagnosis.policy import Policy

BLOCKS = 20  # the curve in parts of equal length
FIRST = 10  # losses of the beginning
LOCAL = 100  # losses beside each other that a spike is compared with
MOST_SPIKES = 20  # that are listed
MOST_ITEMS = 64  # of a batch that are listed


@dataclass(frozen=True)
class Spike:
    """A loss far above those around it."""

    step: int
    loss: float
    usual: float  # the median around it
    items: list[int]  # indices of its batch, if they are known


@dataclass(frozen=True)
class LossCurve:
    """That of one process. Nothing is known of programs whose losses were not seen."""

    losses: Figure = NOTHING
    optimizers: Figure = NOTHING
    least: Figure = NOTHING
    top: Figure = NOTHING  # the highest of the first losses
    begin: Figure = NOTHING  # median of the first losses
    best: Figure = NOTHING  # the lowest median of a part after the first
    end: Figure = NOTHING  # median of the last tenth
    scatter: Figure = NOTHING  # median over the parts: between the quartiles
    epochs: Figure = NOTHING
    spikes: list[Spike] = field(default_factory=list)
    spiked: Figure = NOTHING

    @property
    def single(self) -> bool:
        """Is it one loss that is to become smaller? Not of several optimizers, which may work against each other, nor below 0."""
        return self.optimizers.or_zero() <= 1 and self.least.or_zero() >= 0


def gather_curve(ask: Asker, policy: Policy, process: str) -> LossCurve:
    """Ask about the losses of a process."""
    here = f"steps WHERE process = {literal(process)} AND loss IS NOT NULL AND isfinite(loss)"
    count = ask.one(here, {"losses": "count(*)", "least": "min(loss)", "epochs": "count(DISTINCT epoch)"})
    if count["losses"].or_zero() < FIRST:
        return LossCurve()
    parts = f"(SELECT loss, step, ntile({BLOCKS}) OVER (ORDER BY step, start_ns) AS part, row_number() OVER (ORDER BY step, start_ns) AS place FROM {here})"
    each = (
        f"(SELECT part, median(loss) AS middle, quantile_cont(loss, 0.75) - quantile_cont(loss, 0.25) AS scatter "
        f"FROM {parts} GROUP BY part)"
    )
    optimizers = ask.one(f"losses WHERE process = {literal(process)}", {"count": "count(DISTINCT optimizer)"})["count"]
    ends = ask.one(
        parts,
        {
            "top": f"max(loss) FILTER (place <= {FIRST})",
            "begin": f"median(loss) FILTER (place <= {FIRST})",
            "end": f"median(loss) FILTER (part > {BLOCKS - 2})",
        },
    )
    over = ask.one(each, {"best": "min(middle) FILTER (part > 1)", "scatter": "median(scatter)"})
    curve = LossCurve(
        count["losses"], optimizers, count["least"], ends["top"], ends["begin"], over["best"], ends["end"], over["scatter"],
        count["epochs"],
    )  # fmt: skip
    spiked, spikes = _spikes(ask, policy, process, here, curve) if curve.single else (NOTHING, [])
    return replace(curve, spikes=spikes, spiked=spiked)


def _spikes(ask: Asker, policy: Policy, process: str, here: str, curve: LossCurve) -> tuple[Figure, list[Spike]]:
    """Losses far above the others of their part, once the first part is over."""
    placed = f"(SELECT step, loss, (row_number() OVER (ORDER BY step, start_ns) - 1) // {LOCAL} AS part FROM {here})"
    usual = (
        "(SELECT part, median(loss) AS middle, quantile_cont(loss, 0.75) - quantile_cont(loss, 0.25) AS scatter "
        f"FROM {placed} GROUP BY part)"
    )
    floor = policy["loss_spike.begin_share"] * curve.top.or_zero()
    source = (
        f"(SELECT step, loss, middle FROM {placed} JOIN {usual} USING (part) WHERE part > 0 AND loss >= {floor!r} "
        f"AND loss > {policy['loss_spike.times']!r} * middle AND loss > middle + {policy['loss_spike.scatter']!r} * scatter)"
    )
    count = ask.one(source, {"spikes": "count(*)"})["spikes"]
    rows = ask.rows(
        f"SELECT step, loss, middle FROM {source} ORDER BY loss / nullif(middle, 0) DESC LIMIT {MOST_SPIKES}"
    )
    return count, [Spike(step, loss, middle, _items(ask, process, step)) for step, loss, middle in rows]


def _items(ask: Asker, process: str, step: int) -> list[int]:
    rows = ask.rows(
        f"SELECT indices FROM batches WHERE process = {literal(process)} AND step = {step} AND purpose = 'train' AND indices IS NOT NULL"
    )
    return [one for (indices,) in rows for one in indices][:MOST_ITEMS]
