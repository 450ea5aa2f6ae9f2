"""Turns the events of a trace file into records: Chrome's phases, torch.profiler's devices and steps, DFTracer's lines."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from sonde.exchange import chrome
from sonde.exchange.imports import infer, vocabulary
from sonde.exchange.imports.scan import Scan
from sonde.exchange.imports.writer import LATEST, ProcessWriter, StepRange
from sonde.store import probe, record
from sonde.store.probe import UPDATE_ABORTED, UPDATE_EXPLICIT

KINETO = ("schemaVersion", "deviceProperties", "distributedInfo")
MOST_FILES = 100_000  # names of files that are kept in memory
LATE = 0.1  # share of a step after which its first phase is not its start
EPOCH_US = 10**15  # a time from here on counts from 1970
# What DFTracer 2.2 writes instead of the letters.
_NUMBERED = {1: "X", 2: "C", 3: "C", 4: "M"}
_KINDS = {"s": "flow", "t": "flow", "f": "flow", "b": "async", "e": "async", "n": "async", "P": "sample"}
_TIME = re.compile(r'"ts"\s*:\s*"?(\d+)\.(\d+)')
_TASK = re.compile(r"(.*) \(task \d+\)")
_LABEL = re.compile(r"(?:rank (\d{1,9}))? ?(?:worker (\d{1,9}))?\b.*")  # what the exports call a process


class Process:
    """A process of the trace: its records, and what is known of it only at the end."""

    def __init__(self, writer: ProcessWriter) -> None:
        self.writer = writer
        self.pid: int | None = None
        self.name: str | None = None
        self.host: str | None = None
        self.rank: int | None = None
        self.world_size: int | None = None
        self.worker: int | None = None
        self.base = 0  # ns from 1970 to the zero of its times
        self.dated = False  # is it known when it was?
        self.steps: list[StepRange] = []
        self.updates: list[tuple[Hashable, int]] = []  # ends of optimizer steps
        self.device_times: dict[str, list[tuple[int, int]]] = {}
        self.first_phase: int | None = None  # when it began
        self.devices: set[Hashable] = set()  # threads that are streams of a device
        self.training: Hashable = None  # the thread that has the steps
        self.open: dict[Hashable, list[tuple[dict[str, Any], int]]] = {}  # spans that began


class Counts(NamedTuple):
    """What was not imported: kinds of events, and events that lack a time or a name."""

    left_out: Counter[str]
    damaged: Counter[str]


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

    def take(self, scan: Scan) -> None:
        """All events of a file."""
        for number, (event, text) in enumerate(scan.events()):
            if number == 0:
                self._kineto = any(key in scan.about for key in KINETO)
                other = scan.about.get("otherData")
                self._ours = isinstance(other, dict) and other.get("recorded by") == "sonde"
                self._pfw = not scan.about and ("hhash" in text or event.get("cat") == "dftracer" or "type" in event)
            self._take(event, text)
        self._end(scan.about)

    def _take(self, event: dict[str, Any], text: str) -> None:
        phase = event.get("ph")
        phase = _NUMBERED.get(phase, "") if isinstance(phase, int) else str(phase)
        args = event["args"] if isinstance(event.get("args"), dict) else {}
        if phase == "M":
            self._metadata(event, args)
            return
        if phase in _KINDS or phase not in ("X", "B", "E", "C", "i", "I", "R"):
            self.counts.left_out[_KINDS.get(phase, "other")] += 1
            return
        start = _nanoseconds(event.get("ts"), text)
        name, cat = event.get("name"), event.get("cat")
        if start is None or (not isinstance(name, str) and phase != "E"):
            self.counts.damaged["events"] += 1
            return
        pid, tid = _key(event.get("pid", 0)), _key(event.get("tid", 0))
        if self._ours and tid in (chrome.STEPS, chrome.BATCHES):
            return  # drawn by the export, of other events
        process = self._process(pid)
        thread = (pid, tid) if self._kineto else self._same.get((pid, tid), tid)
        cat = cat if isinstance(cat, str) else ""
        if self._pfw and process.host is None and args.get("hhash") in self._hosts:
            process.host = self._hosts[args["hhash"]]
        if phase == "E":
            self._close(process, thread, args, start)
        elif phase == "B":
            process.open.setdefault(thread, []).append((event | {"args": args, "cat": cat}, start))
        elif phase == "C":
            self._counter(process, thread, cat, str(name), args, start)
        else:
            dur = _nanoseconds(event.get("dur", 0), "") if phase == "X" else None
            if phase == "X" and dur is None:
                self.counts.damaged["events"] += 1
                return
            self._span(process, thread, cat, str(name), start, dur, args)

    def _span(
        self, process: Process, thread: Hashable, cat: str, name: str, start: int, dur: int | None, args: dict[str, Any]
    ) -> None:
        """A span, or a mark if it has no duration."""
        if self._kineto:
            self._torch(process, thread, cat, name, start, dur or 0)
        context: dict[str, Any] = {}
        if self._kineto and cat == infer.OPERATOR:
            context["key"] = _count(args.get("Sequence number"))
        if self._ours or self._pfw:
            args, context = _context(args)
            dur = None if context.pop("mark", False) else dur
            if "fhash" in args and (file := self._files.get(str(args["fhash"]))):
                args["file"] = file
        elif (cat, name) != (known := vocabulary.known_as(cat, name)):
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
            process.updates.append((thread, start + dur))

    def _counter(
        self, process: Process, thread: Hashable, cat: str, name: str, args: dict[str, Any], start: int
    ) -> None:
        """Every number among the arguments is a series of its own."""
        context: dict[str, Any] = {}
        if self._ours or self._pfw:
            args, context = _context(args)
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

    def _metadata(self, event: dict[str, Any], args: dict[str, Any]) -> None:
        what, name = event.get("name"), args.get("name")
        if what == "HH" and isinstance(name, str):
            self._hosts[str(args.get("value"))] = name
        if what == "FH" and isinstance(name, str) and len(self._files) < MOST_FILES:
            self._files[str(args.get("value"))] = name
        if what == "CM" and isinstance(name, str):
            self._moment(event, name, args.get("value"))
        if what not in ("process_name", "PR", "thread_name") or not isinstance(name, str):
            return
        pid, tid = _key(event.get("pid", 0)), _key(event.get("tid", 0))
        if self._kineto and what != "thread_name":
            return  # the same for each device
        process = self._process(pid)
        if what == "thread_name":
            self._name_thread(process, pid, tid, name.strip())
        else:
            process.name = name

    def _moment(self, event: dict[str, Any], name: str, value: object) -> None:
        """What DFTracer writes of `start(metadata=True)`: a name and its time. Other facts have no time."""
        at = _count(value)
        process = self._process(_key(event.get("pid", 0)))
        if (
            at is None
            or at < EPOCH_US
            or not process.writer.add(
                _key(event.get("tid", 0)),
                str(event.get("cat", "")),
                name,
                at * 1000,
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
                    _count(distributed.get("rank")),
                    _count(distributed.get("world_size")),
                )
            host = about.get("host_name") or about.get("hostname")
            process.host = process.host or (host if isinstance(host, str) else None)
            other = about.get("otherData") if self._ours else None
            base = other.get("start_ns") if isinstance(other, dict) else about.get("baseTimeNanoseconds")
            process.base = _count(base) or 0
            process.dated = bool(process.base) or (process.writer.first or 0) >= EPOCH_US * 1000
            called = _LABEL.match(process.name or "") if self._ours or self._pfw else None
            if called:
                process.rank, process.worker = _count(called[1]), _count(called[2])
            updates = _end_steps(process)
            if self._kineto and updates:
                infer.add_passes(process.writer, process.training, updates)
            for key in process.devices:
                stream = process.writer.thread(key)
                stream.name = f"GPU {key[0]} {stream.name or f'stream {key[1]}'}" if isinstance(key, tuple) else None


def _end_steps(process: Process) -> list[int]:
    """Write the ends of steps, and the time that the device took for their phases; when these ends are."""
    ends = sorted(process.updates, key=lambda one: one[1])
    updates = [(thread, end, number, 0) for number, (thread, end) in enumerate(ends)]
    if process.steps:
        updates = []
        for one in sorted(process.steps):
            # A step begins where the one before ends, the first one with its first phase.
            late = (process.first_phase or one.end) - one.start > LATE * (one.end - one.start)
            if updates[-1][2] != one.step - 1 if updates else late:
                updates.append((process.training, one.start, one.step - 1, UPDATE_EXPLICIT | UPDATE_ABORTED))
            updates.append((process.training, one.end, one.step, UPDATE_EXPLICIT))
    for thread, end, step, key in updates:
        process.writer.add(thread, probe.PROBE, probe.UPDATE, end, kind=record.MARK, step=step, key=key)
        process.training = thread
    for phase, times in process.device_times.items():
        for start, end in _merged(times):
            process.writer.add(process.training, probe.PROBE, f"{probe.DEVICE}{phase}", start, value=float(end - start))
    return [end for _, end, _, _ in updates]


def _merged(times: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same moments, each once."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(times):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _context(args: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments without those that the exports and DFTracer add, and what these say."""
    rest = {
        key: value for key, value in args.items() if key not in ("hhash", "p_idx", "level", "error", "open", "mark")
    }
    found: dict[str, Any] = {"flags": 0}
    for name, called in (("step", "step"), ("epoch", "epoch"), ("key", "key"), ("count", "key")):
        number = _count(rest.get(name))
        if number is not None:
            found[called] = number
            del rest[name]
    for name, flag in (("error", record.ERROR), ("open", record.OPEN)):
        found["flags"] |= flag if args.get(name) is True else 0
    if args.get("mark") is True:
        found["mark"] = True
    return rest, found


def _nanoseconds(value: object, text: str) -> int | None:
    """A time in microseconds; where a float cannot hold its nanoseconds, as the text has it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value * 1000
    if isinstance(value, str):
        value = _float(value)
    if not isinstance(value, float) or not math.isfinite(value) or abs(value) > LATEST:
        return None
    whole = math.floor(value)
    if whole > 2**42 and (found := _TIME.search(text)) and float(f"{found[1]}.{found[2]}") == value:
        return int(found[1]) * 1000 + int(found[2][:3].ljust(3, "0"))
    return whole * 1000 + round((value - whole) * 1000)


def _key(value: object) -> Hashable:
    """A number of a process or thread; digits count as a number."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else value[:200]
    return value if isinstance(value, int) else str(value)[:200]


def _count(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan
