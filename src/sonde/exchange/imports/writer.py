"""Writes the events of one process as a process folder: records in blocks, without rings.

Records may come in any order. `finish` gives each one its parent and its step, in the file itself.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from sonde.exchange import jsonvalues
from sonde.exchange.imports import parents
from sonde.exchange.imports.parents import Extent, StepRange
from sonde.exchange.imports.times import LATEST
from sonde.lazy import numpy as np
from sonde.store import record
from sonde.store.folder import ARGS_FILE, FILE_MODE, FOLDER_MODE, NAMES_FILE, PROCESS_FILE, SEGMENT_FILE

MOST_NAMES = 100_000
MOST_CHARS = 16 << 20  # of all names
LONGEST_NAME = 16_384
FLUSH = 1 << 16  # records that wait in memory
FLUSH_ARGUMENTS = 1 << 20  # bytes
_LENGTH = struct.Struct("<I").pack
_PADDING = [bytes(-(rest + 4) % record.ARGS_ALIGN) for rest in range(record.ARGS_ALIGN)]
_EXTENT = 47 * record.RING_RECORDS  # records that are read back at once


class WrittenThread:
    """One thread: its number in the folder, its name, and where its records are."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self.name: str | None = None
        self.extents: list[Extent] = []
        self.count = 0
        self.written = 0  # records in the file


class SpanColumns(NamedTuple):
    """Many spans or marks at once; `args` are JSON objects, empty where there are none."""

    threads: Any
    names: Any
    starts: Any
    durs: Any
    args: Sequence[bytes]
    keys: Any = record.NO_KEY
    steps: Any = record.NO_STEP
    epochs: Any = record.NO_EPOCH
    kinds: Any = record.SPAN


