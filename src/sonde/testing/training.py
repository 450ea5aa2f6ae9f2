"""Builds the run of a training, as the probes would record it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sonde.store import probe, record as layout
from sonde.store.record import COUNTER, MARK
from sonde.testing.building import MS, START_NS, BuiltProcess, BuiltRecord, build_run

if TYPE_CHECKING:
    from pathlib import Path

# What the phases of a step of a built training last, in ns.
TRAINING = {
    "input_wait": 2 * MS,
    "forward": 3 * MS,
    "backward": 5 * MS,
    "optimizer": 1 * MS,
    "residual": 1 * MS,
}


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
