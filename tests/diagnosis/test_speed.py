"""Rules about speed: built runs with one fault each, whose verdict and evidence are known."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest
from tests.diagnosis.building import (
    Times,
    diagnosed,
    iteration,
    kinds,
    of_kind,
    phases,
    processes,
    waiting_for,
    with_records,
)

from sonde import units
from sonde.analysis.run import open_run
from sonde.finding import CRITICAL, INFO, WARN
from sonde.store import probe
from sonde.store.record import ERROR
from sonde.testing import MS, START_NS, BuiltProcess, BuiltRecord, build_run
from sonde.views.report import report


@pytest.mark.parametrize(
    ("times", "kind", "severity"),
    [
        (phases(), "COMPUTE_BOUND", INFO),
        (phases(input_wait=5, forward=3, backward=3, optimizer=3), "INPUT_BOUND", WARN),
        (phases(input_wait=40), "INPUT_BOUND", CRITICAL),
        (phases(h2d=4), "H2D_BOUND", WARN),
        (phases(h2d=40), "H2D_BOUND", CRITICAL),
        (phases(residual=4), "RESIDUAL_HEAVY", WARN),
        (phases(residual=40), "RESIDUAL_HEAVY", CRITICAL),
        (phases(communication=5), "COMM_BOUND", WARN),
        (phases(communication=40), "COMM_BOUND", CRITICAL),
        (lambda rank, step: phases(**({"checkpoint": 60} if step % 10 == 9 else {})), "CHECKPOINT_HEAVY", WARN),
        (lambda rank, step: phases(**({"checkpoint": 200} if step % 10 == 9 else {})), "CHECKPOINT_HEAVY", CRITICAL),
        (lambda rank, step: phases(forward=3 + step), "STEP_DRIFT", WARN),
        (lambda rank, step: phases(forward=200 if step % 20 == 10 else 3), "STEP_SPIKES", WARN),
    ],
)
def test_a_phase_that_takes_too_long_is_the_verdict(tmp_path: Path, times: Times, kind: str, severity: str) -> None:
    """One phase too long, one verdict."""
    found = diagnosed(tmp_path, processes(phases=times))
    assert (found.verdict.kind, found.verdict.severity) == (kind, severity), kinds(found)


def test_a_share_below_its_floor_is_no_finding(tmp_path: Path) -> None:
    """Waiting 0.4 ms of a step of 0.8 ms is nothing to worry about."""
    tiny = dict.fromkeys(("forward", "backward", "optimizer", "residual"), MS // 10) | {"input_wait": 4 * MS // 10}
    found = diagnosed(tmp_path, processes(phases=tiny))
    assert found.verdict.severity == INFO


def test_one_long_step_does_not_change_the_verdict(tmp_path: Path) -> None:
    """Medians decide: a single wait of a second among healthy steps is not input-bound."""
    found = diagnosed(tmp_path, processes(phases=lambda rank, step: phases(input_wait=1000 if step == 30 else 1)))
    assert "INPUT_BOUND" not in kinds(found)


def test_slow_first_steps_are_warm_up(tmp_path: Path) -> None:
    """What the first steps take is no part of the verdict."""
    found = diagnosed(tmp_path, processes(phases=lambda rank, step: phases(forward=2000 if step < 3 else 3)))
    assert kinds(found) == ["COMPUTE_BOUND"]
    assert found.facts.speed.warmup.value == 3


def test_a_loader_with_workers_that_delivers_in_bursts_is_input_bound(tmp_path: Path) -> None:
    """With 4 workers three of four steps wait not at all: the median over blocks of steps tells."""
    built = processes(
        workers=4,
        phases=lambda rank, step: phases(input_wait=60 if step % 4 == 0 else 0),
        item_ns=lambda rank, index: 15 * MS,
    )
    found = diagnosed(tmp_path, built)
    assert found.verdict.kind == "INPUT_BOUND"


def test_what_if_tells_how_many_workers_would_do(tmp_path: Path) -> None:
    """A batch of 40 ms beside 10 ms of computing: four workers hide all but the first, and take 200 ms of 60 steps to start."""
    built = processes(phases=phases(input_wait=40), item_ns=lambda rank, index: 10 * MS)
    found = diagnosed(tmp_path, built)
    assert found.verdict.evidence["what_if"] == {"workers": 4, "prefetch": 2, "speedup": 3.5}
    assert "The limit is loading items. With 4 workers: about 3.5x as fast." in found.verdict.why
    assert found.verdict.next.startswith("The DataLoader has num_workers=0: try 4")


def test_workers_that_hand_over_longer_than_they_make_are_told(tmp_path: Path) -> None:
    """If a batch takes 0.4 ms to make and 40 ms to arrive, more workers are no cure."""
    built = processes(workers=2, phases=phases(input_wait=40), item_ns=lambda rank, index: MS // 10)
    found = diagnosed(tmp_path, built)
    assert found.verdict.evidence["what_if"]["workers"] == 0
    assert "num_workers=0" in found.verdict.next


def test_workers_that_keep_up_are_not_to_become_more(tmp_path: Path) -> None:
    """Two workers make a batch of 2 ms while 10 ms are computed: that a step waits 3 ms is the way that batches take."""
    built = processes(workers=2, phases=phases(input_wait=3), item_ns=lambda rank, index: MS // 2)
    found = diagnosed(tmp_path, built)
    assert found.verdict.kind == "INPUT_BOUND"
    assert found.verdict.evidence["what_if"] is None
    assert found.verdict.next.startswith("Pass less")


def test_waiting_without_a_loader_says_that_it_was_inferred(tmp_path: Path) -> None:
    """The gap before a forward is told as what it is."""
    times = {"residual": 0, "forward": 3 * MS, "backward": 3 * MS, "optimizer": MS}
    (process,) = processes(phases=times)
    late = [
        one._replace(start=one.start + (one.step or 0) * 30 * MS + (30 * MS if one.step is not None else 0))
        for one in process.records
    ]
    found = diagnosed(tmp_path, [process._replace(records=late)])
    assert found.verdict.kind == "INPUT_BOUND"
    assert "No loader was seen" in found.verdict.why
    assert found.verdict.evidence["what_if"] is None


def named(name: str, ms: int, *, cat: str = "user") -> BuiltProcess:
    """A program without a loader that spends so long in a span of its own after each step."""
    times = {"residual": ms * MS, "forward": 3 * MS, "backward": 3 * MS, "optimizer": MS}
    (process,) = processes(phases=times)
    ends = [one.start for one in process.records if one.name == probe.UPDATE]
    spans = [
        BuiltRecord(name, cat, start=end + 1, dur=ms * MS - 2, step=number) for number, end in enumerate(ends[:-1])
    ]
    return with_records(process, *spans)


@pytest.mark.parametrize(("name", "cat"), [("metrics", "user"), ("log", "other")])
def test_time_that_the_program_names_is_no_waiting(tmp_path: Path, name: str, cat: str) -> None:
    """It is told by its name."""
    found = diagnosed(tmp_path, [named(name, 20, cat=cat)])
    assert found.verdict.kind == "RESIDUAL_HEAVY"
    assert f"of it is `{name}`" in found.verdict.why
    assert found.facts.speed.shown("input_wait").or_zero() < 0.01


def test_a_forward_that_was_not_seen_is_said_to_be(tmp_path: Path) -> None:
    """`model.forward(x)` passes nothing that Sonde sees: logging is not to blame."""
    times = {"input_wait": MS, "forward": MS // 10, "backward": 20 * MS, "optimizer": MS, "residual": 20 * MS}
    found = diagnosed(tmp_path, processes(phases=times))
    assert "calls of model.forward(x) are not tracked" in of_kind(found, "RESIDUAL_HEAVY").why


def test_slow_items_are_named(tmp_path: Path) -> None:
    """Which items, how long, how often; and they stand before the waiting that they cause."""
    slow = (41, 121)
    built = processes(
        epoch_steps=30,
        phases=lambda rank, step: phases(input_wait=403 if step % 30 in (10, 29) else 4),
        item_ns=lambda rank, index: 400 * MS if index in slow else MS,
    )
    found = diagnosed(tmp_path, built)
    assert found.verdict.kind == "SLOW_ITEMS"
    items = found.verdict.evidence["items"]
    assert [(one["index"], one["loads"], one["median_ns"]) for one in items] == [(41, 2, 400 * MS)]
    assert "item 41 (400 ms, loaded 2 times)" in found.verdict.why


def test_items_are_not_blamed_for_a_hiccup_of_the_host(tmp_path: Path) -> None:
    """Each is loaded six times, and one of them is slow once in a while; item 8 is slow each time."""
    loads: collections.Counter[int] = collections.Counter()

    def lasting(rank: int, index: int) -> int:
        loads[index] += 1
        return 400 * MS if index == 8 else 40 * MS if loads[index] == 1 + index % 7 else MS

    built = processes(epoch_steps=10, phases=phases(input_wait=100), item_ns=lasting)
    verdict = of_kind(diagnosed(tmp_path, built), "SLOW_ITEMS")
    assert [one["index"] for one in verdict.evidence["items"]] == [8]
    assert verdict.why.startswith("1 item takes over ")


def test_a_load_that_ctrl_c_cut_off_is_no_measurement(tmp_path: Path) -> None:
    """Nor one that raised."""
    (process,) = processes(epoch_steps=10, phases=phases(input_wait=40))
    cut = [
        one._replace(flags=ERROR, dur=900 * MS) if (one.name, one.key) == (probe.ITEM, 8) else one
        for one in process.records
    ]
    found = diagnosed(tmp_path, [process._replace(records=cut)])
    assert "SLOW_ITEMS" not in kinds(found)


def test_one_share_of_waiting_is_told_everywhere(tmp_path: Path) -> None:
    """In the verdict, and in the table beside it; also if evaluation takes half of the time."""
    built = processes(evaluate_every=2, phases=phases(input_wait=40, evaluation=80))
    with open_run(build_run(tmp_path / "run", built)) as run:
        view = report(run)
    (waiting,) = [one for one in view.phases if one.phase == "input_wait"]
    verdict = next(one for one in view.findings if one.kind == "INPUT_BOUND")
    assert f"average, {units.share(waiting.share)} of the step time" in verdict.why
    assert verdict.evidence["numbers"]["share of the step time"] == waiting.share


@pytest.mark.parametrize(
    ("times", "told"),
    [
        ({"input_wait": 4 * MS // 10}, "400 µs in a median step (the threshold is 1 ms)"),
        ({"communication": 7 * MS // 10}, "700 µs in a median step (the threshold is 1 ms)"),
        ({"residual": 19 * MS // 10}, "1.90 ms in a median step (the threshold is 2 ms)"),
    ],
)
def test_a_large_share_that_is_no_finding_is_explained(tmp_path: Path, times: dict[str, int], told: str) -> None:
    """Nobody reads "nothing stands out" beside 50 % of waiting."""
    tiny = dict.fromkeys(("forward", "backward", "optimizer", "residual"), MS // 10) | times
    verdict = of_kind(diagnosed(tmp_path, processes(phases=tiny)), "BALANCED")
    assert verdict.why.startswith("Inconclusive: ")
    assert told in verdict.why


def test_slow_items_that_workers_hide_are_no_finding(tmp_path: Path) -> None:
    """Nobody waits for them: nothing to fix."""
    built = processes(
        workers=4, phases=phases(input_wait=0), item_ns=lambda rank, index: 40 * MS if index == 41 else MS
    )
    assert "SLOW_ITEMS" not in kinds(diagnosed(tmp_path, built))


def lazy(rank: int, step: int) -> dict[str, int]:
    """The first evaluation takes 9 s, and the others 1 ms, as where torch.compile works; so does the first forward."""
    return phases(evaluation=9000 if step < 10 else 1, forward=4000 if step == 0 else 3)


def test_the_first_call_of_a_phase_is_start_up_and_makes_it_not_heavy(tmp_path: Path) -> None:
    """It stands apart, with what the later ones take."""
    built = processes(evaluate_every=10, phases=lazy)
    found = diagnosed(tmp_path, built)
    assert "EVALUATION_HEAVY" not in kinds(found)
    assert {*found.facts.speed.startup} == {"evaluation", "forward"}
    with open_run(tmp_path / "run") as run:
        told = {one.phase: (one.first_ns, one.later_ns) for one in report(run).steps.startup}
    assert told["forward"] == (4000 * MS, 3 * MS)


def test_an_evaluation_that_is_long_each_time_is_heavy_in_spite_of_its_start(tmp_path: Path) -> None:
    """Less what the first one took more."""
    built = processes(evaluate_every=10, phases=lambda rank, step: phases(evaluation=9000 if step < 10 else 300))
    told = of_kind(diagnosed(tmp_path, built), "EVALUATION_HEAVY")
    assert "without its start-up (17.4 s)" in told.why


def test_evaluation_counts_against_the_whole_time(tmp_path: Path) -> None:
    """Evaluation between steps is no waiting for data, and heavy when it takes most of the time."""
    found = diagnosed(tmp_path, processes(evaluate_every=10, phases=phases(evaluation=200)))
    assert (found.verdict.kind, found.verdict.severity) == ("EVALUATION_HEAVY", CRITICAL)
    assert "INPUT_BOUND" not in kinds(found)


def test_workers_that_start_again_and_again_are_told_before_the_waiting(tmp_path: Path) -> None:
    """A loader that is iterated five times starts its workers five times."""
    (process,) = processes(phases=phases(input_wait=0))
    starts = [one for number in range(5) for one in iteration(number, START_NS + number, 400 * MS)]
    found = diagnosed(tmp_path, [with_records(process, *starts)])
    startup = of_kind(found, "WORKER_STARTUP")
    assert startup.evidence["numbers"]["starts"] == 4
    assert "persistent_workers=True" in startup.next


def test_collections_of_garbage_are_told(tmp_path: Path) -> None:
    """A pause of 8 ms in each step of 20."""
    (process,) = processes(phases=phases(forward=11))
    inside = [
        BuiltRecord(probe.GC, probe.PROBE, start=one.start + MS, dur=8 * MS, key=2, step=one.step)
        for one in process.records
        if one.name == probe.FORWARD
    ]
    found = diagnosed(tmp_path, [with_records(process, *inside)])
    assert found.verdict.kind == "GC_PAUSES"
    assert found.verdict.evidence["numbers"]["steps with a collection"] == 57


# ── ranks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("phase", "kind"),
    [("input_wait", "INPUT_STRAGGLER"), ("forward", "COMPUTE_STRAGGLER"), ("residual", "STRAGGLER")],
)
@pytest.mark.parametrize("ranks", [2, 4])
def test_the_rank_that_the_others_wait_for_is_named(tmp_path: Path, ranks: int, phase: str, kind: str) -> None:
    """Who waits the least is late, and what it spends more on is the cause."""
    found = diagnosed(tmp_path, processes(ranks=ranks, phases=waiting_for(1, phase)))
    assert (found.verdict.kind, found.verdict.severity) == (kind, CRITICAL), kinds(found)
    assert found.verdict.evidence["ranks"] == [1]
    assert "rank 1" in found.verdict.why


def test_waiting_that_hides_in_backward_is_seen(tmp_path: Path) -> None:
    """Where communication is not measured, backward of the others is long."""
    found = diagnosed(
        tmp_path,
        processes(
            ranks=4,
            phases=lambda rank, step: phases(forward=40 if rank == 2 else 3, backward=3 if rank == 2 else 40),
        ),
    )
    assert found.verdict.kind == "COMPUTE_STRAGGLER"
    assert found.verdict.evidence["ranks"] == [2]


def test_ranks_that_take_turns_in_being_late_are_told_without_a_name(tmp_path: Path) -> None:
    """Now one is late, now the other."""
    found = diagnosed(
        tmp_path, processes(ranks=2, phases=lambda rank, step: waiting_for(step // 2 % 2, "forward")(rank, step))
    )
    assert found.verdict.kind == "STRAGGLER"
    assert found.verdict.evidence["ranks"] == []


def test_communication_that_all_ranks_have_is_no_straggler(tmp_path: Path) -> None:
    """Even the last one communicates for long."""
    found = diagnosed(tmp_path, processes(ranks=2, phases=phases(communication=40)))
    assert kinds(found)[0] == "COMM_BOUND"
    assert not {"STRAGGLER", "INPUT_STRAGGLER", "COMPUTE_STRAGGLER"} & set(kinds(found))


def test_equal_ranks_are_no_stragglers(tmp_path: Path) -> None:
    """Four healthy ranks."""
    assert kinds(diagnosed(tmp_path, processes(ranks=4, phases=phases(communication=1)))) == ["BALANCED"]


def test_ranks_of_unequal_length_are_judged_by_what_they_share(tmp_path: Path) -> None:
    """One rank ended after a third of the steps."""
    long, short = processes(ranks=2, phases=waiting_for(1, "input_wait"))
    cut = [one for one in short.records if one.step is None or one.step < 20]
    found = diagnosed(tmp_path, [long, short._replace(records=cut)])
    assert found.verdict.kind == "INPUT_STRAGGLER"
    assert [rank.last_step for rank in found.facts.speed.ranks] == [59, 19]
