"""The tables of a training: steps, phases, batches, items, layers, memory, system."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.analysis.sample import running

from sonde.analysis.records import schema
from sonde.analysis.run import Run, open_run
from sonde.analysis.seal import seal
from sonde.store import probe, record
from sonde.store.folder import host
from sonde.store.record import COUNTER, MARK
from sonde.testing import (
    START_NS,
    TRAINING,
    WALL_NS,
    BuiltProcess,
    BuiltRecord,
    build_run,
    build_training,
    training_processes,
)

MS = 1_000_000


def rows(run: Run, query: str) -> list[tuple[Any, ...]]:
    return run.sql(query).fetchall()


def everything(run: Run) -> dict[str, list[str]]:
    """Every row of every table that is made of others, sorted."""
    return {table: sorted(map(repr, run.table(table).fetchall())) for table in schema.MADE}


def build(tmp_path: Path, *records: BuiltRecord, **process: object) -> Run:
    return open_run(build_run(tmp_path / "run", [BuiltProcess(records, process=process)]))


def probed(name: str, start: int, lasting: int = 0, **fields: Any) -> BuiltRecord:
    return BuiltRecord(name, probe.PROBE, start=START_NS + start, dur=lasting, **fields)


def update(at: int, step: int | None, key: int = 0) -> BuiltRecord:
    return probed(probe.UPDATE, at, kind=MARK, step=step, key=key)


@pytest.mark.parametrize("table", schema.MADE)
def test_tables_have_the_columns_of_the_list(tmp_path: Path, table: str) -> None:
    """Names and types, in a run with something in it and in an empty one."""
    for path in (build_training(tmp_path / "full", layers=["a"]), build_run(tmp_path / "empty")):
        with open_run(path) as run:
            found = run.table(table)
            assert list(zip(found.columns, map(str, found.types), strict=True)) == list(schema.COLUMNS[table])


def test_documentation_has_every_column_of_every_table() -> None:
    """docs/reference/tables.md has a section for each table, with a row for each column."""
    text = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "tables.md").read_text()
    for table, columns in schema.COLUMNS.items():
        section = text.split(f"\n## {table}\n")[1].split("\n## ")[0]
        lines = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
        listed = {word.strip() for line in lines for word in line.split(",")}
        assert {name for name, _ in columns} <= listed, table


def test_sql_makes_the_tables_that_it_names(tmp_path: Path) -> None:
    """No call is needed before."""
    with open_run(build_training(tmp_path / "run", steps=3)) as run:
        assert rows(run, "SELECT count(*) FROM Steps JOIN PHASES USING (process, step)") == [(15,)]


def test_every_step_of_every_rank_is_a_row(tmp_path: Path) -> None:
    """Aligned by their numbers."""
    with open_run(build_training(tmp_path / "run", ranks=3, steps=5)) as run:
        assert rows(
            run, "SELECT step, count(DISTINCT rank), min(dur_ns), max(dur_ns) FROM steps GROUP BY 1 ORDER BY 1"
        ) == [(step, 3, 12 * MS, 12 * MS) for step in range(5)]


def test_phases_of_a_step_are_those_that_were_recorded(tmp_path: Path) -> None:
    """What was not recorded is null."""
    with open_run(build_training(tmp_path / "run", steps=1)) as run:
        found = run.table("steps")
        row = dict(zip(found.columns, found.fetchall()[0], strict=True))
    assert {name: row[f"{name}_ns"] for name in TRAINING} == TRAINING
    assert [row[f"{name}_ns"] for name in ("h2d", "communication", "checkpoint", "evaluation", "gc")] == [None] * 5
    assert (row["micro_batches"], row["samples"], row["batches"], row["loss"]) == (1, 4, 1, None)
    assert (row["rank"], row["pid"], row["step"], row["epoch"], row["start_ns"]) == (0, 1000, 0, 0, WALL_NS)


def test_first_steps_are_warm_up(tmp_path: Path) -> None:
    """Three of each process."""
    with open_run(build_training(tmp_path / "run", steps=5)) as run:
        assert rows(run, "SELECT warmup FROM steps ORDER BY step") == [(True,)] * 3 + [(False,)] * 2


def test_micro_batches_of_one_update_share_its_step(tmp_path: Path) -> None:
    """Accumulation."""
    with open_run(build_training(tmp_path / "run", steps=3, micro_batches=4, loss=float)) as run:
        assert rows(
            run, "SELECT step, micro_batches, samples, batches, backward_ns, loss FROM steps ORDER BY step"
        ) == [(step, 4, 16, 4, 5 * MS, float(step)) for step in range(3)]
        assert rows(run, "SELECT step, count(*) FROM batches GROUP BY 1 ORDER BY 1") == [(0, 4), (1, 4), (2, 4)]


def test_communication_inside_backward_is_counted_once(tmp_path: Path) -> None:
    """Backward is what is left."""
    with open_run(build_training(tmp_path / "run", phases=TRAINING | {"communication": 2 * MS, "h2d": MS})) as run:
        assert rows(run, "SELECT DISTINCT backward_ns, communication_ns, h2d_ns, residual_ns FROM steps") == [
            (5 * MS, 2 * MS, MS, MS)
        ]


def test_evaluation_is_not_charged_to_training(tmp_path: Path) -> None:
    """Its fetches and forwards are evaluation, of the step that they delay."""
    with open_run(build_training(tmp_path / "run", steps=4, evaluate_every=2)) as run:
        assert rows(run, "SELECT evaluation_ns, input_wait_ns, forward_ns FROM steps ORDER BY step") == [
            (ns, 2 * MS, 3 * MS) for ns in (None, None, 2 * MS, None)
        ]
        assert rows(run, "SELECT step, dur_ns FROM phases WHERE phase = 'evaluation' ORDER BY 1") == [
            (2, 2 * MS), (None, 2 * MS),
        ]  # fmt: skip
        assert rows(run, "SELECT loader, purpose, count(*) FROM batches GROUP BY ALL ORDER BY ALL") == [
            (0, "train", 4), (1, "evaluate", 4),
        ]  # fmt: skip


def test_an_aborted_step_is_discarded(tmp_path: Path) -> None:
    """Its time belongs to nobody, and warm-up does not count it."""
    records = [probed("forward", 0, 10), update(20, 0), probed("forward", 30, 10), update(50, 1, probe.UPDATE_ABORTED)]
    records += [probed("forward", 60, 10), update(80, 1, probe.UPDATE_SKIPPED)]
    with build(tmp_path, *records) as run:
        assert rows(run, "SELECT step, start_ns - ?, dur_ns, skipped FROM steps ORDER BY start_ns".replace("?", str(WALL_NS))) == [
            (0, 0, 20, False), (1, 50, 30, True),
        ]  # fmt: skip


def test_steps_that_were_not_chosen_have_no_phases(tmp_path: Path) -> None:
    """`--steps`: their time is known, what it went to is not."""
    records = [update(20, 0), update(50, 1), probed("forward", 55, 10), update(80, 2)]
    with build(tmp_path, *records) as run:
        assert rows(run, "SELECT step, dur_ns, forward_ns, residual_ns FROM steps ORDER BY step") == [
            (0, None, None, None), (1, 30, None, None), (2, 30, 10, 15),
        ]  # fmt: skip


def test_a_loss_written_later_belongs_to_its_step(tmp_path: Path) -> None:
    """Values from a device come when they are there; NaN is a value."""
    losses = [
        probed("loss", 55, kind=COUNTER, value=2.0, step=0),
        probed("loss", 70, kind=COUNTER, value=math.nan, step=1),
    ]
    with build(tmp_path, probed("forward", 0, 10), update(20, 0), *losses, update(80, 1), update(90, 2)) as run:
        found = rows(run, "SELECT loss FROM steps ORDER BY step")
    assert found[0] == (2.0,)
    assert math.isnan(found[1][0])
    assert found[2] == (None,)


def test_communication_that_backward_does_not_hide_is_taken_from_it(tmp_path: Path) -> None:
    """Numbers of DistributedDataParallel, which come one step late."""
    records = [probed("backward", 0, 100), update(110, 0)]
    records += [probed("ddp.backward_comm", 120, kind=COUNTER, value=50.0, step=0)]
    records += [probed("ddp.overlap", 120, kind=COUNTER, value=30.0, step=0), update(200, 1)]
    with build(tmp_path, *records) as run:
        assert rows(run, "SELECT backward_ns, communication_ns, residual_ns FROM steps WHERE step = 0") == [
            (80, 20, 10)
        ]


def test_communication_of_several_backward_passes_is_their_sum(tmp_path: Path) -> None:
    """Micro-batches that are all synchronised."""
    records = [probed("backward", 0, 100), probed("backward", 100, 100), update(210, 0)]
    for at, value in ((150, 50.0), (220, 70.0)):
        records += [probed("ddp.backward_comm", at, kind=COUNTER, value=value, step=0)]
        records += [probed("ddp.overlap", at, kind=COUNTER, value=30.0, step=0)]
    with build(tmp_path, *records, update(300, 1)) as run:
        assert rows(run, "SELECT backward_ns, communication_ns FROM steps WHERE step = 0") == [(140, 60)]


def test_collections_of_garbage_are_told_beside_the_phases(tmp_path: Path) -> None:
    """They happen inside of others."""
    with build(
        tmp_path, probed("forward", 0, 50), probed("gc", 10, 20, key=2, parent=1, depth=1), update(60, 0)
    ) as run:
        assert rows(run, "SELECT forward_ns, gc_ns, residual_ns FROM steps") == [(50, 20, 10)]


def test_fetches_by_other_threads_are_no_waiting_time(tmp_path: Path) -> None:
    """The wait is then what is between the steps."""
    key = probe.batch_key(0, 0, 0)
    records = [probed("forward", 0, 10, key=3), update(20, 0), probed("prefetch", 22, 50, key=key, thread=2)]
    records += [probed("forward", 40, 10, key=3), update(60, 1)]
    with build(tmp_path, *records) as run:
        assert rows(run, "SELECT input_wait_ns FROM steps ORDER BY step") == [(None,), (20,)]
        assert rows(run, "SELECT purpose, wait_ns, step FROM batches") == [("unknown", None, None)]


def test_a_program_with_the_vocabulary_alone_has_steps(tmp_path: Path) -> None:
    """Numbers by `ai.update(step=)`, phases by `ai.compute` and friends."""
    records = []
    for step in range(3):
        at = START_NS + 100 * step
        facts: list[tuple[str, str, int, int]] = [
            ("fetch", "dataloader", 0, 10), ("forward", "compute", 10, 20), ("backward", "compute", 30, 20),
            ("all_reduce", "comm", 35, 5), ("step", "compute", 60, 10), ("capture", "checkpoint", 75, 5),
        ]  # fmt: skip
        records += [BuiltRecord(name, cat, start=at + start, dur=dur, step=step) for name, cat, start, dur in facts]
    with build(tmp_path, *records) as run:
        columns = "step, dur_ns, input_wait_ns, forward_ns, backward_ns, communication_ns, optimizer_ns, checkpoint_ns"
        assert rows(run, f"SELECT {columns} FROM steps ORDER BY step") == [
            (step, 80 if step == 2 else 100, 10, 20, 15, 5, 10, 5) for step in range(3)
        ]


def counted(step: int | None, *spans: tuple[str, str, int, int]) -> list[BuiltRecord]:
    """Spans of a program that has said which step it is."""
    return [BuiltRecord(name, cat, start=START_NS + at, dur=dur, step=step) for name, cat, at, dur in spans]


def test_waiting_in_a_loop_of_the_vocabulary_is_input_wait(tmp_path: Path) -> None:
    """As `ai.dataloader.fetch.iter(loader)` writes it; the use of an item is none."""
    records = counted(0, ("fetch.iter", "dataloader", 0, 30), ("fetch.block", "dataloader", 30, 60))
    records += counted(0, ("forward", "compute", 40, 10), ("item.iter", "data", 60, 5), ("item.block", "data", 65, 15))
    with build(tmp_path, *records) as run:
        assert rows(run, "SELECT input_wait_ns, forward_ns FROM steps") == [(35, 10)]


def test_a_wait_before_the_program_says_which_step_it_is_belongs_to_that_step(tmp_path: Path) -> None:
    """The data of a step come first: `for step, batch in ...: ai.update(step=step)`."""
    records = counted(None, ("fetch.iter", "dataloader", 0, 10)) + counted(0, ("forward", "compute", 20, 10))
    records += counted(0, ("fetch.iter", "dataloader", 40, 30)) + counted(1, ("forward", "compute", 80, 10))
    with build(tmp_path, *records) as run:
        assert rows(run, "SELECT step, input_wait_ns, dur_ns FROM steps ORDER BY step") == [(0, 10, 40), (1, 30, 50)]


def test_a_wait_after_the_program_says_which_step_it_is_stays_in_it(tmp_path: Path) -> None:
    """`ai.update(step=step)` at the top of the loop, and data fetched below it."""
    records = []
    for step in range(2):
        at = 100 * step
        records += counted(step, ("fetch", "dataloader", at, 10 + step), ("forward", "compute", at + 20, 10))
    with build(tmp_path, *records) as run:
        assert rows(run, "SELECT step, input_wait_ns FROM steps ORDER BY step") == [(0, 10), (1, 11)]


@pytest.mark.parametrize("sealed", [False, True])
def test_a_loss_that_only_the_program_tells_is_the_loss_of_its_step(tmp_path: Path, sealed: bool) -> None:
    """`sonde.log(loss=...)`; a word under that name is none."""
    records = []
    for step, loss in enumerate((0.5, 0.25)):
        records += counted(step, ("forward", "compute", 100 * step, 10))
        records.append(
            BuiltRecord("loss", "log", kind=COUNTER, start=START_NS + 100 * step + 50, value=loss, step=step)
        )
    records.append(BuiltRecord("loss", "log", kind=MARK, start=START_NS + 170, step=1))
    folder = build_run(tmp_path / "run", [BuiltProcess(records)])
    if sealed:
        seal(folder)
    with open_run(folder) as run:
        assert rows(run, "SELECT step, loss FROM steps ORDER BY step") == [(0, 0.5), (1, 0.25)]


def test_the_loss_that_the_probes_saw_comes_before_what_the_program_tells(tmp_path: Path) -> None:
    """That may be a mean, or the loss of an evaluation."""
    records = [probed("backward", 0, 10, key=0), probed("loss", 12, 0, kind=COUNTER, value=2.0)]
    records += [BuiltRecord("loss", "log", kind=COUNTER, start=START_NS + 20, value=0.1), update(30, 0)]
    with build(tmp_path, *records) as run:
        assert rows(run, "SELECT loss FROM steps") == [(2.0,)]


def test_probes_come_before_the_vocabulary(tmp_path: Path) -> None:
    """A phase that both saw counts once; one that only the program marked is taken from it."""
    records = [BuiltRecord("forward", "compute", start=START_NS, dur=40), probed("forward", 5, 30, parent=1, depth=1)]
    records += [BuiltRecord("all_reduce", "comm", start=START_NS + 50, dur=10), update(80, 0)]
    with build(tmp_path, *records) as run:
        assert rows(run, "SELECT forward_ns, communication_ns FROM steps") == [(30, 10)]


def test_a_program_that_never_trains_has_no_steps(tmp_path: Path) -> None:
    """Its phases stand without a step, although the probes count steps from 0."""
    with build(tmp_path, *(probed("forward", at, 10, key=0, step=0) for at in (0, 20))) as run:
        assert rows(run, "SELECT count(*) FROM steps") == [(0,)]
        assert rows(run, "SELECT step, phase, dur_ns FROM phases") == [(None, "evaluation", 30)]


def test_batches_of_a_program_that_never_trains_are_for_evaluation(tmp_path: Path) -> None:
    """Nothing was updated with them."""
    records = [probed(probe.INPUT_WAIT, 20 * n, 5, key=n, step=0) for n in range(3)]
    records += [probed("forward", 20 * n + 10, 5, key=0, step=0) for n in range(3)]
    with build(tmp_path, *sorted(records, key=lambda one: one.start)) as run:
        assert rows(run, "SELECT step, purpose FROM batches") == [(None, "evaluate")] * 3


def test_a_first_step_that_has_not_ended_is_none(tmp_path: Path) -> None:
    """Its batch was for training all the same."""
    records = [probed(probe.INPUT_WAIT, 0, 5, key=0, step=0), probed("forward", 10, 5, key=3, step=0)]
    with build(tmp_path, *records, probed("backward", 20, 5, key=0, step=0)) as run:
        assert rows(run, "SELECT count(*) FROM steps") == [(0,)]
        assert rows(run, "SELECT step, purpose FROM batches") == [(None, "train")]


def test_steps_that_only_the_program_counts_are_steps_beside_the_probes(tmp_path: Path) -> None:
    """A program without an optimizer that calls `ai.update(step=)`."""
    with build(tmp_path, *(probed("forward", 20 * n, 10, key=3, step=n) for n in range(3))) as run:
        assert rows(run, "SELECT step FROM steps ORDER BY step") == [(0,), (1,), (2,)]


def test_a_worker_of_a_fork_server_works_for_the_trainer_of_its_rank(tmp_path: Path) -> None:
    """Its parent is nobody who records."""
    processes = training_processes(ranks=2, steps=2, workers=1)
    strange = [one._replace(process={**(one.process or {}), "parent_pid": 5}) for one in processes]
    with open_run(build_run(tmp_path / "run", strange)) as run:
        assert rows(run, "SELECT rank, process, worker, count(fetch_ns) FROM batches GROUP BY ALL ORDER BY ALL") == [
            (0, "testhost-1000-0", 0, 2), (1, "testhost-1001-0", 0, 2),
        ]  # fmt: skip


def test_a_batch_has_what_its_worker_did(tmp_path: Path) -> None:
    """Wait and fetch are joined by the batch, whichever process did which."""
    with open_run(build_training(tmp_path / "run", steps=3, workers=2, item_ns=lambda rank, index: 1000)) as run:
        assert rows(run, "SELECT batch, worker, size, wait_ns, fetch_ns, collate_ns FROM batches ORDER BY batch") == [
            (number, number % 2, 4, 2 * MS, 4000, 0) for number in range(3)
        ]


def test_a_batch_that_nobody_asked_for_is_there(tmp_path: Path) -> None:
    """Fetched ahead when the program ended."""
    with build(tmp_path, probed("fetch", 0, 10, key=probe.batch_key(2, 3, 4))) as run:
        assert rows(run, "SELECT loader, round, batch, purpose, step, wait_ns, fetch_ns, collate_ns FROM batches") == [
            (2, 3, 4, "unknown", None, None, 10, None)
        ]


@pytest.mark.parametrize("workers", [0, 2])
def test_items_are_told_with_batch_and_place(tmp_path: Path, workers: int) -> None:
    """By a worker or by the main process."""
    slow = build_training(
        tmp_path / "run", steps=3, workers=workers, item_ns=lambda rank, index: 7 if index == 6 else 1
    )
    with open_run(slow) as run:
        assert rows(run, "SELECT batch, position, worker, pid FROM items WHERE dur_ns = 7 AND index = 6") == [
            (1, 2, 1 if workers else None, 2001 if workers else 1000)
        ]
        assert rows(
            run,
            "SELECT s.step, i.index FROM items i JOIN batches b USING (process, loader, round, batch) "
            "JOIN steps s ON s.process = b.process AND s.step = b.step WHERE i.dur_ns > 1",
        ) == [(1, 6)]


def test_items_that_were_fetched_together_have_no_time(tmp_path: Path) -> None:
    """`__getitems__`: only the indices are known."""
    fetch = probed("fetch", 0, 10, key=probe.batch_key(0, 0, 1), args={"indices": [5, "x", 7], "count": 3})
    with build(tmp_path, fetch) as run:
        assert rows(run, "SELECT batch, position, index, id, dur_ns FROM items ORDER BY position") == [
            (1, 0, 5, None, None), (1, 1, None, "x", None), (1, 2, 7, None, None),
        ]  # fmt: skip


def test_items_with_names_have_them(tmp_path: Path) -> None:
    """A dataset whose keys are texts."""
    item = probed("item", 1, 5, key=0, parent=1, depth=1, args={"key": "cat.png"}, flags=record.ERROR)
    with build(tmp_path, probed("fetch", 0, 10, key=0), item) as run:
        assert rows(run, "SELECT index, id, error FROM items") == [(None, "cat.png", True)]


def test_items_that_the_program_marked_are_items(tmp_path: Path) -> None:
    """Where the probes saw none."""
    with build(tmp_path, BuiltRecord("item", "data", dur=5, key=3)) as run:
        assert rows(run, "SELECT loader, batch, index, dur_ns FROM items") == [(None, None, 3, 5)]


def test_layers_are_told_for_each_step(tmp_path: Path) -> None:
    """With what is known of them, also if it is only that they were compiled."""
    about = {"type": "Linear", "parameters": 40, "gradients": 20, "compiled": False}
    records = [BuiltRecord("net.fc", probe.LAYER_INFO, kind=MARK, key=40, args=about)]
    records += [BuiltRecord("net.head", probe.LAYER_INFO, kind=MARK, key=8, args={"type": "Head", "compiled": True})]
    records += [BuiltRecord("net.fc", probe.LAYER, dur=ns, key=ns, step=1) for ns in (10, 20)]
    records += [BuiltRecord("net.fc", probe.LAYER_BACKWARD, dur=30, step=1)]
    with build(tmp_path, *records) as run:
        columns = "step, layer, type, forward_ns, backward_ns, activation_bytes, parameter_bytes, gradient_bytes, calls, compiled"
        assert rows(run, f"SELECT {columns} FROM layers ORDER BY layer") == [
            (1, "net.fc", "Linear", 30, 30, 20, 40, 20, 2, False),
            (None, "net.head", "Head", None, None, None, 8, None, None, True),
        ]


def test_memory_that_the_launcher_saw_has_rank_and_step(tmp_path: Path) -> None:
    """Joined by time; a worker is at the step of its trainer."""
    processes = training_processes(steps=3, workers=1)
    at = START_NS + 15 * MS
    seen = [
        BuiltRecord("rss", probe.MEMORY, kind=COUNTER, start=at, value=float(pid), key=pid) for pid in (1000, 2000, 9)
    ]
    seen += [BuiltRecord("cpu", probe.SYSTEM, kind=COUNTER, start=at, value=0.5, key=0)]
    processes.append(BuiltProcess(seen, pid=77, process={"role": "launcher"}))
    with open_run(build_run(tmp_path / "run", processes)) as run:
        assert rows(run, "SELECT pid, rank, step, rss, device, process FROM memory ORDER BY pid") == [
            (9, None, None, 9, None, None), (1000, 0, 1, 1000, None, "testhost-1000-0"),
            (2000, 0, 1, 2000, None, "testhost-2000-0"),
        ]  # fmt: skip
        assert rows(run, "SELECT pid, metric, value FROM system") == [(None, "cpu", 0.5)]


def test_a_step_named_with_its_memory_keeps_it(tmp_path: Path) -> None:
    """A peak is written when its step is over."""
    peak = BuiltRecord(
        "device.peak", probe.MEMORY, kind=COUNTER, start=START_NS + 25, value=9.0, step=0, args={"device": "cuda:1"}
    )
    with build(tmp_path, probed("forward", 0, 10), update(20, 0), peak, update(40, 1)) as run:
        assert rows(run, "SELECT step, device, peak, rss FROM memory") == [(0, "cuda:1", 9, None)]


def test_a_process_that_ended_without_a_word_and_with_code_0_did_not_die(tmp_path: Path) -> None:
    """So torch ends persistent workers; with another code, or if nobody saw the end, it died."""
    marks = [
        BuiltRecord(
            probe.EXIT, probe.PROCESS, kind=MARK, start=START_NS + MS, key=pid, args={"code": code, "signal": None}
        )
        for pid, code in ((1000, 0), (1001, 1))
    ]
    dead = {"end": None, "host": host(), "boot_id": "x"}
    silent = [BuiltProcess([BuiltRecord()], pid, host(), process=dead) for pid in (1000, 1001, 1002)]
    path = build_run(tmp_path / "run", [*silent, BuiltProcess(marks, 5, host())])
    with open_run(path) as run:
        query = "SELECT state FROM processes WHERE pid >= 1000 ORDER BY pid"
        assert rows(run, query) == [("ended",), ("died",), ("died",)]


def test_who_started_a_process_tells_how_it_ended(tmp_path: Path) -> None:
    """By pid and time; what a process says of itself comes first."""
    ends = {1000: {"code": 3, "signal": None}, 1001: {"code": None, "signal": 9}, 1002: {"code": 1, "signal": None}}
    marks = [
        BuiltRecord(probe.EXIT, probe.PROCESS, kind=MARK, start=START_NS + MS, key=pid, args=args)
        for pid, args in ends.items()
    ]
    late = {"start": {"mono_ns": START_NS + 5 * MS, "wall_ns": WALL_NS + 5 * MS}}
    processes = [
        BuiltProcess([BuiltRecord()], pid=1000), BuiltProcess([BuiltRecord()], pid=1001),
        BuiltProcess([BuiltRecord(start=START_NS + 6 * MS)], pid=1001, n=1, process=late),  # the same pid, later
        BuiltProcess([BuiltRecord()], pid=1002, process={"exit_code": 7}), BuiltProcess(marks, pid=5),
    ]  # fmt: skip
    path = build_run(tmp_path / "run", processes)
    expected = [(5, None, None), (1000, 3, None), (1001, None, 9), (1001, None, None), (1002, 7, None)]
    query = "SELECT pid, exit_code, signal FROM processes ORDER BY process"
    with open_run(path) as run:
        assert rows(run, query) == sorted(expected, key=lambda row: f"testhost-{row[0]}")
    seal(path, force=True)
    with open_run(path) as run:
        assert rows(run, query) == sorted(expected, key=lambda row: f"testhost-{row[0]}")


trainings = st.fixed_dictionaries(
    {
        "ranks": st.integers(1, 2),
        "steps": st.integers(0, 6),
        "workers": st.integers(0, 2),
        "micro_batches": st.integers(1, 3),
        "evaluate_every": st.integers(0, 3),
        "epoch_steps": st.integers(0, 3),
        "phases": st.dictionaries(st.sampled_from([*schema.PHASES, "residual"]), st.integers(0, 50)),
        "layers": st.sampled_from([(), ("a",), ("a", "b")]),
        "killed": st.booleans(),
    }
)


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(training=trainings)
def test_whatever_is_built_adds_up(tmp_path_factory: pytest.TempPathFactory, training: dict[str, Any]) -> None:
    """Phases and residual are the step, none is negative, and a sealed run has the same rows."""
    path = build_training(tmp_path_factory.mktemp("built") / "run", **training)
    with open_run(path) as run:
        raw = everything(run)
        assert rows(run, "SELECT count(*) FROM steps") == [(training["ranks"] * training["steps"],)]
        assert rows(run, "SELECT count(*) FROM phases WHERE dur_ns < 0") == [(0,)]
        off = (
            "SELECT s.step, s.dur_ns, sum(p.dur_ns) FROM steps s JOIN phases p USING (process, step) "
            "GROUP BY s.process, s.step, s.dur_ns HAVING s.dur_ns <> sum(p.dur_ns)"
        )
        assert rows(run, off) == []
    seal(path, force=True)
    with open_run(path) as run:
        assert everything(run) == raw


def test_a_run_that_still_grows_a_dead_and_a_sealed_one_have_the_same_rows(tmp_path: Path) -> None:
    """The state of a process says nothing about its steps."""
    found = []
    for name, facts in (("live", running()), ("dead", running() | {"start_ticks": 1}), ("ended", {})):
        (trainer,) = training_processes(steps=5, evaluate_every=2, loss=float, killed=name != "ended")
        host = str(facts.get("host", trainer.host))
        process = {key: value for key, value in {**(trainer.process or {}), **facts}.items() if key != "pid"}
        with open_run(build_run(tmp_path / name, [trainer._replace(host=host, process=process)])) as run:
            found.append(rows(run, "SELECT * EXCLUDE (host, process) FROM steps ORDER BY step"))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 5


def test_phases_of_a_damaged_file_stay_within_their_steps(tmp_path: Path) -> None:
    """Times from anywhere."""
    records = [probed("forward", 0, 2**61), probed("backward", -(2**39), 2**40), update(50, 0), update(20, 1)]
    with build(tmp_path, *records) as run:
        assert rows(run, "SELECT count(*) FROM phases WHERE dur_ns < 0") == [(0,)]
