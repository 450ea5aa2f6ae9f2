"""What else differs between two runs: phases, ranks, layers, memory, items, findings and settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sonde.compare import confidence
from sonde.compare.confidence import FASTER, INCONCLUSIVE, SAME, SLOWER, Change, Interval
from sonde.compare.ratio import MARGINS, Ratio, ratio_of
from sonde.compare.summary import FoundProblem, ItemTime, Summary, as_blocks
from sonde.lazy import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SMALL = 0.01  # of a step: a phase that changes by less is not mentioned


@dataclass(frozen=True)
class Phase:
    """A phase of a step: its mean, and B - A with its interval, in ns."""

    phase: str
    a_ns: float | None
    b_ns: float | None
    difference_ns: float | None
    low_ns: float | None
    high_ns: float | None
    verdict: str | None


@dataclass(frozen=True)
class Named:
    """A rank, a layer or a kind of memory, and its ratio."""

    name: str
    ratio: Ratio


@dataclass(frozen=True)
class ComparedItems:
    """The items that loaders loaded. `slower` and `faster`: of those that were among the slowest of either run."""

    a: int
    b: int
    load: Ratio
    rows: list[ItemRow]


@dataclass(frozen=True)
class ItemRow:
    """An item that was among the slowest of one run. None: it was not among those of that run."""

    item: str
    a_ns: float | None
    b_ns: float | None


@dataclass(frozen=True)
class Findings:
    """Findings that only B has, only A has, and both."""

    new: list[FoundProblem]
    gone: list[FoundProblem]
    both: list[FoundProblem]


@dataclass(frozen=True)
class ChangedSetting:
    """Something that both runs were made with, and that differs. None: not recorded, or not there."""

    name: str
    a: Any
    b: Any


def compared_phase(a: Summary, b: Summary, part: str, margin: float, cuts: Sequence[int] = (0, 0)) -> Phase:
    """A phase that one run never had took no time in it. `cuts`: how many first blocks of each run were its warm-up."""
    mine, theirs = (one.steps.phase(part)[cut:] for one, cut in zip((a, b), cuts, strict=True))
    if not a.steps.means or not b.steps.means:
        return Phase(part, _mean(mine), _mean(theirs), None, None, None, None)
    mine, theirs = (one if one.size else np.zeros((confidence.LEAST_BLOCKS, 1)) for one in (mine, theirs))
    found = confidence.change(mine, theirs)
    assert found is not None  # neither is empty
    verdict = _verdict_of(found, margin * float(mine.mean()), SMALL * (a.steps.mean_ns or 0.0))
    return Phase(part, _mean(mine), _mean(theirs), found.difference, found.low, found.high, verdict)


def _mean(blocks: NDArray[np.float64]) -> float | None:
    return float(blocks.mean()) if blocks.size else None


def _verdict_of(change: Change, margin: float, floor: float) -> str:
    least = max(margin, floor)
    if change.low > least:
        return SLOWER
    if change.high < -least:
        return FASTER
    return SAME if -least <= change.low and change.high <= least else INCONCLUSIVE


def compared_ranks(a: Summary, b: Summary, margin: float) -> list[Named]:
    others = {one.rank: one for one in b.ranks}
    found = []
    for one in a.ranks:
        other = others.get(one.rank)
        if one.rank is not None and other is not None:
            interval = _interval(one.blocks, other.blocks)
            found.append(Named(f"rank {one.rank}", ratio_of(one.p50_ns, other.p50_ns, interval, margin)))
    return found


def compared_layers(a: Summary, b: Summary, margin: float) -> list[Named]:
    """Layers that both have, the largest change first."""
    others = {one.layer: one for one in b.layers}
    found = [
        Named(
            one.layer,
            ratio_of(one.mean_ns, others[one.layer].mean_ns, _interval(one.blocks, others[one.layer].blocks), margin),
        )
        for one in a.layers
        if one.layer in others
    ]
    return sorted(found, key=lambda one: -abs((one.ratio.b or 0.0) - (one.ratio.a or 0.0)))


def compared_memory(a: Summary, b: Summary) -> list[Named]:
    """The mean while it trained, with its interval; and the most, which is one moment and has none."""
    found = []
    for name, one in a.memory.items():
        other = b.memory.get(name)
        if other is not None:
            means = float(np.mean(one.blocks)), float(np.mean(other.blocks))
            found.append(Named(f"{name}, mean", ratio_of(*means, _interval(one.blocks, other.blocks), MARGINS["mean"])))
            found.append(Named(f"{name}, peak", Ratio(one.peak, other.peak, other.peak / one.peak)))
    return found


def _interval(one: list[float], other: list[float]) -> Interval | None:
    return confidence.ratio(
        np.array(one, np.float64).reshape(-1, 1), np.array(other, np.float64).reshape(-1, 1), "mean"
    )


def compared_items(a: Summary, b: Summary, margin: float) -> ComparedItems:
    blocks = [as_blocks(one.items.points) for one in (a, b)]
    load = ratio_of(a.items.p50_ns, b.items.p50_ns, confidence.ratio(blocks[0], blocks[1], "p50"), margin)
    mine, theirs = ({item.name: item for item in one.items.slowest} for one in (a, b))
    names = sorted({*mine, *theirs}, key=lambda name: -max(_of(mine, name) or 0.0, _of(theirs, name) or 0.0))
    rows = [ItemRow(name, _of(mine, name), _of(theirs, name)) for name in names]
    return ComparedItems(a.items.different, b.items.different, load, rows)


def _of(items: dict[str, ItemTime], name: str) -> float | None:
    return items[name].median_ns if name in items else None


def compared_findings(a: Summary, b: Summary) -> Findings:
    mine, theirs = ({one.kind for one in run.findings} for run in (a, b))
    return Findings(
        new=[one for one in b.findings if one.kind not in mine],
        gone=[one for one in a.findings if one.kind not in theirs],
        both=[one for one in b.findings if one.kind in mine],
    )


def differing(a: dict[str, Any], b: dict[str, Any]) -> list[ChangedSetting]:
    """What differs between two setups, in the order of the first."""
    return [ChangedSetting(name, a.get(name), b.get(name)) for name in {**a, **b} if a.get(name) != b.get(name)]


def shown(value: object) -> str:
    """A value of a setting in a few words."""
    if value is None:
        return "not recorded"
    text = (", ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
