"""A segment whose beginning is packed reads as it was written."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from sonde.analysis.live.tail import Tail
from sonde.analysis.records.locate import size_of
from sonde.remote.pull import missing_in, pull
from sonde.remote.push import push
from sonde.store import packing, record
from sonde.store.folder import PACKED_FILE, SEGMENT_FILE, host
from sonde.store.packed import FRAME, UNIT, Segment, pack, unpack
from sonde.store.packing import pack_run
from sonde.store.reading.reader import read_process
from sonde.store.usage import recorded
from sonde.testing import START_NS, BuiltProcess, BuiltRecord, build_run

COUNT = 75 * record.SPILL_RECORDS
RECORDS = [BuiltRecord(f"n{n % 7}", start=START_NS + n * 1000, dur=n % 90, step=n // 7) for n in range(COUNT)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with one process of this host that has 2.5 MB in its segment."""
    path = build_run(tmp_path / "run", [BuiltProcess(RECORDS, spilled=len(RECORDS), host=host())])
    (path / "usage").write_bytes((3_000_000).to_bytes(8, "little") + bytes(8))
    return path


def process_of(run: Path) -> Path:
    return next(run.glob("*/process.json")).parent


def disk(path: Path) -> int:
    return path.stat().st_blocks * 512


def content(segment: Path) -> bytes:
    with Segment(segment.parent) as file:
        return file.read(file.size(), 0)


def test_a_packed_process_has_the_same_records(run: Path) -> None:
    """Every record, name and count is what it was, and the segment takes a sixth of the disk."""
    folder = process_of(run)
    before, size = read_process(folder), disk(folder / SEGMENT_FILE)
    assert pack_run(run) > 0.7 * size
    after = read_process(folder)
    assert np.array_equal(after.records, before.records)
    assert np.array_equal(after.thread, before.thread)
    assert (after.missing, after.corrupt, after.notes) == (0, 0, [])
    assert disk(folder / SEGMENT_FILE) + disk(folder / PACKED_FILE) < size / 6


def test_the_size_of_a_packed_run_is_what_it_takes(run: Path) -> None:
    """And not what its segment would have without the hole."""
    before = size_of(run)
    pack_run(run)
    assert size_of(run) < before / 4


def test_what_is_freed_counts_no_more(run: Path) -> None:
    """The bytes of a run that count for its cap become as many fewer as were freed."""
    freed = pack_run(run)
    assert recorded(run) == 3_000_000 - freed


def test_packing_again_takes_what_came_since(run: Path, tmp_path: Path) -> None:
    """A process that goes on is packed further, and what is packed stays."""
    longer = process_of(build_run(tmp_path / "longer", [BuiltProcess(RECORDS * 2, spilled=2 * COUNT, host=host())]))
    whole = (longer / SEGMENT_FILE).read_bytes()
    pack_run(run)
    first = (process_of(run) / PACKED_FILE).read_bytes()
    with (process_of(run) / SEGMENT_FILE).open("ab") as file:
        file.write(whole[file.tell() :])
    shutil.copy(longer / "rings", process_of(run) / "rings")
    pack_run(run)
    assert (process_of(run) / PACKED_FILE).read_bytes().startswith(first)
    assert content(process_of(run) / SEGMENT_FILE) == whole
    assert disk(process_of(run) / SEGMENT_FILE) < 20 * UNIT


def test_a_reader_that_came_before_sees_what_was_there(run: Path) -> None:
    """A file that was opened before it was packed reads the same afterwards."""
    whole = (process_of(run) / SEGMENT_FILE).read_bytes()
    with Segment(process_of(run)) as file:
        assert file.read(FRAME, 0) == whole[:FRAME]
        pack_run(run)
        assert file.read(len(whole), 0) == whole


@pytest.mark.parametrize("left", [0, 1, 30, 5000])
def test_a_killed_packer_costs_nothing(run: Path, left: int) -> None:
    """Half of a frame is not read, and the next packer writes it again."""
    segment, packed = process_of(run) / SEGMENT_FILE, process_of(run) / PACKED_FILE
    whole = segment.read_bytes()
    pack_run(run)
    segment.write_bytes(whole)
    os.truncate(packed, left)
    assert content(segment) == whole
    pack_run(run)
    assert content(segment) == whole
    assert disk(segment) + disk(packed) < len(whole) / 6


def test_a_damaged_frame_is_counted(run: Path) -> None:
    """The records of a frame that has changed are damaged ones, and the others are read."""
    pack_run(run)
    with (process_of(run) / PACKED_FILE).open("r+b") as file:
        file.seek(500)
        file.write(b"????")
    found = read_process(process_of(run))
    slots = FRAME // record.RECORD_SIZE
    assert slots <= found.corrupt <= slots + record.SPILL_RECORDS  # of the last block, the head is among them
    assert found.corrupt + len(found) >= COUNT
    assert f"events.seg is damaged: {found.corrupt} blocks of 48 bytes are not records" in found.notes


def test_a_live_view_reads_what_is_packed(run: Path) -> None:
    """A view that begins after packing has the same newest records."""
    before = Tail(process_of(run)).look()
    pack_run(run)
    assert np.array_equal(Tail(process_of(run)).look().records, before.records)


def test_a_packed_process_is_pushed_as_it_was(run: Path, tmp_path: Path) -> None:
    """A copy of a run that was packed between two pushes has the whole segment, and nothing is missing in it."""
    whole = (process_of(run) / SEGMENT_FILE).read_bytes()
    url = f"file://{tmp_path / 'place'}"
    push(run, url)
    pack_run(run)
    push(run, url)
    back = pull(f"{url}/run", tmp_path / "back").path
    assert (process_of(back) / SEGMENT_FILE).read_bytes() == whole
    assert missing_in(run, back) == []


def test_processes_of_other_hosts_are_left(tmp_path: Path) -> None:
    """Only a launcher on its host may touch the files of a process."""
    assert socket.gethostname() != "elsewhere"
    run = build_run(tmp_path / "run", [BuiltProcess(RECORDS, spilled=len(RECORDS), host="elsewhere")])
    assert pack_run(run) == 0
    assert not (process_of(run) / PACKED_FILE).exists()


def test_without_holes_the_segment_stays(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk that cannot make holes, what counts for the cap is what lies there, and every record is read."""

    def refuse(descriptor: int, end: int) -> None:
        if end:
            raise OSError(95, "Operation not supported")

    whole = (process_of(run) / SEGMENT_FILE).read_bytes()
    monkeypatch.setattr(packing, "_punch", refuse)
    assert pack_run(run) == pack_run(run) == 0
    assert recorded(run) == 3_000_000
    assert (process_of(run) / SEGMENT_FILE).read_bytes() == content(process_of(run) / SEGMENT_FILE) == whole


@given(st.binary(max_size=2000))
def test_any_bytes_come_back(content: bytes) -> None:
    """Packing loses nothing, whatever the records hold."""
    whole = content[: len(content) // record.RECORD_SIZE * record.RECORD_SIZE]
    assert unpack(pack(whole), len(whole)) == whole


@given(st.binary(max_size=500), st.integers(0, 20))
def test_other_bytes_are_no_records(content: bytes, count: int) -> None:
    """What no packer wrote is as many zeros as were asked for."""
    assert len(unpack(content, count * record.RECORD_SIZE)) == count * record.RECORD_SIZE
