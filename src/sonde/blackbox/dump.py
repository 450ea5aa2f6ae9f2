"""Writes the black box: RUN/blackbox/<number>-<reason>-<host>-<pid>/ with dump.json, stacks.txt and arrays as .npy files.

It is written under a name that begins with a dot, and gets its name when all of it is on the disk: who reads it sees all or
nothing. What does not fit, or fails, is left out and said in dump.json; if not even that can be written, nothing stays.
"""

from __future__ import annotations

import errno
import faulthandler
import json
import os
import re
import shutil
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.blackbox import checksum, memory
from sonde.blackbox.contents import (
    MOST_CODE,
    MOST_OF_BATCH,
    batch_facts,
    batch_name,
    exception_facts,
    number,
    open_spans,
    process_facts,
)
from sonde.events import args as arguments
from sonde.guard import guard
from sonde.store import folder
from sonde.values.nested import MOST_PARTS, parts_of
from sonde.values.note import Note
from sonde.values.npy import as_array, pieces
from sonde.values.snapshot import freeze
from sonde.values.walk import Keep

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from sonde.blackbox.batches import DeliveredBatch
    from sonde.events.recorder import Recorder

FOLDER = "blackbox"
FILE = "dump.json"
STACKS = "stacks.txt"
UNFINISHED = ".unfinished-"
MOST_OF_RUN = 256  # dumps
MOST_STACKS = 1 << 18  # bytes
MOST_LEFT_OUT = 100
MOST_COUNTED = 10_000  # parts of a batch

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NUMBER = re.compile(r"(?:\.unfinished-)?(\d{3,9})-")


class Cause(NamedTuple):
    """Why the black box is written."""

    reason: str  # exception, worker, nonfinite, memory, sigterm, demand
    error: BaseException | None = None
    item: dict[str, Any] | None = None  # of a dataset, that raised
    certificate: dict[str, Any] | None = None
    ended: str | None = None  # how a loader worker did
    earlier: Sequence[int] = ()  # bytes of batches before the newest one, of its loader


class _Array(NamedTuple):
    """An array that is to be written, and the row that describes it."""

    size: int
    place: int  # of its batch, the newest first
    number: int
    batch: str
    row: dict[str, Any]
    array: Any


class DumpWriter:
    """One dump while it is written."""

    def __init__(self, path: str, cause: Cause, limit: int) -> None:
        self.path = path
        self.cause = cause
        self.left_out: list[str] = []
        self.room = limit
        self.arrays: list[_Array] = []

    def leave_out(self, sentence: str) -> None:
        """Say that something is not there."""
        if len(self.left_out) < MOST_LEFT_OUT:
            self.left_out.append(sentence)


def write(recorder: Recorder, cause: Cause, batches: Sequence[DeliveredBatch], last: str | None = None) -> str | None:
    """Write it, and return the name of its folder; None: the run has too many already. `last` is a remark for the reader."""
    box = os.path.join(recorder.run, FOLDER)
    with suppress(FileExistsError):
        os.mkdir(box, folder.FOLDER_MODE)
    number = _number(box)
    if number is None:
        return None
    name = f"{number:03d}-{cause.reason}-{folder.host()}-{os.getpid()}"
    unfinished = os.path.join(box, UNFINISHED + name)
    os.mkdir(unfinished, folder.FOLDER_MODE)
    try:
        dump = DumpWriter(unfinished, cause, recorder.settings.values_limit)
        if last is not None:
            dump.leave_out(last)
        _fill(dump, recorder, batches)
        os.rename(unfinished, os.path.join(box, name))
        _sync(box)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return name


def remove(run: str, name: str) -> None:
    """Take one away again; nobody sees it half."""
    box = os.path.join(run, FOLDER)
    unfinished = os.path.join(box, UNFINISHED + name)
    os.rename(os.path.join(box, name), unfinished)
    shutil.rmtree(unfinished, ignore_errors=True)


def _number(box: str) -> int | None:
    """The next number of a dump in this run; None: there are enough."""
    with folder.opened(box):
        found = [int(match[1]) for match in map(_NUMBER.match, os.listdir(box)) if match]
    return None if len(found) >= MOST_OF_RUN else max(found, default=0) + 1


