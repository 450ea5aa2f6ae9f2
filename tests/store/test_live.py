"""Reading while another process writes: each record once, whole, and none that was there before is missed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sonde.store.reading.reader import read_process

# A plain writer of the layout: rings mapped, spilling like a core does. Spans are completed in place three records
# later, every 1000th after it was spilled. `dur` is seq * 3 for completed ones, so that a torn record shows.
WRITER = r"""
import json, mmap, os, sys
from sonde.store import record as r
folder, THREADS = sys.argv[1], 3
os.mkdir(folder)
open(folder + "/names.jsonl", "w").write('{"id":1,"cat":"c","name":"n"}\n')
open(folder + "/args.bin", "wb").write(r.ARGS_MAGIC)
seg = os.open(folder + "/events.seg", os.O_CREAT | os.O_WRONLY)
fd = os.open(folder + "/rings", os.O_CREAT | os.O_RDWR)
os.truncate(fd, r.HEADER_BYTES + THREADS * r.RING_BYTES)
m = mmap.mmap(fd, 0)
words = {code: memoryview(m).cast(code) for code in "IQq"}
def put(offset, code, value): words[code][offset // (4 if code == "I" else 8)] = value  # at once, unlike struct
put(24, "Q", 1)
m[0:8] = r.RINGS_MAGIC
for offset, value in ((8, 1), (12, 48), (16, r.RING_BYTES), (20, THREADS)): put(offset, "I", value)
json.dump({"schema": 1, "host": "h", "pid": os.getpid(), "start": {"mono_ns": 0, "wall_ns": 0}}, open(folder + "/process.json", "w"))
base = [r.HEADER_BYTES + t * r.RING_BYTES for t in range(THREADS)]
head, spilled, seg_len, seq = [0] * THREADS, [0] * THREADS, 0, 1
for t in range(THREADS): put(base[t] + 16, "I", t + 1)
def spill(t):
    global seg_len
    first, count = spilled[t], r.SPILL_RECORDS
    slots = [base[t] + 64 + (i % r.RING_RECORDS) * 48 for i in range(first, first + count)]
    block = r.RECORD.pack(r.BLOCK_MAGIC, first, count, t + 1, 0, 0, 0, 0, 0, r.BLOCK, 0) + b"".join(m[s:s + 48] for s in slots)
    os.pwrite(seg, block, seg_len)
    seg_len += len(block); put(32, "Q", seg_len)
    spilled[t] += count; put(base[t] + 8, "Q", spilled[t])
def write(t, seq, dur, kind):
    if head[t] - spilled[t] == r.RING_RECORDS: spill(t)
    slot = base[t] + 64 + (head[t] % r.RING_RECORDS) * 48
    m[slot:slot + 48] = r.RECORD.pack(seq, dur, -2**63, 1, 0, seq, 0, 2**32 - 1, 65535, kind, 0)
    head[t] += 1; put(base[t], "Q", head[t])
    return head[t] - 1
pending, late = [], []
print("ready", flush=True)
while seq < 300_000:
    t = seq % THREADS
    put(24, "Q", seq + 1)
    index = write(t, seq, 0, r.SPAN | r.OPEN)
    (late if seq % 1000 == 0 else pending).append((t, index, seq))
    if len(pending) > 3:
        t, index, number = pending.pop(0)
        slot = base[t] + 64 + (index % r.RING_RECORDS) * 48
        put(slot + 8, "q", number * 3); m[slot + 46] = r.SPAN
    if late and late[0][2] + 5000 < seq:
        t, index, number = late.pop(0)
        write((t + 1) % THREADS, number, number * 3, r.SPAN | r.AGAIN)
    seq += 1
    if seq % 5000 == 0: print(seq, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A process that writes 300,000 records as fast as it can, and then waits."""
    folder = tmp_path / "h-1-0"
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield folder, process
    process.kill()
    process.communicate()


def check(folder: Path) -> int:
    """Read the folder and check each record; how many there are."""
    found = read_process(folder)
    records = found.records
    seqs = records["seq"]
    assert found.notes == []
    assert found.corrupt == 0
    assert found.missing <= 1  # the number that was just given out
    assert len(set(seqs.tolist())) == len(seqs)
    closed = (records["kind"] & 0x08) == 0
    assert (records["dur"][closed] == seqs[closed].astype("i8") * 3).all()
    assert (found.thread == seqs % 3 + 1).all()
    found.close()
    return len(seqs)


def test_reading_while_somebody_writes(writer: tuple[Path, subprocess.Popen[str]]) -> None:
    """Every reading is whole, and none has fewer records than the one before."""
    folder, _ = writer
    counts = [check(folder) for _ in range(25)]
    assert counts == sorted(counts)
    assert counts[-1] > 2000


def test_nothing_is_lost_to_a_kill(writer: tuple[Path, subprocess.Popen[str]]) -> None:
    """What was told before the kill is there after it."""
    folder, process = writer
    assert process.stdout is not None
    told = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert check(folder) >= told - 1
    assert json.loads((folder / "process.json").read_text())["pid"] == process.pid