class ProcessWriter:
    """One process folder that is being written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self.first: int | None = None
        self.last = 0
        self.threads: dict[Hashable, WrittenThread] = {}
        self._by_ordinal: list[WrittenThread] = []
        self._names: dict[tuple[str, str], int] = {}
        self._chars = 0
        self._slots = 0
        self._waiting: list[tuple[Any, Any]] = []  # threads and records
        self._single: list[tuple[int, tuple[int, ...]]] = []
        self._blobs = bytearray(record.ARGS_MAGIC)
        self._written = 0  # bytes of arguments in the file
        folder.mkdir(FOLDER_MODE)

    def thread(self, key: Hashable) -> WrittenThread:
        """The thread with this key; made if it is new."""
        found = self.threads.get(key)
        if found is None:
            found = self.threads[key] = WrittenThread(len(self.threads) + 1)
            self._by_ordinal.append(found)
        return found

    def number(self, cat: str, name: str) -> int:
        """The number of a name; 0: there are too many."""
        return self._number(cat[:LONGEST_NAME], name[:LONGEST_NAME])

    def add(
        self,
        thread: Hashable,
        cat: str,
        name: str,
        start: int,
        dur: int = 0,
        *,
        kind: int = record.SPAN,
        value: float | None = None,
        args: dict[str, Any] | None = None,
        step: int | None = None,
        epoch: int | None = None,
        key: int | None = None,
        flags: int = 0,
    ) -> bool:
        """Write one event; False if its times cannot be those of an event."""
        if not 0 <= start < LATEST or not 0 <= dur < LATEST:
            return False
        number = self.number(cat, name)
        if not number:
            number = self._number(cat[:LONGEST_NAME], record.OVERFLOW_NAME, more=True)
            args = {"name": name} | (args or {})
        into = self.thread(thread)
        into.count += 1
        self._saw(1, start, start + dur)
        if value is not None:
            kind = record.COUNTER
            (dur,) = struct.unpack("<q", struct.pack("<d", value))
        fields = (
            start,
            dur,
            key if key is not None and abs(key) < LATEST else record.NO_KEY,
            number,
            int(self._add_blobs([jsonvalues.encoded(args)])[0]) if args else 0,
            self.count,
            0,
            step if step is not None and 0 <= step < record.NO_STEP else record.NO_STEP,
            epoch if epoch is not None and 0 <= epoch < record.NO_EPOCH else record.NO_EPOCH,
            kind | flags,
            0,
        )
        self._single.append((into.ordinal, fields))
        return True

    def add_many(self, columns: SpanColumns) -> int:
        """Write many events; the number of those whose times cannot be right, which are left out."""
        good = (columns.starts >= 0) & (columns.starts < LATEST) & (columns.durs >= 0) & (columns.durs < LATEST)
        bad = len(good) - int(np.count_nonzero(good))
        if bad:
            columns = _chosen(columns, np.flatnonzero(good))
        count = len(columns.starts)
        if not count:
            return bad
        records = np.zeros(count, dtype=list(record.RECORD_FIELDS))
        records["seq"] = np.arange(self.count + 1, self.count + count + 1)
        records["start"], records["dur"], records["key"] = columns.starts, columns.durs, columns.keys
        records["name"], records["kind"] = columns.names, columns.kinds
        records["step"], records["epoch"] = columns.steps, columns.epochs
        records["args"] = self._add_blobs(columns.args)
        for ordinal, more in enumerate(np.bincount(columns.threads).tolist()):
            if more:
                self._by_ordinal[ordinal - 1].count += more
        self._saw(count, int(columns.starts.min()), int((columns.starts + columns.durs).max()))
        self._waiting.append((columns.threads, records))
        return bad

    def named(self, cat: str, prefix: str = "") -> Any:
        """For each number of a name whether it begins so."""
        found = np.zeros(len(self._names) + 1, np.bool_)
        for (of, name), number in self._names.items():
            found[number] = of == cat and name.startswith(prefix)
        return found

    def records(self) -> Iterator[tuple[int, Any]]:
        """All records so far in pieces, each with the ordinal of its thread."""
        self.flush()
        with open(self.folder / SEGMENT_FILE, "rb") as file:
            for thread in self._by_ordinal:
                for extent in thread.extents:
                    found = parents.read(file, extent)
                    yield thread.ordinal, found[found["kind"] != record.BLOCK]

    def flush(self) -> None:
        """Write the records that wait, thread by thread."""
        if self._single:
            ordinals, fields = zip(*self._single, strict=True)
            self._waiting.append((np.array(ordinals), np.array(list(fields), dtype=list(record.RECORD_FIELDS))))
            self._single.clear()
        if not self._waiting:
            return
        threads = np.concatenate([one for one, _ in self._waiting])
        records = np.concatenate([one for _, one in self._waiting])
        self._waiting.clear()
        order = np.argsort(threads, kind="stable")
        threads, records = threads[order], records[order]
        cuts = [0, *(np.flatnonzero(np.diff(threads)) + 1).tolist(), len(threads)]
        content = []
        for begin, end in pairwise(cuts):
            thread = self._by_ordinal[int(threads[begin]) - 1]
            places = range(begin, end, _EXTENT)
            content += [self._extent(thread, records[place : min(place + _EXTENT, end)]) for place in places]
        self._append(SEGMENT_FILE, b"".join(content))

    def finish(self, process: dict[str, Any], steps: Sequence[StepRange]) -> None:
        """Write what is left, find parents and steps, and say what the process is."""
        self.flush()
        self._flush_blobs()
        threads = {key: thread for key, thread in self.threads.items() if thread.count}  # others were only named
        lines: list[dict[str, object]] = [
            {"id": number, "cat": cat, "name": name} for (cat, name), number in self._names.items()
        ]
        for key, thread in threads.items():
            tid = key[-1] if isinstance(key, tuple) else key
            lines.append({"thread": thread.ordinal, "tid": _whole(tid) or thread.ordinal, "name": thread.name})
        self._append(NAMES_FILE, "".join(json.dumps(line) + "\n" for line in lines).encode())
        self._append(PROCESS_FILE, (json.dumps(process, indent=1) + "\n").encode())
        for thread in threads.values():
            parents.fill(self.folder / SEGMENT_FILE, thread.extents, steps)

    @property
    def waiting(self) -> int:
        """How many records are not in the file yet."""
        return len(self._single) + sum(len(records) for _, records in self._waiting)

    def _saw(self, count: int, first: int, last: int) -> None:
        self.count += count
        self.first = first if self.first is None else min(self.first, first)
        self.last = max(self.last, last)

    def _number(self, cat: str, name: str, *, more: bool = False) -> int:
        known = self._names.get((cat, name))
        if known is not None:
            return known
        if not more and (len(self._names) >= MOST_NAMES or self._chars > MOST_CHARS):
            return 0
        self._chars += len(name)
        self._names[cat, name] = number = len(self._names) + 1
        return number

    def _add_blobs(self, texts: Sequence[bytes]) -> Any:
        """Write arguments; their numbers, 0 for empty ones."""
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        sizes = np.where(lengths, (lengths + 4 + record.ARGS_ALIGN - 1) // record.ARGS_ALIGN * record.ARGS_ALIGN, 0)
        offsets = self._written + len(self._blobs) + np.cumsum(sizes) - sizes
        there = [text for text in texts if text]
        heads, rests = (
            [_LENGTH(len(text)) for text in there],
            [_PADDING[len(text) % record.ARGS_ALIGN] for text in there],
        )
        self._blobs += b"".join(chain.from_iterable(zip(heads, there, rests, strict=True)))
        if len(self._blobs) > FLUSH_ARGUMENTS:
            self._flush_blobs()
        return np.where(lengths, offsets // record.ARGS_ALIGN, 0)

    def _flush_blobs(self) -> None:
        self._append(ARGS_FILE, self._blobs)
        self._written += len(self._blobs)
        self._blobs.clear()

    def _extent(self, thread: WrittenThread, records: Any) -> bytes:
        """These records as blocks with their heads."""
        pieces: list[bytes] = []
        for place in range(0, len(records), record.RING_RECORDS):
            some = records[place : place + record.RING_RECORDS]
            count, done = len(some), thread.written
            head = record.RECORD.pack(record.BLOCK_MAGIC, done, count, thread.ordinal, 0, 0, 0, 0, 0, record.BLOCK, 0)
            pieces += (head, some.tobytes())
            thread.written += count
        slots = len(records) + len(pieces) // 2
        thread.extents.append(parents.extent_of(self._slots, slots, records["start"].astype(np.int64)))
        self._slots += slots
        return b"".join(pieces)

    def _append(self, name: str, content: bytes | bytearray) -> None:
        # Opened each time: a trace can have more processes than a program may have open files.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self.folder / name, flags, FILE_MODE), "ab") as file:
            file.write(content)


def _chosen(columns: SpanColumns, places: Any) -> SpanColumns:
    """Some of these events."""
    args = [columns.args[place] for place in places.tolist()]
    rest = (one[places] if np.ndim(one) else one for one in (*columns[:4], *columns[5:]))
    threads, names, starts, durs, *more = rest
    return SpanColumns(threads, names, starts, durs, args, *more)


def _whole(value: object) -> int | None:
    """A number of a process or thread, if it is one."""
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < LATEST else None
