"""The verdict on real training scripts with a fault each: a quick sample here, the whole suite in `make soak`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks.faults import peer, score, trial, whatif
from benchmarks.faults.cases import CASES, HEALTHY, SCRIPTS, Case

from sonde.finding import Finding

REPEATS = 3
GPU = ("GPU_THROTTLED", "GPU_IMBALANCE", "GPU_UNDERUSED", "GPU_MEMORY_UNUSED")
# Kinds that no processor alone can show, and the note that is never the verdict.
ELSEWHERE = {"H2D_BOUND", "LAUNCH_BOUND", "INTERRUPTED", *GPU}


@pytest.mark.parametrize("case", [case for case in CASES if case.quick], ids=lambda case: case.name)
def test_the_fault_of_a_script_is_the_verdict(case: Case) -> None:
    """What is wrong with it comes first, with what it is about, and nothing else is called critical."""
    outcome = trial.run(case)
    assert not outcome.wrong, outcome
    assert not outcome.false_criticals, outcome


@pytest.mark.soak
@pytest.mark.skipif(os.environ.get("SONDE_CORE") == "python", reason="rules do not depend on the core: once is enough")
@pytest.mark.parametrize("busy", [False, True], ids=["alone", "busy"])
def test_the_whole_suite_reaches_its_goal(busy: bool) -> None:
    """Three times each, 95 in 100 verdicts are right, and no finding is critical without reason; also on a busy machine."""
    result = score.measure(CASES, REPEATS, busy=busy)
    assert score.reached(result), "\n".join(score.sentences(result))


@pytest.mark.parametrize(
    ("programs", "workers", "epochs"),
    [(["disk"], [1, 4], 1), pytest.param(whatif.PROGRAMS, whatif.WORKERS, 2, marks=pytest.mark.soak)],
    ids=["some", "all"],
)
def test_what_other_workers_are_predicted_to_bring_they_bring(
    programs: list[str], workers: list[int], epochs: int
) -> None:
    """Each prediction is checked by running with that number of workers; half of them are no further off than promised."""
    rows = [row for program in programs for row in whatif.checked(program, workers, epochs=epochs)]
    errors = sorted(abs(row.error) for row in rows)
    assert len(rows) >= len(workers)
    assert errors[len(errors) // 2 - 1] <= whatif.GOAL, rows


def test_the_suite_has_a_case_for_every_kind() -> None:
    """Every rule has a script that must make it the verdict; ten scripts and more are healthy."""
    rules = pytest.importorskip("sonde.diagnosis.rules")
    kinds = {kind for case in CASES for kind in case.expected}
    assert {rule.kind for rule in rules.RULES} - ELSEWHERE == kinds
    assert sum(case.expected != HEALTHY for case in CASES) >= 30
    assert sum(case.expected == HEALTHY for case in CASES) >= 10


def test_every_script_of_the_suite_is_in_its_table() -> None:
    """No script is forgotten, no case without one, no name twice."""
    assert {case.path for case in CASES} == set(SCRIPTS.rglob("*.py"))
    assert len({case.name for case in CASES}) == len(CASES)


# ── the score ────────────────────────────────────────────────────────────────────────────────────────────────────────

CASE = next(case for case in CASES if case.name == "input_items")
HANGS = next(case for case in CASES if case.hangs)


def row(case: Case, given: str, peers: str | None = None) -> dict[str, Any]:
    """What the table has of a case that was tried once."""
    kind, severity = given.split()
    return score.row(case, [trial.judged(case, [Finding(kind, severity, 1.0, "why", "next", {})])], peers)


def test_the_score_counts_misses_and_names_them() -> None:
    """One of two is right, and the other one is called critical without reason."""
    rows = [row(CASE, "INPUT_BOUND critical"), row(CASE, "RESIDUAL_HEAVY critical")]
    result = {"cases": rows, **score.score(rows)}
    assert (result["trials"], result["right"], result["false_criticals"]) == (2, 1, 1)
    assert "Missed: input_items: RESIDUAL_HEAVY instead of INPUT_BOUND" in score.sentences(result)
    assert "False critical: input_items: RESIDUAL_HEAVY" in score.sentences(result)
    assert not score.reached(result)


def test_the_peer_is_only_judged_by_what_was_run_for_it() -> None:
    """A program that hangs is no miss of a tool that reports at the end; one that it has no word for is told apart."""
    rows = [
        row(CASE, "INPUT_BOUND warn", "INPUT_BOUND critical"),
        row(next(case for case in CASES if case.name == "gc_forced"), "GC_PAUSES warn", "RESIDUAL_HEAVY crit"),
        row(HANGS, "HUNG warn", peer.verdict(HANGS)),
    ]
    result = {"cases": rows, **score.score(rows)}
    assert (result["traceml_right"], result["traceml_asked"]) == (1, 2)
    assert score.sentences(result)[-1] == (
        "TraceML: 1 of 2 right, asked once each; of those whose verdict is one that it has, 1 of 1."
    )


def test_a_suite_that_was_cut_off_goes_on_with_the_cases_that_are_left(tmp_path: Path) -> None:
    """A case that the file has is not tried again, and counts."""
    file = tmp_path / "faults.json"
    file.write_text(
        json.dumps({"repeats": 1, "busy": False, "traceml": "not asked", "cases": [row(CASE, "BALANCED info")]})
    )
    result = score.measure([CASE], 1, json_file=file, resume=True)
    assert (result["trials"], result["right"]) == (1, 0)


def test_a_suite_of_other_settings_is_not_resumed(tmp_path: Path) -> None:
    """Trials on a busy machine and on a free one are not mixed."""
    file = tmp_path / "faults.json"
    file.write_text(json.dumps({"repeats": 1, "busy": True, "traceml": "not asked", "cases": []}))
    with pytest.raises(ValueError, match="busy = True"):
        score.measure([CASE], 1, json_file=file, resume=True)
