"""Reading a run while it grows: the same numbers as the tables, within bounds."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sonde.analysis.live import window
from sonde.analysis.live.run import Live
from sonde.analysis.live.sealed import SealedTail
from sonde.analysis.live.window import History, Window
from sonde.analysis.parts import partition as plan_module
from sonde.analysis.records.schema import PHASES
from sonde.analysis.run import open_run
from sonde.analysis.seal import seal
from sonde.analysis.sealing.engines import in_loop
from sonde.errors import RunNotFound
from sonde.store import probe
from sonde.store.record import COUNTER, MARK
from sonde.testing import (
    START_NS,
    WALL_NS,
    BuiltProcess,
    BuiltRecord,
    build_process,
    build_run,
    build_training,
    training_processes,
)
from sonde.views.watch import watch

MS = 1_000_000
COLUMNS = [f"{phase}_ns" for phase in (*PHASES, "residual")]


def uneven(rank: int, step: int) -> dict[str, int]:
    """Phases that differ from step to step and from rank to rank."""
    times = {"input_wait": (2 + step % 5) * MS, "forward": 3 * MS, "backward": (5 + rank) * MS, "optimizer": MS}
    return times | {"communication": MS // 2, "residual": MS} | ({"checkpoint": 4 * MS} if step % 7 == 6 else {})


TRAININGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "ranks and workers": {"ranks": 2, "workers": 2, "steps": 40, "phases": uneven},
    "micro-batches": {"micro_batches": 4, "steps": 12},
    "evaluation": {"evaluate_every": 5, "steps": 23, "epoch_steps": 10},
    "no loader": {"phases": {"forward": 3 * MS, "backward": 4 * MS, "optimizer": MS, "residual": 2 * MS}},
    "killed": {"killed": True, "workers": 1},
}


def from_tables(path: Path) -> dict[tuple[int, int], list[float]]:
    with open_run(path) as run:
        rows = run.sql(f"SELECT rank, step, dur_ns, samples, {', '.join(COLUMNS)} FROM steps").fetchall()
    return {(rank, step): [math.nan if one is None else one for one in rest] for rank, step, *rest in rows}


def from_live(live: Live) -> dict[tuple[int, int], list[float]]:
    found = {}
    for source in live.trainers:
        steps = source.window.steps()
        for place, step in enumerate(steps.step.tolist()):
            numbers = [steps.took[place], steps.samples[place], *steps.spent[place]]
            found[source.info.rank or 0, step] = [float(one) for one in numbers]
    return found


def looked(path: Path) -> Live:
    live = Live(path)
    live.look()
    return live


def assert_same(live: Live, path: Path) -> None:
    ours, theirs = from_live(live), from_tables(path)
    assert ours.keys() == theirs.keys()
    for key, numbers in theirs.items():
        np.testing.assert_array_equal(ours[key], numbers, err_msg=str(key))


@pytest.mark.parametrize("training", TRAININGS.values(), ids=TRAININGS.keys())
def test_live_numbers_are_those_of_the_tables(tmp_path: Path, training: dict[str, Any]) -> None:
    """Duration, samples, each phase and the residual of each step of each rank."""
    path = build_training(tmp_path / "run", **training)
    assert_same(looked(path), path)


def test_numbers_of_a_program_that_counts_its_own_steps_are_those_of_the_tables(tmp_path: Path) -> None:
    """Without probes the vocabulary tells the phases, and the step of each event the steps."""
    records: list[BuiltRecord] = []
    for step in range(20):
        at = START_NS + step * 10 * MS
        for name, first, dur in (("forward", 2, 3), ("backward", 5, 3), ("step", 8, 1)):
            records.append(BuiltRecord(name, "compute", start=at + first * MS, dur=dur * MS, step=step))
    path = build_run(tmp_path / "run", [BuiltProcess(records, process={"rank": 0})])
    assert_same(looked(path), path)


def test_a_first_step_that_has_not_ended_is_none(tmp_path: Path) -> None:
    """The probes count steps from 0, before any has ended."""
    records = [
        BuiltRecord(probe.FORWARD, probe.PROBE, start=START_NS + n * MS, dur=MS, key=3, step=0) for n in range(3)
    ]
    assert not from_live(looked(build_run(tmp_path / "run", [BuiltProcess(records)])))


def test_communication_that_a_wrapper_measured_is_taken_out_of_the_backward(tmp_path: Path) -> None:
    """DistributedDataParallel tells of a step when the next one is over."""
    (process,) = training_processes(steps=20)
    records = list(process.records)
    for step in range(19):
        at = records[-1].start if step == 18 else next(one.start for one in records if one.step == step + 1)
        for name, value in (("backward_comm", 2.0 * MS), ("overlap", (step % 3) * MS / 2)):
            records.append(
                BuiltRecord(f"{probe.DDP}{name}", probe.PROBE, COUNTER, start=at, value=value, step=step, key=0)
            )
    path = build_run(tmp_path / "run", [process._replace(records=records)])
    live = looked(path)
    assert_same(live, path)
    assert from_live(live)[0, 3][2 + PHASES.index("communication")] == 2 * MS


def test_a_sealed_run_gives_the_same_numbers(tmp_path: Path) -> None:
    """Its records are in tables; what is shown of it does not change."""
    path = build_training(tmp_path / "run", ranks=2, workers=2, steps=30, loss=lambda step: 1 / (step + 1))
    before = looked(path)
    numbers, slowest = from_live(before), before.slowest.slowest[:5]
    with open_run(path) as run:
        seal(run.path)
    after = looked(path)
    assert {source.name for source in after.trainers} == {"rank 0", "rank 1"}
    assert {key: [one for one in value if not math.isnan(one)] for key, value in from_live(after).items()} == {
        key: [one for one in value if not math.isnan(one)] for key, value in numbers.items()
    }
    assert [one.ns for one in after.slowest.slowest[:5]] == [one.ns for one in slowest]
    assert after.trainers[0].window.loss == pytest.approx(1 / 30)


@pytest.mark.parametrize("sealed", [1, 3])
def test_parts_are_read_one_by_one_and_what_is_raw_from_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sealed: int
) -> None:
    """With one part for each rank: all of them sealed, or only one."""
    monkeypatch.setattr(plan_module, "EVENTS", 1)
    path = build_training(tmp_path / "run", ranks=3, workers=1, steps=30)
    numbers = from_live(looked(path))
    seal(path, engine=lambda source, parts: in_loop(source, parts[:sealed]))
    after = looked(path)
    assert sum(isinstance(one.tail, SealedTail) for one in after.sources.values()) == 2 * sealed
    assert not after.unread
    assert repr(from_live(after)) == repr(numbers)


def test_many_looks_find_what_one_look_finds(tmp_path: Path) -> None:
    """A run that grows between the looks ends with the same numbers."""
    (process,) = training_processes(steps=60)
    run = build_run(tmp_path / "run", [])
    live = Live(run)
    for count in range(50, len(process.records) + 50, 50):
        shutil.rmtree(run / "testhost-1000-0", ignore_errors=True)
        end = {"end": None} if count < len(process.records) else {}
        facts = {**(process.process or {}), **end}
        build_process(run, process._replace(records=process.records[:count], process=facts))
        live.look()
    assert_same(live, run)
    assert live.slowest.seen == 60 * 4


def test_only_the_newest_steps_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept does not grow with the run; the count of all steps does."""
    monkeypatch.setattr(window, "STEPS", 20)
    live = looked(build_training(tmp_path / "run", steps=300))
    (source,) = live.trainers
    steps = source.window.steps()
    assert steps.step.tolist() == list(range(280, 300))
    assert source.window.count == 300
    assert not source.window.whole
    assert len(source.window._kept.records) < 25 * 8


