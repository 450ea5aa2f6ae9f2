"""Ready questions, against numbers made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sonde.analysis.questions.ask import question, questions
from sonde.analysis.run import open_run
from sonde.analysis.seal import seal
from sonde.errors import UnknownName
from sonde.testing import START_NS, BuiltProcess, BuiltRecord, build_run, build_training

MS = 1_000_000
PHASES = {
    "input_wait": 5 * MS,
    "forward": 10 * MS,
    "backward": 20 * MS,
    "communication": 4 * MS,
    "optimizer": MS,
    "residual": MS,
}
STEP = sum(PHASES.values())


def slow(rank: int, step: int) -> dict[str, int]:
    return PHASES | ({"forward": 50 * MS} if (rank, step) == (1, 7) else {})


def asked(folder: Path, name: str, step: int | None = None) -> list[dict[str, Any]]:
    with open_run(folder) as run:
        found = run.sql(question(name).query(step))
        return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


@pytest.fixture(params=["raw", "sealed"])
def training(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Two ranks, ten steps in two epochs; rank 1 is slow in step 7, item 5 takes long."""
    folder = build_training(
        tmp_path / "run", ranks=2, steps=10, workers=1, epoch_steps=5, phases=slow,
        item_ns=lambda rank, index: 30 * MS if index == 5 else MS,
    )  # fmt: skip
    if request.param == "sealed":
        seal(folder)
    return folder


def test_every_question_says_what_it_answers() -> None:
    """The first line of its file is a question and fits on a line."""
    assert len(questions()) >= 10
    for one in questions():
        assert "?" in one.about
        assert len(one.about) <= 120


def test_every_question_has_an_answer_in_a_run_without_records(tmp_path: Path) -> None:
    """No rows, and no error."""
    folder = build_run(tmp_path / "run", [])
    for one in questions():
        assert asked(folder, one.name) == []


def test_an_unknown_question_gets_the_nearest_one() -> None:
    """A typo is answered."""
    with pytest.raises(UnknownName, match="Did you mean 'item-cost'"):
        question("itemcost")


def test_a_step_is_refused_where_none_is_asked_for() -> None:
    """Nothing is ignored."""
    with pytest.raises(UnknownName, match="not about one step"):
        question("item-cost").query(3)


def test_time_per_name_separates_a_span_from_what_is_inside_it(training: Path) -> None:
    """The collectives inside backward are not its own time."""
    (backward,) = [row for row in asked(training, "time-per-name") if row["name"] == "backward"]
    assert (backward["calls"], backward["total_ns"], backward["self_ns"]) == (20, 20 * 24 * MS, 20 * 20 * MS)


def test_time_per_epoch_has_a_row_for_each_epoch_and_rank(training: Path) -> None:
    """The slow step is in the second epoch of rank 1."""
    found = {(row["epoch"], row["rank"]): row["total_ns"] for row in asked(training, "time-per-epoch")}
    assert found == {(0, 0): 5 * STEP, (0, 1): 5 * STEP, (1, 0): 5 * STEP, (1, 1): 5 * STEP + 40 * MS}


def test_time_per_rank_names_the_slow_one(training: Path) -> None:
    """Seven steps come after warm-up."""
    first, second = asked(training, "time-per-rank")
    assert (first["steps"], first["forward_ns"]) == (7, 70 * MS)
    assert (second["rank"], second["forward_ns"], second["max_ns"]) == (1, 110 * MS, STEP + 40 * MS)


def test_time_per_worker_counts_its_batches(training: Path) -> None:
    """One worker for each rank."""
    assert [(row["rank"], row["worker"], row["batches"]) for row in asked(training, "time-per-worker")] == [
        (0, 0, 10),
        (1, 0, 10),
    ]


def test_item_cost_begins_with_the_item_that_takes_long(training: Path) -> None:
    """It was loaded in each epoch by each rank, for the second step."""
    most = asked(training, "item-cost")[0]
    assert (most["index"], most["loads"], most["p50_ns"], most["extra_ns"]) == (5, 4, 30 * MS, 4 * 29 * MS)
    assert most["steps"] == [1, 6]


def test_critical_path_takes_the_slowest_step(training: Path) -> None:
    """Rank 1 was slow in its forward."""
    found = {row["phase"]: row for row in asked(training, "critical-path")}
    assert {row["step"] for row in found.values()} == {7}
    assert (found["forward"]["slowest_rank"], found["forward"]["dur_ns"]) == (1, 50 * MS)
    assert found["forward"]["beyond_median_ns"] == 40 * MS


def test_critical_path_takes_the_step_that_is_named(training: Path) -> None:
    """By its number."""
    found = {row["phase"]: row["dur_ns"] for row in asked(training, "critical-path", step=2)}
    assert found == PHASES


def test_loading_that_computing_hides_is_counted_once(tmp_path: Path) -> None:
    """Two workers load at once for 10 ms, and the model works in 4 of them."""
    trainer = BuiltProcess([BuiltRecord("forward", "probe", start=START_NS + 6 * MS, dur=8 * MS)])
    workers = [
        BuiltProcess([BuiltRecord("fetch", "probe", start=START_NS, dur=10 * MS)], pid=2000 + n, process={"worker": n})
        for n in range(2)
    ]
    (row,) = asked(build_run(tmp_path / "run", [trainer, *workers]), "loading-overlap")
    assert (row["loading_ns"], row["computing_ns"], row["both_ns"]) == (10 * MS, 8 * MS, 4 * MS)
    assert row["hidden_share"] == pytest.approx(0.4)


def test_a_collective_inside_backward_is_not_hidden(training: Path) -> None:
    """It stops the backward that it is in."""
    for row in asked(training, "communication-overlap"):
        assert (row["communication_ns"], row["both_ns"], row["hidden_share"]) == (40 * MS, 0, None)


def test_a_collective_of_another_thread_is_hidden(tmp_path: Path) -> None:
    """As far as the model works meanwhile."""
    records = [
        BuiltRecord("backward", "probe", start=START_NS, dur=10 * MS),
        BuiltRecord("communication.all_reduce", "probe", start=START_NS + 5 * MS, dur=20 * MS, thread=2),
    ]
    (row,) = asked(build_run(tmp_path / "run", [BuiltProcess(records)]), "communication-overlap")
    assert (row["communication_ns"], row["both_ns"]) == (20 * MS, 5 * MS)


def test_idle_gaps_lie_between_the_spans_of_the_training_thread(training: Path) -> None:
    """Only the untracked millisecond before each optimizer is idle."""
    found = asked(training, "idle-gaps")
    assert {(row["after_span"], row["before_span"], row["dur_ns"]) for row in found} == {
        ("probe.backward", "probe.optimizer", MS)
    }
    assert len(found) == 20


def test_concurrency_gives_the_time_at_each_level(tmp_path: Path) -> None:
    """One span, then two, then none, then one."""
    spans = [(0, 10), (5, 5), (20, 10)]
    records = [
        BuiltRecord("f", start=START_NS + start * MS, dur=dur * MS, thread=1 + number)
        for number, (start, dur) in enumerate(spans)
    ]
    found = asked(build_run(tmp_path / "run", [BuiltProcess(records)]), "concurrency")
    assert [(row["spans"], row["dur_ns"]) for row in found] == [(0, 10 * MS), (1, 15 * MS), (2, 5 * MS)]
