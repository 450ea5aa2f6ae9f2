"""The verdict on real training scripts with a fault each: a quick sample here, the whole suite in `make soak`."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.faults import trial
from benchmarks.faults.cases import CASES, HEALTHY, SCRIPTS, Case

GOAL = 0.95
REPEATS = 3
# Kinds that no processor alone can show.
ELSEWHERE = {"H2D_BOUND"}


@pytest.mark.parametrize("case", [case for case in CASES if case.quick], ids=lambda case: case.name)
def test_the_fault_of_a_script_is_the_verdict(case: Case) -> None:
    """What is wrong with it comes first, with what it is about, and nothing else is called critical."""
    outcome = trial.run(case)
    assert not outcome.wrong, outcome
    assert not outcome.false_criticals, outcome


@pytest.mark.soak
def test_the_whole_suite_reaches_its_goal() -> None:
    """Three times each, 95 in 100 verdicts are right, and no finding is critical without reason."""
    outcomes = [trial.run(case) for case in CASES for _ in range(REPEATS)]
    tried = [one for one in outcomes if not one.left_out]
    wrong = [f"{one.case.name}: {one.wrong} ({one.why})" for one in tried if one.wrong]
    assert len(wrong) <= (1 - GOAL) * len(tried), wrong
    assert not [(one.case.name, one.false_criticals) for one in tried if one.false_criticals]


def test_the_suite_has_a_case_for_every_kind() -> None:
    """Every rule has a script that must make it the verdict; ten scripts and more are healthy."""
    rules = pytest.importorskip("sonde.diagnosis.rules")
    kinds = {kind for case in CASES for kind in case.expected}
    assert {rule.kind for rule in rules.RULES} - ELSEWHERE == kinds
    assert sum(case.expected != HEALTHY for case in CASES) >= 30
    assert sum(case.expected == HEALTHY for case in CASES) >= 10


def test_every_script_of_the_suite_is_in_its_table() -> None:
    """No script is forgotten, no case without one, no name twice."""
    assert {case.path.name for case in CASES} == {path.name for path in SCRIPTS.glob("*.py")}
    assert len({case.name for case in CASES}) == len(CASES)