def test_history_of_a_long_run_has_few_values() -> None:
    """When it becomes too long, neighbours are put together; the mean stays."""
    history = History()
    for first in range(0, 200_000, 1000):
        times = np.arange(first, first + 1000, dtype=np.int64) * 100 * MS
        history.add(times, np.full(1000, 7 * MS))
    assert 60 <= len(history.values()) <= window.LONGEST_HISTORY
    assert set(history.values()) == {7 * MS}


def test_history_has_gaps_where_no_step_ended() -> None:
    """A pause is a gap, not a step of no length."""
    history = History()
    history.add(np.array([0, 10 * window.FIRST_WIDTH], dtype=np.int64), np.array([MS, 3 * MS]))
    assert history.values() == [MS, *[None] * 9, 3 * MS]


def test_of_several_histories_the_slowest_counts_at_each_time() -> None:
    """Also where clocks differ and one is coarser than the other; a time that only one knows of is its own."""
    width = window.FIRST_WIDTH
    one, other = History(), History()
    one.add(np.arange(4, dtype=np.int64) * width, np.array([1, 5, 1, 1]) * MS)
    other.add(np.arange(2, 6, dtype=np.int64) * width, np.array([3, 3, 3, 3]) * MS)
    assert window.slowest([(one, 10 * width), (other, 8 * width)]) == ([3 * MS, 5 * MS, 3 * MS, 3 * MS], width)
    assert window.slowest([(one, 0), (other, 0)]) == ([MS, 5 * MS, *[3 * MS] * 4], width)
    one._widen()
    assert window.slowest([(one, 0), (other, 0)]) == ([3 * MS, 3 * MS, 3 * MS], 2 * width)
    assert window.slowest([(other, 7)]) == (other.values(), width)
    assert window.slowest([(History(), 0)]) == ([], width)


