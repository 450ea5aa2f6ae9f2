"""What is shown of a running run, as plain data: how far it is, where each step's time goes, who is slow."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sonde import units
from sonde.analysis.exits import ending
from sonde.analysis.live.gauges import HOST, Gauge
from sonde.analysis.live.run import GONE, RECORDING, STARTING, Live, LiveProcess, LiveSpan
from sonde.analysis.live.window import StepWindow, slowest
from sonde.analysis.tables.steps import WARMUP
from sonde.store import probe, record
from sonde.store.alive import RUNNING, UNKNOWN


@dataclass(frozen=True)
class Headline:
    """What runs, how it is, how far it got. None is not known."""

    name: str
    command: str
    state: str  # starting, recording, ended, died, unknown, gone
    ended: str  # finished, crashed, interrupted, killed or unknown, and by what; nothing while it goes on
    elapsed_ns: int | None
    step: int | None
    epoch: int | None  # as the program says, else how often the loop over the training data began before
    batch: int | None  # of this epoch
    batches: int | None  # that the epoch has
    epoch_left_ns: int | None  # until its end, at the speed it has had so far
    steps_per_s: float | None
    samples_per_s: float | None
    loss: float | None
    ranks: int
    workers: int
    deep: bool

    @property
    def word(self) -> str:
        """How the run is, or how it ended, in the words of `sonde runs`."""
        return self.ended or ("running" if self.state == "recording" else self.state)


@dataclass(frozen=True)
class PhaseShare:
    """One phase of the steps: its mean time in a step, and its share of a step."""

    name: str
    ns: float
    share: float


@dataclass(frozen=True)
class LiveStepTime:
    """The step time over the newest steps of all ranks. `parts` in the order of the work, only those that were seen."""

    steps: int
    warmup: int  # steps at the start that are left out
    mean_ns: float | None
    p50_ns: float | None
    p95_ns: float | None
    p99_ns: float | None
    max_ns: float | None
    parts: list[PhaseShare]
    history: list[float | None]  # the step time in ns, from old to new; None: no step ended then
    history_ns: int  # how much time one value of the history stands for
    history_of: str = ""  # whose it is; nothing: of the only rank
    losses: list[float | None] = field(default_factory=list)  # as the history, of the first rank


@dataclass(frozen=True)
class MemoryNow:
    """The memory of one process, or of the host. `limit`: what it may have; `peak`: the most that was seen."""

    who: str
    used: int | None
    peak: int | None
    limit: int | None
    device: int | None
    device_peak: int | None
    cpu: float | None  # of a process: in cores
    load: float | None  # of the host: the share of all cores that is busy


@dataclass(frozen=True)
class RankNow:
    """One rank. `slow`: how many times the median of the ranks its own median is."""

    rank: int | None
    host: str
    state: str
    step: int | None
    p50_ns: float | None
    p95_ns: float | None
    slow: float | None
    parts: list[PhaseShare]
    rss: int | None
    worst: bool


@dataclass(frozen=True)
class SlowItemRow:
    """A slow item of a dataset. `times`: how many times the median item."""

    index: int | None
    rank: int | None
    worker: int | None
    batch: int | None
    ns: int
    times: float | None


@dataclass(frozen=True)
class SlowestItems:
    """The slowest items so far, and the median load time of an item."""

    seen: int
    p50_ns: float | None
    slowest: list[SlowItemRow]


@dataclass(frozen=True)
class LayerRow:
    """One layer: mean times in a step, bytes. `share` is of the time of all layers."""

    name: str
    type: str
    calls: int
    forward_ns: float | None
    backward_ns: float | None
    share: float
    activation: int | None
    parameters: int | None
    gradients: int | None
    visible: bool


@dataclass(frozen=True)
class Opinion:
    """The verdict on the run so far, as `sonde report` gives it."""

    kind: str
    severity: str
    why: str
    next: str
    age_ns: int | None = field(default=None, compare=False)  # since the run was read for it; None: it is the last one


@dataclass(frozen=True)
class WatchView:
    """One look at a run."""

    id: str
    path: str
    headline: Headline
    step_time: LiveStepTime
    memory: list[MemoryNow]
    ranks: list[RankNow]
    items: SlowestItems
    layers: list[LayerRow]
    notices: list[str]
    verdict: Opinion | None = None  # None: there is none yet


# ── from a live run ──────────────────────────────────────────────────────────────────────────────────────────────────

PHASE_NAMES = (
    "input wait", "host to device", "forward", "backward", "optimizer", "communication", "checkpoint", "evaluation", "untracked",
)  # fmt: skip
ENOUGH = 10  # so many steps beside those of the warm-up, and it is left out of the numbers
STALLED = 3  # times the usual step: from then on the time without a step counts against the rate
LONG_NS = 5_000_000_000  # a span is only reported as long if it lasts longer than this
LONG_TIMES = 10  # and than so many usual steps
MOST_ITEMS = 20
MOST_LAYERS = 200
MOST_LONG = 4
SLOWER = 1.05  # a rank is called the slowest only if it is so many times the median of the ranks
STALE_NS = 3_000_000_000  # a worker that was not measured for so long is gone
REPORTED = (probe.PROBE, probe.LAYER, probe.LAYER_BACKWARD)


def watch(live: Live, verdict: Opinion | None = None, notice: str | None = None) -> WatchView:
    """What to show of a run now; the verdict on it is given, or why there is no new one."""
    known = {source: source.window.steps() for source in live.trainers}
    counted = {source: _without_warmup(source, steps) for source, steps in known.items()}
    warmup = max((len(known[source].step) - len(counted[source].step) for source in known), default=0)
    step_time = _step_time(counted, warmup)
    return WatchView(
        id=live.id,
        path=str(live.path),
        headline=_headline(live, known),
        step_time=step_time,
        memory=_memory(live),
        ranks=_ranks(live, counted),
        items=_items(live),
        layers=_layers(live, sum(source.window.count for source in known)),
        notices=_notices(live, step_time.p50_ns) + ([] if notice is None else [notice]),
        verdict=verdict,
    )


def _without_warmup(source: LiveProcess, steps: StepWindow) -> StepWindow:
    """The steps without those that the run began with, if enough are left."""
    first = WARMUP if source.window.whole else 0
    return steps.after(first) if len(steps.step) - first >= ENOUGH else steps


def _headline(live: Live, known: dict[LiveProcess, StepWindow]) -> Headline:
    name, command = live.meta.get("name"), live.meta.get("command")
    steps = [int(found.step[-1]) for found in known.values() if len(found.step) and found.step[-1] >= 0]
    first = next(iter(known), None)
    return Headline(
        name=name if isinstance(name, str) and name else live.id,
        command=shlex.join(map(str, command)) if isinstance(command, list) else "",
        state=live.state,
        ended=_ended(live),
        elapsed_ns=live.elapsed_ns,
        step=max(steps, default=None),
        **_progress(first),
        steps_per_s=_mean([_rate(live, source, found) for source, found in known.items()]),
        samples_per_s=_total([_samples_rate(live, source, found) for source, found in known.items()]),
        loss=first.window.loss if first else None,
        ranks=len(known),
        workers=sum(one.info.worker is not None and one.state == RUNNING for one in live.sources.values()),
        deep=_deep(live),
    )


def _progress(source: LiveProcess | None) -> dict[str, Any]:
    loop = source.loop if source else None
    epoch = source.window.epoch if source else None
    if loop is None or loop.length is None or loop.batches > loop.length:
        return {"epoch": epoch, "batch": None, "batches": None, "epoch_left_ns": None}
    left = (
        (loop.last_ns - loop.start_ns) / (loop.batches - 1) * (loop.length - loop.batches) if loop.batches > 1 else None
    )
    return {
        "epoch": loop.round if epoch is None else epoch,
        "batch": loop.batches,
        "batches": loop.length,
        "epoch_left_ns": None if left is None else round(left),
    }


def _deep(live: Live) -> bool:
    """Whether layers are recorded, or are to be."""
    settings = live.meta.get("settings")
    return len(live.layer_totals) > 0 or (isinstance(settings, dict) and settings.get("deep") is True)


def _ended(live: Live) -> str:
    """How it ended, in the words of every command."""
    if live.state in (RECORDING, STARTING, GONE):
        return ""
    return str(ending((one.info, one.state) for one in live.sources.values()))


def _programs(live: Live) -> list[int]:
    """The processes that the launcher of this run started, of those whose end was noted."""
    parents = {source.info.pid: source.info.parent_pid for source in live.sources.values()}
    roles = {source.info.pid: source.info.role for source in live.sources.values()}
    first = {pid for pid, parent in parents.items() if parent not in parents and roles[pid] == "launcher"}
    return [pid for pid in live.exits if pid not in parents or parents[pid] in first]


def exit_text(facts: Mapping[str, object]) -> str:
    """`exit code 3`, `signal 9`; nothing for a good end."""
    if facts.get("signal") is not None:
        return f"signal {facts['signal']}"
    return f"exit code {facts['code']}" if facts.get("code") else ""


# ── speed ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _rate(live: Live, source: LiveProcess, steps: StepWindow) -> float | None:
    """Steps in a second. While none comes the rate falls; of a run that is over it is that of its last steps."""
    if not len(steps.step):
        return None
    whole = int(steps.end[-1] - steps.start[0])
    if source.state == RUNNING and live.state == RECORDING:
        usual = int(steps.took.max()) * STALLED
        whole += max(0, time.monotonic_ns() - int(steps.end[-1]) - usual)
    return len(steps.step) / whole * 1e9 if whole > 0 else None


def _samples_rate(live: Live, source: LiveProcess, steps: StepWindow) -> float | None:
    rate = _rate(live, source, steps)
    samples = steps.samples[~np.isnan(steps.samples)]
    return None if rate is None or not len(samples) else rate * float(samples.mean())


def _step_time(counted: dict[LiveProcess, StepWindow], warmup: int) -> LiveStepTime:
    """Over all ranks together; the history is that of the slowest one at each time."""
    took = np.concatenate([np.empty(0), *(steps.took for steps in counted.values())])
    if not len(took):
        return LiveStepTime(0, 0, None, None, None, None, None, [], [], 0)
    history, width = slowest([(source.window.history, _clock(source)) for source in counted])
    p50, p95, p99 = (float(one) for one in np.percentile(took, [50, 95, 99]))
    return LiveStepTime(
        steps=max(len(steps.step) for steps in counted.values()),
        warmup=warmup,
        mean_ns=float(took.mean()),
        p50_ns=p50,
        p95_ns=p95,
        p99_ns=p99,
        max_ns=float(took.max()),
        parts=_parts(list(counted.values())),
        history=history,
        history_ns=width,
        history_of="slowest rank" if len(counted) > 1 else "",
        losses=next(iter(counted)).window.losses.values(),
    )


def _clock(source: LiveProcess) -> int:
    """What to add to the clock of a process to have that of the wall; hosts have each their own."""
    start = source.info.start
    return 0 if start is None else start.wall_ns - start.mono_ns


def _parts(steps: list[StepWindow]) -> list[PhaseShare]:
    """The mean time of each phase that was seen. A step without it counts as having spent nothing in it."""
    spent = np.concatenate([one.spent for one in steps])
    known = spent[~np.isnan(spent).all(axis=1)]
    if not len(known):
        return []
    means = np.nansum(known, axis=0) / len(known)
    seen = ~np.isnan(known).all(axis=0)
    total = float(means.sum())
    return [
        PhaseShare(name, float(ns), float(ns) / total if total > 0 else 0.0)
        for name, ns, there in zip(PHASE_NAMES, means, seen, strict=True)
        if there
    ]


def _ranks(live: Live, counted: dict[LiveProcess, StepWindow]) -> list[RankNow]:
    medians = {source: float(np.median(steps.took)) for source, steps in counted.items() if len(steps.step)}
    middle = float(np.median(list(medians.values()))) if medians else 0.0
    worst = max(medians, key=lambda source: medians[source], default=None) if len(medians) > 1 else None
    return [
        RankNow(
            rank=source.info.rank,
            host=source.info.host,
            state=source.state,
            step=int(steps.step[-1]) if len(steps.step) and steps.step[-1] >= 0 else None,
            p50_ns=medians.get(source),
            p95_ns=float(np.percentile(steps.took, 95)) if len(steps.step) else None,
            slow=medians[source] / middle if source in medians and middle > 0 else None,
            parts=_parts([steps]) if len(steps.step) else [],
            rss=_whole(live.gauges.get(source.info.pid, "rss")),
            worst=source is worst and medians[source] > SLOWER * middle,
        )
        for source, steps in counted.items()
    ]


# ── memory, items, layers ────────────────────────────────────────────────────────────────────────────────────────────


def _memory(live: Live) -> list[MemoryNow]:
    """Each rank, its workers together, and the host, or the container that limits it."""
    rows: list[MemoryNow] = []
    workers_of: dict[tuple[str, int | None], list[LiveProcess]] = {}
    for one in live.sources.values():
        if one.info.worker is not None:
            workers_of.setdefault((one.info.host, one.info.parent_pid), []).append(one)
    for trainer in live.trainers or [one for one in live.sources.values() if one.info.role in ("main", "trainer")]:
        rows.append(_process_memory(live, trainer.name, [trainer]))
        workers = _present(live, trainer, workers_of.get((trainer.info.host, trainer.info.pid), []))
        if workers:
            rows.append(_process_memory(live, f"{trainer.name} {units.plural(len(workers), 'worker')}", workers))
    rows = [row for row in rows if row.used is not None]
    return rows + _host_memory(live)


def _present(live: Live, trainer: LiveProcess, workers: list[LiveProcess]) -> list[LiveProcess]:
    """The workers that live; of a run that is over, those that lived when their trainer was last measured."""
    if live.state == RECORDING and trainer.state != UNKNOWN:
        return [one for one in workers if one.state == RUNNING]
    own = live.gauges.get(trainer.info.pid, "rss")
    return [one for one in workers if own is not None and _lived(live, one, own.time_ns)]


def _lived(live: Live, one: LiveProcess, then: int) -> bool:
    reading, end = live.gauges.get(one.info.pid, "rss"), one.info.end
    return reading is not None and then - reading.time_ns < STALE_NS and (end is None or end.mono_ns >= then)


def _process_memory(live: Live, who: str, sources: list[LiveProcess]) -> MemoryNow:
    found = {
        name: [one for one in (live.gauges.get(source.info.pid, name) for source in sources) if one is not None]
        for name in ("rss", "device.allocated", "device.peak", "cpu")
    }
    rss, device, peak, cpu = found.values()
    return MemoryNow(
        who=who,
        used=round(sum(one.value for one in rss)) if rss else None,
        peak=round(sum(one.peak for one in rss)) if rss else None,
        limit=None,
        device=round(sum(one.value for one in device)) if device else None,
        device_peak=round(sum(one.peak for one in peak)) if peak else None,
        cpu=sum(one.value for one in cpu) / 100 if cpu else None,
        load=None,
    )


def _host_memory(live: Live) -> list[MemoryNow]:
    rows = []
    for who, used, limit in (("container", "cgroup.used", "cgroup.limit"), ("host", "ram.used", "ram.total")):
        now, most = live.gauges.get(HOST, used), live.gauges.get(HOST, limit)
        if now is not None:
            cpu = live.gauges.get(HOST, "cpu") if who == "host" else None
            share = None if cpu is None else cpu.value / 100
            rows.append(MemoryNow(who, _whole(now), round(now.peak), _whole(most), None, None, None, share))
    return rows


def _whole(reading: Gauge | None) -> int | None:
    return None if reading is None else round(reading.value)


def _items(live: Live) -> SlowestItems:
    median = live.slowest.median_ns
    slowest = [
        SlowItemRow(
            index=one.item,
            rank=live.sources[one.process].info.rank,
            worker=live.sources[one.process].info.worker,
            batch=one.batch,
            ns=one.ns,
            times=one.ns / median if median else None,
        )
        for one in live.slowest.slowest[:MOST_ITEMS]
    ]
    return SlowestItems(live.slowest.seen, median, slowest)


def _layers(live: Live, steps: int) -> list[LayerRow]:
    layers = live.layer_totals.layers()
    total = sum((one.forward_ns or 0) + (one.backward_ns or 0) for one in layers)
    return [
        LayerRow(
            name=one.name,
            type=one.type,
            calls=one.calls,
            forward_ns=None if one.forward_ns is None else one.forward_ns / max(steps, 1),
            backward_ns=None if one.backward_ns is None else one.backward_ns / max(steps, 1),
            share=((one.forward_ns or 0) + (one.backward_ns or 0)) / total if total else 0.0,
            activation=one.activation,
            parameters=one.parameters,
            gradients=one.gradients,
            visible=not one.compiled,
        )
        for one in layers[:MOST_LAYERS]
    ]


# ── notices ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _notices(live: Live, usual_ns: float | None) -> list[str]:
    """Facts that numbers do not tell: who is in one thing for long, who ended badly, what was lost."""
    if live.gone:
        return ["the run folder was deleted: there will be no new data"]
    found = _long(live, usual_ns) + _ends(live) + list(live.notes)
    if live.unread:
        found.append(f"{len(live.sources) - live.unread:,} of {len(live.sources):,} processes read so far")
    if live.losses:
        found.append(f"{units.plural(live.losses, 'record')} could not be written: sonde show {live.id}")
    if live.skipped:
        found.append(f"{units.plural(live.skipped, 'record')} came too fast for this screen; they are in the recording")
    aborted = sum(source.window.aborted for source in live.trainers)
    if aborted:
        found.append(f"{units.plural(aborted, 'unfinished step')} not counted")
    return found


def _ends(live: Live) -> list[str]:
    """Processes of the program that ended badly; how the program itself ended stands in the headline."""
    sources = {source.info.pid: source for source in live.sources.values()}
    return [
        f"{sources[pid].name} (pid {pid}) ended with {exit_text(facts)}"
        for pid, facts in live.exits.items()
        if pid in sources and pid not in _programs(live) and exit_text(facts)
    ]


def _long(live: Live, usual_ns: float | None) -> list[str]:
    """What has lasted unusually long: the innermost span of each process, the longest first."""
    opened = live.open_spans()
    least = max(LONG_NS, LONG_TIMES * (usual_ns or 0))
    now = time.monotonic_ns()
    outer = {(one.process, one.parent) for one in opened}
    inner = [one for one in opened if (one.process, one.seq) not in outer and one.cat in REPORTED]
    long = sorted((one for one in inner if now - one.start_ns > least), key=lambda one: one.start_ns)
    return [
        f"{live.sources[one.process].name} has been in {_what(one)} for {units.duration(now - one.start_ns)}"
        for one in long
    ][:MOST_LONG]


def _what(one: LiveSpan) -> str:
    if one.name == probe.ITEM and one.key != record.NO_KEY:
        return f"item {one.key}"
    if one.cat == probe.PROBE:
        return one.name.replace("_", " ")
    return f"layer {one.name}"


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _total(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
