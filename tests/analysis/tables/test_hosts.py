"""The table `hosts`: the clocks of hosts, laid over each other by the collectives of their ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sonde.analysis.run import open_run
from sonde.analysis.seal import seal
from sonde.testing import MS, START_NS, WALL_NS, BuiltProcess, BuiltRecord, Straggler, build_run, synthetic_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SECOND = 1000 * MS
SKEW = (0, 250 * MS, -250 * MS, 3600 * SECOND)
DRIFT = (0.0, 50.0, -50.0, 20.0)
JUMP = (0, 0, 0, 1000 * MS)


def rows(path: Path) -> list[dict[str, Any]]:
    with open_run(path) as run:
        found = run.table("hosts")
        return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


@pytest.fixture(scope="module")
def skewed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four hosts of four ranks whose clocks differ, run at different speeds, and one of which was set meanwhile."""
    path = tmp_path_factory.mktemp("hosts") / "run"
    return synthetic_run(path, ranks=16, hosts=4, steps=200, restarts=1, skew_ns=SKEW, drift_ppm=DRIFT, jump_ns=JUMP)


def test_offset_and_drift_are_found_within_the_stated_error(skewed: Path) -> None:
    """At the beginning, in the middle and at the end, and the error is below 2 ms over 200 collectives."""
    for host, row in enumerate(rows(skewed)[1:], 1):
        assert row["source"] == "collectives"
        assert row["collectives"] >= 195
        assert row["error_ns"] < 2 * MS
        with open_run(skewed) as run:
            moments = run.sql(
                f"SELECT min(start_ns + dur_ns), max(start_ns + dur_ns) FROM steps WHERE host = '{row['host']}'"
            ).fetchall()[0]
        for moment in (*moments, row["at_ns"]):
            truth = SKEW[host] + DRIFT[host] * 1e-6 * (moment - SKEW[host] - WALL_NS)
            found = row["offset_ns"] + row["drift_ppm"] * 1e-6 * (moment - row["at_ns"])
            assert abs(found - truth) <= row["error_ns"]


def test_the_host_of_rank_0_is_the_reference(skewed: Path) -> None:
    first = rows(skewed)[0]
    assert (first["host"], first["source"], first["offset_ns"], first["error_ns"]) == ("node-000", "reference", 0, 0)
    assert (first["processes"], first["ranks"]) == (16, 4)


def test_a_clock_that_was_set_meanwhile_is_found(skewed: Path) -> None:
    """By how much, and between which moments; others were not set."""
    *others, last = rows(skewed)
    assert [row["jumps"] for row in others] == [0, 0, 0]
    assert (last["jumps"], last["jump_ns"]) == (1, 1000 * MS)
    assert last["from_ns"] <= last["jump_after_ns"] < last["jump_before_ns"] <= last["until_ns"]


def test_a_sealed_run_has_the_same_hosts(skewed: Path) -> None:
    before = rows(skewed)
    seal(skewed, force=True)
    assert rows(skewed) == before


def waiting(host: str, rank: int, barriers: Sequence[tuple[int, int]], ahead: int = 0, **more: Any) -> BuiltProcess:
    """A process that enters and leaves barriers at these moments of the job, in ms."""
    records = [
        BuiltRecord("communication.barrier", "probe", start=START_NS + enter * MS, dur=(leave - enter) * MS)
        for enter, leave in barriers
    ]
    end = {"mono_ns": START_NS + 10 * SECOND, "wall_ns": WALL_NS + ahead + 10 * SECOND}
    about = {"rank": rank, "world_size": 2, "boot_id": host, "start": {"mono_ns": START_NS, "wall_ns": WALL_NS + ahead}}
    return BuiltProcess(
        records, pid=1000 + rank, host=host, process={**about, "end": {**end, "reason": "finish"}, **more}
    )


BARRIERS = [(100 * number, 100 * number + 40) for number in range(1, 20)]
LATE = [(100 * number + 38, 100 * number + 40) for number in range(1, 20)]


def test_barriers_outside_of_steps_tell_it_too(tmp_path: Path) -> None:
    """The last to come is in the barrier for 2 ms only, so the clocks can differ by no more."""
    path = build_run(tmp_path / "run", [waiting("a", 0, BARRIERS), waiting("b", 1, LATE, ahead=30 * MS)])
    reference, other = rows(path)
    assert reference["source"] == "reference"
    assert other["collectives"] == 19
    assert abs(other["offset_ns"] - 30 * MS) <= other["error_ns"] < 25 * MS


def test_without_common_collectives_only_the_wall_clock_is_known(tmp_path: Path) -> None:
    """And that nobody knows by how much it is wrong."""
    path = build_run(tmp_path / "run", [waiting("a", 0, BARRIERS), waiting("b", 1, LATE[:3], ahead=30 * MS)])
    other = rows(path)[1]
    assert (other["source"], other["offset_ns"], other["error_ns"], other["collectives"]) == (
        "wall clock",
        None,
        None,
        None,
    )


def test_whether_a_clock_was_set_is_unknown_without_a_second_look(tmp_path: Path) -> None:
    """A process that was killed said what its clocks were at the start only."""
    path = build_run(tmp_path / "run", [waiting("a", 0, BARRIERS, end=None)])
    assert rows(path)[0]["jumps"] is None


def test_a_run_without_processes_has_no_hosts(tmp_path: Path) -> None:
    assert rows(build_run(tmp_path / "run", ())) == []


def test_hosts_that_never_come_last_are_compared_by_when_they_leave(tmp_path: Path) -> None:
    """All wait 100 ms for a rank of the third host, in every step."""
    late = Straggler(4, times=60.0)
    path = synthetic_run(tmp_path / "run", ranks=6, hosts=3, steps=200, stragglers=[late], skew_ns=(0, 250 * MS))
    with open_run(path) as run:
        waited = run.sql("SELECT median(communication_ns) FROM steps WHERE rank < 4").fetchall()[0][0]
    other = rows(path)[1]
    assert other["host"] == "node-001"
    assert abs(other["offset_ns"] - 250 * MS) <= other["error_ns"] < 2 * MS < waited / 10
