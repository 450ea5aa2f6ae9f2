"""The verdict: its order, runs with little or nothing in them, and the same findings for a sealed run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.diagnosis.building import diagnosed, kinds, phases, processes

from sonde.analysis.run import open_run
from sonde.analysis.seal import seal
from sonde.diagnosis.diagnose import EXPLAINS, diagnose, ranked
from sonde.diagnosis.evidence import correlation
from sonde.diagnosis.policy import Policy
from sonde.diagnosis.rules import RULES
from sonde.finding import CRITICAL, INFO, WARN, Finding
from sonde.testing import BuiltProcess, BuiltRecord, build_run, build_training

DRIFT = {"score": 0.6, "phase": "backward"}
KINDS = [rule.kind for rule in RULES]


def named(kind: str, severity: str = WARN, score: float | None = 0.5, *, failure: bool = False) -> Finding:
    """A finding of some kind."""
    return Finding(kind, severity, 1.0, "", "", {"score": score, "failure": failure})


@pytest.mark.parametrize(("ranks", "steps"), [(1, 0), (1, 1), (1, 3), (1, 12), (2, 4)])
def test_too_few_steps_are_told(tmp_path: Path, ranks: int, steps: int) -> None:
    """No step, one step, nothing but warm-up, and some."""
    found = diagnosed(tmp_path, processes(ranks=ranks, steps=steps, phases=phases(input_wait=100)))
    assert kinds(found) == ["INSUFFICIENT_DATA"]


def test_a_run_without_any_process_is_told(tmp_path: Path) -> None:
    """A folder and nothing in it."""
    assert kinds(diagnosed(tmp_path, [])) == ["INSUFFICIENT_DATA"]


def test_a_run_without_any_event_is_told(tmp_path: Path) -> None:
    """A process that recorded nothing."""
    assert kinds(diagnosed(tmp_path, [BuiltProcess()])) == ["INSUFFICIENT_DATA"]


@pytest.mark.parametrize(
    ("reason", "told"), [("space", "disk was full"), ("ring", "file size limit"), ("cap", "size cap")]
)
@pytest.mark.parametrize("steps", [0, 5])
def test_what_was_lost_is_told_before_what_is_not_there(tmp_path: Path, reason: str, told: str, steps: int) -> None:
    """Where there was no room for records, nobody is told to start the program as it was started."""
    (process,) = processes(steps=steps)
    verdict = diagnosed(tmp_path, [process._replace(next_seq=1000, header={f"lost_{reason}": 7})]).verdict
    assert verdict.kind == "INSUFFICIENT_DATA"
    assert verdict.why.startswith("7 records were lost: ")
    assert told in verdict.why
    assert "no training loop" not in verdict.why
    assert verdict.next.startswith("Free disk space")


def test_a_run_whose_files_are_missing_is_not_said_to_have_no_loop(tmp_path: Path) -> None:
    """The files would tell."""
    folder = build_run(tmp_path / "run", processes())
    for path in (*folder.glob("*/rings"), *folder.glob("*/events.seg")):
        path.unlink()
    with open_run(folder) as run:
        verdict = diagnose(run).verdict
    assert verdict.kind == "INSUFFICIENT_DATA"
    assert verdict.why.startswith("An unknown number of records were in files that are missing")
    assert verdict.next.startswith("Restore")


def test_a_rank_without_a_single_step_does_not_hide_the_other(tmp_path: Path) -> None:
    """One rank never reported."""
    first, second = processes(ranks=2, phases=phases(input_wait=40))
    found = diagnosed(tmp_path, [first, second._replace(records=[])])
    assert found.verdict.kind == "INPUT_BOUND"


def test_steps_of_which_only_the_ends_are_known_are_not_judged(tmp_path: Path) -> None:
    """Nothing but updates was recorded."""
    (process,) = processes()
    found = diagnosed(tmp_path, [process._replace(records=[one for one in process.records if one.name == "update"])])
    assert kinds(found) == ["INSUFFICIENT_DATA"]


def test_the_facts_of_a_sealed_run_are_the_same(tmp_path: Path) -> None:
    """The same findings before and after sealing."""
    path = build_training(
        tmp_path / "run", steps=40, ranks=2, workers=1, phases=phases(input_wait=40), rss=lambda r, s: s
    )
    with open_run(path) as run:
        before = diagnose(run).findings
    seal(path)
    with open_run(path) as run:
        assert diagnose(run).findings == before


def test_evidence_is_json(tmp_path: Path) -> None:
    """Every finding can be written as it is."""
    found = diagnosed(tmp_path, processes(phases=phases(input_wait=40)))
    assert json.loads(json.dumps([finding._asdict() for finding in found.findings], allow_nan=False))


def test_many_steps_are_judged_by_some_of_their_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queries of figures that come from a sample say so, and give the same numbers."""
    monkeypatch.setattr("sonde.diagnosis.speed.SAMPLE", 100)
    found = diagnosed(tmp_path, processes(steps=400, phases=phases(input_wait=40)))
    assert found.verdict.kind == "INPUT_BOUND"
    assert "hash(step" in found.verdict.evidence["queries"]["share of the training time in a median step"]


