"""A tiny host that writes into a folder, and a plain reader of what a core wrote, independent of `sonde.store`."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
RECORD = struct.Struct("<QqqIIIIIHBB")
SPAN, COUNTER, MARK, VOID, BLOCK = 1, 2, 3, 4, 7
OPEN, ERROR, CUT, AGAIN, META = 0x08, 0x10, 0x20, 0x40, 0x80
NO_KEY, NO_STEP, NO_EPOCH = -(2**63), 2**32 - 1, 2**16 - 1
RING, HALF = 1364, 682  # records of a ring, and of a spill
HEADER = {
    "version": (8, "I"), "record_size": (12, "I"), "ring_bytes": (16, "I"), "rings": (20, "I"), "next_seq": (24, "Q"),
    "seg_len": (32, "Q"), "args_len": (40, "Q"), "step": (48, "I"), "epoch": (52, "I"), "lost_space": (64, "Q"),
    "lost_cap": (72, "Q"), "lost_ring": (80, "Q"), "lost_args": (88, "Q"),
}  # fmt: skip
MODULES = {"c": "sonde.native.core", "python": "sonde.events.twin"}
PLENTY = 2**40  # a cap that no test reaches
PROGRAM = """
import os, sys, threading, time, signal, gc
import {module} as core
from tests.events.harness import FolderHost
from pathlib import Path
folder = Path({folder!r})
host = FolderHost(folder)
core.begin(host, {cap})
"""


class FolderHost:
    """Opens the files of one process folder after another below `folder`; counts how often it was asked."""

    def __init__(self, folder: Path, *, mapped: bool = True, refuse: int = 0) -> None:
        self.folder = folder
        self.mapped = mapped
        self.refuse = refuse  # so many times open() answers: not now
        self.asked = 0
        self.encoded = 0

    def open(self) -> tuple[int, int, int, int] | None:
        self.asked += 1
        if self.refuse > 0:
            self.refuse -= 1
            return None
        number = 0
        while True:
            place = self.folder / f"{os.getpid()}-{number}"
            try:
                place.mkdir()
                break
            except FileExistsError:
                number += 1
        rings = _create(place / "rings") if self.mapped else -1
        seg, args, names = (_create(place / name) for name in ("events.seg", "args.bin", "names.jsonl"))
        os.write(args, b"SONDEARG")
        return rings, seg, args, names

    def usage(self) -> int:
        return os.open(self.folder / "usage", os.O_RDWR | os.O_CREAT, 0o600)

    def torn(self) -> None:
        print("torn", file=sys.stderr)

    def encode(self, args: Mapping[str, object]) -> tuple[bytes, bool]:
        self.encoded += 1
        shown = {
            str(name): value if isinstance(value, int | float | str) else _shown(value) for name, value in args.items()
        }
        cut = any(isinstance(value, str) and len(value) > 1000 for value in shown.values())
        shown = {name: value[:1000] if isinstance(value, str) else value for name, value in shown.items()}
        return json.dumps(shown).encode(), cut

    def merge(self, outer: bytes, inner: bytes) -> bytes:
        return json.dumps(json.loads(outer) | json.loads(inner)).encode()

    def name_line(self, id: int, cat: str, name: str) -> bytes:
        return json.dumps({"id": id, "cat": cat, "name": name}).encode() + b"\n"

    def thread_line(self, ordinal: int, tid: int) -> bytes:
        return json.dumps({"thread": ordinal, "tid": tid, "name": "t"}).encode() + b"\n"


def _create(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)


def _shown(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001  what the objects of these tests raise
        return "<unprintable>"


class Event(NamedTuple):
    """One record, with the ordinal of its thread."""

    start: int
    dur: int
    key: int
    name: int
    args: int
    seq: int
    parent: int
    step: int
    epoch: int
    kind: int
    depth: int
    thread: int

    @property
    def sort(self) -> int:
        return self.kind & 7

    @property
    def flags(self) -> int:
        return self.kind & ~7

    @property
    def open(self) -> bool:
        return bool(self.kind & OPEN)

    @property
    def value(self) -> float:
        number: float = struct.unpack("<d", struct.pack("<q", self.dur))[0]
        return number

    @property
    def lasting(self) -> tuple[int, ...]:
        """What writing a record again must not change; key, name, step and epoch may be known only when it was left."""
        return (self.start, self.seq, self.parent, self.depth)


class Process:
    """Everything in one process folder: `events` by seq (the complete one of each), `raw` as they stand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.header = _header(folder)
        self.names: dict[int, tuple[str, str]] = {}
        self.threads: dict[int, int] = {}
        for line in (folder / "names.jsonl").read_text().splitlines():
            entry = json.loads(line)
            if "thread" in entry:
                self.threads[entry["thread"]] = entry["tid"]
            else:
                self.names[entry["id"]] = (entry["cat"], entry["name"])
        self.in_file, self.blocks = _segment(folder, self.header)
        self.in_rings = _rings(folder)
        self.raw = self.in_file + self.in_rings
        self.events = _merge(self.raw)

    @property
    def next_seq(self) -> int:
        return max([self.header["next_seq"], *(seq + 1 for seq in self.events)])

    @property
    def gaps(self) -> int:
        """Sequence numbers that were given out and are in no record: lost records."""
        return self.next_seq - 1 - len(self.events)

    @property
    def lost(self) -> int:
        return sum(self.header[name] for name in ("lost_space", "lost_cap", "lost_ring"))

    def name(self, event: Event) -> str:
        return self.names[event.name][1]

    def args(self, event: Event) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.written(event) or b"{}")
        return found

    def written(self, event: Event) -> bytes:
        """Its arguments as they stand in the file."""
        if event.args == 0:
            return b""
        data = (self.folder / "args.bin").read_bytes()
        assert data[:8] == b"SONDEARG"
        offset = event.args * 8
        (length,) = struct.unpack_from("<I", data, offset)
        assert offset + 4 + length <= self.header["args_len"] <= len(data)
        return data[offset + 4 : offset + 4 + length]

    def listed(self) -> list[Event]:
        """The events in the order of their numbers, without the cancelled ones."""
        return [event for _, event in sorted(self.events.items()) if event.sort != VOID]

    def named(self, name: str) -> list[Event]:
        return [event for event in self.listed() if self.name(event) == name]

    def only(self, name: str) -> Event:
        (event,) = self.named(name)
        return event

    def tree(self) -> list[tuple[str, str | None]]:
        """Name and parent's name of each event, in order."""
        return [(self.name(e), self.name(self.events[e.parent]) if e.parent else None) for e in self.listed()]


