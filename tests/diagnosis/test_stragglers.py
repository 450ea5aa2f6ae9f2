"""Which ranks the others wait for, what these are called together, and what they load meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.diagnosis.building import diagnosed, kinds, phases, processes

from sonde.analysis.run import open_run
from sonde.diagnosis.waits import listed
from sonde.testing import MS, build_run

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from sonde.testing import BuiltProcess

RANKS = 16


def late(some: Collection[int], phase: str, every: int = 1, ms: int = 40) -> Callable[[int, int], dict[str, int]]:
    """Some ranks need longer for a phase in every so many steps, and the others wait for them."""

    def times(rank: int, step: int) -> dict[str, int]:
        if step % every:
            return phases(communication=1)
        return phases(communication=1, **{phase: ms + 3}) if rank in some else phases(communication=ms + 1)

    return times


def job(times: Callable[[int, int], dict[str, int]], hosts: int = 4, **training: Any) -> list[BuiltProcess]:
    """So many ranks on each of some hosts."""
    found = processes(ranks=RANKS, phases=times, **training)
    return [one._replace(host=f"node-{int(str((one.process or {})['rank'])) * hosts // RANKS}") for one in found]


@pytest.mark.parametrize(("phase", "kind"), [("forward", "COMPUTE_STRAGGLER"), ("input_wait", "INPUT_STRAGGLER")])
def test_ranks_of_one_host_are_named_as_that_host(tmp_path: Path, phase: str, kind: str) -> None:
    """And not as four ranks."""
    verdict = diagnosed(tmp_path, job(late(range(8, 12), phase))).verdict
    assert verdict.kind == kind
    assert "for host node-2 (ranks 8 to 11)" in verdict.why
    assert "slowest rank in 100 % of the steps" in verdict.why
    assert "host node-2" in verdict.next
    assert verdict.evidence["hosts"] == ["node-2"]
    assert sorted(verdict.evidence["ranks"]) == [8, 9, 10, 11]
    assert verdict.evidence["pattern"] == "host"


def test_consecutive_ranks_are_named_together(tmp_path: Path) -> None:
    """They may share a switch, or a stage; no host has all of them."""
    verdict = diagnosed(tmp_path, job(late(range(6, 10), "forward"))).verdict
    assert "for ranks 6 to 9, which compute longer" in verdict.why
    assert verdict.evidence["pattern"] == "neighbours"


def test_ranks_far_from_each_other_are_listed(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, job(late([2, 13], "residual"))).verdict
    assert (verdict.kind, verdict.evidence["pattern"]) == ("STRAGGLER", "ranks")
    assert "for ranks 2, 13" in verdict.why
    assert "untracked code" in verdict.why


def test_ranks_that_are_late_for_different_reasons_are_told_apart(tmp_path: Path) -> None:
    """Each with its own: one waits for data, a host computes longer."""

    def times(rank: int, step: int) -> dict[str, int]:
        if rank == 2:
            return phases(communication=1, input_wait=43)
        return phases(communication=1, forward=43) if rank in range(8, 12) else phases(communication=41)

    found = {one.kind: one.why for one in diagnosed(tmp_path, job(times)).findings}
    assert "for rank 2, which waits" in found["INPUT_STRAGGLER"]
    assert "for host node-2 (ranks 8 to 11), which computes" in found["COMPUTE_STRAGGLER"]


def test_all_ranks_of_the_only_host_are_no_host(tmp_path: Path) -> None:
    """Half of the ranks, on one machine."""
    verdict = diagnosed(tmp_path, job(late(range(8, 12), "forward"), hosts=1)).verdict
    assert "for ranks 8 to 11" in verdict.why


def test_a_rank_that_is_late_now_and_then_is_named(tmp_path: Path) -> None:
    """In every tenth step; the median step shows nothing."""
    found = diagnosed(tmp_path, job(late([5], "residual", every=10, ms=200)))
    verdict = next(one for one in found.findings if one.kind == "STRAGGLER")
    assert "Now and then rank 5 is late, in 5 steps of 57. The others wait" in verdict.why
    assert verdict.evidence["pattern"] == "rank, now and then"


def test_long_steps_name_the_rank_that_the_others_wait_for(tmp_path: Path) -> None:
    """Though in a usual step the slow rank changes."""

    def times(rank: int, step: int) -> dict[str, int]:
        return (
            late([5], "residual", ms=300)(rank, step)
            if step % 20 == 10
            else late([step % RANKS], "residual")(rank, step)
        )

    found = diagnosed(tmp_path, job(times))
    spikes = next(one for one in found.findings if one.kind == "STEP_SPIKES")
    assert "mostly in communication: the others wait for rank 5." in spikes.why
    assert spikes.evidence["ranks"] == [5]


def test_a_host_that_is_late_now_and_then_is_named(tmp_path: Path) -> None:
    """In each of these steps another of its ranks is the slowest."""

    def times(rank: int, step: int) -> dict[str, int]:
        return late([4 + step // 5 % 4], "residual", every=5, ms=100)(rank, step)

    found = diagnosed(tmp_path, job(times))
    verdict = next(one for one in found.findings if one.kind == "STRAGGLER")
    assert "host node-1 (ranks 4 to 7) is late" in verdict.why


def test_the_items_of_the_slowest_steps_are_in_the_verdict(tmp_path: Path) -> None:
    """Those of the late rank, in the steps in which the others waited longest."""
    built = job(
        late([3], "input_wait"), workers=1, item_ns=lambda rank, index: 30 * MS if rank == 3 and index % 4 == 1 else MS
    )
    found = diagnosed(tmp_path, built)
    verdict = next(one for one in found.findings if one.kind == "INPUT_STRAGGLER")
    assert "for rank 3, which waits" in verdict.why
    assert "longer for data, mainly item" in verdict.why
    assert verdict.evidence["items"]
    assert all(int(item) % 4 == 1 for item in verdict.evidence["items"])


def test_equal_ranks_on_several_hosts_are_no_stragglers(tmp_path: Path) -> None:
    assert not {"STRAGGLER", "INPUT_STRAGGLER", "COMPUTE_STRAGGLER"} & set(
        kinds(diagnosed(tmp_path, job(lambda rank, step: phases(communication=1))))
    )


def test_the_table_has_the_slowest_rank_of_each_step(tmp_path: Path) -> None:
    """And how much longer it took than the others."""
    path = build_run(tmp_path / "run", job(late([5], "forward", every=2)))
    with open_run(path) as run:
        found = run.sql(
            "SELECT step, rank, host, ranks, waited_ns FROM waits WHERE step IN (10, 11) ORDER BY step"
        ).fetchall()
    assert found[0] == (10, 5, "node-1", RANKS, 40 * MS)
    assert (found[1][0], found[1][4]) == (11, 0)


def test_numbers_of_ranks_are_listed_in_few_words() -> None:
    assert listed([3]) == "rank 3"
    assert listed([1, 2, 3, 7]) == "ranks 1 to 3, 7"
    assert listed(range(0, 40, 2)) == "ranks 0, 2, 4, 6, 8, 10 and 14 more"
