"""Turns the events of a trace file into records: Chrome's phases, torch.profiler's devices and steps, DFTracer's lines."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from sonde.exchange import jsonvalues
from sonde.exchange.imports import decode, phases, times, vocabulary
from sonde.exchange.imports.arguments import take_context, whole_number, within
from sonde.exchange.imports.decode import Event
from sonde.exchange.imports.parents import StepRange
from sonde.exchange.imports.process import OptimizerEnd, Process, end_steps
from sonde.exchange.imports.scan import Scan
from sonde.exchange.imports.writer import FLUSH, ProcessWriter, SpanColumns
from sonde.exchange.tracks import BATCHES, STEPS
from sonde.lazy import numpy as np
from sonde.store import record

KINETO = ("schemaVersion", "deviceProperties", "distributedInfo")
MOST_FILES = 100_000  # names of files that are kept in memory
MOST_SERIES = 200_000
EPOCH_NS = 10**18  # a time from here on counts from 1970
# What DFTracer 2.2 writes instead of the letters.
_NUMBERED = {1: "X", 2: "C", 3: "C", 4: "M"}
_KINDS = {"s": "flow", "t": "flow", "f": "flow", "b": "async", "e": "async", "n": "async", "P": "sample"}
_UNITS = {"NS": 1, "US": 1000, "MS": 10**6, "SEC": 10**9}  # of DFTracer
_TAKEN = ("X", "B", "E", "C", "i", "I", "R")
_METADATA = ("M", 4)
_START, _DURATION = attrgetter("ts"), attrgetter("dur")
_SERIES = attrgetter("ph", "cat", "name", "pid", "tid")  # what the events of a series have in common
_TASK = re.compile(r"(.*) \(task \d+\)")
_LABEL = re.compile(r"(?:rank (\d{1,9}))? ?(?:worker (\d{1,9}))?\b.*")  # what the exports call a process
_SEQUENCE = re.compile(rb'"Sequence number": ?(\d{1,18})\b')  # in the arguments of an operator of torch


class Counts(NamedTuple):
    """What was not imported: kinds of events, and events that lack a time or a name."""

    left_out: Counter[str]
    damaged: Counter[str]


class NamedSpans(NamedTuple):
    """The spans of one name on one thread, which are taken many at a time. Other events are single, or left out."""

    process: Process | None = None
    thread: int = 0
    name: int = 0
    numbered: bool = False  # the key is the sequence number of an operator
    left_out: str = ""


_SINGLE = NamedSpans(name=-1)


class FileImport:
    """The events of one file. Each process of it gets a folder `<label>-<n>` in the run, until its name is known."""

    def __init__(self, run: Path, label: str) -> None:
        self.processes: dict[Hashable, Process] = {}
        self.counts = Counts(Counter(), Counter())
        self._run = run
        self._label = label
        self._hosts: dict[str, str] = {}  # DFTracer's hashes
        self._files: dict[str, str] = {}
        self._same: dict[tuple[Hashable, Hashable], Hashable] = {}  # tracks that are of another thread
        self._kineto = self._ours = self._pfw = False
        self._unit = times.US
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._series: list[NamedSpans] = []

    def take(self, scan: Scan) -> int:
        """All events of a file; how many are in the run."""
        for number, batch in enumerate(scan.batches()):
            if number == 0:
                self._recognise(scan.about, batch[0])
            self._take_batch(batch)
            if sum(process.writer.waiting for process in self.processes.values()) > FLUSH:
                for process in self.processes.values():
                    process.writer.flush()
        count = sum(process.writer.count for process in self.processes.values())
        self._end(scan.about)
        return count

    @property
    def format(self) -> str:
        """Whose file it is."""
        ours = "Chrome JSON of Sonde" if self._ours else "Chrome JSON"
        return "torch.profiler" if self._kineto else "DFTracer" if self._pfw else ours

    def _recognise(self, about: dict[str, Any], event: Event) -> None:
        """Whose file it is."""
        self._kineto = any(key in about for key in KINETO)
        other = about.get("otherData")
        self._ours = isinstance(other, dict) and other.get("recorded by") == "sonde"
        lines = "hhash" in event.arguments() or event.cat == "dftracer" or event.type is not None
        self._pfw = not about and lines

    def _take_batch(self, batch: Sequence[Event]) -> None:
        for one in [event for event in batch if event.ph in _METADATA]:  # first: they say whose the others are
            self._metadata(one, one.arguments())
        there, inverse, counts = np.unique(self._numbers_of(batch), return_inverse=True, return_counts=True)
        series = [self._series[number] for number in there.tolist()]
        for one, count in zip(series, counts.tolist(), strict=True):
            if one.left_out:
                self.counts.left_out[one.left_out] += count
        single = np.array([one is _SINGLE for one in series])
        for place in np.flatnonzero(single[inverse]).tolist():
            self._take(batch[place])
        for process in {id(one.process): one.process for one in series if one.process is not None}.values():
            mine = np.array([one.process is process for one in series])
            places = np.flatnonzero(mine[inverse])
            chosen = batch if len(places) == len(batch) else [batch[place] for place in places.tolist()]
            self._spans(process, chosen, (series, inverse[places]))

    def _numbers_of(self, batch: Sequence[Event]) -> list[int]:
        """The number of the series of each event."""
        known = self._numbers
        try:
            found = list(map(known.get, map(_SERIES, batch)))
        except TypeError:
            decode.simplify(batch)
            return self._numbers_of(batch)
        if None not in found:
            return found  # type: ignore[return-value]  # mypy does not see it
        if len(self._series) > MOST_SERIES:
            self._numbers.clear()
            self._series.clear()
            return self._numbers_of(batch)
        for place, one in enumerate(batch):
            if found[place] is None:
                key = _SERIES(one)
                if key not in known:
                    known[key] = len(self._series)
                    self._series.append(self._series_of(one))
                found[place] = known[key]
        return found  # type: ignore[return-value]

    def _series_of(self, event: Event) -> NamedSpans:
        """How events like this one are taken."""
        phase = _phase(event)
        if phase == "M":
            return NamedSpans()
        if phase not in _TAKEN:
            return NamedSpans(left_out=_KINDS.get(phase, "other"))
        name, cat = event.name, event.cat if isinstance(event.cat, str) else ""
        if phase != "X" or not isinstance(name, str) or self._drawn(event):
            return _SINGLE
        marked = cat in (vocabulary.ANNOTATION, vocabulary.DEVICE_ANNOTATION) and self._kineto
        marked = marked or (self._pfw and (cat, name) == vocabulary.UPDATE)
        if marked or (not (self._ours or self._pfw) and (cat, name) != self._known_as(cat, name)):
            return _SINGLE
        process, thread = self._place_of(event)
        number = process.writer.number(cat, name)
        if not number:
            return _SINGLE
        if self._kineto:
            self._torch(process, thread, cat, name, 0, 0)
        ordinal = process.writer.thread(thread).ordinal
        return NamedSpans(process, ordinal, number, self._kineto and cat == phases.OPERATOR)

    def _place_of(self, event: Event) -> tuple[Process, Hashable]:
        """The process and the thread of an event."""
        pid, tid = _key(event.pid), _key(event.tid)
        process = self._process(pid)
        if self._pfw and process.host is None:
            process.host = self._hosts.get(str(event.arguments().get("hhash")))
        return process, (pid, tid) if self._kineto else self._same.get((pid, tid), tid)

    def _drawn(self, event: Event) -> bool:
        """Is it of a track that our export draws, of other events?"""
        return self._ours and _key(event.tid) in (STEPS, BATCHES)

    def _spans(self, process: Process, batch: Sequence[Event], rows: tuple[Sequence[NamedSpans], Any]) -> None:
        """Many spans of series."""
        series, inverse = rows
        texts = decode.argument_texts(batch)
        if not (self._ours or self._pfw):
            texts = decode.only_objects(texts)
        threads, names = (
            np.array([one.thread for one in series])[inverse],
            np.array([one.name for one in series])[inverse],
        )
        columns = SpanColumns(
            threads,
            names,
            times.many(list(map(_START, batch)), self._unit),
            times.many(list(map(_DURATION, batch)), self._unit),
            texts,
        )
        if self._ours or self._pfw:
            columns = self._with_context(columns)
        elif self._kineto:
            numbered = np.array([one.numbered for one in series])[inverse].tolist()
            columns = columns._replace(
                keys=np.array(
                    [_sequence(text) if one else record.NO_KEY for text, one in zip(texts, numbered, strict=True)]
                )
            )
        if bad := process.writer.add_many(columns):
            self.counts.damaged["events"] += bad

    def _with_context(self, columns: SpanColumns) -> SpanColumns:
        """The same events, with what the exports and DFTracer say of them among the arguments."""
        # Each text once: events of a step often have the same.
        places = {text: row for row, text in enumerate(dict.fromkeys(columns.args))}
        rows = [places[text] for text in columns.args]
        args = decode.objects(decode.only_objects(places))
        context = take_context(args)
        for one in args if self._files else ():
            self._add_file(one)
        texts = [jsonvalues.text(one).encode() if one else b"" for one in args]
        kinds = [record.MARK if mark else record.SPAN for mark in context.marks]
        return columns._replace(
            args=[texts[row] for row in rows],
            keys=within(context.keys, times.LATEST, record.NO_KEY)[rows],
            steps=within(context.steps, record.NO_STEP, record.NO_STEP)[rows],
            epochs=within(context.epochs, record.NO_EPOCH, record.NO_EPOCH)[rows],
            kinds=(np.array(kinds) | np.array(context.flags))[rows],
        )

    def _add_file(self, args: dict[str, Any]) -> None:
        """The name of the file that DFTracer has a hash of."""
        if "fhash" in args and (file := self._files.get(str(args["fhash"]))):
            args["file"] = file

    def _take(self, event: Event) -> None:
        """One event of any kind."""
        phase, args = _phase(event), event.arguments()
        if self._drawn(event):
            return
        start = times.one(event.ts, self._unit)
        if start == times.BAD or (not isinstance(event.name, str) and phase != "E"):
            self.counts.damaged["events"] += 1
            return
        name, cat = str(event.name), event.cat if isinstance(event.cat, str) else ""
        process, thread = self._place_of(event)
        if phase == "E":
            self._close(process, thread, args, start)
        elif phase == "B":
            process.open.setdefault(thread, []).append(({"name": name, "args": args, "cat": cat}, start))
        elif phase == "C":
            self._counter(process, thread, cat, name, args, start)
        else:
            dur = times.one(event.dur, self._unit) if phase == "X" else None
            if dur == times.BAD:
                self.counts.damaged["events"] += 1
                return
            self._span(process, thread, cat, name, start, dur, args)

    def _span(
        self, process: Process, thread: Hashable, cat: str, name: str, start: int, dur: int | None, args: dict[str, Any]
    ) -> None:
        """A span, or a mark if it has no duration."""
        if self._kineto:
            self._torch(process, thread, cat, name, start, dur or 0)
        context: dict[str, Any] = {}
        if self._kineto and cat == phases.OPERATOR:
            context["key"] = whole_number(args.get("Sequence number"))
        if self._ours or self._pfw:
            context, mark = _single(args)
            dur = None if mark else dur
            self._add_file(args)
            if self._pfw and (cat, name) == vocabulary.UPDATE:
                process.updates.append(OptimizerEnd(thread, start + (dur or 0), context["step"], context["epoch"]))
        elif (cat, name) != (known := self._known_as(cat, name)):
            args = args if known[1] == name else {"name": name} | args
            cat, name = known
            process.first_phase = min(start, process.first_phase or start)
        kind = record.MARK if dur is None else record.SPAN
        if not process.writer.add(thread, cat, name, start, dur or 0, kind=kind, args=args, **context):
            self.counts.damaged["events"] += 1

    def _torch(self, process: Process, thread: Hashable, cat: str, name: str, start: int, dur: int) -> None:
        """What torch.profiler says about devices and steps."""
        if cat in vocabulary.DEVICE:
            process.devices.add(thread)
            phase = vocabulary.device_phase(name) if cat == vocabulary.DEVICE_ANNOTATION else None
            if phase is not None:
                process.device_times.setdefault(phase, []).append((start, start + dur))
            return
        if process.pid is None and cat in ("cpu_op", "user_annotation", "cuda_runtime") and isinstance(thread, tuple):
            process.pid = thread[0] if isinstance(thread[0], int) else None
        step = vocabulary.profiler_step(name)
        if step is not None:
            process.steps.append(StepRange(start, start + dur, step))
            process.training = thread
        elif name.startswith("Optimizer.step#"):
            process.updates.append(OptimizerEnd(thread, start + dur))

    def _counter(
        self, process: Process, thread: Hashable, cat: str, name: str, args: dict[str, Any], start: int
    ) -> None:
        """Every number among the arguments is a series of its own."""
        context: dict[str, Any] = {}
        if self._ours or self._pfw:
            context, _ = _single(args)
        series = {key: value for key, value in args.items() if isinstance(value, int | float)}
        for key, value in series.items():
            called = name if len(series) == 1 or key == "value" else f"{name}.{key}"
            if not math.isfinite(number := _float(value)) or not process.writer.add(
                thread, cat, called, start, value=number, **context
            ):
                self.counts.damaged["counters"] += 1

    def _close(self, process: Process, thread: Hashable, args: dict[str, Any], end: int) -> None:
        """The end of the span that began last."""
        began = process.open.get(thread)
        if not began:
            self.counts.damaged["events"] += 1
            return
        first, start = began.pop()
        self._span(process, thread, first["cat"], first["name"], start, end - start, first["args"] | args)

    def _metadata(self, event: Event, args: dict[str, Any]) -> None:
        what, name = event.name, args.get("name")
        if what == "HH" and isinstance(name, str):
            self._hosts[str(args.get("value"))] = name
        if what == "FH" and isinstance(name, str) and len(self._files) < MOST_FILES:
            self._files[str(args.get("value"))] = name
        if what == "CM" and name == "time_metric":
            self._unit = _UNITS.get(str(args.get("value")), times.US)
        elif what == "CM" and isinstance(name, str):
            self._moment(event, name, args.get("value"))
        if what not in ("process_name", "PR", "thread_name") or not isinstance(name, str):
            return
        pid, tid = _key(event.pid), _key(event.tid)
        if self._kineto and what != "thread_name":
            return  # the same for each device
        process = self._process(pid)
        if what == "thread_name":
            self._name_thread(process, pid, tid, name.strip())
        else:
            process.name = name

    def _moment(self, event: Event, name: str, value: object) -> None:
        """What DFTracer writes of `start(metadata=True)`: a name and its time. Other facts have no time."""
        number = whole_number(value)
        at = None if number is None else number * self._unit
        process = self._process(_key(event.pid))
        if (
            at is None
            or at < EPOCH_NS
            or not process.writer.add(
                _key(event.tid),
                str(event.cat or ""),
                name,
                at,
                kind=record.MARK,
                flags=record.META,
            )
        ):
            self.counts.left_out["metadata"] += 1

    def _name_thread(self, process: Process, pid: Hashable, tid: Hashable, name: str) -> None:
        found = _TASK.fullmatch(name) if self._ours else None
        if found:  # the export parts spans that overlap: they are of one thread
            same = [key for key, one in process.writer.threads.items() if one.name == found[1]]
            self._same[pid, tid] = same[-1] if same else tid
            return
        process.writer.thread((pid, tid) if self._kineto else tid).name = name

    def _process(self, pid: Hashable) -> Process:
        """torch.profiler writes one process, and its devices as others."""
        key = None if self._kineto else pid
        found = self.processes.get(key)
        if found is None:
            writer = ProcessWriter(self._run / f"{self._label}-{len(self.processes)}")
            found = self.processes[key] = Process(writer)
            found.pid = pid if isinstance(pid, int) and not self._kineto else None
        return found

    def _end(self, about: dict[str, Any]) -> None:
        distributed = about.get("distributedInfo")
        for process in self.processes.values():
            for thread, began in process.open.items():
                for event, start in began:
                    process.writer.add(
                        thread, event["cat"], event["name"], start, flags=record.OPEN, args=event["args"]
                    )
            if isinstance(distributed, dict):
                process.rank, process.world_size = (
                    whole_number(distributed.get("rank")),
                    whole_number(distributed.get("world_size")),
                )
            host = about.get("host_name") or about.get("hostname")
            process.host = process.host or (host if isinstance(host, str) else None)
            other = about.get("otherData") if self._ours else None
            base = other.get("start_ns") if isinstance(other, dict) else about.get("baseTimeNanoseconds")
            process.base = whole_number(base) or 0
            process.dated = bool(process.base) or (process.writer.first or 0) >= EPOCH_NS
            called = _LABEL.match(process.name or "") if self._ours or self._pfw else None
            if called:
                process.rank, process.worker = whole_number(called[1]), whole_number(called[2])
            self._end_steps(process)
            for key in process.devices:
                stream = process.writer.thread(key)
                stream.name = f"GPU {key[0]} {stream.name or f'stream {key[1]}'}" if isinstance(key, tuple) else None

    def _known_as(self, cat: str, name: str) -> tuple[str, str]:
        """What the tables call it."""
        return vocabulary.known_as(cat, name)

    def _end_steps(self, process: Process) -> None:
        """All events are known: where are the steps?"""
        updates = end_steps(process)
        if self._kineto and updates:
            phases.add_passes(process.writer, process.training, updates)


def _single(args: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The context of one event, which is taken out of its arguments; and whether it is a mark."""
    found = take_context([args])
    context = {"key": found.keys[0], "step": found.steps[0], "epoch": found.epochs[0], "flags": found.flags[0]}
    return context, found.marks[0]


def _phase(event: Event) -> str:
    return _NUMBERED.get(event.ph, "") if isinstance(event.ph, int) else str(event.ph)


def _sequence(args: bytes) -> int:
    found = _SEQUENCE.search(args)
    return int(found[1]) if found else record.NO_KEY


def _key(value: object) -> Hashable:
    """A number of a process or thread; digits count as a number."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else value[:200]
    return value if isinstance(value, int) else str(value)[:200]


def _float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan
