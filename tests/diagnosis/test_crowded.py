"""Hosts whose cores other programs take: what is then not held against a run, and what still is."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.diagnosis.building import Times, crowd, gauge, judged, kinds, launcher, phases, processes, waiting_for

from sonde.diagnosis.policy import Policy
from sonde.finding import CRITICAL, WARN
from sonde.testing import MS, BuiltProcess

POLICY = Policy.load()
ALL = ("input_wait", "forward", "backward", "optimizer", "residual")
STRAGGLERS = {"STRAGGLER", "INPUT_STRAGGLER", "COMPUTE_STRAGGLER"}


def found(folder: Path, built: list[BuiltProcess], *, crowded: bool) -> list[str]:
    """What is found in a run, on a host that others use or on one that is free."""
    return kinds(judged(folder, [*built, crowd() if crowded else crowd(load=30.0)]))


@pytest.mark.parametrize(
    ("samples", "crowded"),
    [
        ([gauge("cores", 2), gauge("cpu", 99), gauge("cpu", 50, 1000)], True),
        ([gauge("cores", 2), gauge("cpu", 80), gauge("cpu", 50, 1000)], False),  # a core is free now and then
        ([gauge("cores", 2), gauge("cpu", 99), gauge("cpu", 190, 1000)], False),  # it is this run itself
        ([gauge("cores", 2), gauge("cpu", 99), gauge("cpu", 95, 1000), gauge("cpu", 95, 1001)], False),  # two processes
        ([gauge("cores", 2), gauge("cpu", 99)], False),  # nobody looked at the run
        ([gauge("cpu", 99), gauge("cpu", 50, 1000)], False),  # how many cores there are is not known
    ],
)
def test_a_host_is_crowded_when_others_take_its_cores(tmp_path: Path, samples: list, crowded: bool) -> None:  # type: ignore[type-arg]
    """It has to be busy, and not by this run."""
    health = judged(tmp_path, [*processes(ranks=2), launcher(*samples)]).facts.health
    assert health.crowded(POLICY) is crowded


def test_load_before_the_first_step_does_not_count(tmp_path: Path) -> None:
    """What others did while the program was loading its data has no part in its steps."""
    (trainer,) = processes(phases=phases(forward=100))
    late = trainer._replace(records=[one._replace(start=one.start + 20_000 * MS) for one in trainer.records])
    samples = [gauge("cores", 2), *(gauge("cpu", 99, at=at) for at in range(1, 20)), gauge("cpu", 50, at=22)]
    health = judged(tmp_path, [late, launcher(*samples)]).facts.health
    assert health.hosts[0].figures["cpu"].value == 50


def test_workers_of_earlier_epochs_take_no_cores(tmp_path: Path) -> None:
    """The load of this run is that of processes which were there at the same time."""
    workers = [gauge("cpu", 80, 2000 + at, at=at) for at in range(1, 8)]
    built = [*processes(phases=phases(forward=120)), launcher(gauge("cores", 2), gauge("cpu", 99), *workers)]
    assert judged(tmp_path, built).facts.health.hosts[0].own.value == 80


# ── each rule, where it holds back and where it does not ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("item_ms", "crowded", "told"),
    [(1, False, True), (1, True, False), (30, True, True)],
)
def test_waiting_that_making_batches_does_not_explain_is_waiting_for_a_core(
    tmp_path: Path, item_ms: int, crowded: bool, told: bool
) -> None:
    """Two workers, and 40 ms of waiting: batches of 4 ms do not explain it, batches of 120 ms do."""
    built = processes(workers=2, phases=phases(input_wait=40), item_ns=lambda rank, index: item_ms * MS)
    assert ("INPUT_BOUND" in found(tmp_path, built, crowded=crowded)) is told


@pytest.mark.parametrize(
    ("item_ms", "epoch", "crowded", "told"),
    [(60, 60, False, True), (60, 60, True, False), (400, 60, True, True), (60, 10, True, True)],
)
def test_items_that_are_a_little_slow_once_may_have_lost_their_core(
    tmp_path: Path, item_ms: int, epoch: int, crowded: bool, told: bool
) -> None:
    """60 ms can be chance, 400 ms are not, and neither is 60 ms each time."""
    built = processes(
        epoch_steps=epoch,
        phases=lambda rank, step: phases(input_wait=item_ms + 3 if step % 10 == 7 else 4),
        item_ns=lambda rank, index: item_ms * MS if index % 40 == 29 else MS,
    )
    assert ("SLOW_ITEMS" in found(tmp_path, built, crowded=crowded)) is told


def test_of_items_that_were_loaded_once_it_is_not_sure_that_they_are_slow(tmp_path: Path) -> None:
    """The host may have been: load them again."""
    lasting = phases(input_wait=4)
    built = processes(
        phases=lambda rank, step: phases(input_wait=403) if step == 30 else lasting,
        item_ns=lambda rank, index: 400 * MS if index == 121 else MS,
    )
    verdict = judged(tmp_path, built).verdict
    assert (verdict.kind, verdict.confidence) == ("SLOW_ITEMS", 0.7)
    assert "item 121 (400 ms, loaded once)" in verdict.why
    assert verdict.next.startswith("Load item 121 again")


def spikes(*where: str) -> Times:
    """Every twentieth step takes long, in these phases."""
    return lambda rank, step: phases(**(dict.fromkeys(where, 200 // len(where)) if step % 20 == 10 else {}))


@pytest.mark.parametrize(
    ("where", "crowded", "told"),
    [
        (ALL, False, True),
        (ALL, True, False),
        (("input_wait",), False, True),
        (("input_wait",), True, False),  # a worker may lose its core as well
        (("forward",), True, True),
    ],
)
def test_steps_that_are_long_now_and_then_may_have_lost_their_core(
    tmp_path: Path, where: tuple[str, ...], crowded: bool, told: bool
) -> None:
    """That can happen anywhere in a step: what is always long in the same phase is its own."""
    assert ("STEP_SPIKES" in found(tmp_path, processes(phases=spikes(*where)), crowded=crowded)) is told


def scattered(step: int, **times: int) -> dict[str, int]:
    """Steps of these phases; from the twentieth on, one of the others takes 200 ms, each in its turn."""
    late = ("input_wait", "forward", "backward")[step % 3]
    return phases(**times, **({late: 200} if step >= 20 else {}))


@pytest.mark.parametrize(
    ("times", "crowded", "told"),
    [
        (lambda rank, step: dict.fromkeys(ALL, MS * (4 + step) // 4), False, True),
        (lambda rank, step: dict.fromkeys(ALL, MS * (4 + step) // 4), True, False),
        (lambda rank, step: phases(forward=3 + step), True, True),
        (lambda rank, step: phases(residual=50 + 5 * step), True, True),  # it had most of the step from the beginning
        (lambda rank, step: scattered(step, residual=2 + step), True, True),  # one phase after the other is late
    ],
)
def test_steps_that_grow_in_all_their_phases_may_have_got_company(
    tmp_path: Path, times: Times, crowded: bool, told: bool
) -> None:
    """More programs make all phases longer; a list that grows makes one longer."""
    assert ("STEP_DRIFT" in found(tmp_path, processes(phases=times), crowded=crowded)) is told


@pytest.mark.parametrize(("crowded", "told"), [(False, True), (True, False)])
def test_ranks_that_take_turns_in_being_late_may_lose_their_cores(tmp_path: Path, crowded: bool, told: bool) -> None:
    """Which of them comes late is chance."""
    built = processes(ranks=2, phases=lambda rank, step: waiting_for(step // 2 % 2, "forward")(rank, step))
    assert bool(STRAGGLERS & set(found(tmp_path, built, crowded=crowded))) is told


@pytest.mark.parametrize(("crowded", "told"), [(False, True), (True, False)])
def test_a_late_rank_that_does_nothing_else_may_lose_its_core(tmp_path: Path, crowded: bool, told: bool) -> None:
    """It is late, and a little in every phase."""

    def times(rank: int, step: int) -> dict[str, int]:
        more = 8 if rank else 0
        return phases(
            input_wait=2 + more,
            forward=3,
            backward=5,
            optimizer=1 + more,
            residual=1 + more,
            communication=25 - 3 * more,
        )

    assert bool(STRAGGLERS & set(found(tmp_path, processes(ranks=2, phases=times), crowded=crowded))) is told


@pytest.mark.parametrize(("crowded", "told"), [(False, True), (True, False)])
def test_a_rank_that_is_late_in_some_steps_may_lose_its_core(tmp_path: Path, crowded: bool, told: bool) -> None:
    """In two of five steps its forward is long: no rank computes longer only then."""
    late, even = waiting_for(1, "forward", 90), waiting_for(1, "forward", 3)
    built = processes(ranks=2, phases=lambda rank, step: (late if step % 5 in (0, 2) else even)(rank, step))
    assert ("COMPUTE_STRAGGLER" in found(tmp_path, built, crowded=crowded)) is told


@pytest.mark.parametrize(("delay", "told"), [(60, False), (5, True)])
def test_a_rank_that_waits_longer_for_its_core_than_the_others_does_not_compute_longer(
    tmp_path: Path, delay: float, told: bool
) -> None:
    """Also on a host that has a free core now and then; `delay` is what the late rank waits, in % of the time."""
    late, even = waiting_for(1, "forward", 90), waiting_for(1, "forward", 3)
    built = processes(ranks=2, phases=lambda rank, step: (late if step % 5 in (0, 2) else even)(rank, step))
    waits = [gauge("cpu.delay", value, built[rank].pid) for rank, value in enumerate((0, delay))]
    assert ("COMPUTE_STRAGGLER" in kinds(judged(tmp_path, [*built, launcher(*waits)]))) is told


@pytest.mark.parametrize("phase", ["input_wait", "forward", "residual"])
def test_a_late_rank_with_a_cause_is_told_on_any_host(tmp_path: Path, phase: str) -> None:
    """What it spends more on is no chance."""
    assert STRAGGLERS & set(found(tmp_path, processes(ranks=2, phases=waiting_for(1, phase)), crowded=True))


# ── what is said of it ───────────────────────────────────────────────────────────────────────────────────────────────

EVEN = phases(input_wait=0, forward=4, backward=4, optimizer=1, communication=3, residual=2)


def test_nothing_stands_out_on_a_crowded_host_with_less_certainty(tmp_path: Path) -> None:
    """Who takes the cores is told with its numbers, and what to do."""
    verdict = judged(tmp_path, [*processes(phases=EVEN), crowd()]).verdict
    assert (verdict.kind, verdict.confidence) == ("BALANCED", 0.5)
    assert "Other programs use 74 % of the cores of testhost, and none is idle" in verdict.why
    assert verdict.evidence["numbers"]["load of the host %"] == 99
    assert verdict.evidence["numbers"]["load of this run %"] == 50
    assert verdict.next == "Run it again on an idle host."


def test_nothing_stands_out_on_a_free_host(tmp_path: Path) -> None:
    """Nobody else is spoken of."""
    verdict = judged(tmp_path, [*processes(phases=EVEN), crowd(load=30.0)]).verdict
    assert (verdict.kind, verdict.confidence) == ("BALANCED", 0.8)
    assert "other programs" not in verdict.why


@pytest.mark.parametrize(("crowded", "severity"), [(True, WARN), (False, CRITICAL)])
def test_waiting_for_data_is_a_warning_where_others_take_the_cores(
    tmp_path: Path, crowded: bool, severity: str
) -> None:
    """The workers might have kept up."""
    built = [*processes(phases=phases(input_wait=40)), crowd() if crowded else crowd(load=30.0)]
    verdict = judged(tmp_path, built).verdict
    assert (verdict.kind, verdict.severity) == ("INPUT_BOUND", severity)


@pytest.mark.parametrize(("delay", "severity"), [(5, CRITICAL), (25, CRITICAL), (70, WARN)])
def test_waiting_that_is_sleep_or_reading_is_as_grave_on_a_busy_host(tmp_path: Path, delay: int, severity: str) -> None:
    """80 % of waiting, of which processes wait so much for a core."""
    host = crowd()
    delayed = gauge("cpu.delay", delay, 1000)
    built = [*processes(phases=phases(input_wait=40)), host._replace(records=[delayed, *host.records])]
    verdict = judged(tmp_path, built).verdict
    assert (verdict.kind, verdict.severity) == ("INPUT_BOUND", severity)


def test_a_run_that_does_not_wait_for_cores_is_not_crowded(tmp_path: Path) -> None:
    """Whatever others do with them."""
    samples = [gauge("cores", 2), gauge("cpu", 99), gauge("cpu", 50, 1000), gauge("cpu.delay", 2, 1000)]
    assert not judged(tmp_path, [*processes(), launcher(*samples)]).facts.health.crowded(POLICY)
