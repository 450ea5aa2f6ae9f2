"""What a report tells: of a good run, of one with a slow item, of runs that something is wrong with."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.views.runs import SLOW, STEPS, changed, ranks, with_slow_item

from sonde.analysis.run import open_run
from sonde.cli.console import finite
from sonde.store import probe
from sonde.store.record import MARK
from sonde.testing import (
    MS,
    START_NS,
    WALL_NS,
    BuiltProcess,
    BuiltRecord,
    build_run,
    build_training,
    training_processes,
)
from sonde.views.report import Report, report

SCHEMA = json.loads((importlib.resources.files("sonde.views") / "report.schema.json").read_text())
HOUR = 3600 * 10**9


def report_of(path: Path) -> Report:
    with open_run(path) as run:
        return report(run)


def unseen(view: Report) -> str:
    """What could not be seen in this run."""
    return "\n".join(one.what for one in view.blind_spots if one.scope == "run")


def as_json(view: Report) -> Any:
    return json.loads(json.dumps(finite(dataclasses.asdict(view)), allow_nan=False))


# ── a training ──


def test_the_breakdown_is_that_of_the_steps_after_the_warm_up(tmp_path: Path) -> None:
    """The first three steps stand apart, and the shares add up."""
    view = report_of(build_training(tmp_path / "run", steps=STEPS, phases=_slow_start))
    assert (view.steps.count, view.steps.warmup) == (STEPS - 3, 3)
    assert view.steps.p50_ns == pytest.approx(10 * MS)
    assert view.steps.warmup_p50_ns == pytest.approx(40 * MS)
    assert {one.phase: one.p50_ns for one in view.phases}["forward"] == pytest.approx(4 * MS)
    assert sum(one.share or 0 for one in view.phases) == pytest.approx(1)


def _slow_start(_rank: int, step: int) -> dict[str, int]:
    times = 4 if step < 3 else 1
    return {"forward": 4 * MS * times, "backward": 5 * MS * times, "optimizer": MS * times}


def test_a_slow_step_is_told_with_its_items(tmp_path: Path) -> None:
    """From the step to the phase, to the item, to the worker."""
    view = report_of(with_slow_item(tmp_path / "run"))
    slowest = view.steps.slowest[0]
    assert (slowest.step, slowest.phase) == (SLOW // 4, "input_wait")
    assert slowest.extra_ns == pytest.approx(198 * MS)
    assert (slowest.items[0].index, slowest.items[0].worker) == (SLOW, 0)
    assert view.items.slowest[0].index == SLOW
    assert view.items.seen == STEPS * 4


def test_layers_and_memory_are_in_it(tmp_path: Path) -> None:
    """The costliest layer first; shares are of the layers that lie in no other one."""
    view = report_of(with_slow_item(tmp_path / "run"))
    assert {one.layer for one in view.layers} == {"body", "body.first", "head"}
    assert view.layers[0].forward_ns == pytest.approx(MS)
    assert [(one.who, one.peak) for one in view.memory] == [("rank 0", 10**8 + (STEPS - 1) * 10**5)]
    first = view.memory[0].first
    assert first is not None
    assert 10**8 < first < 10**8 + 10**6


def test_the_rank_that_the_others_wait_for_is_the_worst(tmp_path: Path) -> None:
    """All take the same time; who has no communication in it is waited for."""
    view = report_of(ranks(tmp_path / "run"))
    assert [one.worst for one in view.ranks] == [False, True]
    assert view.ranks[0].p50_ns == view.ranks[1].p50_ns
    assert view.ranks[1].own_ns == pytest.approx(16 * MS)


def test_own_cost_is_measured_between_records_of_sonde(tmp_path: Path) -> None:
    """What lies between the end of `optimizer` and `update` is the price of a record."""
    records, now = [], START_NS
    for step in range(STEPS):
        records.append(BuiltRecord(probe.OPTIMIZER, probe.PROBE, start=now, dur=MS, key=0, step=step))
        records.append(BuiltRecord(probe.UPDATE, probe.PROBE, MARK, start=now + MS + 700, key=0, step=step))
        now += 2 * MS
    cost = report_of(build_run(tmp_path / "run", [BuiltProcess(records)])).overhead
    assert (cost.record_ns, cost.pairs, cost.records) == (700, STEPS, 2 * STEPS)
    assert cost.total_ns is not None
    assert cost.share == pytest.approx(700 * 2 * STEPS / cost.total_ns)


def test_own_cost_is_not_made_up(tmp_path: Path) -> None:
    """Without pairs of records to measure it by it is not known."""
    cost = report_of(build_run(tmp_path / "run", [BuiltProcess([BuiltRecord(dur=5)])])).overhead
    assert (cost.record_ns, cost.share, cost.records) == (None, None, 1)


# ── the schema ──


def test_the_schema_is_valid_and_leaves_nothing_open() -> None:
    """Every object says what it has, all of it required."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for one in (SCHEMA, *SCHEMA["$defs"].values()):
        assert one["additionalProperties"] is False
        assert one["required"] == list(one["properties"])


def test_the_schema_has_the_parts_that_were_promised() -> None:
    """In their order."""
    assert list(SCHEMA["properties"]) == [
        *("schema_version", "verdict", "findings", "run", "steps", "phases", "ranks", "memory", "items", "layers"),
        *("overhead", "blind_spots", "drops"),
    ]
    finding = ["kind", "severity", "confidence", "why", "next", "evidence"]
    assert list(SCHEMA["$defs"]["finding"]["properties"]) == finding


