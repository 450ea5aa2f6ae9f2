"""How fast a run trained: step time and its phases, after the warm-up, for each rank and over time; who waits for whom.

Where time goes is measured by blocks of consecutive steps: loaders with n workers deliver in bursts of n, so that single steps wait
either not at all or long. A block has the mean of its steps, and the median over the blocks counts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sonde.analysis.records.schema import PHASES, RESIDUAL
from sonde.analysis.tables.steps import ROWS
from sonde.analysis.training.reader import DEVICE_TIMES
from sonde.diagnosis.figures import NOTHING, Asker, Figure, Figures, literal
from sonde.store import probe
from sonde.store.alive import REPLACED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sonde.diagnosis.policy import Policy

PARTS = (*PHASES, RESIDUAL)
TRAIN = "train"  # what a step takes without evaluation and checkpoints
TRAIN_NS = "(dur_ns - coalesce(evaluation_ns, 0) - coalesce(checkpoint_ns, 0))"
AFTER_WARMUP = "NOT warmup AND residual_ns IS NOT NULL"
SEGMENTS = 10  # of the run, to see whether it becomes slower
SAMPLE = 400_000  # steps: of more than that, quantiles are taken of some blocks
MOST_STEPS = 10  # that are listed
_HIDDEN = ("input_wait", "h2d", "residual")  # what the host may do while a device works
FIRST_STEPS = 1000  # among which the first call of a phase is compared with the later ones
MOSTLY = 1.1  # what comes after the last step is in no residual
STARTS = f"""
    SELECT DISTINCT step FROM events WHERE kind = 'span' AND cat = '{probe.PROBE}' AND name = '{probe.ITER}'
    AND step IS NOT NULL AND try_cast(args->>'$.workers' AS BIGINT) > 0
