"""Large runs in little time: recorded ranks, varied into as many as needed.

Ranks keep what a real job has: they leave the collective of a step together, so whoever comes late lets the others wait. The clock
of a host is that of the job, moved by what is asked for.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from sonde.errors import SondeError
from sonde.lazy import numpy as np
from sonde.store import probe, record as layout
from sonde.store.reading.reader import read_process
from sonde.testing.building import START_NS, WALL_NS, build_run, write_file
from sonde.testing.recording import RANKS, STEPS, VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

HEAD = 8  # recorded steps that stand at the beginning once; the others follow again and again
SCATTER = 0.03  # of the time of a step, in each rank
COLLECTIVE_NS = 200_000  # what the collective of a step takes those who come last
LEAVING_NS = 30_000  # within which all leave it
GAP_NS = 20_000_000_000  # between two attempts
INPUT = "input"
_BATCHES = (probe.INPUT_WAIT, probe.SAMPLES, probe.FETCH)
_SAMPLED = (probe.MEMORY, probe.SYSTEM)  # categories


class Straggler(NamedTuple):
    """A rank that needs `times` as long for its `cause` (input or compute), in every `every`-th step."""

    rank: int
    times: float = 3.0
    cause: str = INPUT
    every: int = 1


def synthetic_run(
    folder: str | Path,
    *,
    ranks: int = 8,
    steps: int = 100,
    workers: int = 1,
    hosts: int = 1,
    stragglers: Sequence[Straggler] = (),
    restarts: int = 0,
    repeated: int = 0,
    skew_ns: Sequence[int] = (),
    drift_ppm: Sequence[float] = (),
    jump_ns: Sequence[int] = (),
    seed: int = 0,
) -> Path:
    """Write a run of many ranks as Sonde would record it. Returns its path.

    Needs torch the first time: eight ranks are recorded and kept in ~/.cache/sonde. `workers`: of each rank's loader. Ranks are
    spread over the hosts in blocks. `skew_ns`, `drift_ppm` and `jump_ns` (of the wall clock, in the middle) say for each host how its
    clock differs. After each restart the job starts again, `repeated` steps back.
    """
    if min(ranks, steps, hosts) < 1 or min(workers, restarts, repeated) < 0:
        raise SondeError("synthetic_run() needs at least one rank, step and host, and no negative numbers.")
    recorded = _recorded()
    path = build_run(folder, (), name="synthetic", host=_name(0))
    begin = jump = 0
    for attempt in range(restarts + 1):
        first = max(0, attempt * steps // (restarts + 1) - repeated * (attempt > 0))
        count = (attempt + 1) * steps // (restarts + 1) - first
        job = _Attempt(recorded, ranks, count, stragglers, seed * 1000 + attempt)
        jump = jump or job.middle
        for rank in range(ranks):
            host = rank * hosts // ranks
            clock = _HostClock(host, _at(skew_ns, host), _at(drift_ppm, host), _at(jump_ns, host), begin, jump)
            local = rank - -(-host * ranks // hosts)
            _write_rank(path, job, clock, _RankSlot(rank, local, ranks, attempt, first, attempt == restarts), workers)
        begin += job.length + GAP_NS
    return path


# ── what was recorded ────────────────────────────────────────────────────────────────────────────────────────────────


class _RecordedProcess(NamedTuple):
    """One recorded process. Times are in ns from the first record of the rank; `chunk` is the step that a record belongs to, and
    `behind` the distance to the record around it (0: none).
    """

    records: NDArray[np.void]
    start: Floats
    end: Floats
    chunk: Ints
    behind: Ints
    names: dict[int, tuple[str, str]]
    folder: Path


class _Rank(NamedTuple):
    """A recorded rank. `knots`: of each step, when waiting for data begins and ends, and when the collective does."""

    trainer: _RecordedProcess
    worker: _RecordedProcess
    knots: Floats


def _recorded() -> list[_Rank]:
    """The ranks that were recorded on this machine; they are now, if they were not before."""
    cache = Path.home() / ".cache" / "sonde"
    kept = cache / f"ranks-{VERSION}"
    if not kept.is_dir():
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        _record(cache, kept)
    infos = {one.parent: json.loads(one.read_text()) for one in sorted(kept.glob("*/process.json"))}
    trainers = {info["pid"]: one for one, info in infos.items() if info["role"] != "worker"}
    workers = {info["parent_pid"]: one for one, info in infos.items() if info["role"] == "worker"}
    if len(trainers) != RANKS or set(workers) != set(trainers):
        raise SondeError(f"{kept} has {len(trainers)} of {RANKS} recorded ranks. Delete it and try again.")
    return [_rank(one, workers[pid]) for pid, one in trainers.items()]


def _record(cache: Path, kept: Path) -> None:
    beside = Path(tempfile.mkdtemp(prefix="recording-", dir=cache))
    try:
        program = "import sys; from sonde.testing.recording import main; sys.exit(main(sys.argv[1]))"
        command = [sys.executable, "-c", program, str(beside / "run")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603
        if done.returncode:
            raise SondeError(f"synthetic_run() could not record its ranks. It needs torch. {done.stderr[-500:]}")
        if not kept.is_dir():  # somebody may have been faster
            (beside / "run").rename(kept)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _rank(trainer: Path, worker: Path) -> _Rank:
    recorded, fetched = _read(trainer), _read(worker)
    origin = recorded.start[0]
    start, end = recorded.start - origin, recorded.end - origin
    waits = _named(recorded, probe.INPUT_WAIT)[:STEPS]
    meets = _named(recorded, probe.COMMUNICATION)[:STEPS]
    knots = np.stack([start[waits], end[waits], start[meets], end[meets]], axis=1)
    recorded = recorded._replace(start=start, end=end, chunk=np.searchsorted(knots[:, 3], start))
    sampled, ends = (_in_category(recorded, some) for some in (_SAMPLED, (probe.PROCESS,)))
    recorded = _take(recorded, (~sampled | (recorded.chunk <= HEAD)) & ~ends)
    fetched = fetched._replace(start=fetched.start - origin, end=fetched.end - origin, chunk=_numbers(fetched))
    return _Rank(recorded, _take(fetched, (fetched.chunk >= 0) & (fetched.chunk < STEPS)), knots)


def _read(folder: Path) -> _RecordedProcess:
    found = read_process(folder)
    records = found.records.copy()
    records["key"][records["key"] == found.info.pid] = 0  # of samples: whose it is
    start = records["start"].astype(np.float64)
    spans = records["kind"] & layout.KIND_MASK == layout.SPAN
    around = np.searchsorted(records["seq"], records["parent"])
    behind = np.where(records["parent"] > 0, np.arange(len(records)) - around, 0)
    return _RecordedProcess(
        records, start, start + np.where(spans, records["dur"], 0), behind, behind, found.names, folder
    )


def _named(lane: _RecordedProcess, name: str) -> NDArray[np.intp]:
    ids = [id for id, (cat, called) in lane.names.items() if cat == probe.PROBE and called.startswith(name)]
    return np.flatnonzero(np.isin(lane.records["name"], ids))


def _in_category(lane: _RecordedProcess, categories: tuple[str, ...]) -> NDArray[np.bool_]:
    return np.isin(lane.records["name"], [id for id, (cat, _) in lane.names.items() if cat in categories])


def _numbers(lane: _RecordedProcess) -> Ints:
    """For each record of a worker the number of the batch that it was made for, -1: for none."""
    fetches = _named(lane, probe.FETCH)
    number = np.full(len(lane.records), -1)
    number[fetches] = probe.number_of(lane.records["key"][fetches])
    return np.where(lane.behind > 0, number[np.arange(len(number)) - lane.behind], number)


def _take(lane: _RecordedProcess, chosen: NDArray[np.bool_]) -> _RecordedProcess:
    """Some records; the one around another, if it is in the same step, stays around it."""
    place = np.cumsum(chosen) - 1
    around = np.arange(len(chosen)) - lane.behind
    inside = (lane.behind > 0) & chosen[around] & (lane.chunk[around] == lane.chunk)
    behind = np.where(inside, place - place[around], 0)
    return lane._replace(
        records=lane.records[chosen],
        start=lane.start[chosen],
        end=lane.end[chosen],
        chunk=lane.chunk[chosen],
        behind=behind[chosen],
    )


# ── how it is varied ─────────────────────────────────────────────────────────────────────────────────────────────────


class _HostClock(NamedTuple):
    """The clocks of a host: how they go, and the moments of the job at which an attempt begins and its wall clock jumps."""

    host: int
    skew_ns: int
    drift_ppm: float
    jump_ns: int
    begin: int
    jump: int

    def mono(self, moments: Floats) -> Ints:
        """Moments of an attempt on the monotonic clock."""
        passed = moments + self.begin
        base = START_NS * (self.host + 1) + self.begin
        return base + np.rint(moments + passed * (self.drift_ppm / 1e6)).astype(np.int64)

    def pair(self, moment: float) -> dict[str, int]:
        """One moment on both clocks."""
        mono = int(self.mono(np.array([moment]))[0])
        jumped = self.jump_ns if moment + self.begin > self.jump else 0
        return {"mono_ns": mono, "wall_ns": WALL_NS + mono - START_NS * (self.host + 1) + self.skew_ns + jumped}


class _RankSlot(NamedTuple):
    """A rank of an attempt. `last`: it ends properly, and not by a restart."""

    rank: int
    local: int
    world: int
    attempt: int
    first: int
    last: bool


class _Attempt:
    """One attempt: when all ranks leave the collective of each step."""

    def __init__(
        self, recorded: Sequence[_Rank], ranks: int, steps: int, stragglers: Sequence[Straggler], seed: int
    ) -> None:
        self.recorded, self.steps, self._seed = recorded, steps, seed
        self._stragglers = {one.rank: one for one in stragglers}
        place = np.arange(steps)
        self.order = np.where(place < HEAD, place, HEAD + (place - HEAD) % (STEPS - HEAD))
        longest = np.zeros(steps)
        for rank in range(ranks):
            np.maximum(longest, self._sections(rank)[0].sum(axis=1), out=longest)
        self._left = np.cumsum(longest + COLLECTIVE_NS)
        self.middle = int(self._left[-1]) // 2
        self.length = int(self._left[-1]) + GAP_NS // 20

    def template(self, rank: int) -> _Rank:
        """The recorded rank that this one is varied from."""
        return self.recorded[rank % len(self.recorded)]

    def _sections(self, rank: int) -> tuple[Floats, float]:
        """For each step the time before waiting, waiting, and computing; and by how much the rank is slower."""
        random = np.random.default_rng([self._seed, rank])
        knots = self.template(rank).knots
        ends = np.append(0.0, knots[:-1, 3])
        sections = np.stack([knots[:, 0] - ends, knots[:, 1] - knots[:, 0], knots[:, 2] - knots[:, 1]], axis=1)
        slower = float(np.exp(random.normal(0, SCATTER)))
        found = sections[self.order] * (slower * np.exp(random.normal(0, SCATTER, (self.steps, 1))))
        late = self._stragglers.get(rank)
        if late is not None:
            found[:: late.every, 1 if late.cause == INPUT else 2] *= late.times
        return found, slower

    def warp(self, rank: int) -> tuple[_Warp, float]:
        """From the time of the recorded steps, one behind the other, to that of the job; and by how much the rank is slower."""
        sections, slower = self._sections(rank)
        knots = self.template(rank).knots
        begins = np.append(0.0, knots[:, 3])
        base = np.append(0.0, np.cumsum(np.diff(begins)[self.order]))
        source = base[:-1, None] + (knots - begins[:-1, None])[self.order]
        leaving = np.random.default_rng([self._seed, rank, 1]).uniform(0, LEAVING_NS, self.steps)
        left = self._left + leaving
        inner = np.append(0.0, left[:-1])[:, None] + np.cumsum(sections, axis=1)
        return _Warp(base, begins, source.ravel(), np.column_stack([inner, left]).ravel()), slower


class _Warp(NamedTuple):
    """`base`: where each step begins in the source; `begins`: where each recorded one does; then the knots of both times."""

    base: Floats
    begins: Floats
    source: Floats
    target: Floats

    def __call__(self, moments: Floats) -> Floats:
        far = 1e15
        source = np.concatenate([[-far], self.source, [self.source[-1] + far]])
        target = np.concatenate([[-far], self.target, [self.target[-1] + far]])
        found: Floats = np.interp(moments, source, target)
        return found


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write_rank(run: Path, job: _Attempt, clock: _HostClock, place: _RankSlot, workers: int) -> None:
    template, (warp, slower) = job.template(place.rank), job.warp(place.rank)
    pid = 1000 + 100_000 * place.attempt + place.local * (workers + 1)
    order = np.append(job.order, STEPS) if place.last else job.order
    records, start, end = _repeated(template.trainer, order, warp, place.first)
    records = _finished(records, clock.mono(start), clock.mono(end))
    _decrease(records, template.trainer.names, place)
    ended = float(end.max())
    facts: dict[str, object] = {
        "rank": place.rank,
        "local_rank": place.local,
        "world_size": place.world,
        "attempt": place.attempt,
    }
    _write(
        run,
        template.trainer,
        records,
        clock,
        (pid, ended),
        facts | {"role": "trainer", "parent_pid": 1},
        place,
        workers,
    )
    for worker in range(workers):
        records, start, end = _fetches(template.worker, job, warp, slower, (worker, workers))
        records = _finished(records, clock.mono(start), clock.mono(end))
        mine = facts | {"role": "worker", "worker": worker, "parent_pid": pid}
        _write(run, template.worker, records, clock, (pid + 1 + worker, ended), mine, place, workers)


def _repeated(
    lane: _RecordedProcess, order: Ints, warp: _Warp, first: int, chosen: Ints | None = None
) -> tuple[NDArray[np.void], Floats, Floats]:
    """The records of recorded steps in this order, and their times in the job. `first`: the number of the first step."""
    steps = np.arange(len(order)) if chosen is None else chosen
    low, high = np.searchsorted(lane.chunk, order), np.searchsorted(lane.chunk, order, side="right")
    counts = high - low
    places = np.repeat(low - np.append(0, np.cumsum(counts)[:-1]), counts) + np.arange(counts.sum())
    step, recorded = np.repeat(steps, counts), np.repeat(order, counts)
    records = lane.records[places]
    moved = step - recorded
    batches = np.isin(records["name"], [id for id, (_, name) in lane.names.items() if name in _BATCHES])
    records["key"][batches] += moved[batches]
    known = records["step"] != layout.NO_STEP
    records["step"][known] = records["step"][known].astype(np.int64) + moved[known] + first
    records["seq"] = np.arange(1, len(records) + 1)
    behind = lane.behind[places]
    records["parent"] = np.where(behind > 0, records["seq"] - behind, 0)
    shift = warp.base[step] - warp.begins[recorded]
    return records, warp(lane.start[places] + shift), warp(lane.end[places] + shift)


def _fetches(
    lane: _RecordedProcess, job: _Attempt, warp: _Warp, slower: float, which: tuple[int, int]
) -> tuple[NDArray[np.void], Floats, Floats]:
    """The batches that one of several workers made: each as long as it was recorded, one after the other."""
    steps = np.arange(which[0], job.steps, which[1])
    order = job.order[steps]
    records, _, _ = _repeated(lane, order, warp, 0, steps)
    low, high = np.searchsorted(lane.chunk, order), np.searchsorted(lane.chunk, order, side="right")
    begun = lane.start[np.minimum(low, len(lane.start) - 1)]
    wanted = warp(begun + warp.base[steps] - warp.begins[order])
    lasting = slower * (lane.end[np.minimum(low, len(lane.start) - 1)] - begun)
    before = np.append(0.0, np.cumsum(lasting))[:-1]
    started = before + np.maximum.accumulate(wanted - before)  # never before the one before it has ended
    counts = high - low
    places = np.repeat(low - np.append(0, np.cumsum(counts))[:-1], counts) + np.arange(counts.sum())
    since, until = (slower * (column[places] - np.repeat(begun, counts)) for column in (lane.start, lane.end))
    return records, np.repeat(started, counts) + since, np.repeat(started, counts) + until


def _finished(records: NDArray[np.void], start: Ints, end: Ints) -> NDArray[np.void]:
    """Records with these times on the clock of their host."""
    records["start"] = start
    spans = records["kind"] & layout.KIND_MASK == layout.SPAN
    records["dur"] = np.where(spans, end - start, records["dur"])
    return records


def _decrease(records: NDArray[np.void], names: Mapping[int, tuple[str, str]], place: _RankSlot) -> None:
    """Let the loss become smaller with the steps."""
    losses = np.flatnonzero(np.isin(records["name"], [id for id, name in names.items() if name[1] == probe.LOSS]))
    values = records["dur"][losses].view(np.float64)
    steps = records["step"][losses].astype(np.float64)
    records["dur"][losses] = (values * (1 + place.rank % 7 / 50) / np.sqrt(1 + steps / 50)).view(np.int64)


def _write(
    run: Path,
    lane: _RecordedProcess,
    records: NDArray[np.void],
    clock: _HostClock,
    when: tuple[int, float],
    facts: Mapping[str, object],
    place: _RankSlot,
    workers: int,
) -> None:
    """One process folder, all of whose records have left the rings. `when`: its number, and the moment of its end."""
    pid, ended = when
    folder = run / f"{_name(clock.host)}-{pid}-0"
    folder.mkdir(mode=0o700)
    info = json.loads((lane.folder / "process.json").read_text())
    end = {**clock.pair(ended), "reason": "finish" if place.last else "terminated", "exception": None}
    info |= {
        "host": _name(clock.host),
        "pid": pid,
        "boot_id": f"00000000-0000-0000-0000-{clock.host:012d}",
        "start_ticks": pid,
        "start": clock.pair(0.0),
        "end": end,
        **facts,
    }
    segment = _segment(records)
    args = (lane.folder / "args.bin").read_bytes()
    if workers < 10:  # the blobs keep their places
        args = re.sub(rb'("workers": ?)1\b', rb"\g<1>%d" % workers, args)
    fields = {"next_seq": len(records) + 1, "seg_len": len(segment), "args_len": len(args), "rings": 0}
    write_file(folder / "events.seg", segment)
    write_file(folder / "rings", layout.header_page(fields))
    write_file(folder / "args.bin", args)
    write_file(folder / "names.jsonl", (lane.folder / "names.jsonl").read_bytes())
    write_file(folder / "process.json", json.dumps(info).encode())


def _segment(records: NDArray[np.void]) -> bytes:
    """Records as they are spilled: blocks, each behind a head."""
    firsts = np.arange(0, len(records), layout.SPILL_RECORDS)
    heads = np.zeros(len(firsts), records.dtype)
    heads["start"], heads["dur"], heads["name"], heads["kind"] = layout.BLOCK_MAGIC, firsts, 1, layout.BLOCK
    heads["key"] = np.minimum(len(records) - firsts, layout.SPILL_RECORDS)
    return np.insert(records, firsts, heads).tobytes()


Value = TypeVar("Value", int, float)


def _at(many: Sequence[Value], host: int) -> Value:
    return many[host] if host < len(many) else type(many[0])(0) if many else 0


def _name(host: int) -> str:
    return f"node-{host:03d}"
