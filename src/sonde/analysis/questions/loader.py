"""The loader as a pipeline: how long finished batches wait, how many are ready, which stage limits it, and what more workers would change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sonde.analysis.questions.whatif import STARTED, BatchTimes, Start, simulated
from sonde.analysis.records.schema import BESIDE, quoted
from sonde.lazy import numpy as np
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from sonde.analysis.run import Run

    Ints = NDArray[np.int64]

PREFETCH = 2  # batches for each worker, where the program does not say otherwise
TRIED = (0, 1, 2, 4, 8, 16, 32, 64)  # workers
MORE_PREFETCH = (2, 4)  # times the recorded one
MOST_SIMULATED = 10_000  # batches: of more than that, the first ones
NEARLY = 1.05  # as fast, of two settings
WORTH = 1.1  # times as fast, for a change to be worth it
PIECES = 200  # of the depth over time
EXACT = 0.25  # how far the simulation of the recorded setting may be from what was recorded
ASSUMED_START_NS = 50e6  # for each worker, where none was seen
ASSUMED_HANDING_NS = 3e5  # for each batch
READ, DECODE, ITEMS, COLLATE, START, HANDING, MODEL = (
    "read", "decode", "items", "collate", "worker start", "transfer", "model",
)  # fmt: skip


@dataclass(frozen=True)
class Stage:
    """A part of the way of a batch: its time in a batch, and how many times as fast training would be if it took none."""

    name: str
    ns: float
    speedup: float | None


@dataclass(frozen=True)
class PredictedSetting:
    """Another setting of the loader, and what it would bring."""

    workers: int
    prefetch: int | None
    ns: float  # for a batch
    speedup: float


@dataclass(frozen=True)
class Depth:
    """How many finished batches were ready, on average, in a piece of the time. `at_ns` from the first wait on."""

    at_ns: list[float]
    ready: list[float]


@dataclass(frozen=True)
class LoaderPipeline:
    """That of one process, the middle one of those that train. None: not known."""

    process: str
    rank: int | None
    loaders: list[int]
    workers: int
    prefetch: int | None
    batches: int
    ns: float  # for a batch, all in all
    ready_ns: float | None  # how long a finished batch waits, median; None: there are no workers
    empty: float | None  # share of requests that found no finished batch
    ready: float | None  # batches, on average
    depth: Depth | None
    stages: list[Stage]
    limit: str | None  # the stage that costs the most
    error: float | None  # of the simulation, for the recorded setting
    settings: list[PredictedSetting]

    @property
    def better(self) -> PredictedSetting | None:
        """The setting with the fewest workers that is nearly as fast as the fastest one; None: none is worth it."""
        if not self.settings:
            return None
        fastest = max(one.speedup for one in self.settings)
        near = [one for one in self.settings if one.speedup >= fastest / NEARLY]
        best = min(near, key=lambda one: (one.workers, one.prefetch or 0))
        return best if best.speedup >= WORTH else None


def loader_pipeline(
    run: Run,
    loaders: Sequence[int] | None = None,
    *,
    most_workers: float = 16,
    start_ns: float = ASSUMED_START_NS,
    busy: Mapping[str, float] | None = None,
) -> LoaderPipeline | None:
    """That of the loaders which training waits for the most, or of these; None: no batch was seen both made and taken.

    `start_ns`: for each worker, where none was seen. `busy`: the share of all cores of its host that the run uses, by process: no
    setting is faster than all of them allow.
    """
    chosen = _chosen(run, loaders)
    if chosen is None:
        return None
    process, rank, numbers = chosen
    batches = _Batches.read(run, process, numbers)
    if batches is None:
        return None
    rounds = _rounds(run, process, numbers) or _unseen_rounds(batches)
    times = _recorded(batches, rounds, start_ns)
    workers, prefetch = rounds[-1].workers, rounds[-1].prefetch
    ns = (float(batches.taken[-1] - batches.asked[0]) + rounds[0].start_ns) / len(batches.taken)
    base = simulated(times, workers, prefetch or PREFETCH)
    recorded = _lasted(batches, rounds, len(times.fetch))
    error = base / recorded - 1 if recorded else None
    exact = error is not None and abs(error) <= EXACT
    stages = _stages(batches, times, workers, prefetch, _reading(run, process, numbers), base if exact else None)
    found = LoaderPipeline(
        process, rank, numbers, workers, prefetch if workers else None, len(batches.taken), ns, None, None, None, None, stages,
        max(stages, key=lambda one: one.speedup or 0.0).name if exact else None, error, [],
    )  # fmt: skip
    if workers:
        found = replace(found, **_queue(batches))
    return (
        replace(found, settings=_settings(times, found, base, most_workers, (busy or {}).get(process)))
        if exact
        else found
    )


def _chosen(run: Run, loaders: Sequence[int] | None) -> tuple[str, int | None, list[int]] | None:
    """The process in the middle by how long it waits, and its loaders: those that look like the one it waits for the most."""
    where = "purpose <> 'evaluate' AND wait_ns IS NOT NULL AND loader IS NOT NULL"
    if loaders is None:
        first = run.sql(
            f"SELECT loader FROM batches WHERE {where} GROUP BY 1 ORDER BY sum(wait_ns) DESC, 1 LIMIT 1"
        ).fetchall()
        if not first:
            return None
        key = probe.key_columns("key")["loader"]
        alike = f"SELECT {key} AS loader, args FROM {BESIDE} WHERE cat = '{probe.PROBE}' AND name = '{probe.ITER}' AND key IS NOT NULL"
        same = run.database.beside(
            f"SELECT DISTINCT loader FROM ({alike}) WHERE args IN (SELECT args FROM ({alike}) WHERE loader = {first[0][0]}) ORDER BY 1"
        )
        loaders = [row[0] for row in same] or [first[0][0]]
    listed = ", ".join(map(str, loaders))
    rows = run.sql(
        f"SELECT process, any_value(rank) FROM batches WHERE {where} AND loader IN ({listed}) "
        "GROUP BY 1 ORDER BY sum(wait_ns), 1"
    ).fetchall()
    if not rows:
        return None
    process, rank = rows[(len(rows) - 1) // 2]
    return process, rank, [*loaders]


# ── what was recorded ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Batches:
    """Those that were made and taken, in the order in which they were taken. Times in ns."""

    round: Ints  # loader and round in one number
    asked: Ints
    taken: Ints
    made: Ints
    fetch: Ints
    collate: Ints  # -1: not known
    worker: Ints  # -1: none

    @classmethod
    def read(cls, run: Run, process: str, loaders: Sequence[int]) -> _Batches | None:
        found = run.sql(
            f"""
            SELECT loader << 16 | round AS round, start_ns AS asked, start_ns + wait_ns AS taken, made_ns AS made, fetch_ns AS fetch,
                   coalesce(collate_ns, -1) AS collate, coalesce(worker, -1) AS worker
            FROM batches WHERE process = {quoted(process)} AND loader IN ({", ".join(map(str, loaders))})
            AND wait_ns IS NOT NULL AND fetch_ns IS NOT NULL AND made_ns IS NOT NULL ORDER BY start_ns
            """
        ).fetchnumpy()
        columns: dict[str, Any] = {name: np.asarray(column, np.int64) for name, column in found.items()}
        return cls(**columns) if len(columns["asked"]) > 1 else None


@dataclass(frozen=True)
class _Round:
    """An iteration over a loader: how long its start and its end took, in ns."""

    number: int  # as in _Batches
    begun: int
    start_ns: int
    stop_ns: int
    workers: int
    prefetch: int | None
    persistent: bool


def _rounds(run: Run, process: str, loaders: Sequence[int]) -> list[_Round]:
    key = probe.key_columns("key")
    rows = run.database.beside(
        f"""
        SELECT ({key["loader"]}) << 16 | ({key["round"]}), min(start_ns) FILTER (name = '{probe.ITER}'),
            coalesce(sum(dur_ns) FILTER (name = '{probe.ITER}'), 0), coalesce(sum(dur_ns) FILTER (name = '{probe.ITER_END}'), 0),
            any_value(try_cast(args->>'$.workers' AS BIGINT)), any_value(try_cast(args->>'$.prefetch' AS BIGINT)),
            any_value(args->>'$.persistent' = 'true')
        FROM {BESIDE} WHERE kind = 'span' AND cat = '{probe.PROBE}' AND name IN ('{probe.ITER}', '{probe.ITER_END}') AND NOT open
        AND key IS NOT NULL AND process = {quoted(process)} AND ({key["loader"]}) IN ({", ".join(map(str, loaders))})
        GROUP BY 1 HAVING count(*) FILTER (name = '{probe.ITER}') > 0 ORDER BY 2
        """
    )
    return [
        _Round(number, begun, int(start), int(stop), workers or 0, ahead, bool(kept))
        for number, begun, start, stop, workers, ahead, kept in rows
    ]


def _unseen_rounds(batches: _Batches) -> list[_Round]:
    """The same where no iteration was recorded: what its start took is not known."""
    workers = len(np.unique(batches.worker[batches.worker >= 0]))
    numbers, first = np.unique(batches.round, return_index=True)
    return [
        _Round(int(number), int(batches.asked[place]), 0, 0, workers, None, persistent=False)
        for number, place in sorted(zip(numbers, first, strict=True), key=lambda one: one[1])
    ]


def _recorded(batches: _Batches, rounds: Sequence[_Round], start_ns: float) -> BatchTimes:
    """The times of the first batches, as the simulation wants them."""
    some = slice(0, MOST_SIMULATED)
    fetch, round = batches.fetch[some].astype(np.float64), batches.round[some]
    own = batches.worker[some] < 0
    handing = (batches.taken - np.maximum(batches.asked, batches.made))[some].clip(min=0)
    computing = (batches.asked[1:] - batches.taken[:-1]).clip(min=0)
    last = np.flatnonzero(batches.round[1:] != batches.round[:-1])
    # Between two rounds lie the end of the workers of the one, and the start of those of the next.
    starts, stops = {one.number: one.start_ns for one in rounds}, {one.number: one.stop_ns for one in rounds}
    between = [starts.get(int(batches.round[at + 1]), 0) + stops.get(int(batches.round[at]), 0) for at in last]
    computing[last] = (computing[last] - np.array(between, np.int64)).clip(min=0)
    computing = np.append(computing, 0)[some]
    if len(computing) > 1:
        computing[-1] = computing[-1] or np.median(computing[:-1])
    if own.all():  # nothing was handed over: what a worker would need for it was not measured
        handing = np.full(len(fetch), ASSUMED_HANDING_NS)
    breaks = [0, *(np.flatnonzero(round[1:] != round[:-1]) + 1).tolist(), len(round)]
    counts = [until - at for at, until in pairwise(breaks)]
    return BatchTimes(fetch.tolist(), handing.tolist(), computing.tolist(), counts, _start(batches, rounds, start_ns))


def _start(batches: _Batches, rounds: Sequence[_Round], assumed: float) -> Start:
    """What starting workers took: creating them, until they began with their first batches, and stopping them."""
    one = rounds[-1]
    if not one.workers:
        return Start(assumed, 0.0, 0.0, again=not one.persistent)
    started = rounds[:1] if one.persistent else rounds
    begun = []
    for each in started:
        inside = batches.round == each.number
        _, first = np.unique(batches.worker[inside], return_index=True)
        begun += ((batches.made - batches.fetch)[inside][first] - (each.begun + each.start_ns)).tolist()
    create, stop = (
        float(np.mean(ns)) / one.workers for ns in zip(*((r.start_ns, r.stop_ns) for r in started), strict=True)
    )
    return Start(create, float(np.median(begun)) if begun else 0.0, stop, again=not one.persistent)


def _lasted(batches: _Batches, rounds: Sequence[_Round], count: int) -> float:
    """How long the batches that are simulated took, from the start of the first round."""
    first = rounds[0].begun if rounds[0].begun <= batches.asked[0] else int(batches.asked[0])
    last = batches.asked[count] if count < len(batches.asked) else batches.taken[-1] + _pause(batches)
    return float(last - first)


def _pause(batches: _Batches) -> float:
    return float(np.median(batches.asked[1:] - batches.taken[:-1]))


def _reading(run: Run, process: str, loaders: Sequence[int]) -> float | None:
    """The share of loading that is reading files; None: they were not watched."""
    if not any(one.cat == probe.IO and one.name == probe.READ for one in _names(run)):
        return None
    where = f"process = {quoted(process)} AND loader IN ({', '.join(map(str, loaders))})"
    ((spent,),) = run.sql(f"SELECT sum(dur_ns) FROM reads WHERE {where} AND position IS NOT NULL").fetchall()
    ((whole,),) = run.sql(f"SELECT sum(fetch_ns) FROM batches WHERE {where}").fetchall()
    return min(1.0, float(spent / whole)) if spent is not None and whole else None


def _names(run: Run) -> list[Any]:
    return [one for named in run.database.source.name_counts.values() for one in named]


# ── what follows from it ─────────────────────────────────────────────────────────────────────────────────────────────


def _queue(batches: _Batches) -> dict[str, Any]:
    """How long finished batches waited, and how many were ready when."""
    waited = (batches.taken - batches.made).clip(min=0)
    first, last = int(batches.asked[0]), int(batches.taken[-1])
    moments = np.concatenate([batches.made, np.maximum(batches.taken, batches.made)]).clip(min=first)
    change = np.concatenate([np.ones(len(waited)), -np.ones(len(waited))])
    order = np.argsort(moments, kind="stable")
    moments, level = moments[order], np.cumsum(change[order])
    pieces = min(PIECES, len(waited))
    edges = np.linspace(first, max(last, first + 1), pieces + 1)
    # The area under the level up to each edge: between two edges, it is the mean times the width.
    area = np.append(0.0, np.cumsum(level[:-1] * np.diff(moments)))
    place = (np.searchsorted(moments, edges, side="right") - 1).clip(min=0)
    upto = area[place] + level[place] * (edges - moments[place]).clip(min=0)
    ready = (np.diff(upto) / np.diff(edges)).clip(min=0)
    return {
        "ready_ns": float(np.median(waited)),
        "empty": float((batches.made > batches.asked).mean()),
        "ready": float(waited.sum() / max(1, last - first)),
        "depth": Depth((edges[:-1] - first).tolist(), ready.tolist()),
    }


def _stages(
    batches: _Batches, times: BatchTimes, workers: int, prefetch: int | None, reading: float | None, base: float | None
) -> list[Stage]:
    """The stages in the order in which a batch passes them. `base`: how long the simulation takes with all; None: not known."""
    count, whole = len(times.fetch), float(batches.fetch.mean())
    ahead = prefetch or PREFETCH
    seen = batches.collate >= 0
    collate = float(batches.collate[seen].mean()) / whole if seen.any() and whole else None
    items = 1 - (collate or 0.0)
    shares = {ITEMS: items} if reading is None else {READ: min(reading, items), DECODE: max(0.0, items - reading)}
    if collate is not None:
        shares[COLLATE] = collate

    def free(**changed: Any) -> float | None:
        rest = simulated(replace(times, **changed), workers, ahead) if base else 0.0
        return base / rest if base and rest else None

    found = [
        Stage(name, share * whole, free(fetch=[ns * (1 - share) for ns in times.fetch]))
        for name, share in shares.items()
    ]
    if workers:
        starts = len(times.rounds) if times.start.again else 1
        one = times.start
        start = (max(0.0, one.create * workers + one.boot) + one.stop * workers) * starts / count
        found.append(Stage(START, start, free(start=STARTED)))
        found.append(Stage(HANDING, sum(times.handing) / count, free(handing=[0.0] * count)))
    found.append(Stage(MODEL, sum(times.computing) / count, free(computing=[0.0] * count)))
    return found


def _settings(
    times: BatchTimes, found: LoaderPipeline, base: float, most_workers: float, busy: float | None
) -> list[PredictedSetting]:
    """What other numbers of workers would bring, and more batches ahead for the recorded number."""
    now, ahead = found.workers, found.prefetch or PREFETCH
    tried = [(workers, ahead) for workers in sorted({*TRIED, now}) if workers <= max(most_workers, now)]
    tried += [(now, ahead * times_more) for times_more in MORE_PREFETCH if now]
    most = 1 / busy if busy else float("inf")
    settings = []
    for workers, prefetch in tried:
        if (workers, prefetch) == (now, ahead):
            continue
        speedup = min(base / simulated(times, workers, prefetch), max(1.0, most))
        settings.append(PredictedSetting(workers, prefetch if workers else None, found.ns / speedup, speedup))
    return settings
