"""What sonde.testing offers to tests: a real recording, a clock by hand, built runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import sonde
from sonde.analysis.run import open_run
from sonde.errors import RunBusy
from sonde.store import record as layout
from sonde.testing import (
    START_NS,
    WALL_NS,
    BuiltProcess,
    BuiltRecord,
    FakeClock,
    Straggler,
    build_run,
    record,
    synthetic_run,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_a_block_gives_its_events() -> None:
    """After the block its events are a plain list of dicts, and the folder is gone."""
    with record() as recorded, sonde.span("work", args={"size": 3}):
        pass
    (event,) = recorded.events
    assert (event["name"], event["cat"], event["args"]) == ("work", "user", {"size": 3})
    assert not recorded.path.exists()


def test_events_can_be_read_while_the_block_runs() -> None:
    """The recording is live: what happened so far is there, the open span too."""
    with record() as recorded:
        with sonde.span("outer"):
            sonde.mark("inner")
            assert recorded.names == ["outer", "inner"]
            assert recorded.named("outer")[0]["open"]
        assert not recorded.named("outer")[0]["open"]


def test_a_given_folder_stays(tmp_path: Path) -> None:
    """With `dir` the run is kept."""
    with record(dir=tmp_path) as recorded:
        sonde.mark("x")
    assert recorded.path.parent == tmp_path


def test_an_exception_passes_and_the_events_stay() -> None:
    """A block that fails has recorded what came before."""
    with pytest.raises(ValueError, match="mine"), record() as recorded, sonde.span("x"):
        raise ValueError("mine")
    assert recorded.named("x")[0]["error"]


def test_the_environment_has_no_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A block is recorded in a run of its own, whatever SONDE and SONDE_RUN say."""
    monkeypatch.setenv("SONDE", "0")
    monkeypatch.setenv("SONDE_RUN", str(tmp_path))
    with record() as recorded:
        sonde.mark("x")
    assert recorded.names == ["x"]
    assert os.environ["SONDE_RUN"] == str(tmp_path)


def test_blocks_do_not_mix() -> None:
    """Inside a recording no second one can start, and the error says what to do."""
    with record(), pytest.raises(RunBusy, match=r"sonde\.finish"), record():
        pass


def test_a_clock_by_hand_makes_exact_durations() -> None:
    """With the fake clock a span lasts exactly as long as the test says."""
    with FakeClock() as clock, record() as recorded, sonde.span("work"):
        clock.advance(ns=5)
        clock.advance(seconds=1.5)
    assert recorded.events[0]["dur_ns"] == 1_500_000_005


def test_a_built_run_is_read_like_a_recorded_one(tmp_path: Path) -> None:
    """Spans, counters and marks of a built run come back as they were given."""
    records = [
        BuiltRecord("outer", "compute", start=START_NS + 10, dur=100, step=3, epoch=1, key=8, args={"a": [1, None]}),
        BuiltRecord("inner", start=START_NS + 20, parent=1, depth=1, flags=layout.OPEN | layout.ERROR),
        BuiltRecord("loss", kind=layout.COUNTER, start=START_NS + 30, value=0.25, thread=2),
        BuiltRecord("here", kind=layout.MARK, start=START_NS + 40),
    ]
    path = build_run(tmp_path / "run", [BuiltProcess(records, pid=77, process={"rank": 5})])
    with sonde.open_run(path) as run:
        rows = run.sql(
            "select rank, pid, kind, cat, name, start_ns, dur_ns, value, key, step, epoch, parent, depth, open, error "
            "from events order by seq"
        ).fetchall()
    assert rows == [
        (5, 77, "span", "compute", "outer", WALL_NS + 10, 100, None, 8, 3, 1, None, 0, False, False),
        (5, 77, "span", "user", "inner", WALL_NS + 20, None, None, None, None, None, 1, 1, True, True),
        (5, 77, "counter", "user", "loss", WALL_NS + 30, None, 0.25, None, None, None, None, 0, False, False),
        (5, 77, "mark", "user", "here", WALL_NS + 40, None, None, None, None, None, None, 0, False, False),
    ]


@pytest.mark.parametrize("spilled", [0, 1, 700, 3000])
def test_it_does_not_matter_where_built_records_lie(tmp_path: Path, spilled: int) -> None:
    """In the ring, in events.seg or in both: all records are there once."""
    records = [BuiltRecord(start=START_NS + number, thread=number % 2 + 1) for number in range(3000)]
    path = build_run(tmp_path / "run", [BuiltProcess(records, spilled=spilled)])
    with sonde.open_run(path) as run:
        assert run.sql("select count(*), count(distinct seq), count(distinct tid) from events").fetchall() == [
            (3000, 3000, 2)
        ]


def test_a_missing_number_is_a_drop(tmp_path: Path) -> None:
    """A sequence number that no record has counts as lost."""
    path = build_run(tmp_path / "run", [BuiltProcess([BuiltRecord(seq=1), BuiltRecord(seq=3)], next_seq=6)])
    with sonde.open_run(path) as run:
        assert run.sql("select drops from processes").fetchall() == [(3,)]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_run(
        tmp_path_factory.mktemp("many") / "run",
        ranks=10,
        steps=60,
        workers=2,
        hosts=2,
        stragglers=[Straggler(3, times=20.0)],
        skew_ns=[0, 250_000_000],
    )


def test_a_synthetic_run_has_all_ranks_steps_and_items(many: Path) -> None:
    with open_run(many) as run:
        assert run.sql("SELECT count(DISTINCT rank), count(*), min(step), max(step) FROM steps").fetchall() == [
            (10, 600, 0, 59)
        ]
        assert run.sql("SELECT count(*), count(DISTINCT worker) FROM items").fetchall() == [(2400, 2)]
        assert run.sql("SELECT count(DISTINCT name) FROM events WHERE name LIKE '%augment%'").fetchall() == [(8,)]
        assert run.notes == []


def test_the_straggler_of_a_synthetic_run_lets_the_others_wait(many: Path) -> None:
    with open_run(many) as run:
        found = run.sql("SELECT rank FROM steps GROUP BY rank ORDER BY sum(communication_ns) LIMIT 1").fetchall()
    assert found == [(3,)]


def test_ranks_of_a_synthetic_run_leave_collectives_together_but_for_the_clock(many: Path) -> None:
    with open_run(many) as run:
        found = run.sql(
            """
            SELECT max(hi - lo), min(hi - lo) FROM (
                SELECT step, max(start_ns + dur_ns) AS hi, min(start_ns + dur_ns) AS lo
                FROM events WHERE name LIKE 'communication.%' GROUP BY step)
            """
        ).fetchall()
    ((most, least),) = found
    assert 249_000_000 < least <= most < 251_000_000


def test_a_restarted_synthetic_run_repeats_steps(tmp_path: Path) -> None:
    with open_run(synthetic_run(tmp_path / "run", ranks=2, steps=40, workers=0, restarts=1, repeated=5)) as run:
        assert run.sql("SELECT count(*), count(DISTINCT step), count(DISTINCT pid) FROM steps").fetchall() == [
            (88, 40, 4)
        ]