def test_an_aborted_step_is_counted_and_left_out(tmp_path: Path) -> None:
    """A step that did not come to its end is no step."""
    marks = [
        BuiltRecord(probe.UPDATE, probe.PROBE, kind=MARK, start=START_NS + n * MS, step=n, key=4 if n == 2 else 0)
        for n in range(1, 5)
    ]
    forward = BuiltRecord(probe.FORWARD, probe.PROBE, start=START_NS + 10, dur=50, step=1, key=3)
    (source,) = looked(build_run(tmp_path / "run", [BuiltProcess([forward, *marks])])).trainers
    assert source.window.steps().step.tolist() == [1, 3, 4]
    assert source.window.aborted == 1


def test_the_slowest_items_come_with_their_batch_and_worker(tmp_path: Path) -> None:
    """Of all items of all workers, the slow ones are kept."""
    path = build_training(
        tmp_path / "run", workers=2, steps=20, item_ns=lambda _, index: 90 * MS if index in (13, 50) else MS
    )
    live = looked(path)
    first, second, third = live.slowest.slowest[:3]
    assert {(first.item, first.batch), (second.item, second.batch)} == {(13, 3), (50, 12)}
    assert {live.sources[one.process].info.worker for one in (first, second)} == {0, 1}
    assert (third.ns, live.slowest.median_ns) == (MS, MS)


def test_layers_add_up_to_what_the_table_has(tmp_path: Path) -> None:
    """Forward and backward time of each layer over the whole run."""
    path = build_training(tmp_path / "run", ranks=2, steps=9, layers=("conv", "head"))
    with open_run(path) as run:
        query = "SELECT layer, sum(forward_ns), sum(backward_ns) FROM layers GROUP BY layer ORDER BY layer"
        expected = [(layer, int(forward), int(backward)) for layer, forward, backward in run.sql(query).fetchall()]
    found = sorted((one.name, one.forward_ns, one.backward_ns) for one in looked(path).layer_totals.layers())
    assert found == expected


def test_a_layer_is_described_once(tmp_path: Path) -> None:
    """Type, parameter and gradient bytes come from its description."""
    facts = {"type": "Linear", "parameters": 400, "gradients": 401, "compiled": True}
    mark = BuiltRecord("fc", probe.LAYER_INFO, kind=MARK, key=400, args=facts)
    (layer,) = looked(build_run(tmp_path / "run", [BuiltProcess([mark])])).layer_totals.layers()
    assert (layer.type, layer.parameters, layer.gradients, layer.compiled) == ("Linear", 400, 401, True)
    assert (layer.forward_ns, layer.activation) == (None, None)


def test_gauges_keep_the_newest_and_the_highest_value(tmp_path: Path) -> None:
    """A sample about another process has its pid as key."""
    values = [(100.0, 7), (300.0, 7), (200.0, 7), (5.0, None)]
    samples = [
        BuiltRecord("rss", probe.MEMORY, kind=COUNTER, start=START_NS + n, value=value, key=key)
        for n, (value, key) in enumerate(values)
    ]
    gauges = looked(build_run(tmp_path / "run", [BuiltProcess(samples)])).gauges
    about, own = gauges.get(7, "rss"), gauges.get(1000, "rss")
    assert about is not None
    assert (about.value, about.peak) == (200, 300)
    assert own is not None
    assert own.value == 5
    assert gauges.get(8, "rss") is None


