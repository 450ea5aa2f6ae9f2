"""Builds run folders for tests, byte by byte, without a core."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sonde.store import record as layout
from sonde.store.record import COUNTER, SPAN

START_NS = 1_000_000_000_000  # the monotonic start of a built process
WALL_NS = 1_700_000_000_000_000_000
MS = 1_000_000


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
