"""Reads a growing run: each time only new records, of which it keeps a bounded part.

No table is built and no database loaded, so that a live view costs little beside the training that it watches.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.analysis.live.gauges import Gauges
from sonde.analysis.live.items import Slowest
from sonde.analysis.live.layers import CATEGORIES, LayerTotals
from sonde.analysis.live.tail import Fresh, Tail, nothing
from sonde.analysis.live.window import OTHER, Window, code_of
from sonde.analysis.parts.manifest import has_parts
from sonde.analysis.records import label
from sonde.analysis.records.locate import locate, process_folders
from sonde.analysis.records.steponly import HIGHEST_NAME
from sonde.analysis.training.intervals import INPUT_WAIT, ITER
from sonde.lazy import numpy as np
from sonde.store import probe, record
from sonde.store.alive import RUNNING, UNKNOWN, outcome, resolve_replaced, running, state_of

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from sonde.analysis.live.sealed import SealedTail
    from sonde.store.process import Info

STARTING = "starting"
RECORDING = "recording"
GONE = "gone"
MOST_NOTES = 50
FIRST_S = 0.5  # of CPU: a look at processes that were not read yet takes no more

# What a record is to a live view, beside what it is to a window.
ITEM, FETCH, LAYER, DESCRIPTION, GAUGE, OFF, EXIT, STACKS, UNSEEN = range(100, 109)
_PROCESS = {probe.EXIT: EXIT, probe.UNSEEN: UNSEEN}


class LiveSpan(NamedTuple):
    """A span that was entered and not left."""

    process: str
    cat: str
    name: str
    key: int
    start_ns: int
    parent: int
    seq: int


class LoaderProgress(NamedTuple):
    """A loop over a loader: how often it began (from 0), how many batches it took since `start_ns`, and of how many, if known."""

    round: int
    batches: int
    length: int | None
    start_ns: int
    last_ns: int
    total: int  # batches of all rounds


class LiveProcess:
    """One process of the run, and what is kept of it."""

    def __init__(self, tail: Tail | SealedTail) -> None:
        self.tail = tail
        self.window = Window()
        self.state = UNKNOWN
        self.goes_on = False  # it runs, or is a launcher that was killed and has left its program
        self.loops: dict[int, LoaderProgress] = {}  # by the number of the loader
        self.last_ns: int | None = None  # the last moment that any record shows, on the monotonic clock
        self._codes: NDArray[np.uint8] = nothing().threads.astype("u1")

    @property
    def info(self) -> Info:
        """What the process says of itself."""
        return self.tail.info

    @property
    def name(self) -> str:
        """What it is called: `rank 1 worker 2`."""
        return label.process(self.info.role, self.info.rank, self.info.worker)

    def codes(self, records: NDArray[np.void]) -> NDArray[np.uint8]:
        """What each record is."""
        known = [id for id in self.tail.names if 0 < id <= HIGHEST_NAME]
        if len(self._codes) != max(known, default=0) + 2:
            self._codes = np.full(max(known, default=0) + 2, OTHER, dtype=np.uint8)
            for id in known:
                self._codes[id] = _code(*self.tail.names[id])
        found: NDArray[np.uint8] = self._codes[np.minimum(records["name"], len(self._codes) - 1)]
        return found

    def look(self) -> Fresh:
        """What is new of this process."""
        fresh = self.tail.look()
        if len(fresh.records):
            ends = fresh.records["start"].astype("i8")
            spans = (fresh.records["kind"] & record.KIND_MASK) == record.SPAN
            ends[spans] += fresh.records["dur"][spans]
            self.last_ns = max(self.last_ns or 0, int(ends.max()))
        return fresh

    @property
    def loop(self) -> LoaderProgress | None:
        """The newest loop over the training data: of the loaders that gave the most batches. Those of one length are alike.

        A program may make a new loader for each epoch: then its `round` counts those before it.
        """
        totals: dict[int | None, int] = {}
        for one in self.loops.values():
            totals[one.length] = totals.get(one.length, 0) + one.total
        if not totals:
            return None
        alike = [one for one in self.loops.values() if one.length == max(totals, key=lambda length: totals[length])]
        newest = max(alike, key=lambda one: one.last_ns)
        return newest._replace(round=sum(one.round + 1 for one in alike) - 1)

    def take_loops(self, fresh: Fresh, codes: NDArray[np.uint8]) -> None:
        """Take the starts of loops and the batches that were waited for."""
        keyed = fresh.records["key"] != record.NO_KEY
        for one in fresh.records[keyed & (codes == ITER)]:
            length = self.tail.args(int(one["args"])).get("length")
            loader, round, _ = probe.read_batch_key(int(one["key"]))
            if isinstance(length, int) and length > 0:
                start, total = int(one["start"]), self.loops[loader].total if loader in self.loops else 0
                self.loops[loader] = LoaderProgress(round, 0, length, start, start, total)
        waits = fresh.records[keyed & (codes == INPUT_WAIT)]
        for key, start in zip(waits["key"].tolist(), waits["start"].tolist(), strict=True):
            loader, round, number = probe.read_batch_key(key)
            known = self.loops.get(loader)
            begun = known.start_ns if known is not None and known.round == round else start
            length, total = (known.length, known.total) if known is not None else (None, 0)
            self.loops[loader] = LoaderProgress(round, number + 1, length, begun, start, total + 1)

    def set_state(self, info: Info) -> None:
        """Take over how it is, by what it says, or others say of it."""
        self.state, self.goes_on = state_of(info), running(info) is not None


class Live:
    """A run, as far as it is known now. `look()` brings it up to date."""

    def __init__(self, path: str | Path) -> None:
        """Raises RunNotFound if there is no run."""
        folder = locate(path)
        self.path = folder.path
        self.meta: dict[str, Any] = folder.meta
        self.sources: dict[str, LiveProcess] = {}
        self.gauges = Gauges()
        self.slowest = Slowest()
        self.layer_totals = LayerTotals()
        self.notes: list[str] = []
        self.exits: dict[int, dict[str, Any]] = {}
        self.gone = False  # the run folder is not there any more
        self._unread: deque[str] = deque()  # processes that were not looked at yet, those that train first
        self._state: str | None = None
        if folder.sealed or has_parts(folder.path):
            from sonde.analysis.live.sealed import sealed_tails  # loads all tables, which a live run does without

            for tail in sealed_tails(folder.path):
                self._add(tail.folder.name, tail)

    @property
    def id(self) -> str:
        """The name of the run folder."""
        return self.path.resolve().name

    @property
    def trainers(self) -> list[LiveProcess]:
        """The processes that train, by rank. Of several with one rank (it was started again) only the newest."""
        found = [one for one in self.sources.values() if one.info.worker is None and one.window.trains]
        newest: dict[object, LiveProcess] = {}
        for one in sorted(found, key=lambda one: one.info.start.wall_ns if one.info.start else 0):
            newest[one.info.pid if one.info.rank is None else (one.info.rank,)] = one
        return sorted(newest.values(), key=lambda one: (one.info.rank or 0, one.info.pid or 0))

    @property
    def state(self) -> str:
        """starting (nothing is recorded yet), recording, ended, died, unknown, or gone (the folder is not there any more)."""
        if self._state is None:
            self._state = self._find_state()
        return self._state

    def _find_state(self) -> str:
        if self.gone:
            return GONE
        if not self.sources:
            return STARTING
        if any(one.goes_on for one in self.sources.values()):
            return RECORDING
        return outcome((one.info, one.state) for one in self.sources.values())

    @property
    def elapsed_ns(self) -> int | None:
        """How long the run takes or took, as far as it is known."""
        start = self.meta.get("start")
        begun = start.get("wall_ns") if isinstance(start, dict) else None
        if not isinstance(begun, int):
            return None
        if self.state in (RECORDING, STARTING):
            return max(0, time.time_ns() - begun)
        ends = [_wall(one) for one in self.sources.values()]
        return max((end - begun for end in ends if end is not None), default=None)

    @property
    def losses(self) -> int:
        """Records that the processes say to have lost."""
        reasons = ("space", "cap", "ring")
        return sum(one.tail.lost.get(reason, 0) for one in self.sources.values() for reason in reasons)

    @property
    def unread(self) -> int:
        """Processes that were not read yet; later looks take them."""
        return len(self._unread)

    @property
    def skipped(self) -> int:
        """Records that came too fast for this view."""
        return sum(one.tail.skipped for one in self.sources.values())

    def open_spans(self) -> list[LiveSpan]:
        """What the running processes are in right now."""
        return [
            LiveSpan(process, *one.tail.names.get(id, ("", "")), key, start, parent, seq)
            for process, one in self.sources.items()
            if one.state == RUNNING
            for id, key, start, parent, seq in one.tail.open.records[["name", "key", "start", "parent", "seq"]].tolist()
        ]

    def look(self) -> None:
        """Take what is new. Of very many processes that were not read yet, some: the next looks take the others."""
        self._state = None
        try:
            folders = process_folders(self.path)
        except (FileNotFoundError, NotADirectoryError):
            self.gone = True  # what was known stays known: processes without their files could not be found any more
            return
        self.gone = False
        for folder in folders:
            if folder.name not in self.sources:
                self._add(folder.name, Tail(folder, len(folders)))
        waiting = set(self._unread)
        until = time.thread_time() + FIRST_S
        while self._unread:
            self._read(self._unread.popleft())
            if time.thread_time() > until:
                break
        if not self._unread:
            for process in self.sources:
                if process not in waiting:
                    self._read(process)
        sources = list(self.sources.values())
        for source, info in zip(sources, resolve_replaced([one.info for one in sources]), strict=True):
            source.set_state(info)

    def _add(self, process: str, tail: Tail | SealedTail) -> None:
        self.sources[process] = LiveProcess(tail)
        (self._unread.appendleft if tail.info.worker is None else self._unread.append)(process)

    def _read(self, process: str) -> None:
        source = self.sources[process]
        fresh = source.look()
        if len(fresh.records):
            self._take(process, source, fresh)

    def _take(self, process: str, source: LiveProcess, fresh: Fresh) -> None:
        codes, records, names = source.codes(fresh.records), fresh.records, source.tail.names
        source.window.add(fresh, np.where(codes < ITEM, codes, OTHER).astype(np.uint8))
        self._take_items(process, source, fresh, codes)
        source.take_loops(fresh, codes)
        gauges = records[codes == GAUGE]
        if len(gauges):
            self.gauges.add(source.info.pid or 0, gauges, names)
        layers = records[codes == LAYER]
        if len(layers):
            self.layer_totals.add(layers, names)
        for one in records[codes == DESCRIPTION]:
            self.layer_totals.describe(names[int(one["name"])][1], source.tail.args(int(one["args"])), int(one["key"]))
        for code in (OFF, EXIT, STACKS, UNSEEN):
            for one in records[codes == code][:MOST_NOTES]:
                self._note(
                    source, code, names[int(one["name"])][1], int(one["key"]), source.tail.args(int(one["args"]))
                )

    def _take_items(self, process: str, source: LiveProcess, fresh: Fresh, codes: NDArray[np.uint8]) -> None:
        opened = source.tail.open.records
        fetches = np.concatenate([fresh.records[codes == FETCH], opened[source.codes(opened) == FETCH]])
        whole = (codes == ITEM) & (fresh.records["kind"] & record.ERROR == 0)  # what was cut off is no measurement
        self.slowest.add(process, fresh.records[whole], fetches)

    def _note(self, source: LiveProcess, code: int, name: str, key: int, facts: dict[str, Any]) -> None:
        if code == EXIT:
            self.exits[key] = facts
        elif code == OFF:
            self._add_note(
                f"{source.name}: the probe {name} switched itself off: {facts.get('reason', 'no reason given')}"
            )
        else:
            self._add_note(f"{source.name}: thread stacks were written to {facts.get('file', 'the run folder')}")

    def _add_note(self, note: str) -> None:
        if note not in self.notes and len(self.notes) < MOST_NOTES:
            self.notes.append(note)


def _code(cat: str, name: str) -> int:
    if cat in CATEGORIES:
        return LAYER
    if cat in (probe.MEMORY, probe.SYSTEM):
        return GAUGE
    if cat == probe.LAYER_INFO:
        return DESCRIPTION
    if cat == probe.OFF:
        return OFF
    if cat == probe.PROCESS:
        return _PROCESS.get(name, OTHER)
    if cat == probe.PROBE and name in (probe.ITEM, probe.FETCH, probe.STACKS):
        return {probe.ITEM: ITEM, probe.FETCH: FETCH, probe.STACKS: STACKS}[name]
    return code_of(cat, name)


def _wall(one: LiveProcess) -> int | None:
    """When a process ended, or the last time that it recorded anything, on the wall clock."""
    if one.info.end is not None:
        return one.info.end.wall_ns
    if one.last_ns is None or one.info.start is None:
        return None
    return one.last_ns + one.info.start.wall_ns - one.info.start.mono_ns
