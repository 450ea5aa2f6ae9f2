"""What is shown of a run that goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sonde.analysis.live.run import Live
from sonde.store import probe, record
from sonde.store.folder import boot_id, host
from sonde.store.record import COUNTER, MARK
from sonde.terminal.line import line
from sonde.testing import START_NS, BuiltProcess, BuiltRecord, build_run, build_training
from sonde.views.watch import WatchView, watch

MS = 1_000_000


def view_of(path: Path) -> WatchView:
    live = Live(path)
    live.look()
    return watch(live)


def training(tmp_path: Path, **facts: Any) -> WatchView:
    return view_of(build_training(tmp_path / "run", **facts))


def test_a_run_without_steps_shows_nothing_as_zero(tmp_path: Path) -> None:
    """What is not known is None."""
    view = view_of(build_run(tmp_path / "run", [BuiltProcess([BuiltRecord("load")])]))
    head = view.headline
    assert (head.step, head.steps_per_s, head.samples_per_s, head.loss, head.ranks) == (None, None, None, None, 0)
    assert (view.step_time.steps, view.step_time.p50_ns, view.step_time.parts) == (0, None, [])
    assert (view.ranks, view.items.slowest, view.layers, view.notices) == ([], [], [], [])


def test_headline_tells_how_far_and_how_fast(tmp_path: Path) -> None:
    """12 ms each with 4 samples: 83 steps and 333 samples in a second."""
    head = training(tmp_path, steps=20, loss=lambda step: 5.0 - step).headline
    assert (head.name, head.command, head.state, head.step, head.loss) == ("built", "python train.py", "ended", 19, -14)
    assert head.steps_per_s == pytest.approx(1e3 / 12)
    assert head.samples_per_s == pytest.approx(4e3 / 12)


def test_the_epoch_is_known_from_the_loop_over_the_loader(tmp_path: Path) -> None:
    """Its third round has 10 batches, of which 4 came, one each 12 ms: 6 are left."""
    records = [
        BuiltRecord("iter", "probe", start=START_NS, dur=MS, key=probe.batch_key(0, 2, 0), args={"length": 10}),
        *(
            BuiltRecord("input_wait", "probe", start=START_NS + 12 * MS * n, dur=MS, key=probe.batch_key(0, 2, n))
            for n in range(4)
        ),
        *(BuiltRecord("update", "probe", kind=MARK, start=START_NS + 12 * MS * n + MS, step=n) for n in range(4)),
    ]
    head = view_of(build_run(tmp_path / "run", [BuiltProcess(records)])).headline
    assert (head.epoch, head.batch, head.batches, head.epoch_left_ns) == (2, 4, 10, 6 * 12 * MS)


def test_a_new_loader_for_each_epoch_is_the_next_epoch(tmp_path: Path) -> None:
    """An evaluation in between, over fewer batches, is none."""
    records, now = [], START_NS
    for loader, length in enumerate((10, 3, 10, 3, 10)):
        key = probe.batch_key(loader, 0, 0)
        records.append(BuiltRecord("iter", "probe", start=now, dur=MS, key=key, args={"length": length}))
        for n in range(length if loader < 4 else 2):
            now += 12 * MS
            records.append(BuiltRecord("input_wait", "probe", start=now, dur=MS, key=probe.batch_key(loader, 0, n)))
    records.append(BuiltRecord("update", "probe", kind=MARK, start=now + MS, step=0))
    head = view_of(build_run(tmp_path / "run", [BuiltProcess(records)])).headline
    assert (head.epoch, head.batch, head.batches) == (2, 2, 10)


def test_the_history_of_the_loss_is_there(tmp_path: Path) -> None:
    """From old to new, one value for equal stretches of time."""
    losses = training(tmp_path, steps=200, loss=lambda step: 5.0 - step / 100).step_time.losses
    assert losses == sorted(losses, key=lambda loss: -(loss or 0))
    assert len(losses) > 5


def test_samples_of_all_ranks_are_added_up(tmp_path: Path) -> None:
    """Steps are not: the ranks do the same step together."""
    head = training(tmp_path, steps=20, ranks=3).headline
    assert head.steps_per_s == pytest.approx(1e3 / 12)
    assert head.samples_per_s == pytest.approx(3 * 4e3 / 12)


def test_parts_add_up_to_the_step(tmp_path: Path) -> None:
    """Shares to one, times to the mean step; what was never seen is not there."""
    times = training(tmp_path, steps=20).step_time
    assert [part.name for part in times.parts] == ["input wait", "forward", "backward", "optimizer", "untracked"]
    assert sum(part.share for part in times.parts) == pytest.approx(1)
    assert sum(part.ns for part in times.parts) == pytest.approx(times.mean_ns)


def test_warmup_is_left_out_once_there_are_enough_steps(tmp_path: Path) -> None:
    """Three slow first steps change neither median nor maximum."""

    def phases(_: int, step: int) -> dict[str, int]:
        return {"input_wait": MS, "forward": (100 if step < 3 else 1) * MS, "backward": MS, "optimizer": MS}

    times = training(tmp_path, steps=20, phases=phases).step_time
    assert (times.steps, times.warmup, times.max_ns) == (17, 3, 4 * MS)


def test_few_steps_count_all(tmp_path: Path) -> None:
    """The first screen does not wait for the end of the warm-up."""
    times = training(tmp_path, steps=2).step_time
    assert (times.steps, times.warmup) == (2, 0)


def test_the_slowest_rank_is_marked(tmp_path: Path) -> None:
    """Compared with the median of the ranks."""

    def phases(rank: int, _: int) -> dict[str, int]:
        return {"input_wait": MS, "forward": (9 if rank == 2 else 3) * MS, "backward": MS, "optimizer": MS}

    ranks = training(tmp_path, steps=20, ranks=3, phases=phases).ranks
    assert [rank.worst for rank in ranks] == [False, False, True]
    assert ranks[2].slow == pytest.approx(2)


def test_the_history_is_that_of_the_slowest_rank(tmp_path: Path) -> None:
    """And it says so, where there is more than one."""

    def phases(rank: int, _: int) -> dict[str, int]:
        return {"input_wait": MS, "forward": (9 if rank == 1 else 3) * MS, "backward": MS, "optimizer": MS}

    times = training(tmp_path, steps=20, ranks=3, phases=phases).step_time
    assert times.history_of == "slowest rank"
    assert {value for value in times.history if value is not None} == {12 * MS}
    assert view_of(build_training(tmp_path / "single", steps=20)).step_time.history_of == ""


def test_equal_ranks_have_no_slowest(tmp_path: Path) -> None:
    """Nor has a single one."""
    assert not any(rank.worst for rank in training(tmp_path, steps=20, ranks=3).ranks)


def test_memory_of_ranks_and_host(tmp_path: Path) -> None:
    """A container's limit and the host's memory stand beside what the processes hold."""
    samples = [
        BuiltRecord("rss", probe.MEMORY, kind=COUNTER, value=2e9, key=1000),
        BuiltRecord("cpu", probe.SYSTEM, kind=COUNTER, value=150.0, key=1000),
        BuiltRecord("cgroup.limit", probe.SYSTEM, kind=COUNTER, value=8e9, key=0),
        BuiltRecord("cgroup.used", probe.SYSTEM, kind=COUNTER, value=3e9, key=0),
        BuiltRecord("ram.used", probe.SYSTEM, kind=COUNTER, value=5e9, key=0),
        BuiltRecord("ram.total", probe.SYSTEM, kind=COUNTER, value=16e9, key=0),
        BuiltRecord("cpu", probe.SYSTEM, kind=COUNTER, value=40.0, key=0),
    ]
    process, container, machine = view_of(build_run(tmp_path / "run", [BuiltProcess(samples)])).memory
    assert (process.who, process.used, process.limit, process.cpu, process.device) == ("main", 2e9, None, 1.5, None)
    assert (container.who, container.used, container.limit) == ("container", 3e9, 8e9)
    assert (machine.who, machine.used, machine.limit, machine.load) == ("host", 5e9, 16e9, 0.4)


def test_items_are_compared_with_the_median(tmp_path: Path) -> None:
    """A slow one says how many times as long it took, in which worker and batch."""
    found = training(tmp_path, workers=2, steps=20, item_ns=lambda _, index: 40 * MS if index == 21 else MS).items
    slow = found.slowest[0]
    assert (slow.index, slow.worker, slow.batch, slow.times, found.seen) == (21, 1, 5, 40, 80)


def test_layers_are_told_per_step(tmp_path: Path) -> None:
    """Forward 3 ms shared by two layers."""
    layers = training(tmp_path, steps=20, layers=("a", "b")).layers
    assert [(one.name, one.forward_ns, one.share) for one in layers] == [("a", 1.5 * MS, 0.5), ("b", 1.5 * MS, 0.5)]


def running(*records: BuiltRecord, **facts: Any) -> BuiltProcess:
    """A process of this very moment."""
    now = {"mono_ns": time.monotonic_ns(), "wall_ns": time.time_ns()}
    info = {"end": None, "boot_id": boot_id(), "start": now, **facts}
    return BuiltProcess(records, pid=os.getpid(), host=host(), process=info)


def test_of_a_run_that_is_over_the_workers_of_its_end_are_in_the_memory(tmp_path: Path) -> None:
    """One that had ended when the trainer was last measured is not, however short before that was."""

    def rss(size: float, at: int) -> BuiltRecord:
        return BuiltRecord("rss", probe.MEMORY, kind=COUNTER, value=size, start=START_NS + at)

    def worker(number: int, end: int) -> dict[str, Any]:
        when = {"mono_ns": START_NS + end, "wall_ns": START_NS + end}
        return {"role": "worker", "worker": number, "parent_pid": 1000, "end": when}

    processes = [
        BuiltProcess([rss(5e8, 900 * MS)], pid=1000),
        BuiltProcess([rss(3e8, 500 * MS)], pid=2000, process=worker(0, 700 * MS)),
        BuiltProcess([rss(2e8, 800 * MS)], pid=2001, process=worker(0, 990 * MS)),
    ]
    rows = view_of(build_run(tmp_path / "run", processes)).memory
    assert [(row.who, row.used) for row in rows] == [("main", 5e8), ("main 1 worker", 2e8)]


def test_only_workers_that_live_are_in_the_memory(tmp_path: Path) -> None:
    """One that ended a moment ago holds nothing any more."""
    now = time.monotonic_ns()

    def rss(size: float) -> BuiltRecord:
        return BuiltRecord("rss", probe.MEMORY, kind=COUNTER, value=size, start=now)

    def worker(number: int) -> dict[str, Any]:
        return {"role": "worker", "worker": number, "parent_pid": os.getpid()}

    alive = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        trainer = running(BuiltRecord(probe.UPDATE, probe.PROBE, kind=MARK, start=now, step=0, key=0), rss(5e8))
        processes = [
            trainer,
            running(rss(2e8), **worker(0))._replace(pid=alive.pid),
            BuiltProcess([rss(3e8)], pid=2000, host=host(), process=worker(1)),
        ]
        rows = view_of(build_run(tmp_path / "run", processes)).memory
    finally:
        alive.communicate(b"\n")
    assert [(row.who, row.used) for row in rows] == [("main", 5e8), ("main 1 worker", 2e8)]


def test_who_is_in_something_for_long_is_told(tmp_path: Path) -> None:
    """Only the innermost span, with the item that it is about."""
    begun = time.monotonic_ns() - 60 * 1_000_000_000
    fetch = BuiltRecord(probe.FETCH, probe.PROBE, start=begun, flags=record.OPEN, key=1)
    item = BuiltRecord(probe.ITEM, probe.PROBE, start=begun, flags=record.OPEN, key=8412, parent=1, depth=1)
    process = running(fetch, item, role="worker", worker=2, rank=0)
    view = view_of(build_run(tmp_path / "run", [process]))
    assert view.headline.state == "recording"
    (notice,) = view.notices
    assert notice.startswith("rank 0 worker 2 has been in item 8412 for 6")


def test_what_lasts_a_moment_is_not_told(tmp_path: Path) -> None:
    """Open spans are normal."""
    span = BuiltRecord(probe.FORWARD, probe.PROBE, start=time.monotonic_ns(), flags=record.OPEN)
    assert view_of(build_run(tmp_path / "run", [running(span)])).notices == []


def test_a_run_that_is_recorded_is_called_running(tmp_path: Path) -> None:
    """As in `sonde runs` and `sonde report`; the state of a folder is recording."""
    view = view_of(build_run(tmp_path / "run", [running(BuiltRecord())]))
    assert (view.headline.state, view.headline.word) == ("recording", "running")
    assert " | running | " in line(view)


@pytest.mark.parametrize(
    ("code", "told"),
    [(3, "crashed (exit code 3)"), (137, "killed (signal 9)"), (130, "interrupted (signal 2)"), (0, "finished")],
)
def test_how_the_program_ended_stands_in_the_headline(tmp_path: Path, code: int, told: str) -> None:
    """As its launcher saw it, in the words of every command."""
    launcher = BuiltProcess([BuiltRecord()], pid=900, process={"role": "launcher", "program_exit": code})
    program = BuiltProcess([BuiltRecord("load")], pid=1000, process={"parent_pid": 900})
    assert view_of(build_run(tmp_path / "run", [launcher, program])).headline.ended == told


def test_the_program_is_what_the_first_launcher_started(tmp_path: Path) -> None:
    """torchrun is a launcher too, and hides the exit codes of its ranks."""
    seen = [BuiltRecord(probe.EXIT, probe.PROCESS, kind=MARK, key=950, args={"code": 1, "signal": None})]
    hidden = [BuiltRecord(probe.EXIT, probe.PROCESS, kind=MARK, key=1000, args={"code": 3, "signal": None})]
    processes = [
        BuiltProcess(seen, pid=900, process={"role": "launcher", "program_exit": 1}),
        BuiltProcess(hidden, pid=950, process={"role": "launcher", "parent_pid": 900}),
        BuiltProcess([BuiltRecord("x")], pid=1000, process={"rank": 0, "parent_pid": 950}),
    ]
    view = view_of(build_run(tmp_path / "run", processes))
    assert view.headline.ended == "crashed (exit code 1)"
    assert view.notices == ["rank 0 (pid 1000) ended with exit code 3"]


def test_a_worker_that_died_is_told(tmp_path: Path) -> None:
    """The program goes on or not; that a worker was killed is a fact."""
    mark = BuiltRecord(probe.EXIT, probe.PROCESS, kind=MARK, key=2000, args={"code": None, "signal": 9})
    trainer = BuiltProcess([mark], pid=1000)
    worker = BuiltProcess([BuiltRecord("x")], pid=2000, process={"role": "worker", "worker": 1, "parent_pid": 1000})
    view = view_of(build_run(tmp_path / "run", [trainer, worker]))
    assert "worker 1 (pid 2000) ended with signal 9" in view.notices


def test_lost_and_aborted_are_counted(tmp_path: Path) -> None:
    """What is missing from the numbers is said."""
    marks = [
        BuiltRecord(probe.UPDATE, probe.PROBE, kind=MARK, start=START_NS + n, step=n, key=4 if n == 1 else 0)
        for n in range(3)
    ]
    view = view_of(build_run(tmp_path / "run", [BuiltProcess(marks, header={"lost_space": 12})]))
    assert "12 records could not be written" in view.notices[0]
    assert "1 unfinished step not counted" in view.notices[1]


def test_the_line_says_everything_at_once(tmp_path: Path) -> None:
    """State, step, speed, percentiles, phases, memory."""
    text = line(training(tmp_path, steps=20, rss=lambda rank, step: 10**9))
    assert "\n" not in text
    for fact in (
        "sonde: 240 ms | finished | step 19 | 83.3 steps/s",
        "p50 12.0 ms",
        "input wait 17 %",
        "memory 1.00 GB",
    ):
        assert fact in text


def test_the_line_of_a_run_without_steps_says_na(tmp_path: Path) -> None:
    """Missing is n/a."""
    text = line(view_of(build_run(tmp_path / "run", [])))
    assert "starting | step n/a | n/a steps/s | n/a samples/s | memory n/a" in text
