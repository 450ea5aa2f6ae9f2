"""What a report tells: of a good run, of one with a slow item, of runs that something is wrong with."""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.diagnosis.building import check, crowd
from tests.diagnosis.catalogue import RUNS as KINDS
from tests.views.bad import (
    clocks,
    damaged,
    killed,
    newer,
    no_steps,
    nothing,
    one_step,
    only_evaluation,
    silent_rank,
    unequal,
)
from tests.views.runs import SLOW, STEPS, ranks, with_slow_item

from sonde.analysis.run import open_run
from sonde.cli.output.console import finite
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
from sonde.views.show import show

SCHEMA = json.loads((importlib.resources.files("sonde.views") / "report.schema.json").read_text())


def report_of(path: Path) -> Report:
    with open_run(path) as run:
        return report(run)


Build = Callable[[Path], Path]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Build], Report]:
    """The report of the run that this function builds, made once for all tests."""

    @functools.cache
    def made(build: Build) -> Report:
        return report_of(build(tmp_path_factory.mktemp("built") / "run"))

    return made


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


def test_a_slow_step_is_told_with_its_items(reported: Callable[[Build], Report]) -> None:
    """From the step to the phase, to the item, to the worker."""
    view = reported(with_slow_item)
    slowest = view.steps.slowest[0]
    assert (slowest.step, slowest.phase) == (SLOW // 4, "input_wait")
    assert slowest.extra_ns == pytest.approx(198 * MS)
    assert (slowest.items[0].index, slowest.items[0].worker) == (SLOW, 0)
    assert view.items.slowest[0].index == SLOW
    assert view.items.seen == STEPS * 4


def test_layers_and_memory_are_in_it(reported: Callable[[Build], Report]) -> None:
    """The costliest layer first; shares are of the layers that lie in no other one."""
    view = reported(with_slow_item)
    assert {one.layer for one in view.layers} == {"body", "body.first", "head"}
    assert view.layers[0].forward_ns == pytest.approx(MS)
    assert [(one.who, one.peak) for one in view.memory] == [("rank 0", 10**8 + (STEPS - 1) * 10**5)]
    first = view.memory[0].first
    assert first is not None
    assert 10**8 < first < 10**8 + 10**6


def test_the_rank_that_the_others_wait_for_is_the_worst(reported: Callable[[Build], Report]) -> None:
    """All take the same time; who has no communication in it is waited for."""
    view = reported(ranks)
    assert [one.worst for one in view.ranks] == [False, True]
    assert view.ranks[0].p50_ns == view.ranks[1].p50_ns
    assert view.ranks[1].own_ns == pytest.approx(16 * MS)


def priced() -> BuiltProcess:
    """A training in which a record costs 700 ns."""
    records, now = [], START_NS
    for step in range(STEPS):
        records.append(BuiltRecord(probe.OPTIMIZER, probe.PROBE, start=now, dur=MS, key=0, step=step))
        records.append(BuiltRecord(probe.UPDATE, probe.PROBE, MARK, start=now + MS + 700, key=0, step=step))
        now += 2 * MS
    return BuiltProcess(records)


def test_own_cost_is_measured_between_records_of_sonde(tmp_path: Path) -> None:
    """What lies between the end of `optimizer` and `update` is the price of a record."""
    cost = report_of(build_run(tmp_path / "run", [priced()])).overhead
    assert (cost.record_ns, cost.pairs, cost.records) == (700, STEPS, 2 * STEPS)
    assert cost.total_ns is not None
    assert cost.share == pytest.approx(700 * 2 * STEPS / cost.total_ns)
    assert (cost.worker_records, cost.worker_share) == (0, None)


def test_own_cost_is_told_of_loader_workers_too(tmp_path: Path) -> None:
    """At the price that is measured where the training is, of the time that they lived."""
    made = [BuiltRecord(probe.ITEM, probe.PROBE, start=START_NS + n * MS, dur=MS, key=n) for n in range(500)]
    end = {"mono_ns": START_NS + 500 * MS, "wall_ns": WALL_NS + 500 * MS}
    workers = [
        BuiltProcess(made, pid, process={"role": "worker", "worker": number, "end": end})
        for number, pid in enumerate((2000, 2001))
    ]
    cost = report_of(build_run(tmp_path / "run", [priced(), *workers])).overhead
    assert (cost.trainer_records, cost.worker_records) == (2 * STEPS, 1000)
    assert cost.worker_share == pytest.approx(700 * 1000 / (1000 * MS))


def test_own_cost_is_not_made_up(tmp_path: Path) -> None:
    """Without pairs of records to measure it by it is not known."""
    cost = report_of(build_run(tmp_path / "run", [BuiltProcess([BuiltRecord(dur=5)])])).overhead
    assert (cost.record_ns, cost.share, cost.records) == (None, None, 1)


def test_aborted_steps_are_counted_and_stand_apart(tmp_path: Path) -> None:
    """They are no steps: neither in the count nor in the times."""
    (process,) = training_processes(steps=STEPS)
    flags = probe.UPDATE_EXPLICIT | probe.UPDATE_ABORTED
    last = max(one.start for one in process.records)
    more = [
        BuiltRecord(probe.UPDATE, probe.PROBE, kind=MARK, start=last + n * MS, key=flags, step=STEPS + n)
        for n in range(1, 3)
    ]
    run = build_run(tmp_path / "run", [process._replace(records=[*process.records, *more])])
    view = report_of(run)
    assert (view.steps.count + view.steps.warmup, view.steps.aborted) == (STEPS, 2)
    with open_run(run) as opened:
        assert {one.label: one.count for one in show(opened).marks}["probe.update (aborted)"] == 2


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
        *(
            "schema_version",
            "verdict",
            "findings",
            "run",
            "steps",
            "first_step",
            "phases",
            "ranks",
            "hosts",
            "goodput",
            "memory",
        ),
        "evaluation",
        *("tokens", "loader", "flops", "energy"),
        *("items", "hard_items", "layers", "lines", "deepened", "overhead", "blind_spots", "drops", "black_box"),
    ]
    finding = ["kind", "severity", "confidence", "why", "next", "evidence", "because"]
    assert list(SCHEMA["$defs"]["finding"]["properties"]) == finding


@pytest.mark.parametrize("kind", KINDS)
def test_a_verdict_of_each_kind_fits_the_schema_and_can_be_asked_again(tmp_path: Path, kind: str) -> None:
    """Each number of each finding has a query, which gives it."""
    with open_run(build_run(tmp_path / "run", KINDS[kind]())) as run:
        view = report(run)
        jsonschema.validate(as_json(view), SCHEMA)
        for finding in view.findings:
            numbers, queries = finding.evidence["numbers"], finding.evidence["queries"]
            assert numbers.keys() == queries.keys()
            for name, query in queries.items():
                check(run.sql(query).fetchall(), numbers[name], f"{finding.kind}: {name}: {query}")
    assert next(one for one in view.findings if one.kind == kind).evidence["numbers"]


# ── bad input ──


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
def test_every_run_has_a_report_that_fits_the_schema(reported: Callable[[Build], Report], build: Build) -> None:
    """As far as anything is known; what is not is null."""
    view = reported(build)
    jsonschema.validate(as_json(view), SCHEMA)
    assert view.verdict.why
    assert view.verdict.next


@pytest.mark.parametrize("build", [nothing, no_steps, one_step, only_evaluation])
def test_too_little_says_so(reported: Callable[[Build], Report], build: Build) -> None:
    """And no percentile is made up."""
    view = reported(build)
    assert view.verdict.kind == "INSUFFICIENT_DATA"
    assert (view.steps.p50_ns, view.steps.per_s) == (None, None)


