"""Following a process folder while it grows."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import sonde
from sonde.analysis.live import tail
from sonde.analysis.live.tail import Tail
from sonde.store import record
from sonde.testing import START_NS, BuiltProcess, BuiltRecord, build_process, build_run, record as recording

RECORDS = [BuiltRecord(f"n{n % 3}", start=START_NS + n * 10, dur=n) for n in range(4000)]


def rebuild(run: Path, process: BuiltProcess) -> Path:
    """The same process folder, at a later moment; the process has not ended."""
    shutil.rmtree(run / "testhost-1000-0", ignore_errors=True)
    return build_process(run, process._replace(process={"end": None}))


def half_rings(count: int, share: float) -> int:
    """How many of so many records have left their ring: it is half a ring that leaves, and the rest must fit into it."""
    least = -(-(count - record.RING_RECORDS) // record.SPILL_RECORDS)
    most = count // record.SPILL_RECORDS
    return max(0, least + round(share * (most - least))) * record.SPILL_RECORDS


def seqs(found: tail.Fresh) -> list[int]:
    return [int(one) for one in found.records["seq"]]


def test_a_pipe_in_the_place_of_the_file_hides_no_rings(tmp_path: Path) -> None:
    """What the rings have is seen; the rest is told to be missing."""
    run = build_run(tmp_path / "run", [])
    folder = rebuild(run, BuiltProcess(RECORDS[:3], spilled=1))
    (folder / "events.seg").unlink()
    os.mkfifo(folder / "events.seg")
    follower = Tail(folder)
    assert seqs(follower.look()) == [2, 3]
    assert "events.seg is not a regular file" in follower.notes


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stages=st.lists(st.tuples(st.integers(1, 900), st.floats(0, 1)), min_size=1, max_size=4))
def test_each_record_is_given_out_once(tmp_path: Path, stages: list[tuple[int, float]]) -> None:
    """However records move from the rings into the file between two looks, each is seen once, in its order."""
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    run = build_run(tmp_path / "run", [])
    count, spilled, given_out = 0, 0, []
    follower = None
    for more, share in stages:
        count += more
        spilled = max(spilled, half_rings(count, share))
        folder = rebuild(run, BuiltProcess(RECORDS[:count], spilled=spilled))
        follower = follower or Tail(folder)
        given_out += seqs(follower.look())
    assert sorted(given_out) == list(range(1, count + 1))


def test_a_real_recording_is_followed_without_loss(tmp_path: Path) -> None:
    """Spans of the real core, some open for long, come once each and with their duration."""
    with recording(dir=str(tmp_path)) as recorded:
        with sonde.span("outer"):
            for _ in range(100):
                with sonde.span("inner"):
                    pass
        (folder,) = [one for one in recorded.path.iterdir() if one.is_dir()]
        follower = Tail(folder)
        found = seqs(follower.look())
        with sonde.span("long"):
            for number in range(5000):
                with sonde.span("inner"):
                    pass
                if number % 1000 == 0:
                    found += seqs(follower.look())
                    assert "long" in {follower.names[int(one)][1] for one in follower.open.records["name"]}
        last = follower.look()
        found += seqs(last)
    assert sorted(found) == sorted(event["seq"] for event in recorded.events if event["cat"] == "user")
    assert sum(follower.names[int(one)][1] == "long" for one in last.records["name"]) == 1


def test_an_open_span_is_known_and_comes_when_it_ends(tmp_path: Path) -> None:
    """While it is open it is among the open ones, and then among the new ones."""
    run = build_run(tmp_path / "run", [])
    follower = Tail(rebuild(run, BuiltProcess([BuiltRecord("work", flags=record.OPEN)])))
    assert seqs(follower.look()) == []
    assert seqs(follower.open) == [1]
    rebuild(run, BuiltProcess([BuiltRecord("work", dur=7)]))
    assert seqs(follower.look()) == [1]
    assert seqs(follower.open) == []


def test_a_span_that_left_its_ring_while_open_keeps_its_thread(tmp_path: Path) -> None:
    """It is written again, perhaps by another thread, and still counts for the one that it began in."""
    run = build_run(tmp_path / "run", [])
    begun = BuiltRecord("work", flags=record.OPEN, thread=2, seq=1)
    follower = Tail(rebuild(run, BuiltProcess([begun], spilled=1)))
    follower.look()
    assert seqs(follower.open) == [1]
    other = BuiltRecord("other", dur=5, thread=3, seq=2)
    ended = BuiltRecord("work", dur=9, flags=record.AGAIN, thread=3, seq=1)
    rebuild(run, BuiltProcess([begun, other, ended], spilled=1, next_seq=3))
    found = follower.look()
    assert (seqs(found), found.threads.tolist(), found.records["dur"].tolist()) == ([1, 2], [2, 3], [9, 5])
    assert seqs(follower.open) == []


def test_a_cancelled_record_is_no_record(tmp_path: Path) -> None:
    """What turned out to be nothing is neither open nor complete."""
    run = build_run(tmp_path / "run", [BuiltProcess([BuiltRecord("work", kind=record.VOID)])])
    follower = Tail(run / "testhost-1000-0")
    assert seqs(follower.look()) == []
    assert seqs(follower.open) == []


def test_of_a_long_recording_only_the_newest_part_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was there before the first look and is too much is counted as unread, not as skipped."""
    monkeypatch.setattr(tail, "FIRST_BYTES", 1000 * record.RECORD_SIZE)
    follower = Tail(build_run(tmp_path / "run", [BuiltProcess(RECORDS)]) / "testhost-1000-0")
    found = seqs(follower.look())
    assert found[-1] == len(RECORDS)
    assert len(found) < len(RECORDS)
    assert found == list(range(found[0], len(RECORDS) + 1))
    assert (follower.unread > 0, follower.skipped) == (True, 0)


def test_what_comes_too_fast_is_skipped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One look never reads more than so much."""
    run = build_run(tmp_path / "run", [])
    follower = Tail(rebuild(run, BuiltProcess(RECORDS[:10])))
    follower.look()
    monkeypatch.setattr(tail, "MOST_BYTES", 500 * record.RECORD_SIZE)
    rebuild(run, BuiltProcess(RECORDS))
    found = seqs(follower.look())
    assert found[-1] == len(RECORDS)
    assert follower.skipped > 0


def test_a_process_that_ended_is_not_looked_at_again(tmp_path: Path) -> None:
    """After it said that it ended, nothing comes any more."""
    run = build_run(tmp_path / "run", [BuiltProcess(RECORDS[:5])])
    follower = Tail(run / "testhost-1000-0")
    assert len(seqs(follower.look())) == 5
    rebuild(run, BuiltProcess(RECORDS[:9]))
    assert seqs(follower.look()) == []


def test_a_damaged_file_costs_only_what_is_damaged(tmp_path: Path) -> None:
    """Zeros in the middle of events.seg are no records, and no error."""
    folder = build_run(tmp_path / "run", [BuiltProcess(RECORDS)]) / "testhost-1000-0"
    content = bytearray((folder / "events.seg").read_bytes())
    content[48 * 10 : 48 * 20] = bytes(480)
    (folder / "events.seg").write_bytes(content)
    assert len(seqs(Tail(folder).look())) == len(RECORDS) - 10


def test_a_folder_that_goes_away_is_no_error(tmp_path: Path) -> None:
    """The run may be sealed or removed while it is looked at."""
    run = build_run(tmp_path / "run", [BuiltProcess(RECORDS[:5])])
    follower = Tail(run / "testhost-1000-0")
    follower.look()
    shutil.rmtree(run / "testhost-1000-0")
    assert seqs(follower.look()) == []
