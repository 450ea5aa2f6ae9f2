"""The summary of a run for comparisons: a few kilobytes of JSON, so that a baseline outlives its run.

Steps after the warm-up are cut into up to 40 blocks of consecutive steps. Each block keeps its mean, the mean of each phase and
20 quantiles of step time: enough for confidence intervals of medians, low quantiles and means.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from sonde.analysis.questions.items import LOADED, each_item, sampled
from sonde.analysis.questions.layers import layers
from sonde.analysis.questions.memory import memory_series
from sonde.analysis.records.schema import quoted
from sonde.compare import confidence
from sonde.compare.setup import setup_of
from sonde.diagnosis.diagnose import Diagnosis, diagnose
from sonde.diagnosis.speed import AFTER_WARMUP, PARTS, STARTS
from sonde.errors import RunUnreadable
from sonde.lazy import numpy as np
from sonde.store import probe
from sonde.store.process import SCHEMA as FORMAT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from sonde.analysis.run import Run

KIND = "sonde baseline"  # what the file of a summary says of itself
SCHEMA = 1
MOST_BYTES = 4_000_000
POINTS = 20  # quantiles of step time in a block
PLACES = [(place + 0.5) / POINTS for place in range(POINTS)]
MOST_RANKS = 64
MOST_LAYERS = 60
MOST_ITEMS = 10
MOST_LOSSES = 256
MOST_NOTES = 3
LEAST_LOOKS = 3  # at how long a thread has waited for a core
MOST_LOOKS = 2000  # of a process, while it trained
STEP = "step"
OWN = "own"  # a step without waits for a core


def as_blocks(points: list[list[float]]) -> NDArray[np.float64]:
    """Quantiles as an array, one row for each block."""
    return np.array(points, np.float64).reshape(-1, POINTS)


@dataclass(frozen=True)
class Steps:
    """Step times after the warm-up, in ns. `count` of the longest rank; `points`: the quantiles of each block."""

    count: int
    warmup: int
    first: int | None
    last: int | None
    p10_ns: float | None
    p50_ns: float | None
    p95_ns: float | None
    mean_ns: float | None
    samples: float | None  # in a step, in the median
    samples_per_s: float | None
    points: list[list[float]]
    means: dict[str, list[float]]  # "step", each phase, and perhaps "own": the mean in each block

    @property
    def blocks(self) -> NDArray[np.float64]:
        """The quantiles, one row for each block."""
        return as_blocks(self.points)

    def phase(self, name: str) -> NDArray[np.float64]:
        """The means of a phase, one row for each block; empty if it was not seen."""
        return np.array(self.means.get(name, []), np.float64).reshape(-1, 1)


@dataclass(frozen=True)
class Rank:
    """One rank: the median of each block, in ns."""

    rank: int | None
    steps: int
    p50_ns: float
    blocks: list[float]


@dataclass(frozen=True)
class LayerCost:
    """One layer, forward and backward together: the mean of each block, in ns."""

    layer: str
    mean_ns: float
    blocks: list[float]


@dataclass(frozen=True)
class Memory:
    """What one kind of memory was: the most, and the mean of each tenth of the training, in bytes."""

    peak: int
    blocks: list[float]


@dataclass(frozen=True)
class ItemTime:
    """An item of a dataset, by the median of its own loads."""

    name: str
    loads: int
    median_ns: float


@dataclass(frozen=True)
class ItemTimes:
    """The items that loaders loaded. `blocks`: quantiles of load time, as those of steps."""

    loads: int
    different: int
    p50_ns: float | None
    points: list[list[float]]
    slowest: list[ItemTime]


@dataclass(frozen=True)
class FoundProblem:
    """A finding of the diagnosis."""

    kind: str
    severity: str
    why: str
    next: str


@dataclass(frozen=True)
class Summary:
    """All that is kept of a run."""

    run: str
    name: str
    path: str
    state: str
    ended: str
    started_ns: int | None
    crowded: bool  # other programs used the cores
    drops: int
    notes: list[str]  # what is wrong with its files
    steps: Steps
    ranks: list[Rank]
    layers: list[LayerCost]
    memory: dict[str, Memory]
    items: ItemTimes
    findings: list[FoundProblem]
    setup: dict[str, Any]  # what may be the cause of a difference: see setup.py
    losses: list[float]  # the first of them
    loss: float | None  # the last of them
    schema: int = SCHEMA
    kind: str = KIND


def summarize(run: Run) -> Summary:
    """Ask a run for everything that a comparison needs."""
    found = diagnose(run)
    facts = found.facts
    seen = {(one.cat, one.name) for named in run.database.source.name_counts.values() for one in named}
    steps, width = _steps(run, found, (probe.PROBE, probe.ITER) in seen)
    items = _items(run) if (probe.PROBE, probe.ITEM) in seen else ItemTimes(0, 0, None, [], [])
    return Summary(
        run=run.id,
        name=run.name,
        path=str(run.path),
        state=run.state,
        ended=str(run.ending),
        started_ns=run.started,
        crowded=facts.health.crowded(found.policy),
        drops=run.drops.total,
        notes=_notes(run),
        steps=steps,
        ranks=_ranks(run, width) if steps.count else [],
        layers=_layers(run, width) if any(cat.startswith("layer") for cat, _ in seen) else [],
        memory=_memory(run),
        items=items,
        findings=[FoundProblem(one.kind, one.severity, one.why, one.next) for one in found.findings],
        setup=setup_of(run) | ({"items.visited": items.different} if items.loads else {}),
        losses=_losses(run, "ASC", MOST_LOSSES),
        loss=next(iter(_losses(run, "DESC", 1)), None),
    )


def _notes(run: Run) -> list[str]:
    schema = run.meta.get("schema")
    newer = isinstance(schema, int) and schema > FORMAT
    words = f"it was written in format {schema}; this version of Sonde reads format {FORMAT}"
    return [words] * newer + run.notes[:MOST_NOTES]


def item_medians(run: Run, names: Collection[str]) -> dict[str, float]:
    """The median load time of some items, in ns, of those that the run loaded."""
    if not names:
        return {}
    wanted = ", ".join(quoted(name) for name in names)
    rows = run.sql(
        f"SELECT coalesce(id, index::VARCHAR) AS name, median_ns FROM ({each_item(f'items WHERE {LOADED}')}) WHERE name IN ({wanted})"
    ).fetchall()
    return dict(rows)


def to_json(summary: Summary) -> str:
    """The summary as a file holds it."""
    return json.dumps(asdict(summary), allow_nan=False, separators=(",", ":"))


def read(path: Path) -> Summary:
    """The summary in a file. Raises RunUnreadable if there is none."""
    try:
        return _summary(_content(path))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = str(error) if type(error) is ValueError else "parts of it are missing or damaged"
        raise RunUnreadable(f"{path} is not a baseline: {reason}. Save one: sonde baseline save NAME RUN") from None


def _content(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MOST_BYTES:
        raise ValueError("it is too large")
    try:
        content = json.loads(path.read_bytes())
    except ValueError:
        raise ValueError("it is not JSON") from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise ValueError("it is not marked as one")
    if content.get("schema") != SCHEMA:
        raise ValueError(f"it has format {content.get('schema')}; this version of Sonde reads format {SCHEMA}")
    return content


def _summary(content: Mapping[str, Any]) -> Summary:
    known = {one.name for one in fields(Summary)}
    found = {name: value for name, value in content.items() if name in known}
    found["steps"] = Steps(**content["steps"])
    found["ranks"] = [Rank(**one) for one in content["ranks"]]
    found["layers"] = [LayerCost(**one) for one in content["layers"]]
    found["memory"] = {name: Memory(**one) for name, one in content["memory"].items()}
    items = dict(content["items"])
    found["items"] = ItemTimes(**{**items, "slowest": [ItemTime(**one) for one in items["slowest"]]})
    found["findings"] = [FoundProblem(**one) for one in content["findings"]]
    summary = Summary(**found)
    parts = [summary.steps.blocks, *(summary.steps.phase(name) for name in summary.steps.means)]
    if not all(np.isfinite(part).all() for part in parts):
        raise ValueError("its numbers are damaged")
    return summary


# ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _steps(run: Run, found: Diagnosis, iterated: bool) -> tuple[Steps, str]:
    """The step times; and the number of the block that a row of a table with `step` lies in, as SQL.

    Steps in which workers start count for the mean, and not for quantiles: they are no usual steps, and take their time.
    """
    speed = found.facts.speed
    count, warmup = int(speed.steps.or_zero()), int(speed.warmup.or_zero())
    ((first, last),) = run.sql(f"SELECT min(step), max(step) FROM steps WHERE {AFTER_WARMUP}").fetchall()
    if not count or first is None:
        return Steps(count, warmup, first, last, None, None, None, None, None, None, [], {}), "0"
    workers = max((one.workers or 0 for one in found.facts.loading.loaders), default=0)
    width = max(
        1, min(max(4, 2 * workers), count // confidence.LEAST_BLOCKS), math.ceil((last - first + 1) / confidence.BLOCKS)
    )
    block = f"((step - {first}) // {width})"
    seen = [part for part in PARTS if part in speed.phases]
    columns = ", ".join(["avg(dur_ns)", *(f"avg(coalesce({part}_ns, 0))" for part in seen)])
    means = _whole(
        run.sql(
            f"SELECT count(*), {block}, {columns} FROM steps WHERE {AFTER_WARMUP} GROUP BY {block} ORDER BY {block}"
        ).fetchall()
    )
    own = _own(run, block)
    usual = AFTER_WARMUP + (f" AND step NOT IN ({' '.join(STARTS.split())})" if iterated else "")
    points = _whole(
        run.sql(
            f"SELECT count(*), quantile_disc(dur_ns, {PLACES}) FROM steps WHERE {usual} GROUP BY {block} ORDER BY {block}"
        ).fetchall()
    )
    quantiles = run.sql(f"SELECT quantile_cont(dur_ns, [0.1, 0.5, 0.95]) FROM steps WHERE {usual}").fetchall()[0][0]
    mean, samples, rate = run.sql(
        "SELECT avg(dur_ns), median(samples), "
        "sum(samples) / nullif(sum(dur_ns) FILTER (samples IS NOT NULL), 0) * 1e9 * count(DISTINCT process) "
        f"FROM steps WHERE {AFTER_WARMUP}"
    ).fetchall()[0]
    low, middle, high = quantiles or (None, None, None)
    steps = Steps(
        count=count,
        warmup=warmup,
        first=first,
        last=last,
        p10_ns=low,
        p50_ns=middle,
        p95_ns=high,
        mean_ns=mean,
        samples=samples,
        samples_per_s=rate,
        points=[row[1] for row in points],
        means={
            **{name: [round(row[2 + place]) for row in means] for place, name in enumerate([STEP, *seen])},
            **({OWN: [round(own[row[1]]) for row in means]} if own else {}),
        },
    )
    return steps, block


def _own(run: Run, block: str) -> dict[int, float]:
    """The mean step of each block without waits for a core, in ns; nothing if the kernel did not say how long these were."""
    parts = run.sql(
        f"SELECT {block}, process, min(start_ns), max(start_ns + dur_ns), sum(dur_ns), count(*) FROM steps "
        f"WHERE {AFTER_WARMUP} GROUP BY 1, 2"
    ).fetchall()
    between = 1 + (max(row[3] for row in parts) - min(row[2] for row in parts)) // MOST_LOOKS
    rows = run.sql(
        f"SELECT process, max(time_ns), max(value) FROM system WHERE metric = {quoted(probe.WAITED)} "
        f"GROUP BY process, time_ns // {between} ORDER BY 1, 2"
    ).fetchall()
    looks: dict[str, list[tuple[float, float]]] = {}
    for process, when, waited in rows:
        looks.setdefault(process, []).append((when, waited))
    if any(len(looks.get(process, ())) < LEAST_LOOKS for _, process, *_ in parts):
        return {}
    known = {process: np.array(of).T for process, of in looks.items()}
    spent: dict[int, float] = {}
    counts: dict[int, int] = {}
    for number, process, begun, ended, whole, count in parts:
        first, last = np.interp([begun, ended], *known[process])  # looks are taken between blocks, too
        spent[number] = spent.get(number, 0.0) + max(0.0, float(whole) - (last - first))
        counts[number] = counts.get(number, 0) + count
    return {number: time / counts[number] for number, time in spent.items()}


def _whole(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Without blocks that have less than half of the usual number of steps, as the last may."""
    usual = sorted(row[0] for row in rows)[len(rows) // 2] if rows else 0
    return [row for row in rows if 2 * row[0] >= usual]


def _ranks(run: Run, block: str) -> list[Rank]:
    rows = run.sql(
        f"SELECT process, any_value(rank), {block}, median(dur_ns), count(*) FROM steps WHERE {AFTER_WARMUP} "
        "GROUP BY 1, 3 ORDER BY 2 NULLS LAST, 1, 3"
    ).fetchall()
    found: dict[str, list[tuple[int | None, float, int]]] = {}
    for process, rank, _, middle, count in rows:
        found.setdefault(process, []).append((rank, middle, count))
    if len(found) < 2:
        return []
    return [
        Rank(
            blocks[0][0],
            sum(count for *_, count in blocks),
            float(np.median([middle for _, middle, _ in blocks])),
            [middle for _, middle, _ in blocks],
        )
        for blocks in list(found.values())[:MOST_RANKS]
    ]


def _layers(run: Run, block: str) -> list[LayerCost]:
    """The costliest layers that hold no others."""
    every = layers(run)
    inner = [one for one in every if one.layer and not any(other.layer.startswith(f"{one.layer}.") for other in every)]
    chosen = {one.layer: one for one in inner[:MOST_LAYERS]}
    if not chosen:
        return []
    rows = run.sql(
        f"SELECT layer, {block}, avg(coalesce(forward_ns, 0) + coalesce(backward_ns, 0)) FROM layers "
        "WHERE step IS NOT NULL AND step NOT IN (SELECT step FROM steps WHERE warmup) GROUP BY 1, 2 ORDER BY 1, 2"
    ).fetchall()
    means: dict[str, list[float]] = {}
    for layer, _, mean in rows:
        means.setdefault(layer, []).append(round(mean, 1))
    return [LayerCost(name, float(np.mean(means[name])), means[name]) for name in chosen if name in means]


def _memory(run: Run) -> dict[str, Memory]:
    """The largest series of each kind while it trained: rss of a process that trained, and of devices."""
    found: dict[str, Memory] = {}
    ((begun, ended),) = run.sql(
        f"SELECT min(start_ns), max(start_ns + dur_ns) FROM steps WHERE {AFTER_WARMUP}"
    ).fetchall()
    for series in memory_series(run):
        if series.role in ("launcher", "worker", "host", "container") or not len(series.value):
            continue
        peak = int(series.value.max())
        name = "rss" if series.what == "rss" else f"device {series.what}"
        if name not in found or found[name].peak < peak:
            trained = (series.time >= (begun or 0)) & (series.time <= (ended or series.time[-1]))
            values = series.value[trained] if trained.any() else series.value
            tenths = np.array_split(values, min(10, len(values)))
            found[name] = Memory(peak, [round(float(part.mean())) for part in tenths])
    return found


def _items(run: Run) -> ItemTimes:
    loads = f"items WHERE {LOADED}"
    ((count, middle),) = run.sql(f"SELECT count(*), quantile_cont(dur_ns, 0.5) FROM {loads}").fetchall()
    if not count:
        return ItemTimes(0, 0, None, [], [])
    blocks = min(confidence.BLOCKS, max(1, count // 4))
    rows = run.sql(
        f"SELECT quantile_disc(dur_ns, {PLACES}) FROM (SELECT dur_ns, ntile({blocks}) OVER (ORDER BY start_ns) AS part "
        f"FROM {sampled(loads, count)}) GROUP BY part ORDER BY part"
    ).fetchall()
    slowest = run.sql(
        f"SELECT index, id, loads, median_ns, count(*) OVER () FROM ({each_item(loads)}) "
        f"ORDER BY median_ns DESC, index, id LIMIT {MOST_ITEMS}"
    ).fetchall()
    return ItemTimes(
        count,
        slowest[0][-1],
        middle,
        [row[0] for row in rows],
        [ItemTime(str(index) if id is None else str(id), loads, median) for index, id, loads, median, _ in slowest],
    )


def _losses(run: Run, order: str, most: int) -> list[float]:
    """Losses of the first rank, from the first or from the last one on; those that are no numbers are left out."""
    rows = run.sql(
        "SELECT loss FROM steps WHERE loss IS NOT NULL AND coalesce(rank, 0) = (SELECT min(coalesce(rank, 0)) FROM steps) "
        f"ORDER BY start_ns {order} LIMIT {most}"
    ).fetchall()
    return [value for (value,) in rows if math.isfinite(value)]