def test_ranks_of_unequal_length_are_told(reported: Callable[[Build], Report]) -> None:
    """With the step at which each of them ended."""
    assert f"rank 0 at step {STEPS - 1}, rank 1 at step {STEPS // 2 - 1}" in unseen(reported(unequal))


def with_a_thread(path: Path, *, ends: bool) -> Path:
    """A training, and two optimizer steps of another thread in its fifth step, or behind it. `ends`: they end steps as well."""
    (trainer,) = training_processes(steps=STEPS)
    fifth = [one for one in trainer.records if one.name == probe.UPDATE][3].start
    records = []
    for number in (1, 2):
        last = max(one.start for one in trainer.records)
        start = last + number * MS if ends else fifth + number
        records.append(BuiltRecord(probe.OPTIMIZER, probe.PROBE, start=start, dur=1, key=1, step=STEPS, thread=2))
        if ends:
            update = BuiltRecord(probe.UPDATE, probe.PROBE, kind=MARK, start=start + 1, key=0, step=STEPS + number - 1)
            records.append(update._replace(thread=2))
    return build_run(path, [trainer._replace(records=[*trainer.records, *records])])


def test_optimizer_steps_of_a_second_training_in_another_thread_are_counted(tmp_path: Path) -> None:
    """Their steps are not told, and the report says so."""
    told = unseen(report_of(with_a_thread(tmp_path / "run", ends=False)))
    assert "2 steps of optimizers in another thread" in told


def test_a_training_that_goes_on_in_another_thread_is_seen(tmp_path: Path) -> None:
    """One after the other, the steps of all threads are told."""
    view = report_of(with_a_thread(tmp_path / "run", ends=True))
    assert "another thread" not in unseen(view)
    assert view.steps.count + view.steps.warmup == STEPS + 2


def test_ranks_that_never_reported_are_named(reported: Callable[[Build], Report]) -> None:
    """Nobody takes two ranks for four."""
    assert "ranks 2 and 3 of 4" in unseen(reported(silent_rank))


def test_clocks_that_disagree_make_no_long_run(reported: Callable[[Build], Report]) -> None:
    """The run lasted as long as on one host; the disagreement is told."""
    view = reported(clocks)
    assert "differ by 7.0 h" in unseen(view)
    assert view.run.dur_ns is not None
    assert view.run.dur_ns < 10**10


def test_a_newer_format_is_noted(reported: Callable[[Build], Report]) -> None:
    """What is understood is still reported."""
    view = reported(newer)
    assert "format 99" in view.run.notes[0]
    assert view.steps.count == STEPS - 3


def test_a_host_that_others_use_is_told(tmp_path: Path) -> None:
    """With what is not judged because of them."""
    told = unseen(report_of(build_run(tmp_path / "run", [*training_processes(steps=STEPS), crowd()])))
    assert "single slow steps, items and waits: other programs use 74 % of the cores of testhost" in told


def test_a_probe_that_switched_itself_off_is_told(tmp_path: Path) -> None:
    """With its reason."""
    mark = BuiltRecord("loader", probe.OFF, MARK, args={"reason": "it failed 3 times"})
    view = report_of(build_run(tmp_path / "run", [BuiltProcess([mark])]))
    assert "the probe loader switched itself off: it failed 3 times" in unseen(view)


def test_steps_that_were_not_chosen_are_told(tmp_path: Path) -> None:
    """`--steps` and `--every` are settings of the run."""
    view = report_of(ranks(tmp_path / "run", settings={"steps": "10:20", "every": 1}))
    assert "phases outside steps 10:20" in unseen(view)


def test_lost_records_are_told(tmp_path: Path) -> None:
    """How many, and why."""
    (process,) = training_processes(steps=STEPS)
    lossy = process._replace(next_seq=10_000, header={"lost_cap": 7})
    view = report_of(build_run(tmp_path / "run", [lossy]))
    assert (7, "dropped: the run was close to its size cap") in [(one.count, one.reason) for one in view.drops]