def _fill(dump: DumpWriter, recorder: Recorder, batches: Sequence[DeliveredBatch]) -> None:
    facts = process_facts(dump, recorder)
    with _part(dump, "The stacks of the threads"):
        _write_stacks(dump.path)
        facts["stacks"] = STACKS
    with _part(dump, "The exception"):
        facts["exception"] = exception_facts(dump, recorder.settings.values)
    with _part(dump, "The open spans"):
        facts["open_spans"] = open_spans(recorder)
    settings = recorder.settings
    keep = Keep(settings.values, exclude=frozenset(settings.exclude))
    for place, kept in enumerate(batches):
        facts["batches"].append(row := batch_facts(kept, len(batches)))
        with _part(dump, f"The values of {batch_name(kept, place)}"):
            _describe(dump, place, kept, row, keep)
    if dump.cause.reason == "memory":
        facts["memory"] = {}
        _add_memory(dump, facts["memory"], batches, keep)
    _write_arrays(dump)
    _write_facts(dump, facts)
    _sync(dump.path)


class _part(guard[None]):  # noqa: N801  it reads as a word in `with _part(...)`
    """The guard of a part of a dump: what fails is left out, and said."""

    __slots__ = ("_dump", "_what")

    def __init__(self, dump: DumpWriter, what: str) -> None:
        super().__init__("writing a part of the black box")
        self._dump = dump
        self._what = what

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool:
        caught = super().__exit__(kind, error, trace)
        if caught and error is not None:
            full = isinstance(error, OSError) and error.errno in _NO_ROOM
            self._dump.leave_out(
                f"{self._what}: {'the disk is full' if full else f'writing failed ({type(error).__name__})'}."
            )
        return caught


# ── a lack of memory ─────────────────────────────────────────────────────────────────────────────────────────────────


def _add_memory(dump: DumpWriter, facts: dict[str, Any], batches: Sequence[DeliveredBatch], keep: Keep) -> None:
    """The newest batch beside the median one, its largest item, and what the allocators of devices hold."""
    newest = batches[-1] if batches else None
    if newest is not None and newest.seen.size:
        facts["batch"] = memory.batch_facts(newest.seen.size, dump.cause.earlier)
    if newest is not None and not newest.state and keep.values != "off":
        with _part(dump, "The largest item"):
            count = None if newest.indices is None else len(newest.indices)
            facts["item"] = memory.largest_item(newest.data, count, keep.exclude)
    with _part(dump, "The memory of devices"):
        facts["devices"] = memory.devices()
    if facts.get("devices"):
        with _part(dump, "The snapshot of the allocator"):
            taken = memory.snapshot()
            free = memory.largest_free(taken["segments"])
            for one in facts["devices"]:
                one["largest_free"] = free.get(one["device"])
            _write_file(os.path.join(dump.path, memory.ALLOCATOR), iter([json.dumps(taken, default=str).encode()]))
            facts["snapshot"] = memory.ALLOCATOR
            if taken["left_out"]:
                dump.leave_out(f"{taken['left_out']} segments of the allocator: only the largest are saved.")


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _describe(dump: DumpWriter, place: int, kept: DeliveredBatch, row: dict[str, Any], keep: Keep) -> None:
    row["kept"] = kept.state or keep.values
    if not kept.state and keep.values != "off":
        row["changed"] = checksum.changed(kept.parts, kept.seen)
    ids = kept.ids
    row["ids"] = None if ids is None else ids[: len(row["indices"]) or MOST_OF_BATCH]
    for order, (way, part) in enumerate(kept.parts):
        note = part if isinstance(part, Note) else freeze(part, keep._replace(values=_depth(keep))).note
        row["values"].append(one := _value(way, note))
        if row["size"] is None and note.shape:
            row["size"] = note.shape[0]
        array = as_array(part) if keep.values == "full" and note.shape is not None and not kept.state else None
        if array is not None:
            dump.arrays.append(_Array(array.nbytes, -place, order, batch_name(kept, place), one, array))
    if kept.state:
        dump.leave_out(f"The values of {batch_name(kept, place)}: they were {_STATES[kept.state]}.")
    elif len(kept.parts) >= MOST_PARTS:
        _count_more(dump, kept, batch_name(kept, place), keep)


