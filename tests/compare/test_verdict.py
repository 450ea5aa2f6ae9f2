"""The verdict on two runs, and what else differs."""

from __future__ import annotations

import pytest
from tests.compare.building import MS, kept

from sonde.compare.summary import POINTS, FoundProblem, ItemTime, ItemTimes, LayerCost, Memory, Rank
from sonde.compare.verdict import compare_times

INPUT = FoundProblem("INPUT_BOUND", "critical", "Steps wait.", "Set num_workers=2.")


def test_a_slower_phase_makes_a_slower_run_and_is_named() -> None:
    """The forward takes twice as long."""
    found = compare_times(kept(), kept(seed=2, slower={"forward": 2.0}))
    assert found.verdict == "slower"
    assert found.step_time.low is not None
    assert found.step_time.high is not None
    assert found.step_time.low <= 15 / 12 <= found.step_time.high
    forward = next(one for one in found.phases if one.phase == "forward")
    assert (forward.verdict, round((forward.difference_ns or 0) / MS)) == ("slower", 3)
    assert {one.verdict for one in found.phases if one.phase != "forward"} == {"same"}
    assert any("forward" in reason for reason in found.reasons)


def test_the_other_way_round_is_faster() -> None:
    """A and B exchanged."""
    found = compare_times(kept(slower={"forward": 2.0}), kept(seed=2))
    assert found.verdict == "faster"
    assert found.step_time.mean is not None
    assert found.step_time.mean.verdict == "faster"


def test_the_same_program_twice_is_the_same() -> None:
    """Noise is no difference."""
    assert compare_times(kept(), kept(seed=2)).verdict == "same"


def test_a_difference_within_the_noise_is_inconclusive_and_asks_for_steps() -> None:
    """Fifteen noisy steps decide nothing about 5 %."""
    found = compare_times(
        kept(steps=15, scatter=0.3), kept(steps=15, scatter=0.3, seed=5, slower={"forward": 1.4, "backward": 1.2})
    )
    assert found.verdict == "inconclusive"
    assert found.step_time.more_steps
    assert "more steps" in found.next


def stalling(usual: float) -> dict[str, object]:
    """Every 20th step waits for 100 ms."""
    return {"input_wait": lambda step: (100 if step % 20 == 7 else usual) * MS, "forward": lambda _step: 10 * MS}


def test_stalls_alone_make_a_run_slower() -> None:
    """The median is the same."""
    a = kept({"input_wait": lambda _step: 2 * MS, "forward": lambda _step: 10 * MS})
    found = compare_times(a, kept(stalling(2), seed=2))  # type: ignore[arg-type]
    assert found.verdict == "slower"
    assert found.step_time.verdict == "same"
    assert found.step_time.mean is not None
    assert found.step_time.mean.verdict == "slower"


def test_faster_steps_with_stalls_are_mixed() -> None:
    """The median is better, the mean is worse."""
    a = kept({"input_wait": lambda _step: 2 * MS, "forward": lambda _step: 10 * MS})
    assert compare_times(a, kept(stalling(0.5), seed=2)).verdict == "mixed"  # type: ignore[arg-type]


def test_a_low_quantile_alone_does_not_win_against_the_mean() -> None:
    """Workers deliver in bursts: most steps are quick, and all of them together are not."""
    bursts = {"input_wait": lambda step: (40 if step % 4 == 0 else 0.1) * MS, "forward": lambda _step: 3 * MS}
    found = compare_times(
        kept({"input_wait": lambda _step: 9 * MS, "forward": lambda _step: 3 * MS}), kept(bursts, seed=2)
    )
    assert found.verdict in ("mixed", "inconclusive")


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("model.parameters", (1000, 2000), "Different model: number of parameters 1,000 in A, 2,000 in B."),
        ("model.type", ("Net", "Bet"), "Different model: model Net in A, Bet in B."),
        ("cpu", ("Old", "New"), "Different hardware: CPU Old in A, New in B."),
        ("world_size", (None, 2), "A has 1 rank, B has 2."),
    ],
)
def test_another_model_or_machine_is_not_comparable(name: str, values: tuple[object, object], words: str) -> None:
    """What was recorded at the start says so."""
    a, b = (kept(setup={name: value}) for value in values)
    found = compare_times(a, b)
    assert (found.verdict, found.reasons) == ("not_comparable", [words])


def test_another_batch_size_is_not_comparable() -> None:
    """A step is not the same thing then."""
    from dataclasses import replace

    b = kept()
    found = compare_times(kept(), replace(b, steps=replace(b.steps, samples=8.0)))
    assert found.verdict == "not_comparable"
    assert found.reasons == ["Different batch size: 4 samples per step in A, 8 in B."]


def test_a_run_that_still_warms_up_is_not_comparable() -> None:
    """Its steps get faster until the end."""
    falling = kept({"forward": lambda step: (45 - step * 0.2) * MS}, scatter=0.001)
    found = compare_times(kept(), falling)
    assert found.verdict == "not_comparable"
    assert "still warming up" in found.reasons[0]


def test_a_long_warm_up_is_left_out() -> None:
    """The rest decides, and a note says so."""
    b = kept({"forward": lambda step: (40 if step < 45 else 12) * MS})
    found = compare_times(kept(), b)
    assert found.verdict == "same"
    assert any("left out" in note for note in found.notes)


@pytest.mark.parametrize("steps", [0, 5])
def test_too_few_steps_are_not_comparable(steps: int) -> None:
    """A run without any, and one with only some."""
    found = compare_times(kept(), kept(steps=steps))
    assert found.verdict == "not_comparable"
    assert "10 are needed" in found.reasons[0]


def test_drift_is_noticed() -> None:
    """A note says that later steps take longer."""
    b = kept({"forward": lambda step: (10 + step / 20) * MS})
    assert any("B drifts" in note for note in compare_times(kept(), b).notes)


def test_ranks_are_compared_one_by_one() -> None:
    """Only rank 1 got slower."""
    a, b = (
        [Rank(rank, 100, ms * MS, [ms * MS, ms * 1.01 * MS] * 10) for rank, ms in enumerate(times)]
        for times in ((10, 10), (10, 20))
    )
    found = compare_times(kept(ranks=a), kept(ranks=b))
    assert {one.name: one.ratio.verdict for one in found.ranks} == {"rank 0": "same", "rank 1": "slower"}


def test_layers_are_compared_and_the_largest_change_comes_first() -> None:
    """Those that both have."""
    a, b = (
        [LayerCost(name, ms * MS, [ms * MS] * 10) for name, ms in times.items()]
        for times in ({"x": 1, "y": 5}, {"x": 1, "y": 9, "z": 1})
    )
    found = compare_times(kept(layers=a), kept(layers=b))
    assert [(one.name, one.ratio.verdict) for one in found.layers] == [("y", "slower"), ("x", "same")]


def test_memory_is_compared() -> None:
    """The mean with an interval, the peak without."""
    a, b = ({"rss": Memory(peak, [peak * 0.9] * 10)} for peak in (10**8, 2 * 10**8))
    found = compare_times(kept(memory=a), kept(memory=b)).memory
    assert {one.name: (one.ratio.ratio, one.ratio.low) for one in found} == {
        "rss, mean": (2.0, 2.0),
        "rss, peak": (2.0, None),
    }


def test_items_that_were_slow_and_are_not_any_more() -> None:
    """The table has the slowest of both."""
    points = [[1.0 * MS] * POINTS] * 10
    a = ItemTimes(100, 50, 1.0 * MS, points, [ItemTime("7", 4, 200.0 * MS), ItemTime("8", 4, 2.0 * MS)])
    b = ItemTimes(100, 50, 1.0 * MS, points, [ItemTime("8", 4, 2.0 * MS)])
    found = compare_times(kept(items=a), kept(items=b)).items
    assert [(one.item, one.a_ns, one.b_ns) for one in found.rows] == [("7", 200 * MS, None), ("8", 2 * MS, 2 * MS)]
    assert found.load.verdict == "same"


