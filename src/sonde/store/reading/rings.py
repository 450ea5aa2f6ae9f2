"""Reads the rings of a process while it may still write them: header, and the records that have not been spilled."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from sonde.lazy import numpy as np
from sonde.store import record
from sonde.store.file import RegularFile, why
from sonde.store.process import Thread

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

MAX_RINGS = 65_536
RETRIES = 8


class Header(NamedTuple):
    """The header page. `seg_len` and `end_seq` were read after the rings, everything else before them."""

    next_seq: int  # every number below it had been given out before the rings were read
    end_seq: int  # no number from here on had been given out when the rings had been read
    seg_len: int
    args_len: int  # bytes of args.bin that count
    step: int | None
    epoch: int | None
    lost: dict[str, int]


class Rings(NamedTuple):
    """The content of the rings: header (None: unusable), records with their thread ordinals, threads, bad slots."""

    header: Header | None
    records: NDArray[np.void]
    threads: NDArray[np.uint32]
    owners: dict[int, Thread]
    corrupt: int


def read_rings(path: Path, owner: int, notes: list[str]) -> Rings:
    """Read a rings file. It must belong to `owner`: a process folder may name a file that lies elsewhere."""
    try:
        with RegularFile(path) as file:
            if file.owner == owner:
                return _read(file, notes)
            notes.append(f"rings at {path} belong to another user and were not read")
    except OSError as error:
        notes.append(f"rings {why(error)}: records not yet written to events.seg cannot be read")
    return no_rings()


def no_rings() -> Rings:
    """What there is without a rings file."""
    return _gather(None, [], {}, 0)


def _read(file: RegularFile, notes: list[str]) -> Rings:
    before = _header(file, notes)
    pieces: list[tuple[NDArray[np.void], int]] = []
    owners: dict[int, Thread] = {}
    corrupt = 0
    for index in range(_count(file, before, notes)):
        records, owner, tid, bad = _read_ring(file, record.HEADER_BYTES + index * record.RING_BYTES, notes)
        corrupt += bad
        if owner:
            owners[owner] = Thread(tid if tid < 2**63 else None, None)
        if len(records):
            pieces.append((records, owner))
    after = _fields(record.HEADER_FIELDS, file.read(record.HEADER_BYTES, 0))
    header = None if before is None else _header_of(before, after)
    return _gather(header, pieces, owners, corrupt)


def _gather(
    header: Header | None, pieces: list[tuple[NDArray[np.void], int]], owners: dict[int, Thread], corrupt: int
) -> Rings:
    empty = np.empty(0, dtype=list(record.RECORD_FIELDS))
    records = np.concatenate([empty, *(records for records, _ in pieces)])
    threads = np.repeat(
        np.array([owner for _, owner in pieces], dtype=np.uint32), [len(records) for records, _ in pieces]
    )
    return Rings(header, records, threads, owners, corrupt)


def _fields(layout: tuple[tuple[str, int, str], ...], page: bytes) -> dict[str, int]:
    """The integers of a header; those that the page is too short for are 0."""
    page = page.ljust(layout[-1][1] + 8, b"\0")
    return {name: struct.unpack_from("<" + code, page, offset)[0] for name, offset, code in layout if code != "8s"}


def _header(file: RegularFile, notes: list[str]) -> dict[str, int] | None:
    page = file.read(record.HEADER_BYTES, 0)
    fields = _fields(record.HEADER_FIELDS, page)
    if len(page) < record.HEADER_BYTES or not page.startswith(record.RINGS_MAGIC):
        notes.append("rings are damaged: the header is invalid")
        return None
    expected = (record.FORMAT_VERSION, record.RECORD_SIZE, record.RING_BYTES)
    if (fields["version"], fields["record_size"], fields["ring_bytes"]) != expected:
        notes.append("rings are damaged: the header has another layout; the default one is assumed")
    return fields


def _header_of(before: dict[str, int], after: dict[str, int]) -> Header:
    lost = {reason: after[f"lost_{reason}"] for reason in ("space", "cap", "ring", "args")}
    step = None if after["step"] == record.NO_STEP else after["step"]
    epoch = None if after["epoch"] >= record.NO_EPOCH else after["epoch"]
    # A record is there a moment before its number counts as given out: one in each ring may be ahead.
    end_seq = after["next_seq"] + min(after["rings"], MAX_RINGS)
    return Header(before["next_seq"], end_seq, after["seg_len"], after["args_len"], step, epoch, lost)


def _count(file: RegularFile, header: dict[str, int] | None, notes: list[str]) -> int:
    """How many rings to read: what the header says, but no more than the file holds."""
    held = max(0, -((record.HEADER_BYTES - file.size()) // record.RING_BYTES))
    said = held if header is None else header["rings"]
    if said > held:
        notes.append(f"rings are truncated: the file has {held} of {said} rings")
    if min(held, said) > MAX_RINGS:
        notes.append(f"rings: only the first {MAX_RINGS} of {min(held, said)} rings were read")
    return min(held, said, MAX_RINGS)


def _read_ring(file: RegularFile, offset: int, notes: list[str]) -> tuple[NDArray[np.void], int, int, int]:
    """Records, owner, thread id and number of bad slots of one ring."""
    owner, tid = 0, 0
    for tries in range(RETRIES):
        before = _fields(record.RING_FIELDS, file.read(record.RING_HEAD_BYTES, offset))
        if not before["head"] and not before["owner"]:
            return no_rings().records, 0, 0, 0
        # A span may be completed between two reads of its bytes: duration first, flag after it. So the flag is taken
        # from a first copy and the rest from a second one.
        flags = _slots(file, offset)["kind"].copy()
        slots = _slots(file, offset)
        slots["kind"] = flags
        after = _fields(record.RING_FIELDS, file.read(record.RING_HEAD_BYTES, offset))
        owner, tid = before["owner"], before["tid"]
        if owner == after["owner"] and _plausible(before, after):
            records, bad = _unspilled(slots, before["head"], after["spilled"])
            return records, owner, tid, bad
        if owner == after["owner"] and tries == RETRIES - 1:
            notes.append(f"rings are damaged: one has {before['head']} records, {before['spilled']} of them spilled")
            return slots[valid(slots)], owner, tid, 0
    return no_rings().records, 0, 0, 0  # each owner spills what the one before it left


def _plausible(before: dict[str, int], after: dict[str, int]) -> bool:
    head, spilled = before["head"], before["spilled"]
    return spilled <= head <= spilled + record.RING_RECORDS and spilled <= after["spilled"] and head < 2**63


def _slots(file: RegularFile, offset: int) -> NDArray[np.void]:
    count = record.RING_RECORDS * record.RECORD_SIZE
    content = bytearray(file.read(count, offset + record.RING_HEAD_BYTES).ljust(count, b"\0"))
    return np.frombuffer(content, dtype=list(record.RECORD_FIELDS))


def _unspilled(slots: NDArray[np.void], head: int, spilled: int) -> tuple[NDArray[np.void], int]:
    """The records published before the copy and not spilled after it (nobody can have overwritten them), and bad slots."""
    taken = slots[np.arange(min(spilled, head), head, dtype=np.int64) % record.RING_RECORDS]
    good = valid(taken)
    return taken[good], len(taken) - int(good.sum())


def valid(slots: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which slots hold a record."""
    kind = slots["kind"] & record.KIND_MASK
    good: NDArray[np.bool_] = np.logical_and.reduce((kind >= record.SPAN, kind <= record.VOID, slots["seq"] > 0))
    return good
