"""For tests of programs that use Sonde, and of Sonde itself: record for real, a clock by hand, runs built byte by byte."""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from sonde import config, environment, session
from sonde.analysis.run import open_run
from sonde.errors import RunBusy, SondeError
from sonde.events import core
from sonde.store import probe, record as layout
from sonde.store.record import COUNTER, MARK, SPAN

START_NS = 1_000_000_000_000  # the monotonic start of a built process
WALL_NS = 1_700_000_000_000_000_000
MS = 1_000_000
# What the phases of a step of a built training last, in ns.
TRAINING = {
    "input_wait": 2 * MS,
    "forward": 3 * MS,
    "backward": 5 * MS,
    "optimizer": 1 * MS,
    "residual": 1 * MS,
}


class Recorded:
    """What a `record()` block has recorded: so far, or, after the block, in total."""

    def __init__(self, path: Path) -> None:
        """`path`: the run folder. It may be gone after the block."""
        self.path = path
        self._kept: list[dict[str, Any]] | None = None

    @property
    def events(self) -> list[dict[str, Any]]:
        """The rows of the table `events`, sorted by start; `args` as a dict or None."""
        return self._read() if self._kept is None else self._kept

    @property
    def names(self) -> list[str]:
        """The names of the events."""
        return [str(event["name"]) for event in self.events]

    def named(self, name: str) -> list[dict[str, Any]]:
        """The events with this name."""
        return [event for event in self.events if event["name"] == name]

    def keep(self) -> None:
        """Read all events into memory, so that the folder can be deleted."""
        self._kept = self._read()

    def _read(self) -> list[dict[str, Any]]:
        with open_run(self.path) as run:
            found = run.sql("select * from events order by start_ns, pid, seq")
            rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
        for row in rows:
            row["args"] = json.loads(row["args"]) if row["args"] else None
        return rows


@contextmanager
def record(**settings: object) -> Iterator[Recorded]:
    """Record the block for real, into a temporary folder (or into `dir`, which then stays).

    Takes the settings of `sonde.init()`. Whatever the environment says, this block is recorded, in a run of its own.
    """
    if session.current() is not None:
        raise RunBusy(f"record() cannot start: {session.current()!r} is active. Call sonde.finish() first.")
    outer = config.peek("run")
    environment.publish_run(None)
    temporary = None if settings.get("dir") else tempfile.mkdtemp(prefix="sonde-test-")
    try:
        running = session.init(**{"enabled": True, "dir": temporary, "name": "test", **settings})  # type: ignore[arg-type]
        if running.path is None:
            raise SondeError(f"record() could not record to {temporary or settings['dir']}. The log has the reason.")
        recorded = Recorded(running.path)
        try:
            yield recorded
        finally:
            running.finish()
            recorded.keep()
    finally:
        environment.publish_run(outer)
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