def test_a_probe_that_switched_itself_off_is_told(tmp_path: Path) -> None:
    """With its reason."""
    mark = BuiltRecord("loader", probe.OFF, kind=MARK, args={"reason": "TypeError: x"})
    live = looked(build_run(tmp_path / "run", [BuiltProcess([mark])]))
    assert live.notes == ["main: the probe loader switched itself off: TypeError: x"]


def test_state_and_time_of_runs(tmp_path: Path) -> None:
    """A run without records is starting, one that said so has ended, one that did not is died or unknown."""
    assert looked(build_run(tmp_path / "a", [])).state == "starting"
    ended = looked(build_training(tmp_path / "b", steps=3))
    assert (ended.state, ended.elapsed_ns) == ("ended", 3 * 12 * MS)
    assert looked(build_training(tmp_path / "c", killed=True)).state == "unknown"


def test_a_program_that_was_replaced_has_ended(tmp_path: Path) -> None:
    """Another one records on in the same process, so the first was not killed."""
    (first,) = training_processes(steps=3)
    facts = {**(first.process or {}), "start_ticks": 7}
    run = build_run(tmp_path / "run", [first._replace(process={**facts, "end": None})])
    live = looked(run)
    assert live.state == "unknown"
    start = {"mono_ns": START_NS + 1, "wall_ns": WALL_NS + 1}
    build_process(run, first._replace(n=1, process={**facts, "start": start}))
    live.look()
    assert [source.state for source in live.sources.values()] == ["ended", "ended"]


def test_a_process_that_appears_later_is_found(tmp_path: Path) -> None:
    """Ranks and workers may join at any time."""
    first, second = training_processes(ranks=2, steps=3)
    run = build_run(tmp_path / "run", [first])
    live = looked(run)
    build_process(run, second)
    live.look()
    assert [source.name for source in live.trainers] == ["rank 0", "rank 1"]


def test_of_a_rank_that_was_started_again_only_the_newest_counts(tmp_path: Path) -> None:
    """An elastic job restarts its ranks; the old ones are history."""
    (old,) = training_processes(steps=3)
    start = {"mono_ns": START_NS, "wall_ns": 1_800_000_000_000_000_000}
    new = old._replace(pid=1001, process={**(old.process or {}), "start": start})
    live = looked(build_run(tmp_path / "run", [new, old]))
    assert [source.info.pid for source in live.trainers] == [1001]


def test_a_damaged_list_of_names_costs_only_its_names(tmp_path: Path) -> None:
    """A number beyond all bounds takes no memory, and what has no name is left out."""
    path = build_training(tmp_path / "run", steps=5)
    with (path / "testhost-1000-0" / "names.jsonl").open("a") as file:
        file.write(
            '{"id": 1152921504606846976, "cat": "probe", "name": "forward"}\n{"id": -3, "cat": "x", "name": "y"}\n'
        )
    assert from_live(looked(path)).keys() == {(0, step) for step in range(5)}


@pytest.mark.parametrize("seed", range(5))
def test_damaged_records_never_raise(tmp_path: Path, seed: int) -> None:
    """Whatever stands in the files, there is a view."""
    path = build_training(tmp_path / "run", steps=60, ranks=2, workers=1, layers=("a",))
    noise = np.random.default_rng(seed)
    for file in [*path.glob("*/rings"), *path.glob("*/events.seg")]:
        content = bytearray(file.read_bytes())
        for place in noise.integers(0, max(len(content), 1), 400 if content else 0).tolist():
            content[place] = int(noise.integers(256))
        file.write_bytes(content)
    assert watch(looked(path)).id == "run"


def test_no_run_is_an_error(tmp_path: Path) -> None:
    """With what is there instead."""
    with pytest.raises(RunNotFound):
        Live(tmp_path / "nothing")


def test_a_window_without_records_has_no_steps() -> None:
    """Nothing is nothing, not an error."""
    empty = Window()
    assert not empty.trains
    assert len(empty.steps().step) == 0