def test_findings_that_are_new_and_gone() -> None:
    """Waiting for data came with B, which is what to do next."""
    found = compare_times(kept(), kept(seed=2, slower={"input_wait": 5.0}, findings=[INPUT]))
    assert [one.kind for one in found.findings.new] == ["INPUT_BOUND"]
    assert found.next == "INPUT_BOUND is new in B. Set num_workers=2."
    assert [one.kind for one in compare_times(kept(findings=[INPUT]), kept()).findings.gone] == ["INPUT_BOUND"]


def test_what_differs_is_what_to_look_at_when_b_is_slower() -> None:
    """Arguments of the loader first."""
    found = compare_times(
        kept(setup={"loader.workers": 4}), kept(setup={"loader.workers": 0}, slower={"input_wait": 5.0})
    )
    assert [(one.name, one.a, one.b) for one in found.settings] == [("loader.workers", 4, 0)]
    assert "loader.workers 4 -> 0" in found.next


def test_the_same_run_twice_says_so() -> None:
    """It is the same, and a note says why."""
    found = compare_times(kept(), kept())
    assert found.verdict == "same"
    assert "A and B are the same run." in found.notes


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"state": "recording"}, "B is still running: this is what it has recorded so far."),
        ({"state": "died", "ended": "killed by signal 9"}, "B did not finish: killed by signal 9."),
        ({"drops": 3}, "B lost 3 records."),
    ],
)
def test_what_is_wrong_with_a_run_is_noted(changed: dict[str, object], words: str) -> None:
    """And what it recorded counts."""
    found = compare_times(kept(), kept(seed=2, **changed))  # type: ignore[arg-type]
    assert found.verdict == "same"
    assert words in found.notes


def test_on_a_busy_machine_low_quantiles_decide() -> None:
    """A median that is 20 % higher is nothing there; so much more in all steps is."""
    noisy = {"forward": lambda step: (12 if step % 3 == 0 else 14.5) * MS}
    quiet = {"forward": lambda _step: 12 * MS}
    assert compare_times(kept(quiet), kept(noisy, seed=2)).verdict == "slower"
    assert compare_times(kept(quiet, crowded=True), kept(noisy, seed=2)).verdict == "inconclusive"
    assert compare_times(kept(quiet, crowded=True), kept(quiet, seed=2)).verdict == "same"
    assert compare_times(kept(crowded=True), kept(seed=2, slower={"forward": 2.0})).verdict == "slower"


def test_waits_for_a_core_make_no_run_slower() -> None:
    """Beside other programs, the mean step counts without them."""
    found = compare_times(kept(crowded=True, wait=0.1), kept(seed=2, crowded=True, wait=3.0))
    assert found.verdict == "same"
    assert found.step_time.mean is not None
    assert (found.step_time.mean.verdict, round(found.step_time.mean.ratio or 0)) == ("inconclusive", 4)
    assert found.throughput.verdict == "inconclusive"


def test_stalls_beside_other_programs_are_slower() -> None:
    """Every tenth step takes ten times as long, whatever the waits are."""
    stalls = {"forward": lambda step: (120 if step % 10 == 9 else 12) * MS}
    plain = {"forward": lambda _step: 12 * MS}
    found = compare_times(kept(plain, crowded=True, wait=1.0), kept(stalls, seed=2, crowded=True, wait=1.0))
    assert found.verdict == "slower"
    assert "without waits for a core" in found.reasons[0]


def test_a_mean_beside_other_programs_says_nothing_if_waits_are_not_known() -> None:
    """As in runs of an older version."""
    found = compare_times(kept(crowded=True, wait=1.0), kept(seed=2, slower={"forward": 1.0}))
    assert found.step_time.own is None
    assert found.verdict in ("same", "inconclusive")


def test_phases_leave_out_a_long_warmup_as_the_mean_step_does() -> None:
    """So they add up to it."""
    warming = {"forward": lambda step: (60 if step < 60 else 12) * MS}
    found = compare_times(kept(warming), kept({"forward": lambda _step: 12 * MS}, seed=2))
    (phase,) = found.phases
    assert found.step_time.mean is not None
    assert phase.a_ns == pytest.approx(found.step_time.mean.a)