"""


@dataclass(frozen=True)
class RankSpeed:
    """One process that trained. `usual`: the time of each phase in a step of a usual block, in ns; `share`: of `train`.

    `low`: what three quarters of the steps take at least, in ns; only of a job of several ranks.
    """

    rank: int | None
    host: str
    pid: int | None
    process: str
    steps: Figure
    first_step: int | None
    last_step: int | None
    p50_ns: Figure
    p95_ns: Figure
    p99_ns: Figure
    usual: Figures
    share: Figures
    low: Figures
    attempt: int | None = None  # of the job


@dataclass(frozen=True)
class Spread:
    """How a time is spread over the steps after the warm-up, in ns. `seen`: in so many steps."""

    seen: Figure
    mean: Figure
    p50: Figure
    p95: Figure
    p99: Figure
    most: Figure
    total: Figure


@dataclass(frozen=True)
class LongStep:
    """One of the slowest steps after the warm-up. `phases` in ns, only those that it has."""

    process: str
    rank: int | None
    step: int
    dur_ns: int
    train_ns: int
    phases: dict[str, int]


@dataclass(frozen=True)
class Spikes:
    """Steps that take several times the usual one. `excess`: what they take more, by phase, in ns."""

    least_ns: float | None = None
    steps: Figure = NOTHING
    lost: Figure = NOTHING
    excess: Figures = field(default_factory=lambda: Figures({}, {}))


@dataclass(frozen=True)
class DeviceTimes:
    """What a device did in a step, by phase, on average in ns. `share`: of all step time; `host_ns`: what the host had of these phases."""

    phases: dict[str, Figure]
    share: Figure
    host_ns: float

    @property
    def all_ns(self) -> float:
        """All phases together."""
        return sum(one.or_zero() for one in self.phases.values())

    @property
    def idle(self) -> Figure:
        """The share of the step time in which it had nothing to do."""
        return Figure(max(0.0, 1 - self.share.or_zero()), f"SELECT greatest(0, 1 - ({self.share.query}))")

    def lags(self, times: float) -> bool:
        """Whether it is still at work when the host has long gone on: then it decides how long a step takes."""
        return self.all_ns > times * self.host_ns


@dataclass(frozen=True)
class FirstCall:
    """A phase whose first time took many times as long as the later ones: compiling, caches, other lazy work. In ns."""

    first: Figure
    later: Figure  # the median

    @property
    def excess(self) -> float:
        """What the first time took more."""
        return self.first.or_zero() - self.later.or_zero()


@dataclass(frozen=True)
class Speed:
    """All of it. `whole`: totals of the rank with the most steps, with the warm-up and what came after the last step; of a run
    without steps, the evaluation and the backward passes.
    """

    steps: Figure = NOTHING  # after the warm-up, of the rank that has the most
    warmup: Figure = NOTHING
    trained: frozenset[str] = frozenset()  # the processes that have steps
    ranks: list[RankSpeed] = field(default_factory=list)
    step: Spread | None = None
    train: Spread | None = None
    phases: dict[str, Spread] = field(default_factory=dict)  # that were seen
    whole: Figures = field(default_factory=lambda: Figures({}, {}))
    segments: list[Figures] = field(default_factory=list)  # medians, from the first tenth of the steps to the last
    spikes: Spikes = field(default_factory=Spikes)
    slowest: list[LongStep] = field(default_factory=list)
    together: Figures = field(default_factory=lambda: Figures({}, {}))  # over steps that several ranks made together
    inferred: bool = False  # input wait is no measurement, but what lay between update and forward
    device: DeviceTimes | None = None  # where there is one
    startup: dict[str, FirstCall] = field(default_factory=dict)  # by phase
    named: dict[str, Figure] = field(default_factory=dict)  # the program's own spans outside of phases: time in all

    def middle(self, phase: str) -> tuple[Figure, Figure]:
        """Share and time of a phase in a usual step, of the rank in the middle: half of the ranks have no more.

        While a device is at work, waiting of the host costs nothing: no more counts of it than the device is idle.
        """
        known = [rank for rank in self.ranks if rank.share[phase].value is not None]
        known.sort(key=lambda rank: rank.share[phase].or_zero())
        if not known:
            return NOTHING, NOTHING
        rank = known[(len(known) - 1) // 2]
        share = rank.share[phase]
        if self.device is not None and phase in _HIDDEN and self.device.idle.or_zero() < share.or_zero():
            share = self.device.idle
        return share, rank.usual[phase]

    def shown(self, *phases: str) -> Figure:
        """The share of some phases of all step time after the warm-up: the one that verdict, table and page show."""
        known = [self.phases[phase].total.or_zero() for phase in phases if phase in self.phases]
        if not known or self.step is None or not self.step.total.value:
            return NOTHING
        spent = " + ".join(f"coalesce(sum({phase}_ns), 0)" for phase in phases if phase in self.phases)
        return Figure(
            sum(known) / self.step.total.value, f"SELECT ({spent}) / sum(dur_ns) FROM steps WHERE {AFTER_WARMUP}"
        )

    def each(self, phase: str) -> float | None:
        """What a phase takes in a step on average, in ns: its share of the mean step."""
        share = self.shown(phase).value
        return None if share is None or self.step is None else share * self.step.mean.or_zero()

    @property
    def distributed(self) -> list[RankSpeed]:
        """The ranks of a job of several, one process each, of the newest attempt with all; empty if it is none."""
        attempts = Counter(rank.attempt or 0 for rank in self.ranks if rank.rank is not None)
        newest = max(attempts, key=lambda attempt: (attempts[attempt], attempt), default=0)
        ranks = {rank.rank: rank for rank in self.ranks if rank.rank is not None and (rank.attempt or 0) == newest}
        return list(ranks.values()) if len(ranks) > 1 else []


def gather_speed(ask: Asker, policy: Policy, workers: int) -> Speed:
    """Ask the steps of a run for everything. `workers`: of the loader that has the most."""
    counts = ask.by(["rank", "process", "host", "pid"], "steps", _COUNTS)
    if not counts:
        return Speed(whole=ask.one("phases", _WITHOUT_STEPS))
    longest = max(counts, key=lambda row: row["steps"].or_zero())
    seen = [part for part in PARTS if any(row[part].or_zero() for row in counts)]
    steps = int(longest["steps"].or_zero())
    attempts = dict(ask.rows("SELECT process, attempt FROM processes"))
    about = [_about(row, attempts) for row in _ranks_of(ask, counts)]
    speed = Speed(
        steps=longest["steps"],
        warmup=longest["warmup"],
        trained=frozenset(str(row.which["process"]) for row in counts),
        ranks=[_rank(one, {}, {}, {}) for one in about],
        whole=_whole(ask, _safe(longest)),
        inferred=_inferred(ask, seen),
    )
    speed = replace(speed, startup=_startup(ask, policy, _safe(longest), seen))
    speed = replace(speed, named=_named(ask, str(longest.which["process"]), speed.whole["residual"].or_zero()))
    if not steps or not seen:
        return speed
    return _Gathering(ask, policy, seen, steps, about, workers).fill(speed)


def _ranks_of(ask: Asker, counts: list[Figures]) -> list[Figures]:
    """One row for each rank: without a program in whose place another one went on training in the same process."""
    trained = {row.which["process"] for row in counts}
    rows = ask.rows(
        "SELECT p.process, later.process FROM processes p JOIN processes later USING (host, pid) "
        f"WHERE p.reason = '{REPLACED}' AND later.start_ns > p.start_ns"
    )
    gone = {process for process, later in rows if later in trained}
    return [row for row in counts if row.which["process"] not in gone]


def _about(row: Figures, attempts: Mapping[str, int | None]) -> tuple[Any, ...]:
    who = row.which
    process = who["process"]
    return process, who["rank"], who["host"], who["pid"], row.number("first"), row.number("last"), attempts[process]


def _rank(
    about: tuple[Any, ...], counts: Mapping[str, Figures], usual: Mapping[str, Figures], share: Mapping[str, Figures]
) -> RankSpeed:
    process, rank, host, pid, first, last, attempt = about
    nothing = Figures({}, {})
    of = counts.get(process, nothing)
    low = Figures({}, {part: of[f"low {part}"] for part in PARTS if f"low {part}" in of})
    return RankSpeed(
        rank, host, pid, process, of["steps"], first, last, of["p50"], of["p95"], of["p99"],
        usual.get(process, nothing), share.get(process, nothing), low, attempt,
    )  # fmt: skip


def _safe(row: Figures) -> str:
    return str(row.which["process"]).replace("'", "''")


def _whole(ask: Asker, process: str) -> Figures:
    """The totals of a process. Its steps have them side by side, so that nine rows for each need not be made."""
    columns = [f"sum({phase}_ns), count({phase}_ns)" for phase in PHASES]
    columns.append("sum(residual_ns) FILTER (whole), count(residual_ns) FILTER (whole)")
    (found,) = ask.rows(f"SELECT {', '.join(columns)} FROM {ROWS} WHERE process = '{process}'")
    sums, counts = dict(zip(PARTS, found[::2], strict=True)), dict(zip(PARTS, found[1::2], strict=True))
    known = [value for value in sums.values() if value is not None]
    values = {"whole": sum(known) if known else None, **sums, **{f"{part}_steps": counts[part] for part in PARTS}}
    source = f"phases WHERE process = '{process}'"
    return Figures({}, {name: Figure(values[name], f"SELECT {what} FROM {source}") for name, what in _TOTALS.items()})


def _startup(ask: Asker, policy: Policy, process: str, seen: list[str]) -> dict[str, FirstCall]:
    """The phases that began with lazy work, of those that come in every step or now and then."""
    found = {}
    for part in seen:
        if part in ("residual", "input_wait"):  # waiting for the first batch is the start of workers
            continue
        rows = f"SELECT start_ns, dur_ns FROM phases WHERE process = '{process}' AND phase = '{part}'"
        row = ask.one(
            f"({rows} ORDER BY start_ns LIMIT {FIRST_STEPS})",
            {"first": "arg_min(dur_ns, start_ns)", "later": "quantile_disc(dur_ns, 0.5)", "count": "count(*)"},
        )
        one = FirstCall(row["first"], row["later"])
        lazy = one.first.or_zero() >= policy["startup.times"] * one.later.or_zero()
        if lazy and row["count"].at_least(2) and one.excess >= 1e9 * policy["startup.least_s"]:
            found[part] = one
    return found


def _inferred(ask: Asker, seen: list[str]) -> bool:
    if "input_wait" not in seen:
        return False
    return not ask.seen(probe.PROBE, (probe.INPUT_WAIT, probe.PREFETCH)) and not ask.rows(
        "SELECT 1 FROM phases WHERE phase = 'input_wait' AND calls IS NOT NULL LIMIT 1"
    )


def _named(ask: Asker, process: str, residual: float) -> dict[str, Figure]:
    """The program's own spans that lie in no phase and hold no other span, the largest first."""
    source = f"events WHERE kind = 'span' AND process = {literal(process)}"
    return {
        name: Figure(total, f"SELECT sum(dur_ns) FROM {source} AND cat = {literal(cat)} AND name = {literal(name)}")
        for cat, name, total in ask.named_time(process)
        if total <= residual * MOSTLY
    }


