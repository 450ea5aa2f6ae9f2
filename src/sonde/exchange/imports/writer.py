"""Writes the events of one process as a process folder: records in blocks, without rings.

Records may come in any order. `finish` gives each one its parent and its step, thread by thread, in the file itself.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sonde.exchange import values
from sonde.lazy import numpy as np
from sonde.store import record
from sonde.store.folder import ARGS_FILE, FILE_MODE, FOLDER_MODE, NAMES_FILE, PROCESS_FILE, SEGMENT_FILE

MOST_NAMES = 100_000
MOST_CHARS = 16 << 20  # of all names
LONGEST_NAME = 16_384
LATEST = 2**62  # ns; a time outside of this is damage
FLUSH = 1 << 18  # bytes of arguments


class StepRange(NamedTuple):
    """When a step was, in ns."""

    start: int
    end: int
    step: int


class _Thread:
    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self.name: str | None = None
        self.records: list[bytes] = []
        self.blocks: list[tuple[int, int]] = []  # the first slot in the file, and how many
        self.count = 0


class ProcessWriter:
    """One process folder that is being written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self.first: int | None = None
        self.last = 0
        self.threads: dict[Hashable, _Thread] = {}
        self._names: dict[tuple[str, str], int] = {}
        self._chars = 0
        self._slots = 0
        self._blobs = bytearray(record.ARGS_MAGIC)
        self._written = 0  # bytes of arguments in the file
        folder.mkdir(FOLDER_MODE)

    def thread(self, key: Hashable) -> _Thread:
        """The thread with this key; made if it is new."""
        found = self.threads.get(key)
        if found is None:
            found = self.threads[key] = _Thread(len(self.threads) + 1)
        return found

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
        self.count += 1
        self.first = start if self.first is None else min(self.first, start)
        self.last = max(self.last, start + dur)
        if value is not None:
            kind = record.COUNTER
            (dur,) = struct.unpack("<q", struct.pack("<d", value))
        into = self.thread(thread)
        into.count += 1
        number = self._number(cat[:LONGEST_NAME], name[:LONGEST_NAME])
        if not number:
            number = self._number(cat[:LONGEST_NAME], record.OVERFLOW_NAME, more=True)
            args = {"name": name} | (args or {})
        into.records.append(
            record.RECORD.pack(
                start,
                dur,
                key if key is not None and abs(key) < LATEST else record.NO_KEY,
                number,
                self._blob(args) if args else 0,
                self.count,
                0,
                step if step is not None and 0 <= step < record.NO_STEP else record.NO_STEP,
                epoch if epoch is not None and 0 <= epoch < record.NO_EPOCH else record.NO_EPOCH,
                kind | flags,
                0,
            )
        )
        if len(into.records) == record.SPILL_RECORDS:
            self._flush(into)
        return True

    def named(self, cat: str, prefix: str = "") -> list[int]:
        """The numbers of the names that begin so."""
        return [number for (of, name), number in self._names.items() if of == cat and name.startswith(prefix)]

    def records(self) -> Any:
        """All records so far, as they lie in the file; block heads among them."""
        for thread in self.threads.values():
            self._flush(thread)
        return np.memmap(self.folder / SEGMENT_FILE, dtype=list(record.RECORD_FIELDS), mode="r+")

    def finish(self, process: dict[str, Any], steps: Sequence[StepRange]) -> None:
        """Write what is left, find parents and steps, and say what the process is."""
        threads = {key: thread for key, thread in self.threads.items() if thread.count}  # others were only named
        self._flush_blobs()
        lines: list[dict[str, object]] = [
            {"id": number, "cat": cat, "name": name} for (cat, name), number in self._names.items()
        ]
        for key, thread in threads.items():
            tid = key[-1] if isinstance(key, tuple) else key
            lines.append({"thread": thread.ordinal, "tid": _whole(tid) or thread.ordinal, "name": thread.name})
        self._append(NAMES_FILE, "".join(json.dumps(line) + "\n" for line in lines).encode())
        self._append(PROCESS_FILE, (json.dumps(process, indent=1) + "\n").encode())
        if threads:
            whole = self.records()
            for thread in threads.values():
                _nest(whole, thread.blocks, steps)
            whole.flush()

    def _number(self, cat: str, name: str, *, more: bool = False) -> int:
        """The number of a name; 0: there are too many."""
        known = self._names.get((cat, name))
        if known is not None:
            return known
        if not more and (len(self._names) >= MOST_NAMES or self._chars > MOST_CHARS):
            return 0
        self._chars += len(name)
        self._names[cat, name] = number = len(self._names) + 1
        return number

    def _blob(self, args: dict[str, Any]) -> int:
        try:
            text = values.text(args)
        except (ValueError, RecursionError):
            text = values.text(values.plain(args))
        self._blobs += bytes(-len(self._blobs) % record.ARGS_ALIGN)
        offset = self._written + len(self._blobs)
        self._blobs += struct.pack("<I", len(text)) + text.encode()
        if len(self._blobs) > FLUSH:
            self._flush_blobs()
        return offset // record.ARGS_ALIGN

    def _flush_blobs(self) -> None:
        self._blobs += bytes(-len(self._blobs) % record.ARGS_ALIGN)
        self._append(ARGS_FILE, self._blobs)
        self._written += len(self._blobs)
        self._blobs.clear()

    def _flush(self, thread: _Thread) -> None:
        if not thread.records:
            return
        count = len(thread.records)
        head = record.RECORD.pack(
            record.BLOCK_MAGIC, thread.count - count, count, thread.ordinal, 0, 0, 0, 0, 0, record.BLOCK, 0
        )
        self._append(SEGMENT_FILE, head + b"".join(thread.records))
        thread.blocks.append((self._slots + 1, count))
        self._slots += count + 1
        thread.records.clear()

    def _append(self, name: str, content: bytes | bytearray) -> None:
        # Opened each time: a trace can have more processes than a program may have open files.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self.folder / name, flags, FILE_MODE), "ab") as file:
            file.write(content)


def _nest(whole: Any, blocks: Sequence[tuple[int, int]], steps: Sequence[StepRange]) -> None:
    """Give the records of one thread their parents, depths and steps."""
    places = np.concatenate([np.arange(first, first + count) for first, count in blocks])
    start = whole["start"][places].astype(np.int64)
    dur = np.where((whole["kind"][places] & record.KIND_MASK) == record.SPAN, whole["dur"][places], 0)
    end, seq = start + dur, whole["seq"][places]
    order = np.lexsort((seq, -end, start))
    parents, depths = np.zeros(len(places), np.uint32), np.zeros(len(places), np.uint8)
    stack: list[tuple[int, int, int]] = []  # end, number and depth of what is open
    for place, begin, until, number in zip(
        order.tolist(), start[order].tolist(), end[order].tolist(), seq[order].tolist(), strict=True
    ):
        while stack and stack[-1][0] <= begin:
            stack.pop()
        depth = 0
        for above in reversed(stack):
            if above[0] >= until:
                parents[place], depth = above[1], above[2] + 1
                break
        depths[place] = min(depth, record.DEEPEST)
        if until > begin:
            stack.append((until, number, depth))
    whole["parent"][places], whole["depth"][places] = parents, depths
    if steps:
        ranges = np.array(sorted(steps), dtype=np.int64)
        row = np.searchsorted(ranges[:, 0], start, side="right") - 1
        inside = (row >= 0) & (start < ranges[row, 1]) & (whole["step"][places] == record.NO_STEP)
        whole["step"][places[inside]] = ranges[row[inside], 2]


def _whole(value: object) -> int | None:
    """A number of a process or thread, if it is one."""
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < LATEST else None