def test_each_evidence_query_gives_its_number(tmp_path: Path) -> None:
    """Whoever doubts a number can ask for it again."""
    path = with_slow_item(tmp_path / "run")
    asked = 0
    with open_run(path) as run:
        for finding in report(run).findings:
            numbers, queries = finding.evidence.get("numbers", {}), finding.evidence.get("queries", {})
            for name, query in queries.items():
                assert run.sql(query).fetchall()[0][0] == pytest.approx(numbers[name]), name
                asked += 1
    assert asked > 3


# ── bad input ──


def nothing(path: Path) -> Path:
    return build_run(path, [])


def no_steps(path: Path) -> Path:
    return build_run(path, [BuiltProcess([BuiltRecord(dur=5)])])


def one_step(path: Path) -> Path:
    return build_training(path, steps=1)


def only_evaluation(path: Path) -> Path:
    records = [
        BuiltRecord(probe.FORWARD, probe.PROBE, start=START_NS + n * MS, dur=MS // 2, key=0) for n in range(STEPS)
    ]
    return build_run(path, [BuiltProcess(records)])


def unequal(path: Path) -> Path:
    long, short = training_processes(ranks=2, steps=STEPS), training_processes(ranks=2, steps=STEPS // 2)
    return build_run(path, [long[0], short[1]])


def silent_rank(path: Path) -> Path:
    return build_run(path, [changed(one, world_size=4) for one in training_processes(ranks=2, steps=STEPS)])


def clocks(path: Path) -> Path:
    near, far = training_processes(ranks=2, steps=STEPS)
    start = {"mono_ns": START_NS, "wall_ns": WALL_NS + 7 * HOUR}
    return build_run(path, [near, changed(far, boot_id="other", start=start, end=None)._replace(host="far")])


def killed(path: Path) -> Path:
    return build_training(path, steps=STEPS, workers=1, killed=True, loss=lambda step: float("nan"))


def newer(path: Path) -> Path:
    return build_run(path, training_processes(steps=STEPS), schema=99)


def damaged(path: Path) -> Path:
    path.mkdir()
    (path / "run.json").write_text("{")
    return path


@pytest.mark.parametrize(
    "build",
    [
        nothing,
        no_steps,
        one_step,
        only_evaluation,
        unequal,
        silent_rank,
        clocks,
        killed,
        newer,
        damaged,
        with_slow_item,
        ranks,
    ],
)
def test_every_run_has_a_report_that_fits_the_schema(tmp_path: Path, build: Callable[[Path], Path]) -> None:
    """As far as anything is known; what is not is null."""
    view = report_of(build(tmp_path / "run"))
    jsonschema.validate(as_json(view), SCHEMA)
    assert view.verdict.why
    assert view.verdict.next


@pytest.mark.parametrize("build", [nothing, no_steps, one_step])
def test_too_little_says_so(tmp_path: Path, build: Callable[[Path], Path]) -> None:
    """And no percentile is made up."""
    view = report_of(build(tmp_path / "run"))
    assert view.verdict.kind == "INSUFFICIENT_DATA"
    assert (view.steps.p50_ns, view.steps.per_s) == (None, None)


def test_ranks_of_unequal_length_are_told(tmp_path: Path) -> None:
    """With the step at which each of them ended."""
    assert f"rank 0 at step {STEPS - 1}, rank 1 at step {STEPS // 2 - 1}" in unseen(
        report_of(unequal(tmp_path / "run"))
    )


def test_ranks_that_never_reported_are_named(tmp_path: Path) -> None:
    """Nobody takes two ranks for four."""
    assert "ranks 2, 3 of 4" in unseen(report_of(silent_rank(tmp_path / "run")))


def test_clocks_that_disagree_make_no_long_run(tmp_path: Path) -> None:
    """The run lasted as long as on one host; the disagreement is told."""
    view = report_of(clocks(tmp_path / "run"))
    assert "disagree by 7.0 h" in unseen(view)
    assert view.run.dur_ns is not None
    assert view.run.dur_ns < 10**10


def test_a_newer_format_is_noted(tmp_path: Path) -> None:
    """What is understood is still reported."""
    view = report_of(newer(tmp_path / "run"))
    assert "format 99" in view.run.notes[0]
    assert view.steps.count == STEPS - 3


def test_a_probe_that_switched_itself_off_is_told(tmp_path: Path) -> None:
    """With its reason."""
    mark = BuiltRecord("loader", probe.OFF, MARK, args={"reason": "it failed 3 times"})
    view = report_of(build_run(tmp_path / "run", [BuiltProcess([mark])]))
    assert "the probe loader switched itself off: it failed 3 times" in unseen(view)


def test_steps_that_were_not_chosen_are_told(tmp_path: Path) -> None:
    """`--steps` and `--every` are settings of the run."""
    view = report_of(ranks(tmp_path / "run", settings={"steps": "10:20", "every": 1}))
    assert "phases outside of steps 10:20" in unseen(view)


def test_lost_records_are_told(tmp_path: Path) -> None:
    """How many, and why."""
    (process,) = training_processes(steps=STEPS)
    lossy = process._replace(next_seq=10_000, header={"lost_cap": 7})
    view = report_of(build_run(tmp_path / "run", [lossy]))
    assert (7, "not taken: the run neared its size cap") in [(one.count, one.reason) for one in view.drops]