def test_thresholds_of_the_user_change_the_verdict(tmp_path: Path) -> None:
    """Who does not mind waiting is not told of it."""
    (tmp_path / "my.toml").write_text("[input_bound]\nwarn_share = 0.99\ncritical_share = 0.99\n")
    found = diagnosed(tmp_path, processes(phases=phases(input_wait=40)), Policy.load(tmp_path / "my.toml"))
    assert "INPUT_BOUND" not in kinds(found)


# ── order ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_failures_come_first_then_the_graver_then_the_dearer() -> None:
    """Whatever the order of the rules."""
    found = ranked(
        [
            named("COMPUTE_BOUND", INFO, 0.9),
            named("H2D_BOUND", WARN, 0.2),
            named("RESIDUAL_HEAVY", WARN, 0.3),
            named("INPUT_BOUND", CRITICAL, 0.5),
            named("CRASHED", WARN, None, failure=True),
        ]
    )
    assert [one.kind for one in found] == ["CRASHED", "INPUT_BOUND", "RESIDUAL_HEAVY", "H2D_BOUND", "COMPUTE_BOUND"]


@pytest.mark.parametrize(
    ("cause", "effect"),
    [
        (named("SLOW_ITEMS", WARN, 0.3), named("INPUT_BOUND", CRITICAL, 0.9)),
        (named("MEMORY_CREEP", WARN, None), named("STEP_DRIFT")._replace(evidence=DRIFT)),
    ],
)
def test_a_cause_stands_before_what_it_explains(cause: Finding, effect: Finding) -> None:
    """Slow items make training wait: they come first, although waiting is graver. What is kept makes steps longer, too."""
    assert ranked([effect, cause]) == [cause, effect]


def test_causes_and_effects_are_kinds_and_make_no_circle() -> None:
    """Each kind in the table of causes exists, and no effect leads back to its cause."""
    for cause, effects in EXPLAINS.items():
        assert {cause, *effects} <= set(KINDS)
        reached, left = set(effects), list(effects)
        while left:
            new = set(EXPLAINS.get(left.pop(), ())) - reached
            reached |= new
            left += new
        assert cause not in reached


def test_all_kinds_have_a_rule() -> None:
    """The 50 kinds, each once."""
    assert len(set(KINDS)) == len(KINDS) == 50


@pytest.mark.parametrize(
    ("values", "expected"), [([1, 2, 3, 4], 1.0), ([4, 3, 2, 1], -1.0), ([5, 5, 5], 0.0), ([1.0], 0.0), ([], 0.0)]
)
def test_correlation_is_that_of_the_order(values: list[float], expected: float) -> None:
    """Rising is 1, falling is -1, constant is nothing."""
    assert correlation(values) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"steps": [5, 10], "every": 1, "ranks": None}, "--steps 5:10, or"),
        ({"steps": [5, None], "every": 7, "ranks": [0, 3]}, "--steps 5: and --every 7 and --ranks 0,3, or"),
    ],
)
def test_steps_that_were_left_out_by_choice_are_not_waited_for(
    tmp_path: Path, settings: dict[str, object], told: str
) -> None:
    """However long it runs, there will not be more of them."""
    folder = build_run(tmp_path / "run", processes(steps=5))
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(about | {"settings": settings}))
    with open_run(folder) as run:
        assert told in diagnose(run).verdict.next


def test_who_started_a_program_with_the_launcher_is_not_told_to_do_so(tmp_path: Path) -> None:
    """It was no help."""
    found = diagnosed(tmp_path, [BuiltProcess([BuiltRecord()], process={"role": "launcher"})])
    assert "sonde run" not in found.verdict.next


def test_a_run_of_which_records_were_lost_is_not_called_well_without_a_word(tmp_path: Path) -> None:
    """Nothing stands out in what is there; what is not there may."""
    first, *others = processes(ranks=4, phases=phases(communication=1))
    verdict = diagnosed(tmp_path, [first._replace(next_seq=100_000, header={"lost_space": 7}), *others]).verdict
    assert (verdict.kind, verdict.confidence) == ("BALANCED", 0.5)
    assert verdict.why.startswith("7 records were lost: ")
    assert "In the remaining records, no problem found" in verdict.why
    assert verdict.next.startswith("Free disk space")