_COUNTS = {
    "steps": f"count(*) FILTER ({AFTER_WARMUP})",
    "warmup": "count(*) FILTER (warmup)",
    "first": "min(step)",
    "last": "max(step)",
    **{part: f"count({part}_ns)" for part in PARTS},
}
_WITHOUT_STEPS = {
    "evaluation": "sum(dur_ns) FILTER (phase = 'evaluation')",
    "evaluation_calls": "sum(calls) FILTER (phase = 'evaluation')",
    "backward_calls": "sum(calls) FILTER (phase = 'backward')",
}
_TOTALS = {
    "whole": "sum(dur_ns)",
    **{part: f"sum(dur_ns) FILTER (phase = '{part}')" for part in PARTS},
    **{f"{part}_steps": f"count(*) FILTER (phase = '{part}')" for part in ("checkpoint", "evaluation")},
}


class _Gathering:
    """The queries over the steps after the warm-up, of a run that has some."""

    def __init__(
        self, ask: Asker, policy: Policy, seen: list[str], steps: int, about: list[tuple[Any, ...]], workers: int
    ) -> None:
        self._ask = ask
        self._about = about
        self._policy = policy
        self._seen = seen
        wanted = max(int(policy["steps.block"]), 2 * workers)
        self._block = max(1, min(wanted, steps // int(policy["steps.least_blocks"])))
        self._where = AFTER_WARMUP
        if ask.rows(f"{STARTS} LIMIT 1"):
            self._where += f" AND step NOT IN ({' '.join(STARTS.split())})"
        every = -(-steps * len(about) // SAMPLE)
        self._sample = self._where
        if every > 1:
            self._sample += f" AND hash(step // {self._block}) % {every} = 0"
            columns = ("process", "rank", "step", "dur_ns", *(f"{part}_ns" for part in PARTS))
            ask.keep(f"steps WHERE {self._sample}", "sampled_steps", columns)

    def fill(self, speed: Speed) -> Speed:
        """The rest of the facts."""
        spreads = self._spreads()
        ranks = self._ranks()
        speed = replace(speed, step=spreads["dur"], phases={part: spreads[part] for part in self._seen})
        return replace(
            speed,
            ranks=ranks,
            train=spreads[TRAIN],
            device=self._device(speed),
            segments=self._segments(),
            spikes=self._spikes(spreads),
            slowest=self._slowest(),
            together=self._together(ranks),
        )

    def _device(self, speed: Speed) -> DeviceTimes | None:
        if not any(cat == probe.PROBE and name in DEVICE_TIMES.values() for cat, name in self._ask.names("counter")):
            return None
        where = "device_ns IS NOT NULL AND step NOT IN (SELECT step FROM steps WHERE warmup)"
        found = self._ask.by(["phase"], "phases", {"mean": "avg(device_ns)"}, where)
        phases = {str(row.which["phase"]): row["mean"] for row in found}
        if not phases or speed.step is None or not speed.step.mean.value:
            return None
        share = self._ask.one(
            f"(SELECT sum(mean) AS busy FROM (SELECT avg(device_ns) AS mean FROM phases WHERE {where} GROUP BY phase))",
            {"share": f"busy / (SELECT avg(dur_ns) FROM steps WHERE {AFTER_WARMUP})"},
        )["share"]
        return DeviceTimes(phases, share, sum(speed.each(phase) or 0.0 for phase in phases))

    def _spreads(self) -> dict[str, Spread]:
        columns = {"dur": "dur_ns", TRAIN: TRAIN_NS, **{part: f"{part}_ns" for part in self._seen}}
        whole = self._ask.one(
            f"steps WHERE {AFTER_WARMUP}",
            {
                f"{name}.{what}": f"{function}({column})"
                for name, column in columns.items()
                for what, function in (("seen", "count"), ("mean", "avg"), ("most", "max"), ("total", "sum"))
            },
        )
        parts = self._ask.points(f"steps WHERE {self._sample}", columns, {"p50": 0.5, "p95": 0.95, "p99": 0.99})
        figures = {**whole, **parts}
        fields = Spread.__dataclass_fields__
        return {name: Spread(**{what: figures[f"{name}.{what}"] for what in fields}) for name in columns}

    def _blocks(self) -> str:
        sums = ", ".join(f"avg(coalesce({part}_ns, 0)) AS {part}" for part in self._seen)
        return (
            f"(SELECT process, step // {self._block} AS block, avg({TRAIN_NS}) AS {TRAIN}, {sums} FROM steps "
            f"WHERE {self._sample} GROUP BY ALL)"
        )

    def _ranks(self) -> list[RankSpeed]:
        blocks = self._blocks()
        usual = self._ask.by(["process"], blocks, {part: f"median({part})" for part in (TRAIN, *self._seen)})
        share = self._ask.by(["process"], blocks, {part: f"median({part} / nullif({TRAIN}, 0))" for part in self._seen})
        alone = len({rank for _, rank, *_ in self._about}) < 2
        low = {} if alone else {f"low {part}": f"quantile_cont({part}_ns, 0.25)" for part in self._seen}
        counts = self._ask.by(
            ["process"],
            "steps",
            {
                "steps": "count(*)",
                "p50": "quantile_cont(dur_ns, 0.5)",
                "p95": "quantile_cont(dur_ns, 0.95)",
                "p99": "quantile_cont(dur_ns, 0.99)",
                **low,
            },
            self._sample,
        )
        tables = [{str(row.which["process"]): row for row in rows} for rows in (counts, usual, share)]
        return [_rank(about, *tables) for about in self._about]

    def _segments(self) -> list[Figures]:
        (first, last) = self._ask.rows(f"SELECT min(step), max(step) FROM steps WHERE {self._sample}")[0]
        if first is None:
            return []
        place = f"((step - {first}) * {SEGMENTS} // {last - first + 1})"
        columns = {TRAIN: f"median({TRAIN_NS})", "steps": "count(*)"}
        columns |= {part: f"median({part}_ns)" for part in self._seen}
        return self._ask.by([place], "steps", columns, self._sample)

    def _spikes(self, spreads: dict[str, Spread]) -> Spikes:
        usual = spreads[TRAIN].p50.value
        if usual is None:
            return Spikes()
        low, high = self._ask.rows(
            f"SELECT quantile_cont({TRAIN_NS}, 0.25), quantile_cont({TRAIN_NS}, 0.75) FROM steps WHERE {self._sample}"
        )[0]
        least = max(
            usual * self._policy["step_spikes.times"],
            usual + 1e6 * self._policy["step_spikes.least_ms"],
            high + (high - low) * self._policy["step_spikes.scatter"],
        )
        # That the whole step takes so long follows from it, and is quicker to see.
        source = f"steps WHERE {self._where} AND dur_ns >= {int(least)} AND {TRAIN_NS} >= {least!r}"
        columns = {"steps": "count(DISTINCT step)", "lost": f"sum({TRAIN_NS} - {usual!r}) / count(DISTINCT process)"}
        for part in self._seen:
            if part not in ("evaluation", "checkpoint"):
                usually = spreads[part].p50.or_zero()
                columns[part] = f"sum(coalesce({part}_ns, 0) - {usually!r}) / count(DISTINCT process)"
        found = self._ask.one(source, columns)
        excess = Figures({}, {part: found[part] for part in self._seen if part in found})
        return Spikes(least, found["steps"], found["lost"], excess)

    def _slowest(self) -> list[LongStep]:
        columns = ", ".join(f"{part}_ns" for part in self._seen)
        # Sorting whole rows of a long run takes long. Those of the sample are enough for a limit that so many reach.
        longest = f"SELECT dur_ns FROM steps WHERE {self._sample} ORDER BY dur_ns DESC LIMIT {MOST_STEPS}"
        known = self._ask.rows(longest)
        least = known[-1][0] if len(known) == MOST_STEPS else 0
        found = self._ask.rows(
            f"SELECT process, rank, step, dur_ns, {TRAIN_NS}, {columns} FROM steps WHERE {AFTER_WARMUP} AND dur_ns >= {least} "
            f"ORDER BY dur_ns DESC, step, process LIMIT {MOST_STEPS}"
        )
        return [
            LongStep(process, rank, step, lasting, training, self._known(values))
            for process, rank, step, lasting, training, *values in found
        ]

    def _known(self, values: list[int | None]) -> dict[str, int]:
        return {part: ns for part, ns in zip(self._seen, values, strict=True) if ns is not None}

    def _together(self, ranks: list[RankSpeed]) -> Figures:
        """What the ranks had of one step: the least communication is what it costs, the rest is waiting for the last."""
        together = Speed(ranks=ranks).distributed
        world = len(together)
        if world < 2 or "communication" not in self._seen:
            return Figures({}, {})
        alone = len({rank.attempt for rank in ranks}) < 2
        attempt = (
            "" if alone else f" AND process IN (SELECT process FROM processes WHERE attempt = {together[0].attempt})"
        )
        steps = (
            f"(SELECT step, min(coalesce(communication_ns, 0)) AS least, max(coalesce(communication_ns, 0)) AS most, "
            f"median({TRAIN_NS}) AS {TRAIN} FROM steps WHERE {self._sample}{attempt} GROUP BY step HAVING count(DISTINCT rank) = {world})"
        )
        return self._ask.one(
            steps,
            {
                "steps": "count(*)",
                "least": "median(least)",
                "least_share": f"median(least / nullif({TRAIN}, 0))",
                "waiting": "median(most - least)",
                "waiting_share": f"median((most - least) / nullif({TRAIN}, 0))",
            },
        )
