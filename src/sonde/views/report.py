"""The contents of a report, as plain data: the verdict and why, where the time of a step goes, and what is unknown.

Card, page and JSON only draw it. `report.schema.json` describes the JSON; a field is null where something is not known.
"""

from __future__ import annotations

import datetime
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sonde.analysis.questions.cost import Cost, cost
from sonde.analysis.questions.deepened import DeepSteps, deepened
from sonde.analysis.questions.energy import Energy, energy
from sonde.analysis.questions.firststep import FirstStep, first_step
from sonde.analysis.questions.flops import Flops, flops
from sonde.analysis.questions.goodput import Goodput, goodput
from sonde.analysis.questions.hard import HardItems, hard_items
from sonde.analysis.questions.hosts import HostClock, host_clocks
from sonde.analysis.questions.items import NONE, ItemSummary, StepItem, items, items_of
from sonde.analysis.questions.layers import LayerTimes, layers
from sonde.analysis.questions.loader import LoaderPipeline
from sonde.analysis.questions.memory import Series, memory_series
from sonde.analysis.questions.metrics import MetricSummary, metrics
from sonde.analysis.questions.names import wall_ns
from sonde.analysis.questions.samples import SampledLine, lines
from sonde.analysis.questions.tokens import Tokens, tokens
from sonde.analysis.records import label
from sonde.analysis.records.schema import quoted
from sonde.analysis.tables.steps import ROWS
from sonde.diagnosis.diagnose import Diagnosis, diagnose, explains
from sonde.diagnosis.loading import pipeline_of
from sonde.diagnosis.speed import AFTER_WARMUP, PARTS, LongStep, Speed, Spread
from sonde.finding import INFO, Finding
from sonde.store import probe
from sonde.store.alive import TERMINATED
from sonde.store.process import SCHEMA
from sonde.views.blindspots import BlindSpot, blind_spots
from sonde.views.drops import LostRecords, lost_records

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sonde.analysis.run import Run
    from sonde.diagnosis.policy import Policy

SCHEMA_VERSION = 1
MOST_SLOWEST = 5  # steps that are listed
MOST_ITEMS = 10
MOST_LINES = 10
MOST_BATCHES = 100_000  # of a run whose training does not wait for them: of more, the loader is left out
MOST_ITEMS_OF = 3  # of a step
WORST = 1.05  # a rank is called the slowest only if it is so many times the median of the ranks


@dataclass(frozen=True)
class Verdict:
    """A finding: what it is, how grave and how sure, why it is believed, and what to do next."""

    kind: str
    severity: str
    confidence: float
    why: str
    next: str
    evidence: dict[str, Any]
    because: str | None  # the kind of the finding that explains this one


@dataclass(frozen=True)
class RunHeader:
    """What ran, and how it ended."""

    id: str
    name: str
    path: str
    command: str
    state: str  # recording, ended, died, unknown
    ended: str  # running, finished, crashed, interrupted, killed or unknown, and by what: "crashed (ValueError)"
    started: str | None  # UTC
    dur_ns: int | None
    hosts: list[str]
    world_size: int | None
    ranks: int  # processes that trained
    trainings: int  # that these are: one of all ranks together, or one for each process
    processes: int
    workers: int  # loader workers that were there, all epochs together
    sonde: str | None
    python: str | None
    commit: str | None
    notes: list[str]  # what is wrong with the files, or with what they say


@dataclass(frozen=True)
class SlowStep:
    """One of the slowest steps. `phase` is the one that took the most more than it usually does, `extra_ns` how much more."""

    step: int
    rank: int | None
    dur_ns: int
    times: float | None  # the median step so many times
    phase: str | None
    extra_ns: float | None
    phases: dict[str, int]
    items: list[StepItem]


@dataclass(frozen=True)
class StartUp:
    """A phase whose first time took many times as long as the later ones, such as where torch.compile works."""

    phase: str
    first_ns: float
    later_ns: float  # the median


