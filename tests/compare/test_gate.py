"""The gate: limits, and what follows from them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.compare import building

from sonde.analysis.run import open_run
from sonde.compare import gate
from sonde.compare.gate import FAIL, INCONCLUSIVE, PASS, Limit
from sonde.compare.summary import Summary, summarize
from sonde.compare.verdict import compare_times
from sonde.errors import SettingError
from sonde.testing import TRAINING, build_training

MS = 1_000_000


def kept(folder: Path, steps: int = 60, **phases: float) -> Summary:
    """The summary of a built training; `phases` in ms replace the usual ones."""
    times = TRAINING | {name: round(ms * MS) for name, ms in phases.items()}
    with open_run(build_training(folder, steps=steps, phases=times, rss=lambda rank, step: 10**9)) as run:
        return summarize(run)


@pytest.mark.parametrize(("text", "value"), [("5%", 0.05), ("0.05", 0.05), ("12.5 %", 0.125), ("+10%", 0.1)])
def test_a_share_is_written_as_percent_or_as_a_number(text: str, value: float) -> None:
    """Both mean the same."""
    assert gate.share(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["five", "-5%", "", "500"])
def test_what_is_not_a_share_is_refused(text: str) -> None:
    """A gate with a wrong limit would always pass."""
    with pytest.raises(SettingError):
        gate.share(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("input_wait_share=0.1", Limit("input_wait_share", most=0.1)),
        ("peak_rss=+10%", Limit("peak_rss", above=0.1)),
        ("peak_rss=2GB", Limit("peak_rss", most=2e9)),
        ("p50_ms = 12.5", Limit("p50_ms", most=12.5)),
    ],
)
def test_a_limit_is_a_number_or_a_share_above_the_baseline(text: str, wanted: Limit) -> None:
    """With the unit of its metric."""
    assert gate.limit(text) == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("input_wait=0.1", "Did you mean 'input_wait_share'"),
        ("input_wait_share", "METRIC=VALUE"),
        ("p50_ms=fast", "not a number"),
        ("p50_ms=nan", "not a number"),
        ("p50_ms=inf", "not a number"),
        ("mean_ms=-3", "not a number"),
        ("peak_rss=2 parsecs", "not a size"),
    ],
)
def test_a_wrong_limit_is_one_message(text: str, said: str) -> None:
    """It says what to write."""
    with pytest.raises(SettingError, match=said):
        gate.limit(text)


@pytest.mark.parametrize(("most", "outcome"), [(0.1, FAIL), (0.2, PASS)])
def test_a_share_is_held_against_its_limit(tmp_path: Path, most: float, outcome: str) -> None:
    """Two of twelve milliseconds are waiting."""
    found = gate.check_limit(kept(tmp_path / "run"), None, Limit("input_wait_share", most=most))
    assert found.outcome == outcome
    assert found.value == pytest.approx(2 / 12)


def test_a_phase_that_was_never_seen_takes_no_time(tmp_path: Path) -> None:
    """Steps were recorded, and there was no communication in them."""
    assert gate.check_limit(kept(tmp_path / "run"), None, Limit("communication_share", most=0.1)).outcome == PASS


def test_a_run_without_steps_never_passes(tmp_path: Path) -> None:
    """Missing is not zero."""
    found = gate.check_limit(kept(tmp_path / "run", steps=0), None, Limit("input_wait_share", most=0.5))
    assert found.outcome == INCONCLUSIVE


def test_a_relative_limit_without_a_baseline_is_inconclusive(tmp_path: Path) -> None:
    """It says what is missing."""
    found = gate.check_limit(kept(tmp_path / "run"), None, Limit("peak_rss", above=0.1))
    assert found.outcome == INCONCLUSIVE
    assert "--baseline" in found.why


@pytest.mark.parametrize(("forward", "outcome"), [(3.0, PASS), (4.5, FAIL), (3.6, INCONCLUSIVE)])
def test_a_slowdown_passes_fails_or_is_too_close_to_call(tmp_path: Path, forward: float, outcome: str) -> None:
    """Steps of 12 ms, of 13.5 and of 12.6, against a limit of 5 %."""
    base, one = kept(tmp_path / "a"), kept(tmp_path / "b", forward=forward)
    checks = gate.check_slowdown(compare_times(base, one), base, one, 0.05)
    assert gate.gate("b", "a", checks).outcome == outcome


def test_too_few_steps_are_inconclusive(tmp_path: Path) -> None:
    """The sentence says how many there are."""
    base, one = kept(tmp_path / "a"), kept(tmp_path / "b", steps=6)
    (check,) = gate.check_slowdown(compare_times(base, one), base, one, 0.05)
    assert check.outcome == INCONCLUSIVE
    assert "steps" in check.why


def test_one_failure_fails_the_gate_and_one_doubt_keeps_it_from_passing() -> None:
    """Nothing at all does not pass either."""
    passed, failed, doubtful = (
        gate.Check("x", outcome, None, None, None, None, "") for outcome in (PASS, FAIL, INCONCLUSIVE)
    )
    assert gate.gate("r", None, [passed, failed, doubtful]).outcome == FAIL
    assert gate.gate("r", None, [passed, doubtful]).outcome == INCONCLUSIVE
    assert gate.gate("r", None, [passed]).outcome == PASS
    assert gate.gate("r", None, []).outcome == INCONCLUSIVE


def test_waits_for_a_core_do_not_fail_a_gate() -> None:
    """The same program beside other ones, that used the cores more the second time."""
    base, one = building.kept(crowded=True, wait=0.1), building.kept(seed=2, crowded=True, wait=3.0)
    checks = gate.check_slowdown(compare_times(base, one), base, one, 0.5)
    assert [check.outcome for check in checks] == [PASS]


def test_a_run_against_itself_never_passes(tmp_path: Path) -> None:
    """It says which run it is."""
    one = kept(tmp_path / "run-1")
    (check,) = gate.check_apart(one, one)
    assert check.outcome == INCONCLUSIVE
    assert one.run in check.why
    assert gate.check_apart(one, kept(tmp_path / "run-2")) == []
