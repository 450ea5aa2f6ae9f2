"""The summary by name, and the spans without an end."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.analysis.sample import MS, running, sample

from sonde.analysis.questions.names import summarize, wall_ns
from sonde.analysis.questions.spans import open_spans
from sonde.analysis.run import open_run
from sonde.analysis.seal import seal
from sonde.store import record
from sonde.store.folder import host
from sonde.testing import START_NS, WALL_NS, BuiltProcess, BuiltRecord, build_run


def test_a_name_has_counts_times_and_share(tmp_path: Path) -> None:
    """Checked against numbers made by hand."""
    spans = [
        BuiltRecord("f", "c", start=START_NS + number, dur=number, flags=record.ERROR if number == 9 else 0)
        for number in range(1, 101)
    ]
    spans += [BuiltRecord("f", "c", start=START_NS, flags=record.OPEN), BuiltRecord("g", start=START_NS, dur=1000)]
    with open_run(build_run(tmp_path / "run", [BuiltProcess(spans)])) as run:
        assert wall_ns(run) == 1000
        largest, other = summarize(run)
    assert (largest.cat, largest.name, largest.count, largest.total_ns) == ("c", "f", 100, 5050)
    assert largest.share == pytest.approx(5.05)
    assert largest.mean_ns == pytest.approx(50.5)
    assert (largest.p50_ns, largest.p95_ns, largest.p99_ns, largest.max_ns) == (50, 95, 99, 100)
    assert (largest.errors, largest.open) == (1, 1)
    assert (other.name, other.count, other.total_ns, other.open) == ("g", 1, 1000, 0)


def test_a_name_that_was_never_left_has_no_times(tmp_path: Path) -> None:
    """They are missing, not zero."""
    with open_run(build_run(tmp_path / "run", [BuiltProcess([BuiltRecord("f", flags=record.OPEN)])])) as run:
        (one,) = summarize(run)
    assert (one.count, one.total_ns, one.share) == (0, 0, None)
    assert (one.mean_ns, one.p50_ns, one.p99_ns, one.max_ns, one.open) == (None, None, None, None, 1)


def test_an_empty_run_has_an_empty_summary(tmp_path: Path) -> None:
    """And took no time that anybody knows."""
    with open_run(build_run(tmp_path / "run", [])) as run:
        assert (summarize(run), wall_ns(run), open_spans(run)) == ([], None, [])


def test_sealing_changes_neither(tmp_path: Path) -> None:
    """Raw and sealed runs answer the same."""
    folder = sample(tmp_path / "run")
    with open_run(folder) as run:
        before = summarize(run), open_spans(run)
    seal(folder)
    with open_run(folder) as run:
        assert (summarize(run), open_spans(run)) == before


def test_open_spans_of_a_dead_process_last_until_the_last_event_of_its_host(tmp_path: Path) -> None:
    """It cannot have said when it died."""
    dead = {"end": None, "worker": 2, "role": "worker"} | {"boot_id": "00000000-0000-0000-0000-000000000000"}
    spans = [
        BuiltRecord("outer", start=START_NS, flags=record.OPEN),
        BuiltRecord("get", parent=1, depth=1, start=START_NS + MS, flags=record.OPEN),
    ]
    processes = [
        BuiltProcess(spans, pid=7, host=host(), process=dead),
        BuiltProcess([BuiltRecord("main", start=START_NS, dur=41 * MS)], pid=6, host=host()),
    ]
    with open_run(build_run(tmp_path / "run", processes)) as run:
        outer, inner = open_spans(run)
    assert (outer.name, outer.for_ns, outer.innermost, outer.depth) == ("outer", 41 * MS, False, 0)
    assert (inner.name, inner.for_ns, inner.innermost, inner.depth) == ("get", 40 * MS, True, 1)
    assert (inner.worker, inner.pid, inner.state, inner.thread) == (2, 7, "died", "T1")


def test_open_spans_of_an_ended_process_last_until_its_end(tmp_path: Path) -> None:
    """A forgotten stop()."""
    end = {"mono_ns": START_NS + 50, "wall_ns": WALL_NS + 50, "reason": "exit", "exception": None}
    with open_run(
        build_run(tmp_path / "run", [BuiltProcess([BuiltRecord(flags=record.OPEN)], process={"end": end})])
    ) as run:
        assert [span.for_ns for span in open_spans(run)] == [50]


def test_open_spans_of_a_running_process_last_until_now(tmp_path: Path) -> None:
    """Which the caller may give."""
    with open_run(
        build_run(tmp_path / "run", [BuiltProcess([BuiltRecord(flags=record.OPEN)], process=running())])
    ) as run:
        assert [span.for_ns for span in open_spans(run, now_ns=WALL_NS + 3)] == [3]
        assert [span.for_ns is not None for span in open_spans(run)] == [True]
