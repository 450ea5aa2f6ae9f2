"""Which ranks the others waited for, step by step: always the same one, a host, neighbours, or changing ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sonde.analysis.questions.items import StepItem, items_of
from sonde.analysis.tables.waits import slowest
from sonde.diagnosis.figures import NOTHING, Asker, Figure
from sonde.diagnosis.speed import AFTER_WARMUP
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sonde.analysis.run import Run
    from sonde.diagnosis.policy import Policy
    from sonde.diagnosis.speed import RankSpeed, Speed

SAMPLE = 400_000  # steps of all ranks that are looked at
MOST_RANKS = 64  # that are listed
LOOKED_AT = 4  # ranks whose items are looked at, each in so many of its slowest steps
MOST_ITEMS = 3
TELLING = 0.05  # of what the others wait in a step, what an item must take to be listed
NOTABLE = 3  # an item is listed beside the slowest if that took no more than so many times as long


@dataclass(frozen=True)
class SlowestRank:
    """A rank, the steps in which it was the slowest, and how long the others waited in these, in ns.

    `items`: the slowest of these steps. `longest_ns`: how long the others waited in the few in which they waited longest.
    """

    rank: int | None
    host: str
    process: str
    steps: int
    waited_ns: int
    items: list[StepItem] = field(default_factory=list)
    longest_ns: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Waits:
    """All waiting. `ranks`: whoever was the slowest in a step, the one that the others waited for longest first."""

    steps: Figure = NOTHING  # that all ranks made, of those that were looked at
    waited: Figure = NOTHING  # in these, in ns
    whole: Figure = NOTHING  # what these took, in ns
    ranks: list[SlowestRank] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Of the time of the steps, what ranks waited for another."""
        return self.waited.or_zero() / self.whole.or_zero() if self.whole.or_zero() else 0.0

    def of(self, processes: Collection[str]) -> tuple[int, int]:
        """The steps in which one of these was the slowest, and how long the others waited in them."""
        some = [one for one in self.ranks if one.process in processes]
        return sum(one.steps for one in some), sum(one.waited_ns for one in some)

    def latest(self, least_ns: float) -> SlowestRank | None:
        """The rank that the others waited for in most of the steps in which they waited so long; None: it changes."""
        late = [(one, sum(ns >= least_ns for ns in one.longest_ns)) for one in self.ranks]
        most, steps = max(late, key=lambda pair: pair[1], default=(None, 0))
        return most if 2 * steps > sum(count for _, count in late) else None

    def items(self, processes: Collection[str]) -> list[StepItem]:
        """The slowest items of these in the steps in which the others waited longest."""
        found = [
            item
            for one in self.ranks
            for item in one.items
            if one.process in processes and (item.dur_ns or 0) >= TELLING * one.waited_ns / one.steps
        ]
        found.sort(key=lambda item: item.dur_ns or 0)
        longest = list({item.name: item for item in found}.values())[::-1][:MOST_ITEMS]
        return [item for item in longest if (item.dur_ns or 0) * NOTABLE >= (longest[0].dur_ns or 0)]


@dataclass(frozen=True)
class RankGroup:
    """Ranks that are late together. `name`: a rank, a host with its ranks, or a list; `short`: without them; `several`: it is a list."""

    name: str
    short: str
    several: bool
    pattern: str  # rank, host, neighbours or ranks


def gather_waits(run: Run, ask: Asker, policy: Policy, speed: Speed) -> Waits:
    """Ask the steps of the newest attempt. Of a large job some are looked at."""
    ranks = speed.distributed
    if len(ranks) < 2:
        return Waits()
    every = max(1, int(speed.steps.or_zero() * len(ranks) // SAMPLE))
    sample = f"{AFTER_WARMUP} AND rank IS NOT NULL" + (f" AND step % {every} = 0" if every > 1 else "")
    if len({one.attempt for one in speed.ranks}) > 1:
        sample += f" AND process IN (SELECT process FROM processes WHERE attempt = {ranks[0].attempt})"
    each = slowest(f"(SELECT * FROM steps WHERE {sample})", "step", str(len(ranks)))
    found = ask.rows(
        f"SELECT process, count(*), sum(waited_ns)::BIGINT, list(step ORDER BY waited_ns DESC, step)[:{LOOKED_AT}], "
        f"list(waited_ns ORDER BY waited_ns DESC)[:{LOOKED_AT}] FROM ({each}) "
        "GROUP BY process ORDER BY 3 DESC, 1"
    )
    hosts = {one.process: one for one in ranks}
    known = [(hosts[process], *rest) for process, *rest in found if process in hosts]
    whole = f"SELECT sum(dur_ns) / {len(ranks)} FROM steps WHERE {sample} AND step IN (SELECT step FROM ({each}))"
    ((total,),) = ask.rows(whole)
    waited = sum(waited for _, _, waited, *_ in known)
    matters = bool(total) and waited >= total * policy["straggler.warn_share"]  # looking for items takes a while
    slow = [(one.process, step) for one, _, _, steps, _ in known[:LOOKED_AT] for step in steps] if matters else []
    loads = _loads(run, ask, slow)
    return Waits(
        Figure(sum(steps for _, steps, *_ in known), f"SELECT count(*) FROM ({each})"),
        Figure(waited, f"SELECT sum(waited_ns)::BIGINT FROM ({each})"),
        Figure(None if total is None else float(total), whole),
        [
            SlowestRank(one.rank, one.host, one.process, steps, ns, loads.get(one.process, []), longest)
            for one, steps, ns, _, longest in known[:MOST_RANKS]
        ],
    )


def _loads(run: Run, ask: Asker, wanted: Sequence[tuple[str, int]]) -> dict[str, list[StepItem]]:
    """The items of some steps, by process."""
    if not wanted or not ask.seen(probe.PROBE, (probe.FETCH,)):
        return {}
    found: dict[str, list[StepItem]] = {}
    for (process, _), items in items_of(run, list(wanted), MOST_ITEMS).items():
        found.setdefault(process, []).extend(item for item in items if item.dur_ns is not None)
    return found


def group(late: Sequence[RankSpeed], ranks: Sequence[RankSpeed], most: float) -> RankGroup:
    """What ranks that are late are called together. `most`: of the ranks of a host so many, as a share, are the host."""
    numbers = sorted(one.rank for one in late if one.rank is not None)
    if len(late) < 2:
        one = f"rank {numbers[0]}" if numbers else "the process"
        return RankGroup(one, one, False, "rank")
    hosts = sorted({one.host for one in late})
    sizes = {host: sum(one.host == host for one in ranks) for host in hosts}
    there = {host: sum(one.host == host for one in late) for host in hosts}
    whole = all(there[host] > 1 and there[host] >= most * sizes[host] for host in hosts)
    if whole and len({one.host for one in ranks}) > len(hosts):
        names = f"host{'s' if len(hosts) > 1 else ''} {', '.join(hosts)}"
        return RankGroup(f"{names} ({listed(numbers)})", names, len(hosts) > 1, "host")
    names = listed(numbers)
    return RankGroup(names, names, True, "neighbours" if numbers[-1] - numbers[0] == len(numbers) - 1 else "ranks")


def listed(numbers: Sequence[int]) -> str:
    """`ranks 4 to 7, 9`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [str(one[0]) if len(one) == 1 else f"{one[0]} to {one[-1]}" for one in runs]
    shown = f"{', '.join(words[:6])} and {len(words) - 6} more" if len(words) > 7 else ", ".join(words)
    return f"rank{'s' if len(numbers) > 1 else ''} {shown}"