def _header(folder: Path) -> dict[str, int]:
    path = folder / "rings"
    if not path.exists():  # block writes: the header was in memory
        return dict.fromkeys(HEADER, 0) | {"seg_len": (folder / "events.seg").stat().st_size, "next_seq": 1,
                                           "args_len": (folder / "args.bin").stat().st_size}  # fmt: skip
    page = path.read_bytes()[:4096]
    if not page:
        return dict.fromkeys(HEADER, 0)
    assert page[:8] == b"SONDERNG"
    found = {name: struct.unpack_from("<" + code, page, offset)[0] for name, (offset, code) in HEADER.items()}
    assert (found["version"], found["record_size"], found["ring_bytes"]) == (1, 48, 65536)
    return found


def _segment(folder: Path, header: dict[str, int]) -> tuple[list[Event], list[tuple[int, int, int]]]:
    """Records of events.seg, and its blocks as (thread, first index, count)."""
    data = (folder / "events.seg").read_bytes()[: header["seg_len"]]
    assert len(data) == header["seg_len"]
    events: list[Event] = []
    blocks: list[tuple[int, int, int]] = []
    offset = 0
    while offset < len(data):
        start, first, count, thread, *_, kind, _ = RECORD.unpack_from(data, offset)
        assert (start, kind) == (0x4B4C4245444E4F53, BLOCK)
        assert count > 0
        offset += 48
        events += [_event(data, offset + i * 48, thread) for i in range(count)]
        blocks.append((thread, first, count))
        offset += count * 48
    return events, blocks


def _rings(folder: Path) -> list[Event]:
    path = folder / "rings"
    data = path.read_bytes() if path.exists() else b""
    events: list[Event] = []
    for base in range(4096, len(data), 65536):
        head, spilled, owner = struct.unpack_from("<QQI", data, base)
        assert spilled <= head <= spilled + RING
        events += [_event(data, base + 64 + index % RING * 48, owner) for index in range(spilled, head)]
    return events


def _event(data: bytes, offset: int, thread: int) -> Event:
    return Event._make((*RECORD.unpack_from(data, offset), thread))


def _merge(raw: list[Event]) -> dict[int, Event]:
    events: dict[int, Event] = {}
    for event in sorted(raw, key=lambda e: bool(e.kind & AGAIN)):
        assert event.sort in (SPAN, COUNTER, MARK, VOID)
        known = events.setdefault(event.seq, event)
        assert known.lasting == event.lasting
        if not event.open and (known.open or event.kind & AGAIN):
            events[event.seq] = event._replace(thread=known.thread)
    return events


def processes(folder: Path) -> list[Process]:
    return [Process(place) for place in sorted(folder.iterdir()) if place.is_dir()]


def process(folder: Path) -> Process:
    (found,) = processes(folder)
    return found


def run(core: str, folder: Path, program: str, *, cap: int = PLENTY, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a program that records into `folder`, and check how it ended."""
    text = PROGRAM.format(module=MODULES[core], folder=str(folder), cap=cap) + program
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )
    assert done.returncode == code, done.stderr
    return done