class FakeClock:
    """A monotonic clock that you move by hand. `with FakeClock() as clock:` replaces the real one."""

    def __init__(self, start_ns: int = START_NS) -> None:
        """`start_ns`: the first reading."""
        self.now_ns = start_ns

    def __call__(self) -> int:
        """The current reading, in nanoseconds."""
        return self.now_ns

    def advance(self, ns: int = 0, seconds: float = 0.0) -> None:
        """Move the clock forward."""
        self.now_ns += ns + round(seconds * 1_000_000_000)

    def __enter__(self) -> Self:
        core.set_clock(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        core.set_clock(None)


class BuiltRecord(NamedTuple):
    """One record of a built run. `seq` 0 takes the next number; `value` is for counters, `dur` for spans."""

    name: str = "work"
    cat: str = "user"
    kind: int = SPAN
    start: int = START_NS
    dur: int = 0
    value: float = 0.0
    key: int | None = None
    args: Mapping[str, object] | None = None
    seq: int = 0
    parent: int = 0
    depth: int = 0
    step: int | None = None
    epoch: int | None = None
    flags: int = 0
    thread: int = 1  # ordinal of the thread, from 1


class BuiltProcess(NamedTuple):
    """One process folder of a built run: its records, and how it differs from a normal process that ended properly.

    `spilled` records of each thread are in events.seg, the others in its ring; what does not fit is spilled. `next_seq`
    0 means directly after the last record. `header` replaces fields of the rings header, `process` fields of
    process.json.
    """

    records: Sequence[BuiltRecord] = ()
    pid: int = 1000
    host: str = "testhost"
    n: int = 0
    spilled: int = 0
    next_seq: int = 0
    header: Mapping[str, int | bytes] | None = None
    process: Mapping[str, object] | None = None


def build_run(path: str | Path, processes: Sequence[BuiltProcess] = (BuiltProcess(),), **run: object) -> Path:
    """Write a run folder byte by byte, without a core. Keywords replace fields of run.json."""
    folder = Path(path)
    folder.mkdir(mode=0o700, parents=True)
    meta: dict[str, object] = {
        "schema": 1,
        "id": folder.name,
        "name": "built",
        "command": ["python", "train.py"],
        "cwd": "/home/user",
        "python": "3.11.0",
        "platform": "Linux",
        "sonde": "0.1.0",
        "host": "testhost",
        "git": None,
        "start": {"mono_ns": START_NS, "wall_ns": WALL_NS},
        "settings": {},
    }
    write_file(folder / "run.json", json.dumps(meta | run).encode())
    write_file(folder / "usage", bytes(8))
    for process in processes:
        build_process(folder, process)
    return folder


def build_process(run: Path, process: BuiltProcess) -> Path:
    """Write one process folder to a run folder."""
    folder = run / f"{process.host}-{process.pid}-{process.n}"
    folder.mkdir(mode=0o700)
    names, packed, blobs = _pack(process.records)
    rings, segment = _lay_out(packed, process)
    threads = sorted({thread for thread, _ in packed})
    last = max((int(layout.RECORD.unpack(raw)[5]) for _, raw in packed), default=0)
    header: dict[str, int | bytes] = {
        "rings": len(rings),
        "next_seq": process.next_seq or last + 1,
        "seg_len": len(segment),
        "args_len": len(blobs),
    }
    write_file(folder / "rings", layout.header_page(header | dict(process.header or {})))
    with open(folder / "rings", "ab") as file:
        file.writelines(rings)
    write_file(folder / "events.seg", segment)
    write_file(folder / "args.bin", blobs)
    lines = [json.dumps({"id": number, "cat": cat, "name": name}) for (cat, name), number in names.items()]
    lines += [
        json.dumps({"thread": thread, "tid": process.pid + thread - 1, "name": f"T{thread}"}) for thread in threads
    ]
    write_file(folder / "names.jsonl", "".join(line + "\n" for line in lines).encode())
    write_file(folder / "process.json", json.dumps(_process_json(process)).encode())
    return folder


def build_training(path: str | Path, **training: Any) -> Path:
    """Write a training run as the probes would record it. Takes the arguments of `training_processes`."""
    return build_run(path, training_processes(**training))


def training_processes(
    *,
    ranks: int = 1,
    steps: int = 10,
    workers: int = 0,
    micro_batches: int = 1,
    batch_size: int = 4,
    phases: Mapping[str, int] | Callable[[int, int], Mapping[str, int]] = TRAINING,
    evaluate_every: int = 0,
    evaluation_batches: int = 2,
    epoch_steps: int = 0,
    layers: Sequence[str] = (),
    item_ns: Callable[[int, int], int] | None = None,
    loss: Callable[[int], float] | None = None,
    rss: Callable[[int, int], int] | None = None,
    killed: bool = False,
) -> list[BuiltProcess]:
    """The processes of a training: one per rank (pid 1000 + rank), and one per loader worker.

    `phases` maps the phases of a step to ns, or is a function of (rank, step) that returns such a dict. Phases are
    input_wait, h2d, forward, backward, optimizer, communication (inside backward), checkpoint, evaluation and
    `residual`. Evaluation is per batch, after every `evaluate_every` steps. Phases that are left out are not recorded.
    Micro-batches share the times. `item_ns(rank, index)` is the time a worker takes for an item. `loss(step)` and
    `rss(rank, step)` are recorded at each step. After `epoch_steps` steps the epoch changes and the loader starts
    again. `killed`: every rank vanishes in the forward of one more step.
    """
    found: list[BuiltProcess] = []
    for rank in range(ranks):
        trainer = _TinyTrainer(rank, workers)
        for step in range(steps):
            times = phases(rank, step) if callable(phases) else phases
            epoch = step // epoch_steps if epoch_steps else 0
            trainer.begin(step, epoch)
            for part in range(micro_batches):
                trainer.micro_batch(
                    {phase: _part_of(ns, part, micro_batches) for phase, ns in times.items()},
                    batch_size,
                    layers,
                    item_ns,
                )
                if loss is not None:
                    trainer.record(probe.LOSS, kind=COUNTER, value=loss(step))
            trainer.update(times)
            if rss is not None:
                trainer.record("rss", cat=probe.MEMORY, kind=COUNTER, value=float(rss(rank, step)), key=trainer.pid)
            if evaluate_every and (step + 1) % evaluate_every == 0:
                trainer.evaluate(times, evaluation_batches, batch_size)
        if killed:
            trainer.die()
        found += trainer.processes(ranks)
    return found


class _TinyTrainer:
    """One rank and its loader workers, on a clock of their own."""

    def __init__(self, rank: int, workers: int) -> None:
        self.rank = rank
        self.pid = 1000 + rank
        self.now = START_NS
        self.killed = False
        self._records: list[BuiltRecord] = []
        self._open: list[int] = []  # numbers of the spans that are open
        self._step: int | None = None
        self._epoch: int | None = None
        self._round = 0
        self._rounds = 0  # of the loader for evaluation
        self._number = 0
        self._index = 0
        self._workers: list[list[BuiltRecord]] = [[] for _ in range(workers)]

    def begin(self, step: int, epoch: int) -> None:
        """A step begins."""
        if self._epoch is not None and epoch != self._epoch:
            self._round, self._number, self._index = self._round + 1, 0, 0
        self._step, self._epoch = step, epoch

    def record(self, name: str, cat: str = probe.PROBE, **fields: Any) -> None:
        """Write a record of this moment, inside the spans that are open."""
        context = {"step": self._step, "epoch": self._epoch}
        parent = self._open[-1] if self._open else 0
        one = BuiltRecord(name, cat, start=self.now, parent=parent, depth=len(self._open), **(context | fields))
        self._records.append(one)

    @contextmanager
    def span(self, name: str, cat: str = probe.PROBE, **fields: Any) -> Iterator[None]:
        """A span around what is recorded in the block."""
        self.record(name, cat, **fields)
        number = len(self._records)
        self._open.append(number)
        yield
        self._open.pop()
        begun = self._records[number - 1]
        self._records[number - 1] = begun._replace(dur=self.now - begun.start)

    def pause(self, ns: int) -> None:
        """Move the clock forward."""
        self.now += ns

    def micro_batch(
        self,
        times: Mapping[str, int],
        size: int,
        layers: Sequence[str],
        item_ns: Callable[[int, int], int] | None,
    ) -> None:
        """Fetch, transfer, forward and backward of one batch."""
        if "input_wait" in times:
            self._fetch(times["input_wait"], size, item_ns)
        if "h2d" in times:
            with self.span(probe.H2D, key=4096):
                self.pause(times["h2d"])
        if "forward" in times:
            with self.span(probe.FORWARD, key=probe.FORWARD_TRAINING | probe.FORWARD_GRAD):
                self._layers(probe.LAYER, layers, times["forward"])
        if "backward" in times:
            with self.span(probe.BACKWARD, key=0):
                self._layers(probe.LAYER_BACKWARD, layers[::-1], times["backward"])
                if "communication" in times:
                    with self.span(f"{probe.COMMUNICATION}all_reduce", key=4096):
                        self.pause(times["communication"])

    def update(self, times: Mapping[str, int]) -> None:
        """The rest of a step."""
        self.pause(times.get("residual", 0))
        if "checkpoint" in times:
            with self.span(probe.CHECKPOINT, key=0):
                self.pause(times["checkpoint"])
        if "optimizer" in times:
            with self.span(probe.OPTIMIZER, key=0):
                self.pause(times["optimizer"])
        self.record(probe.UPDATE, kind=MARK, key=0)
        self._step = (self._step or 0) + 1

    def evaluate(self, times: Mapping[str, int], batches: int, size: int) -> None:
        """A loop over a second loader, without backward; each batch takes the time of `evaluation`."""
        for number in range(batches):
            key = probe.batch_key(1, self._rounds, number)
            with self.span(probe.INPUT_WAIT, key=key):
                pass
            self.record(probe.SAMPLES, kind=COUNTER, key=key, value=float(size))
            with self.span(probe.FORWARD, key=0):
                self.pause(times.get("evaluation", MS))
        self._rounds += 1

    def die(self) -> None:
        """The program is killed in a forward."""
        self.killed = True
        self.record(probe.FORWARD, key=probe.FORWARD_TRAINING | probe.FORWARD_GRAD, flags=layout.OPEN)

    def processes(self, ranks: int) -> list[BuiltProcess]:
        """This rank, and its workers."""
        place: dict[str, object] = {"rank": self.rank, "local_rank": self.rank, "world_size": ranks}
        end: dict[str, object] = {"end": None} if self.killed else {}
        found = [BuiltProcess(self._records, self.pid, process={"role": "trainer"} | place | end)]
        for number, records in enumerate(self._workers):
            facts = {"role": "worker", "worker": number, "parent_pid": self.pid} | place | end
            found.append(BuiltProcess(records, 2000 + 100 * self.rank + number, process=facts))
        return found

    def _fetch(self, wait: int, size: int, item_ns: Callable[[int, int], int] | None) -> None:
        key = probe.batch_key(0, self._round, self._number)
        items = range(self._index, self._index + size)
        lasting = [wait // (size + 1) if item_ns is None else item_ns(self.rank, index) for index in items]
        with self.span(probe.INPUT_WAIT, key=key):
            if self._workers:
                into = self._workers[self._number % len(self._workers)]
                into += _fetched(self.now, key, items, lasting, len(into), None)
            else:
                inside = (self._open[-1], self._step, self._epoch)
                self._records += _fetched(self.now, key, items, lasting, len(self._records), inside)
            self.pause(wait)
        self.record(probe.SAMPLES, kind=COUNTER, key=key, value=float(size))
        self._number += 1
        self._index += size

    def _layers(self, cat: str, layers: Sequence[str], ns: int) -> None:
        for place, layer in enumerate(layers):
            with self.span(layer, cat, key=1024):
                self.pause(_part_of(ns, place, len(layers)))
        self.pause(0 if layers else ns)


def _part_of(whole: int, part: int, parts: int) -> int:
    """The share of one of `parts` in a whole; together they are all of it."""
    return whole * (part + 1) // parts - whole * part // parts


def _fetched(
    start: int,
    key: int,
    items: Sequence[int],
    lasting: Sequence[int],
    before: int,
    inside: tuple[int, int | None, int | None] | None,
) -> list[BuiltRecord]:
    """The fetch of a batch and its items, behind `before` other records; collating takes no time."""
    parent, step, epoch = inside or (0, None, None)
    depth = 1 if inside else 0
    fetch = BuiltRecord(
        probe.FETCH,
        probe.PROBE,
        start=start,
        dur=sum(lasting),
        key=key,
        parent=parent,
        depth=depth,
        step=step,
        epoch=epoch,
    )
    found = [fetch]
    for index, ns in zip(items, lasting, strict=True):
        found.append(
            fetch._replace(name=probe.ITEM, start=start, dur=ns, key=index, parent=before + 1, depth=depth + 1)
        )
        start += ns
    return found


def _process_json(process: BuiltProcess) -> dict[str, Any]:
    end = max((one.start + max(one.dur, 0) for one in process.records), default=START_NS)
    meta: dict[str, Any] = {
        "schema": 1,
        "host": process.host,
        "pid": process.pid,
        "n": process.n,
        "parent_pid": 1,
        "boot_id": "00000000-0000-0000-0000-000000000000",
        "start_ticks": None,
        "rank": None,
        "local_rank": None,
        "world_size": None,
        "role": "main",
        "worker": None,
        "core": "python",
        "writes": "mapped",
        "rings": None,
        "python": "3.11.0",
        "start": {"mono_ns": START_NS, "wall_ns": WALL_NS},
        "end": {"mono_ns": end, "wall_ns": WALL_NS + end - START_NS, "reason": "finish", "exception": None},
        "exit_code": None,
        "signal": None,
    }
    return meta | dict(process.process or {})


def _pack(records: Sequence[BuiltRecord]) -> tuple[dict[tuple[str, str], int], list[tuple[int, bytes]], bytes]:
    """Name ids, (thread, 48 bytes) of each record, and the content of args.bin."""
    names: dict[tuple[str, str], int] = {}
    packed: list[tuple[int, bytes]] = []
    blobs = bytearray(layout.ARGS_MAGIC)
    seq = 0
    for one in records:
        seq = one.seq or seq + 1
        name = names.setdefault((one.cat, one.name), len(names) + 1)
        packed.append((one.thread, _pack_one(one, seq, name, _blob(blobs, one.args))))
    return names, packed, bytes(blobs)


def _pack_one(one: BuiltRecord, seq: int, name: int, args: int) -> bytes:
    duration = one.dur
    if one.kind == COUNTER:
        (duration,) = struct.unpack("<q", struct.pack("<d", one.value))
    return layout.RECORD.pack(
        one.start,
        duration,
        layout.NO_KEY if one.key is None else one.key,
        name,
        args,
        seq,
        one.parent,
        layout.NO_STEP if one.step is None else one.step,
        layout.NO_EPOCH if one.epoch is None else one.epoch,
        one.kind | one.flags,
        min(one.depth, layout.DEEPEST),
    )


def _blob(blobs: bytearray, args: Mapping[str, object] | None) -> int:
    if args is None:
        return 0
    encoded = json.dumps(dict(args)).encode()
    blobs += bytes(-len(blobs) % layout.ARGS_ALIGN)
    offset = len(blobs)
    blobs += struct.pack("<I", len(encoded)) + encoded
    return offset // layout.ARGS_ALIGN


def _lay_out(packed: Sequence[tuple[int, bytes]], process: BuiltProcess) -> tuple[list[bytes], bytes]:
    """Each thread's ring, and the content of events.seg."""
    segment = bytearray()
    rings: list[bytes] = []
    for thread in sorted({thread for thread, _ in packed}):
        raws = [raw for owner, raw in packed if owner == thread]
        gone = min(max(process.spilled, len(raws) - layout.RING_RECORDS), len(raws))
        for first in range(0, gone, layout.SPILL_RECORDS):
            block = raws[first : min(first + layout.SPILL_RECORDS, gone)]
            segment += _block_head(thread, first, len(block)) + b"".join(block)
        rings.append(_ring(thread, process.pid + thread - 1, raws, gone))
    return rings, bytes(segment)


def _block_head(thread: int, first: int, count: int) -> bytes:
    return layout.RECORD.pack(layout.BLOCK_MAGIC, first, count, thread, 0, 0, 0, 0, 0, layout.BLOCK, 0)


def _ring(thread: int, tid: int, raws: Sequence[bytes], spilled: int) -> bytes:
    slots = [bytes(layout.RECORD_SIZE)] * layout.RING_RECORDS
    for index in range(spilled, len(raws)):
        slots[index % layout.RING_RECORDS] = raws[index]
    head = {"head": len(raws), "spilled": spilled, "owner": thread, "tid": tid}
    return layout.ring(head, b"".join(slots))


def write_file(path: Path, content: bytes) -> None:
    """Write a file of a run, with the mode that these have."""
    path.write_bytes(content)
    path.chmod(0o600)
