"""Reads what the black box of a run has written: RUN/blackbox/*/dump.json and the files beside it, whoever wrote them."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sonde.analysis.postmortem.stacks import MOST_FRAMES, ThreadStack, threads_in
from sonde.store.certificate import Certificate, read_certificate
from sonde.store.file import RegularFile, read_small, why
from sonde.store.reading.npy import read_rows, read_whole
from sonde.store.untrusted import Fields

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    import numpy as np

FOLDER = "blackbox"
DUMP_FILE = "dump.json"
UNFINISHED = "."  # how the name of a folder begins that is being written, or was left behind
VERSION = 1
REASONS = ("nonfinite", "worker", "memory", "exception", "sigterm", "demand")  # the most informative first
KEPT = ("full", "summary", "off", "too large", "gone")
MOST_DUMPS = 200
MOST_JSON = 16 << 20  # bytes of one dump.json
MOST_READ = 64 << 20  # of all of them
MOST_STACKS = 1 << 18
MOST_BATCHES = 64
MOST_INDICES = 4096
MOST_VALUES = 64  # of a batch
MOST_SPANS = 200
MOST_DEVICES = 64
MOST_LEFT_OUT = 100
MOST_MESSAGE = 2000
_FILE = re.compile(r"(batch-\d{1,6})/(\d{1,6}\.npy)")


@dataclass(frozen=True)
class Value:
    """One array of a batch: what it was like, and the file that holds it, if it was kept."""

    path: str  # "0", "image", "0.mask"
    type: str | None
    shape: tuple[int, ...] | None
    dtype: str | None
    min: float | None
    max: float | None
    mean: float | None
    std: float | None
    nonfinite: int | None
    digest: int | None
    file: str | None  # "batch-0/0.npy"
    cut: bool


@dataclass(frozen=True)
class DumpedBatch:
    """One of the last batches. `changed`: its content is not any more what it was when it was delivered."""

    key: int | None
    loader: int | None
    round: int | None
    number: int | None
    worker: int | None
    step: int | None
    epoch: int | None
    size: int | None
    indices: list[int | None]
    ids: list[str | None]
    loss: float | None
    digest: int | None
    digest_of: str | None
    changed: bool | None
    kept: str | None
    values: list[Value] = field(default_factory=list)


@dataclass(frozen=True)
class FailedItem:
    """The item of the dataset that raised."""

    index: int | None
    position: int | None
    id: str | None
    worker: int | None
    batch: int | None  # the key
    items: list[int | None] = field(default_factory=list)  # of the batch, where none of them is known to have raised


@dataclass(frozen=True)
class Raised:
    """The exception that made the black box be written."""

    type: str
    message: str
    traceback: list[str]
    item: FailedItem | None


@dataclass(frozen=True)
class LargestItem:
    """The item of the newest batch that is much larger than the others; `unit`: `bytes`, or `length` without the padding."""

    position: int
    size: int
    median: float
    unit: str


@dataclass(frozen=True)
class DumpedDevice:
    """What the allocator of torch held on a device, in bytes. `largest_free`: the largest block that was reserved and not used."""

    device: int
    total: int | None
    free: int | None
    allocated: int | None
    reserved: int | None
    largest_free: int | None


@dataclass(frozen=True)
class DumpedMemory:
    """What was written because memory lacked. The batch is the newest one; the median is that of `batches` before it."""

    batch_bytes: int | None
    median_bytes: float | None
    batches: int | None
    item: LargestItem | None
    devices: list[DumpedDevice]
    snapshot: str | None  # the file with all segments of the allocator


@dataclass(frozen=True)
class DumpedSpan:
    """A span that was open, and for how long."""

    cat: str
    name: str
    for_ns: int | None
    thread: str | None


@dataclass(frozen=True)
class Dump:
    """One dump: why, when and where it was written, and what is in it."""

    folder: Path
    reason: str
    wall_ns: int | None
    monotonic_ns: int | None
    host: str | None
    pid: int | None
    rank: int | None
    world_size: int | None
    worker: int | None
    role: str | None
    step: int | None
    epoch: int | None
    raised: Raised | None
    nonfinite: Certificate | None
    memory: DumpedMemory | None
    batches: list[DumpedBatch]
    open_spans: list[DumpedSpan]
    threads: list[ThreadStack]
    left_out: list[str]
    notes: list[str]  # what is wrong with its files

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.name

    def rows(self, value: Value, wanted: Sequence[int]) -> dict[int, np.ndarray[Any, Any]]:
        """Some rows of a kept array. Raises OSError or ValueError if it cannot be read."""
        return read_rows(self._place(value), wanted)

    def whole(self, value: Value) -> np.ndarray[Any, Any]:
        """A kept array. Raises OSError or ValueError if it cannot be read."""
        return read_whole(self._place(value))

    def _place(self, value: Value) -> Path:
        """The path of its file, which lies in this dump and nowhere else."""
        named = _FILE.fullmatch(value.file or "")
        if named is None:
            raise ValueError(f"{value.file!r} is not a file of a dump")
        inside = self.folder / named[1]
        if inside.is_symlink():
            raise ValueError(f"{named[1]} is a symbolic link")
        return inside / named[2]


def dumps_of(run: Path, notes: list[str]) -> list[Dump]:
    """All dumps of a run folder, the oldest first. What is wrong goes to the notes."""
    folders = dump_folders(run, notes)
    if len(folders) > MOST_DUMPS:
        notes.append(f"{FOLDER} holds {len(folders)} dumps; the first {MOST_DUMPS} were read")
    found: list[Dump] = []
    room = MOST_READ
    for folder in folders[:MOST_DUMPS]:
        try:
            content = read_small(folder / DUMP_FILE, min(MOST_JSON, room))
        except OSError as error:
            notes.append(f"{folder.name}: {DUMP_FILE} {why(error)}")
            continue
        room -= len(content)
        dump = _read(folder, content, notes)
        if dump is not None:
            found.append(dump)
    return sorted(found, key=lambda dump: (dump.wall_ns is None, dump.wall_ns or 0, dump.name))


def dump_folders(run: Path, notes: list[str]) -> list[Path]:
    """The folders of all dumps that were finished, by name."""
    place = run / FOLDER
    if place.is_symlink():
        notes.append(f"{FOLDER} is a symbolic link and was not read")
        return []
    try:
        with os.scandir(place) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    except OSError as error:
        notes.append(f"{FOLDER} {why(error)}")
        return []
    unfinished = sum(name.startswith(UNFINISHED) for name in names)
    if unfinished:
        notes.append(f"{FOLDER} holds {unfinished} unfinished: the process ended or the disk was full during writing")
    return [place / name for name in names if not name.startswith(UNFINISHED)]


def _read(folder: Path, content: bytes, notes: list[str]) -> Dump | None:
    try:
        fields = Fields(json.loads(content))
    except (ValueError, RecursionError) as error:
        notes.append(f"{folder.name}: {DUMP_FILE} is damaged: {str(error)[:200]}")
        return None
    if not fields:
        notes.append(f"{folder.name}: {DUMP_FILE} is damaged: it has no JSON object")
        return None
    own: list[str] = []
    version = fields.whole("version")
    if version != VERSION:
        own.append(
            f"{DUMP_FILE} has version {version}; this version of Sonde reads {VERSION}, a newer one may show more"
        )
    return Dump(
        folder=folder,
        reason=fields.word("reason", REASONS) or fields.text("reason", 40) or "unknown",
        wall_ns=fields.count("wall_ns"),
        monotonic_ns=fields.count("monotonic_ns"),
        host=fields.text("host"),
        pid=fields.count("pid"),
        rank=fields.count("rank"),
        world_size=fields.count("world_size"),
        worker=fields.count("worker"),
        role=fields.text("role"),
        step=fields.count("step"),
        epoch=fields.count("epoch"),
        raised=_raised(fields.inside("exception")),
        nonfinite=read_certificate(fields.inside("nonfinite").plain()),
        memory=_memory(fields.inside("memory")) if fields.inside("memory") else None,
        batches=_batches(fields, own),
        open_spans=[_span(one) for one in fields.objects("open_spans", MOST_SPANS)],
        threads=_threads(folder, fields.text("stacks"), own),
        left_out=fields.texts("left_out", MOST_LEFT_OUT),
        notes=own,
    )


def _raised(fields: Fields) -> Raised | None:
    if not fields:
        return None
    item = fields.inside("item")
    return Raised(
        fields.text("type") or "an exception",
        fields.text("message", MOST_MESSAGE) or "",
        fields.texts("traceback", MOST_FRAMES),
        _item(item) if item else None,
    )


def _item(fields: Fields) -> FailedItem:
    where = fields.whole("index"), fields.count("position"), fields.text("id")
    return FailedItem(*where, fields.count("worker"), fields.count("batch"), fields.wholes("items", MOST_INDICES))


def _memory(fields: Fields) -> DumpedMemory:
    batch, item = fields.inside("batch"), fields.inside("item")
    place, size, middle = item.count("position"), item.count("size"), item.number("median")
    unit = item.word("unit", ("bytes", "length"))
    return DumpedMemory(
        batch.count("bytes"),
        batch.number("median_bytes"),
        batch.count("batches"),
        None
        if place is None or size is None or middle is None or unit is None
        else LargestItem(place, size, middle, unit),
        [_device(one) for one in fields.objects("devices", MOST_DEVICES)],
        fields.word("snapshot", ("allocator.json",)),
    )


def _device(fields: Fields) -> DumpedDevice:
    sizes = (fields.count(name) for name in ("total", "free", "allocated", "reserved", "largest_free"))
    return DumpedDevice(fields.count("device") or 0, *sizes)


def _span(fields: Fields) -> DumpedSpan:
    return DumpedSpan(
        fields.text("cat") or "", fields.text("name") or "", fields.count("since_ns"), fields.text("thread")
    )


def _batches(fields: Fields, notes: list[str]) -> list[DumpedBatch]:
    there = fields.length("batches")
    if there > MOST_BATCHES:
        notes.append(f"{DUMP_FILE} lists {there} batches; the first {MOST_BATCHES} were read")
    return [_batch(one) for one in fields.objects("batches", MOST_BATCHES)]


def _batch(fields: Fields) -> DumpedBatch:
    return DumpedBatch(
        key=fields.count("key"),
        loader=fields.count("loader"),
        round=fields.count("round"),
        number=fields.count("number"),
        worker=fields.count("worker"),
        step=fields.count("step"),
        epoch=fields.count("epoch"),
        size=fields.count("size"),
        indices=fields.wholes("indices", MOST_INDICES),
        ids=_ids(fields),
        loss=fields.number("loss"),
        digest=fields.digest("digest"),
        digest_of=fields.word("digest_of", ("all", "sample")),
        changed=fields.flag("changed"),
        kept=fields.word("kept", KEPT),
        values=[_value(one) for one in fields.objects("values", MOST_VALUES)],
    )


def _ids(fields: Fields) -> list[str | None]:
    """What the dataset calls them; of those that it is asked for by a text, that."""
    ids = [_named(one) for one in fields.several("ids", MOST_INDICES)]
    if ids:
        return ids
    keys = [one if isinstance(one, str) else None for one in fields.several("indices", MOST_INDICES)]
    return [_named(one) for one in keys] if any(keys) else []


def _named(id: object) -> str | None:
    if isinstance(id, int) and not isinstance(id, bool) and abs(id) < 2**64:
        return str(id)
    return Fields({"id": id}).text("id", 100)


def _value(fields: Fields) -> Value:
    return Value(
        path=fields.text("path") or "",
        type=fields.text("type"),
        shape=fields.shape("shape"),
        dtype=fields.text("dtype"),
        min=fields.number("min"),
        max=fields.number("max"),
        mean=fields.number("mean"),
        std=fields.number("std"),
        nonfinite=fields.count("nonfinite"),
        digest=fields.digest("digest"),
        file=fields.text("file"),
        cut=fields.flag("cut") is True,
    )


def _threads(folder: Path, named: str | None, notes: list[str]) -> list[ThreadStack]:
    """The stacks of all threads, as faulthandler wrote them."""
    if named is None:
        return []
    if "/" in named or named.startswith("."):
        notes.append(f"the stacks were not read: {named!r} is not a file of a dump")
        return []
    try:
        with RegularFile(folder / named) as file:
            text = file.read(MOST_STACKS, 0).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        notes.append(f"{named} {why(error) if isinstance(error, OSError) else error}")
        return []
    return threads_in(text)