@dataclass(frozen=True)
class StepTimes:
    """The time of a step, over all ranks, after the warm-up; that of the warm-up stands apart.

    Numbers of steps are of the rank that has the most. Of separate trainings they are those of all, rates are the mean, and there is no loss.
    """

    count: int  # after the warm-up
    p50_ns: float | None
    p95_ns: float | None
    p99_ns: float | None
    max_ns: float | None
    mean_ns: float | None
    per_s: float | None
    samples_per_s: float | None
    warmup: int  # steps
    warmup_p50_ns: float | None
    warmup_max_ns: float | None
    skipped: int  # by the gradient scaler
    aborted: int  # blocks of `trace_step` that were left by an exception; not counted above
    loss: float | None  # the last one
    loss_parts: int | None  # it is the mean of so many backward passes, and may have been divided before
    startup: list[StartUp]
    evaluated_after_ns: float | None  # evaluation after the last step, of the rank with the most
    slowest: list[SlowStep]


@dataclass(frozen=True)
class PhaseRow:
    """One phase of the steps. Percentiles are over the steps that have it; `share` is of the time of all steps; `device_ns` is what a
    device took for it in a step, on average.
    """

    phase: str
    steps: int  # that have it
    p50_ns: float | None
    p95_ns: float | None
    p99_ns: float | None
    share: float | None
    warmup_p50_ns: float | None
    device_ns: float | None


@dataclass(frozen=True)
class RankRow:
    """One process that trained. `slow`: its median step so many times that of the ranks, if they are those of one training;
    `own_ns`: without communication. `attempt` of the job; None: not known.
    """

    rank: int | None
    attempt: int | None
    host: str
    pid: int | None
    state: str
    how: str
    steps: int | None
    last_step: int | None
    p50_ns: float | None
    p95_ns: float | None
    p99_ns: float | None
    own_ns: float | None
    slow: float | None
    worst: bool
    phases: dict[str, float]  # in a usual step


@dataclass(frozen=True)
class MemoryRow:
    """The memory of one process, or of the host. `first` is the first value after the warm-up; None: none ended."""

    who: str
    host: str
    rank: int | None
    what: str
    first: int | None
    last: int | None
    peak: int | None
    limit: int | None


@dataclass(frozen=True)
class Box:
    """What the black box has: dumps with their reasons, and processes in which a non-finite value was born."""

    dumps: int
    reasons: list[str]  # of the dumps, each once
    births: int
    command: str | None  # that shows it; None: there is nothing to show


@dataclass(frozen=True)
class Report:
    """Everything, in the order in which it is shown."""

    schema_version: int
    verdict: Verdict
    findings: list[Verdict]
    run: RunHeader
    steps: StepTimes
    first_step: FirstStep | None
    phases: list[PhaseRow]
    ranks: list[RankRow]
    hosts: list[HostClock]  # that of rank 0 first
    goodput: Goodput | None  # None: the job was not started again
    memory: list[MemoryRow]
    evaluation: list[MetricSummary]
    tokens: Tokens | None
    loader: LoaderPipeline | None  # None: no loader with workers was seen, and training waits for none
    flops: Flops | None
    energy: Energy | None
    items: ItemSummary
    hard_items: list[HardItems]
    layers: list[LayerTimes]
    lines: list[SampledLine]  # of untracked time
    deepened: list[DeepSteps]
    overhead: Cost
    blind_spots: list[BlindSpot]
    drops: list[LostRecords]
    black_box: Box


def report(run: Run, policy: Policy | None = None) -> Report:
    """The report of a run."""
    found = diagnose(run, policy)
    speed = found.facts.speed
    seen = kinds(run)
    apart = _apart(speed, seen)
    extra = _extra(run, apart)
    return Report(
        schema_version=SCHEMA_VERSION,
        verdict=_verdict(found.verdict, []),
        findings=[_verdict(one, found.findings[:place]) for place, one in enumerate(found.findings)],
        run=_about(run, found, apart),
        steps=_steps(speed, extra, _slowest(run, speed, probe.FETCH in seen)),
        first_step=first_step(run),
        phases=_phases(run, speed, extra),
        ranks=_ranks(found, apart),
        hosts=host_clocks(run),
        goodput=goodput(run),
        memory=[_memory(one, extra.warm_ns) for one in memory_series(run)],
        evaluation=metrics(run),
        tokens=tokens(run),
        loader=_loader(run, found),
        flops=flops(run),
        energy=energy(run),
        items=items(run, MOST_ITEMS) if probe.ITEM in seen else NONE,
        hard_items=hard_items(run, MOST_ITEMS),
        layers=layers(run) if "layer" in seen else [],
        lines=lines(run, MOST_LINES) if probe.SAMPLE in seen else [],
        deepened=deepened(run) if probe.DEEPEN in seen else [],
        overhead=cost(run),
        blind_spots=blind_spots(run, found.facts, found.policy, seen),
        drops=lost_records(run),
        black_box=_box(found),
    )


def _loader(run: Run, found: Diagnosis) -> LoaderPipeline | None:
    """How batches come to the training: what the rules know, or else, of a run with workers that is not long, now."""
    if found.facts.pipeline is not None:
        return found.facts.pipeline
    some = [one for named in run.database.source.name_counts.values() for one in named]
    batches = sum(one.count for one in some if (one.cat, one.name) == (probe.PROBE, probe.FETCH))
    if not batches or batches > MOST_BATCHES or not any(one.workers for one in found.facts.loading.loaders):
        return None
    return pipeline_of(run, found.policy, found.facts.health)


def _box(found: Diagnosis) -> Box:
    box = found.facts.box
    reasons = list(dict.fromkeys(dump.reason for dump in box.dumps))
    command = f"sonde blackbox {found.facts.run}" if box.dumps or box.births else None
    return Box(len(box.dumps), reasons, len(box.births), command)


def _verdict(finding: Finding, before: list[Finding]) -> Verdict:
    causes = [one.kind for one in before if one.severity != INFO and explains(one, finding)]
    return Verdict(**finding._asdict(), because=causes[0] if causes else None)


def kinds(run: Run) -> set[str]:
    """Which of what only some runs have was recorded."""
    names = {(one.cat, one.name) for named in run.database.source.name_counts.values() for one in named}
    words = {"layer" if cat.startswith("layer") else name if cat == probe.PROBE else cat for cat, name in names}
    return words - {""}


def _apart(speed: Speed, seen: set[str]) -> bool:
    """Did several processes train, each by itself? They have no ranks, and exchange nothing."""
    exchanged = any(name.startswith((probe.COMMUNICATION, probe.DDP)) for name in seen)
    return len(speed.ranks) > 1 and not exchanged and all(rank.rank is None for rank in speed.ranks)


# ── the run ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _about(run: Run, found: Diagnosis, apart: bool) -> RunHeader:
    meta, rows = run.meta, run.rows
    command, git = meta.get("command"), meta.get("git")
    commit = git.get("commit") if isinstance(git, dict) else git
    return RunHeader(
        id=run.id,
        name=run.name,
        path=str(run.path),
        command=shlex.join(map(str, command)) if isinstance(command, list) else "",
        state=run.state,
        ended=str(run.ending),
        started=utc(run.started),
        dur_ns=_lasted(run),
        hosts=sorted({str(row["host"]) for row in rows}),
        world_size=max((row["world_size"] for row in rows if row["world_size"]), default=None),
        ranks=len({(one.rank, one.process if one.rank is None else None) for one in found.facts.speed.ranks}),
        trainings=len(found.facts.speed.ranks) if apart else min(len(found.facts.speed.ranks), 1),
        processes=len(rows),
        workers=sum(row["role"] == "worker" for row in rows),
        sonde=_text(meta.get("sonde")),
        python=_text(meta.get("python")),
        commit=_text(commit),
        notes=_newer(meta) + run.notes + found.problems,
    )


def _lasted(run: Run) -> int | None:
    """How long the run took; of several hosts, on the one where it took longest: their clocks may disagree."""
    if len({row["host"] for row in run.rows}) < 2:
        return wall_ns(run)
    (found,) = run.sql(
        """
        SELECT max(took) FROM (
            SELECT max(greatest(coalesce(end_ns, last_ns), last_ns)) - min(start_ns) AS took FROM processes GROUP BY host
        )
        """
    ).fetchall()
    return found[0] if found[0] is None else int(found[0])


def _newer(meta: dict[str, Any]) -> list[str]:
    schema = meta.get("schema")
    if not isinstance(schema, int) or schema <= SCHEMA:
        return []
    return [f"run.json has format {schema}; this version of Sonde reads format {SCHEMA}, a newer one may show more"]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def utc(wall_ns: int | None) -> str | None:
    if wall_ns is None:
        return None
    try:
        moment = datetime.datetime.fromtimestamp(wall_ns // 10**9, datetime.UTC)
    except (OverflowError, ValueError, OSError):  # a damaged file can hold any number
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _how(row: dict[str, Any]) -> str:
    if row["reason"] == TERMINATED:
        return ""
    if row["signal"] is not None:
        return f"signal {row['signal']}"
    if row["exception"]:
        return str(row["exception"])
    return f"exit code {row['exit_code']}" if row["exit_code"] else ""


# ── steps and phases ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Extra:
    """What the facts of the rules do not have: the warm-up, speed, and what else steps tell."""

    count: int | None  # of steps after the warm-up, and of the warm-up, of separate trainings; None: there is one
    warmup: int | None
    warmup_p50: dict[str, float | None]
    warmup_max: float | None
    per_s: float | None
    samples_per_s: float | None
    skipped: int
    aborted: int
    loss: float | None
    loss_parts: int | None
    evaluated_after_ns: float | None
    warm_ns: int | None  # when the first step after the warm-up began


def _aborted(run: Run, steps: dict[str, int], apart: bool) -> int:
    """The most updates of a process that ended no step; of separate trainings, those of all."""
    update = ("mark", probe.PROBE, probe.UPDATE)
    updates = {
        process: sum(one.count for one in named if (one.kind, one.cat, one.name) == update and not one.open)
        for process, named in run.database.source.name_counts.items()
    }
    return _of_all((updates[process] - count for process, count in steps.items() if updates[process]), apart)


def _of_all(numbers: Iterable[int], apart: bool) -> int:
    """Of ranks that do the same the most, of separate trainings the sum."""
    return sum(numbers) if apart else max(numbers, default=0)


def _extra(run: Run, apart: bool) -> _Extra:
    rows = run.sql(
        f"""
        SELECT count(*) FILTER (skipped), arg_max(loss, start_ns), min(start_ns) FILTER (NOT warmup),
               count(*) FILTER (NOT warmup) / nullif(sum(dur_ns) FILTER (NOT warmup), 0) * 1e9,
               sum(samples) FILTER (NOT warmup) / nullif(sum(dur_ns) FILTER (NOT warmup AND samples IS NOT NULL), 0) * 1e9,
               count(*) FILTER ({AFTER_WARMUP}), count(*) FILTER (warmup), process, count(*)
        FROM steps GROUP BY process ORDER BY min(rank) NULLS LAST, process
        """  # noqa: S608  our own names
    ).fetchall()
    middles = ", ".join(f"median({part}_ns)" for part in PARTS)
    (warm,) = run.sql(f"SELECT max(dur_ns), median(dur_ns), {middles} FROM steps WHERE warmup").fetchall()  # noqa: S608
    speeds, samples = ([row[place] for row in rows if row[place] is not None] for place in (3, 4))
    return _Extra(
        count=sum(row[5] for row in rows) if apart else None,
        warmup=sum(row[6] for row in rows) if apart else None,
        warmup_p50=dict(zip(("step", *PARTS), warm[1:], strict=True)),
        warmup_max=warm[0],
        per_s=sum(speeds) / len(speeds) if speeds else None,
        samples_per_s=sum(samples) / (len(samples) if apart else 1) if samples else None,
        skipped=_of_all((row[0] for row in rows), apart),
        aborted=_aborted(run, {process: count for *_, process, count in rows}, apart),
        loss=rows[0][1] if rows and not apart else None,
        loss_parts=_loss_parts(run, rows[0][7]) if rows and not apart else None,
        evaluated_after_ns=run.sql(f"SELECT max(evaluation_ns) FROM {ROWS} WHERE NOT whole").fetchall()[0][0],  # noqa: S608
        warm_ns=min((row[2] for row in rows if row[2] is not None), default=None),
    )


def _loss_parts(run: Run, process: str) -> int | None:
    """Of how many backward passes the last loss of a process is the mean, if that may not be the program's own loss."""
    query = f"SELECT arg_max(loss_parts, start_ns) FROM {ROWS} WHERE has_loss AND whole AND process = {quoted(process)}"  # noqa: S608
    ((parts,),) = run.sql(query).fetchall()
    return parts if parts is not None and parts > 1 else None


def _steps(speed: Speed, extra: _Extra, slowest: list[SlowStep]) -> StepTimes:
    return StepTimes(
        count=int(speed.steps.or_zero()) if extra.count is None else extra.count,
        **_points(speed.step),
        max_ns=speed.step.most.value if speed.step else None,
        mean_ns=speed.step.mean.value if speed.step else None,
        per_s=extra.per_s,
        samples_per_s=extra.samples_per_s,
        warmup=int(speed.warmup.or_zero()) if extra.warmup is None else extra.warmup,
        warmup_p50_ns=extra.warmup_p50["step"],
        warmup_max_ns=extra.warmup_max,
        skipped=extra.skipped,
        aborted=extra.aborted,
        loss=extra.loss,
        loss_parts=extra.loss_parts,
        evaluated_after_ns=extra.evaluated_after_ns,
        startup=[StartUp(phase, one.first.or_zero(), one.later.or_zero()) for phase, one in speed.startup.items()],
        slowest=slowest,
    )


def _points(spread: Spread | None) -> dict[str, float | None]:
    if spread is None:
        return dict.fromkeys(("p50_ns", "p95_ns", "p99_ns"))
    return {"p50_ns": spread.p50.value, "p95_ns": spread.p95.value, "p99_ns": spread.p99.value}


def _phases(run: Run, speed: Speed, extra: _Extra) -> list[PhaseRow]:
    """The phases that were seen; of a run that is all warm-up, those of the warm-up."""
    rare = _rare(run, [part for part, spread in speed.phases.items() if spread.p50.value is None])
    found = []
    for part in PARTS:
        spread = speed.phases.get(part)
        if spread is None and extra.warmup_p50[part] is None:
            continue
        found.append(
            PhaseRow(
                phase=part,
                steps=int(spread.seen.or_zero()) if spread else 0,
                **(rare.get(part) or _points(spread)),
                share=speed.shown(part).value,
                warmup_p50_ns=extra.warmup_p50[part],
                device_ns=None
                if speed.device is None or part not in speed.device.phases
                else speed.device.phases[part].value,
            )
        )
    return found


def _rare(run: Run, parts: list[str]) -> dict[str, dict[str, float | None]]:
    """Percentiles of phases that are only in steps which the rules leave aside, such as those that start workers."""
    if not parts:
        return {}
    columns = ", ".join(f"quantile_cont({part}_ns, [0.5, 0.95, 0.99])" for part in parts)
    (row,) = run.sql(f"SELECT {columns} FROM steps WHERE NOT warmup").fetchall()  # noqa: S608  our own names
    names = ("p50_ns", "p95_ns", "p99_ns")
    return {part: dict(zip(names, points, strict=True)) for part, points in zip(parts, row, strict=True) if points}


def _slowest(run: Run, speed: Speed, fetched: bool) -> list[SlowStep]:
    slow = speed.slowest[:MOST_SLOWEST]
    culprits = items_of(run, [(one.process, one.step) for one in slow], MOST_ITEMS_OF) if fetched else {}
    return [_slow_step(one, speed, culprits.get((one.process, one.step), [])) for one in slow]


def _slow_step(one: LongStep, speed: Speed, inside: list[StepItem]) -> SlowStep:
    usual = speed.step.p50.value if speed.step else None
    more = {part: ns - _usually(speed, part) for part, ns in one.phases.items()}
    phase = max(more, key=lambda part: more[part], default=None)
    return SlowStep(
        step=one.step,
        rank=one.rank,
        dur_ns=one.dur_ns,
        times=one.dur_ns / usual if usual else None,
        phase=phase,
        extra_ns=more[phase] if phase else None,
        phases=one.phases,
        items=inside,
    )


def _usually(speed: Speed, part: str) -> float:
    """What a phase takes in a step: nothing, if most steps do without it."""
    spread = speed.phases.get(part)
    if spread is None or speed.step is None or spread.seen.or_zero() * 2 < speed.step.seen.or_zero():
        return 0.0
    return spread.p50.or_zero()


# ── ranks and memory ─────────────────────────────────────────────────────────────────────────────────────────────────


def _ranks(found: Diagnosis, apart: bool) -> list[RankRow]:
    ranks = found.facts.speed.ranks
    ends = {one.process: one for one in found.facts.ends.processes}
    newest = max((rank.attempt or 0 for rank in ranks), default=0)
    own = {rank.process: _own(rank.usual) for rank in ranks if (rank.attempt or 0) == newest}
    known = sorted(value for value in own.values() if value is not None)
    middle = known[(len(known) - 1) // 2] if known else None
    worst = max((one for one in own if own[one] is not None), key=lambda one: own[one] or 0.0, default=None)
    rows = []
    for rank in ranks:
        end, mine = ends.get(rank.process), own.get(rank.process, _own(rank.usual))
        slow = mine / middle if mine is not None and middle and not apart else None
        rows.append(
            RankRow(
                rank=rank.rank,
                attempt=rank.attempt,
                host=rank.host,
                pid=rank.pid,
                state=end.state if end else "unknown",
                how=_how(vars(end)) if end else "",
                steps=None if rank.steps.value is None else int(rank.steps.value),
                last_step=rank.last_step,
                p50_ns=rank.p50_ns.value,
                p95_ns=rank.p95_ns.value,
                p99_ns=rank.p99_ns.value,
                own_ns=mine,
                slow=slow,
                worst=len(own) > 1 and rank.process == worst and slow is not None and slow >= WORST,
                phases={part: rank.usual[part].or_zero() for part in PARTS if rank.usual[part].value is not None},
            )
        )
    return rows


def _own(usual: Any) -> float | None:
    """A usual step without communication: ranks that wait for each other take the same time, and one of them made it."""
    whole = usual["train"].value
    return None if whole is None else whole - usual["communication"].or_zero()


def _memory(series: Series, warm_ns: int | None) -> MemoryRow:
    warm = series.value[series.time >= warm_ns] if warm_ns is not None else series.value[:0]
    return MemoryRow(
        who=series.who,
        host=series.host,
        rank=series.rank,
        what=series.what,
        first=int(warm[0]) if len(warm) else None,
        last=int(series.value[-1]) if len(series.value) else None,
        peak=int(series.value.max()) if len(series.value) else None,
        limit=series.limit,
    )


def newest_attempt(ranks: list[RankRow]) -> list[RankRow]:
    """The ranks of the last attempt that trained."""
    newest = max((one.attempt or 0 for one in ranks), default=0)
    return [one for one in ranks if (one.attempt or 0) == newest]


def rank_name(rank: RankRow, several: bool = False) -> str:
    """What a rank is called; one of several without a number, by its process."""
    if several and rank.rank is None:
        return f"process {rank.pid}"
    return label.process("main", rank.rank, None)