def _count_more(dump: DumpWriter, kept: DeliveredBatch, name: str, keep: Keep) -> None:
    """Say how many parts were not taken, if there are any."""
    found = len(parts_of(kept.data, keep.exclude, MOST_COUNTED))
    more = found - len(kept.parts)
    if more > 0:
        least = "At least " if found >= MOST_COUNTED else ""
        dump.leave_out(
            f"{least}{more} more part{'s' * (more > 1)} of {name}: only the first {len(kept.parts)} are saved."
        )


_STATES = {"too large": "too large to keep", "gone": "already freed"}


def _depth(keep: Keep) -> str:
    """The copy, where one is wanted, goes straight into a file."""
    return "described" if keep.values == "full" else keep.values


def _value(way: tuple[Any, ...], note: Note) -> dict[str, Any]:
    return {
        "path": arguments.clean(".".join(map(str, way)))[:MOST_CODE] or "0",
        "type": note.type.rpartition(".")[2],
        "shape": None if note.shape is None else list(note.shape),
        "dtype": note.dtype,
        "min": number(note.low),
        "max": number(note.high),
        "mean": number(note.mean),
        "std": number(note.std),
        "nonfinite": note.nonfinite,
        "digest": note.digest,
        "file": None,
        "cut": False,
    }


def _write_arrays(dump: DumpWriter) -> None:
    """The smallest first; of one that does not fit, as many rows as do."""
    for one in sorted(dump.arrays, key=lambda one: one[:3]):
        what = f"{one.row['path']} of {one.batch}"
        array = one.array
        if one.size > dump.room:
            rows = dump.room * len(array) // one.size if array.ndim else 0
            dump.leave_out(f"{'All but the first rows' if rows else 'The elements'} of {what}: {one.size} bytes.")
            if not rows:
                continue
            array = array[:rows]
        with _part(dump, f"The elements of {what}"):
            _write_array(dump, one, array)


def _write_array(dump: DumpWriter, one: _Array, array: Any) -> None:
    place = f"batch-{-one.place}"
    with suppress(FileExistsError):
        os.mkdir(os.path.join(dump.path, place), folder.FOLDER_MODE)
    name = f"{place}/{one.number}.npy"
    _write_file(os.path.join(dump.path, name), pieces(array))
    dump.room -= array.nbytes
    one.row["file"] = name
    one.row["cut"] = array.nbytes < one.size


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write_file(path: str, content: Iterator[Any]) -> None:
    """Write it and see it on the disk, or leave no trace of it."""
    where, name = os.path.split(path)
    with folder.opened(where) as here:
        fd = folder.open_new(here, name)
        try:
            for piece in content:
                folder.write_all(fd, piece)
            os.fsync(fd)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(fd)


def _write_stacks(path: str) -> None:
    with folder.opened(path) as here:
        fd = folder.open_new(here, STACKS)
        try:
            faulthandler.dump_traceback(fd, all_threads=True)
            text = os.pread(fd, MOST_STACKS, 0)
            os.ftruncate(fd, 0)
            os.pwrite(fd, _named(text.decode("utf-8", "replace")).encode("utf-8", "replace"), 0)
        finally:
            os.close(fd)


def _named(stacks: str) -> str:
    """The text of faulthandler with the names of the threads, which it does not know before Python 3.14."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}

    def name(found: re.Match[str]) -> str:
        known = names.get(int(found[1], 16))
        return f"{found[0]} [{' '.join(known.split())[:100]}]" if known else found[0]

    return re.sub(r"(?m)^(?:Current thread|Thread) (0x[0-9a-f]+)(?! \[)", name, stacks)


def _write_facts(dump: DumpWriter, facts: dict[str, Any]) -> None:
    """Where the disk is full, arrays make room for it, the largest first."""
    written = sorted((one for one in dump.arrays if one.row["file"]), key=lambda one: one.size)
    while True:
        text = json.dumps(facts, indent=1, default=str).encode()
        try:
            _write_file(os.path.join(dump.path, FILE), iter([text]))
        except OSError:
            if not written:
                raise
            _take_back(dump, written.pop())
        else:
            return


def _take_back(dump: DumpWriter, one: _Array) -> None:
    os.unlink(os.path.join(dump.path, one.row["file"]))
    one.row["file"], one.row["cut"] = None, False
    dump.leave_out(f"The elements of {one.row['path']} of {one.batch}: the disk is full.")


def _sync(path: str) -> None:
    with folder.opened(path) as here:
        os.fsync(here)
