"""Rules about how a run ended, its memory, its threads and its losses."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from tests.diagnosis.building import (
    SECOND,
    diagnosed,
    ended,
    exited,
    failed,
    gauge,
    inside,
    kinds,
    launcher,
    of_kind,
    phases,
    processes,
    replaced,
    with_records,
    without_end,
)

from sonde.analysis.run import open_run
from sonde.analysis.seal import seal
from sonde.diagnosis.diagnose import diagnose
from sonde.diagnosis.exits import frames_of
from sonde.finding import CRITICAL, INFO, WARN
from sonde.store import probe
from sonde.store.folder import host
from sonde.testing import START_NS, WALL_NS, BuiltProcess, build_run

GB = 1_000_000_000


# ── killed ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_signal_9_with_full_memory_is_running_out_of_it(tmp_path: Path) -> None:
    """The last look before the end tells."""
    samples = [gauge("ram.total", 8 * GB, at=49), gauge("ram.used", 7.9 * GB, at=49)]
    found = diagnosed(tmp_path, [*map(without_end, processes()), launcher(*samples, exited(1000, signal=9))])
    assert found.verdict.kind == "KILLED"
    assert found.verdict.evidence["signal"] == 9
    assert found.verdict.evidence["memory"] is True
    assert "ran out of memory" in found.verdict.why


def test_signal_9_with_free_memory_is_somebody(tmp_path: Path) -> None:
    """With most of the memory free it was no lack of it."""
    samples = [gauge("ram.total", 8 * GB, at=49), gauge("ram.used", 2 * GB, at=49)]
    found = diagnosed(tmp_path, [*map(without_end, processes()), launcher(*samples, exited(1000, signal=9))])
    assert found.verdict.evidence["memory"] is False
    assert "probably not out of memory" in found.verdict.why


def test_a_control_group_that_is_full_counts_too(tmp_path: Path) -> None:
    """In a container the limit of the group is what counts."""
    samples = [gauge("ram.total", 80 * GB), gauge("ram.used", 8 * GB), gauge("cgroup.limit", 4 * GB)]
    samples.append(gauge("cgroup.used", 3.9 * GB))
    found = diagnosed(tmp_path, [*map(without_end, processes()), launcher(*samples, exited(1000, signal=9))])
    assert found.verdict.evidence["memory"] is True


def test_signal_9_without_any_look_at_memory_says_so(tmp_path: Path) -> None:
    """Nothing is made up."""
    found = diagnosed(tmp_path, [*map(without_end, processes()), launcher(exited(1000, signal=9))])
    assert found.verdict.evidence["memory"] is None
    assert "is unknown" in found.verdict.why


@pytest.mark.parametrize(("signal", "severity"), [(11, CRITICAL), (6, CRITICAL), (15, WARN), (1, WARN)])
def test_other_signals_are_named(tmp_path: Path, signal: int, severity: str) -> None:
    """A crash in native code, or somebody who asked it to end."""
    found = diagnosed(tmp_path, [*map(without_end, processes()), launcher(exited(1000, signal=signal, at=2))])
    assert (found.verdict.kind, found.verdict.severity) == ("KILLED", severity)
    assert f"signal {signal} " in found.verdict.why


def died(process: BuiltProcess) -> BuiltProcess:
    """The same process, on this host and gone, of which no end is known."""
    here = without_end(process)._replace(host=host())
    return here._replace(process={**(here.process or {}), "boot_id": "another boot"})


def test_a_process_that_is_gone_without_a_word_was_killed(tmp_path: Path) -> None:
    """As far as one can tell."""
    assert diagnosed(tmp_path, [*map(died, processes())]).verdict.kind == "KILLED"


@pytest.mark.parametrize("who", ["itself", "its launcher"])
def test_an_end_that_could_not_be_written_is_no_kill(tmp_path: Path, who: str) -> None:
    """On a full disk neither the process nor its launcher can tell: that is said, sealed or not."""
    (process,) = processes()
    above = launcher()._replace(host=host(), next_seq=9, header={"lost_space": 7} if who == "its launcher" else None)
    if who == "itself":
        process = process._replace(next_seq=100_000, header={"lost_space": 7})
    folder = build_run(tmp_path / "run", [died(process), above])
    for _ in range(2):
        with open_run(folder) as run:
            assert "KILLED" not in kinds(diagnose(run))
            assert sum("its end could not be written: the disk was full" in note for note in run.notes) == 1
            assert run.sql("SELECT state FROM processes WHERE pid = 1000").fetchall() == [("unknown",)]
        seal(folder)


def test_an_end_that_the_launcher_saw_counts_on_a_full_disk_too(tmp_path: Path) -> None:
    """What is known is told."""
    (process,) = processes()
    above = launcher(exited(1000, signal=9))._replace(host=host(), header={"lost_space": 7})
    found = diagnosed(tmp_path, [died(process._replace(header={"lost_space": 7})), above])
    assert (found.verdict.kind, found.verdict.evidence["signal"]) == ("KILLED", 9)


def test_ctrl_c_is_no_verdict(tmp_path: Path) -> None:
    """Who stops a run wants to know how it was."""
    found = diagnosed(tmp_path, [*map(without_end, processes()), launcher(exited(1000, signal=2, at=2))])
    assert found.verdict.kind == "COMPUTE_BOUND"
    assert of_kind(found, "INTERRUPTED").severity == INFO
    assert "KILLED" not in kinds(found)


def test_ranks_that_a_launcher_ends_after_ctrl_c_were_not_killed(tmp_path: Path) -> None:
    """One of them was interrupted, and the other was asked to end after it."""
    first, second = processes(ranks=2)
    ends = launcher(exited(1001, signal=15, at=3))
    found = diagnosed(tmp_path, [ended(first, "KeyboardInterrupt", at=2), without_end(second), ends])
    assert not {"KILLED", "CRASHED"} & {*kinds(found)}
    assert of_kind(found, "INTERRUPTED").evidence["ranks"] == [0]


def test_the_rank_that_was_killed_is_named_not_those_that_were_ended_after_it(tmp_path: Path) -> None:
    """A launcher ends the other ranks when one is gone."""
    marks = [exited(1000, signal=15, at=52), exited(1001, signal=9, at=51)]
    found = diagnosed(tmp_path, [*map(without_end, processes(ranks=2)), launcher(*marks)])
    assert found.verdict.evidence["ranks"] == [1]


def test_loader_workers_that_are_ended_when_done_are_no_finding(tmp_path: Path) -> None:
    """Torch ends its workers with signal 15."""
    found = diagnosed(tmp_path, [*processes(workers=2), launcher(exited(2000, signal=15), exited(2001, signal=15))])
    assert "KILLED" not in kinds(found)


def pooled(*, by: str | None, code: int = 0) -> list[BuiltProcess]:
    """A program that trained in a child, which ended by signal 15 before the program itself ended; and their launcher."""
    (trainer,) = processes()
    trainer = trainer._replace(process={**(trainer.process or {}), "rank": None, "role": "child", "parent_pid": 800})
    marks = [exited(1000, signal=15, by=by), exited(4711, signal=15, by=by)]  # the second recorded nothing
    parent = BuiltProcess(marks, pid=800, process={"role": "main", "parent_pid": 900})
    return [trainer, parent, launcher(exited(800, code=code, at=60))]


def test_children_that_the_program_itself_has_ended_were_not_killed(tmp_path: Path) -> None:
    """A pool that is left ends its processes so; one that recorded nothing is no finding either."""
    found = diagnosed(tmp_path, pooled(by=probe.PARENT))
    assert "KILLED" not in kinds(found)
    assert {end.reason for end in found.facts.ends.processes if end.signal == 15} == {"terminated"}


def test_a_child_that_somebody_else_has_ended_was_killed(tmp_path: Path) -> None:
    """The program goes on, and ends well: it is told all the same."""
    assert diagnosed(tmp_path, pooled(by=None)).verdict.kind == "KILLED"


def workers_of_another_parent(*, code: int, open: bool = False) -> list[BuiltProcess]:
    """Two ranks that some program that is no Python started and ended, as Ray does; the launcher saw this exit code of all."""
    ranks = [without_end(one) for one in processes(ranks=2)]
    if open:
        ranks = [inside(one, probe.FORWARD) for one in ranks]
    host = launcher()
    return [*ranks, host._replace(process={**(host.process or {}), "program": 800, "program_exit": code})]


@pytest.mark.parametrize(("code", "open", "told"), [(0, False, False), (1, False, True), (0, True, True)])
def test_workers_that_are_ended_after_a_success_were_not_killed(
    tmp_path: Path, code: int, open: bool, told: bool
) -> None:
    """Unless the program failed, or they were in the middle of a step."""
    built = [one._replace(host=host()) for one in workers_of_another_parent(code=code, open=open)]
    found = diagnosed(tmp_path, built)
    assert ("KILLED" in kinds(found)) is told
    with open_run(tmp_path / "run") as run:
        assert run.ending.word == ("finished" if code == 0 else "killed")


def test_children_that_a_program_ends_when_it_fails_itself_are_told(tmp_path: Path) -> None:
    """A launcher that was asked to end, or whose rank is gone, ends its other ranks."""
    assert "KILLED" in kinds(diagnosed(tmp_path, pooled(by=probe.PARENT, code=1)))


def test_a_killed_loader_worker_stands_before_the_exception_that_follows(tmp_path: Path) -> None:
    """The trainer raises because its worker is gone."""
    trainer, *workers = processes(workers=2)
    built = [ended(trainer, "RuntimeError", at=52), *workers, launcher(exited(2001, signal=9, at=51))]
    found = diagnosed(tmp_path, built)
    assert kinds(found)[:2] == ["KILLED", "CRASHED"]
    assert "oader worker 1 of rank 0" in found.verdict.why


def test_a_program_that_died_before_it_recorded_anything_is_told(tmp_path: Path) -> None:
    """Only its launcher knows of it."""
    found = diagnosed(tmp_path, [launcher(exited(4711, signal=11))])
    assert found.verdict.kind == "KILLED"
    assert "rocess 4711" in found.verdict.why


def test_a_program_that_replaced_itself_was_not_killed(tmp_path: Path) -> None:
    """It could not say that it ended; and it is no rank beside the program that took its place."""
    found = diagnosed(tmp_path, replaced(processes()[0]))
    assert "KILLED" not in kinds(found)
    assert [rank.process for rank in found.facts.speed.ranks] == ["testhost-1000-1"]


def test_a_process_that_has_the_id_of_one_that_was_killed_has_not_replaced_it(tmp_path: Path) -> None:
    """The system uses ids again; when a process began tells them apart."""
    built = [one._replace(host=host()) for one in replaced(processes()[0], ticks=(7, 8))]
    assert "KILLED" in kinds(diagnosed(tmp_path, built))


# ── crashed ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_exception_is_named_with_the_phase_it_was_raised_in(tmp_path: Path) -> None:
    """In forward of step 60."""
    (trainer,) = processes()
    broken = with_records(trainer, failed(probe.FORWARD, 50, step=60))
    found = diagnosed(tmp_path, [ended(broken, "ValueError")])
    assert (found.verdict.kind, found.verdict.severity) == ("CRASHED", CRITICAL)
    assert found.verdict.evidence["exception"] == "ValueError"
    assert "crashed with ValueError, raised in forward of step 60" in found.verdict.why


def test_an_exception_is_told_with_its_message_and_the_line_that_raised_it(tmp_path: Path) -> None:
    """As far as they were kept."""
    (trainer,) = processes()
    found = diagnosed(tmp_path, [ended(trainer, "ValueError", message="4 is not 3.", place="train.py:12")])
    assert "crashed with ValueError: 4 is not 3 at train.py:12." in found.verdict.why
    assert found.verdict.next.startswith("Look at train.py:12")


def test_the_item_that_a_worker_failed_at_is_named(tmp_path: Path) -> None:
    """Item 123 of batch 36, by worker 1."""
    trainer, first, second = processes(workers=2)
    number = len(second.records) + 1
    broken = with_records(
        second,
        failed(probe.FETCH, 50, key=probe.batch_key(0, 0, 36)),
        failed(probe.ITEM, 50, key=123, parent=number, depth=1),
    )
    found = diagnosed(tmp_path, [ended(trainer, "KeyError"), first, broken])
    (item,) = found.verdict.evidence["items"]
    assert (item["index"], item["worker"], item["batch"]) == (123, 1, 36)
    assert "raised by item 123 of batch 36, which loader worker 1 loaded" in found.verdict.why


def test_a_failure_long_before_the_end_is_not_blamed(tmp_path: Path) -> None:
    """It was dealt with."""
    (trainer,) = processes()
    found = diagnosed(tmp_path, [ended(with_records(trainer, failed(probe.ITEM, 1, key=5)), "ValueError", at=90)])
    assert found.verdict.evidence["items"] == []


def test_a_rank_is_blamed_and_not_the_launcher_that_tells_of_it(tmp_path: Path) -> None:
    """torchrun raises an exception of its own."""
    first, second = processes(ranks=2)
    parent = ended(launcher(), "ChildFailedError", at=49)
    found = diagnosed(tmp_path, [first, ended(second, "ValueError"), parent])
    assert found.verdict.evidence["exception"] == "ValueError"
    assert found.verdict.evidence["ranks"] == [1]


def test_an_exit_code_is_told(tmp_path: Path) -> None:
    """A program that ends itself with 3."""
    found = diagnosed(tmp_path, [*processes(), launcher(exited(1000, code=3))])
    assert (found.verdict.kind, found.verdict.severity) == ("CRASHED", WARN)
    assert found.verdict.evidence["numbers"] == {"exit code": 3}


# ── hung ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_rank_that_holds_up_the_others_is_the_one_that_hangs(tmp_path: Path) -> None:
    """The others wait in communication; it is in its forward."""
    first, second = processes(ranks=2)
    built = [inside(first, "communication.all_reduce"), inside(second, probe.FORWARD)]
    found = diagnosed(tmp_path, [*built, launcher(exited(1000, signal=15, at=99), exited(1001, signal=15, at=99))])
    assert (found.verdict.kind, found.verdict.severity) == ("HUNG", CRITICAL)
    assert found.verdict.evidence["ranks"] == [1]
    assert "in forward of step 60" in found.verdict.why
    assert "Rank 0 waits for it." in found.verdict.why


def test_the_stack_of_what_hangs_is_shown(tmp_path: Path) -> None:
    """The file in the run folder is named, with the innermost place."""
    (trainer,) = processes()
    built = [inside(trainer, probe.FORWARD), launcher(exited(1000, signal=15, at=99))]
    path = build_run(tmp_path / "run", built)
    stacks = 'Thread 0x01 (most recent call first):\n  File "/x/a.py", line 1 in other\n\nCurrent thread 0x02 (most recent call first):\n'
    (path / "stacks-testhost-1000.txt").write_text(
        stacks + '  File "/x/train.py", line 7 in wait\n  File "/x/b.py", line 9 in main\n'
    )
    with open_run(path) as run:
        verdict = diagnose(run).verdict
    assert verdict.evidence["stacks"] == "stacks-testhost-1000.txt"
    assert "at wait (train.py:7)" in verdict.why


def test_a_rank_that_waits_for_a_dead_one_does_not_hang(tmp_path: Path) -> None:
    """It was left alone."""
    first, second = processes(ranks=2)
    built = [inside(first, "communication.all_reduce"), without_end(second), launcher(exited(1001, signal=9, at=3))]
    assert "HUNG" not in kinds(diagnosed(tmp_path, built))


def test_a_long_last_step_of_a_slow_program_is_no_hang(tmp_path: Path) -> None:
    """Steps of ten seconds: a minute without a sign is not much."""
    (trainer,) = processes(steps=20, phases=phases(forward=10_000))
    built = [inside(trainer, probe.FORWARD, at=250), launcher(exited(1000, signal=15, at=320), last=320)]
    assert "HUNG" not in kinds(diagnosed(tmp_path, built))


def test_frames_of_a_text_that_is_no_dump_are_none() -> None:
    """Whatever the file holds."""
    assert frames_of("no stack at all\n\x00") == []


# ── memory, threads, losses ──────────────────────────────────────────────────────────────────────────────────────────


def test_memory_that_grows_to_the_end_is_creep(tmp_path: Path) -> None:
    """10 MB in each step."""
    found = diagnosed(
        tmp_path, processes(phases=phases(forward=100), rss=lambda rank, step: 500_000_000 + 10_000_000 * step)
    )
    assert found.verdict.kind == "MEMORY_CREEP"
    assert found.verdict.evidence["ranks"] == [0]


@pytest.mark.parametrize(
    "rss",
    [
        lambda rank, step: 900_000_000 if step > 5 else 100_000_000,  # loaded, and then constant
        lambda rank, step: 500_000_000 + 50_000_000 * (step % 7),  # up and down
        lambda rank, step: 500_000_000 + 10_000 * step,  # grows by next to nothing
    ],
)
def test_memory_that_does_not_go_on_growing_is_no_creep(tmp_path: Path, rss: object) -> None:
    """A program may load something, and memory may go up and down."""
    assert "MEMORY_CREEP" not in kinds(diagnosed(tmp_path, processes(phases=phases(forward=100), rss=rss)))


@pytest.mark.parametrize(("mb", "told"), [(10, True), (2, False)])
def test_memory_that_grows_at_once_by_much_is_creep_in_a_short_run_too(tmp_path: Path, mb: int, told: bool) -> None:
    """600 MB in a second; 120 MB may be what it needs."""
    found = diagnosed(tmp_path, processes(rss=lambda rank, step: GB // 4 + mb * step * 1_000_000))
    assert ("MEMORY_CREEP" in kinds(found)) is told


def test_the_peak_between_two_looks_is_told(tmp_path: Path) -> None:
    """As the kernel knows it."""
    (trainer,) = processes(phases=phases(forward=100), rss=lambda rank, step: GB // 2 + GB // 100 * step)
    peak = gauge("rss.peak", 3 * GB, 1000, at=5)
    assert "(peak 3.00 GB)" in of_kind(diagnosed(tmp_path, [with_records(trainer, peak)]), "MEMORY_CREEP").why


def test_a_full_host_is_pressure_and_says_whose_it_is(tmp_path: Path) -> None:
    """This run has only a little of it."""
    samples = [
        gauge(name, value, at=at)
        for at in range(1, 20)
        for name, value in (("ram.total", 8 * GB), ("ram.used", 7.7 * GB))
    ]
    found = diagnosed(tmp_path, [*processes(rss=lambda rank, step: GB), launcher(*samples)])
    pressure = of_kind(found, "MEMORY_PRESSURE")
    assert pressure.severity == WARN
    assert "what else uses the memory" in pressure.next


def test_a_full_control_group_is_pressure_also_if_others_fill_it(tmp_path: Path) -> None:
    """Other programs of the container, or files in memory: the kernel ends a process of this run all the same."""
    samples = [gauge("cgroup.limit", 8 * GB), gauge("cgroup.used", 7.9 * GB)]
    found = diagnosed(tmp_path, [*processes(rss=lambda rank, step: GB), launcher(*samples)])
    pressure = of_kind(found, "MEMORY_PRESSURE")
    assert pressure.severity == WARN
    assert "cgroup memory" in pressure.why
    assert "what else uses the memory" in pressure.next


def test_more_threads_than_cores_are_told(tmp_path: Path) -> None:
    """Four ranks with 4 threads each on 4 cores."""
    samples = [gauge("cpu", 99.0, at=at) for at in range(1, 5)] + [gauge("cores", 4)]
    samples += [gauge("torch.threads", 4, 1000 + rank) for rank in range(4)]
    found = diagnosed(tmp_path, [*processes(ranks=4), launcher(*samples)])
    assert found.verdict.kind == "CPU_OVERSUBSCRIBED"
    assert "torch.set_num_threads(1)" in found.verdict.next


def test_communication_among_too_many_threads_is_no_more_than_a_warning(tmp_path: Path) -> None:
    """Ranks that wait for a core are late for their exchange, and that is the cause."""
    samples = [gauge("cpu", 99.0, at=at) for at in range(1, 5)] + [gauge("cores", 4)]
    samples += [gauge("torch.threads", 4, 1000 + rank) for rank in range(4)]
    found = diagnosed(tmp_path, [*processes(ranks=4, phases=phases(communication=40)), launcher(*samples)])
    assert found.verdict.kind == "CPU_OVERSUBSCRIBED"
    assert of_kind(found, "COMM_BOUND").severity == WARN


def test_as_many_threads_as_cores_are_fine(tmp_path: Path) -> None:
    """One rank with 4 threads on 4 cores."""
    samples = [gauge("cpu", 99.0), gauge("cores", 4), gauge("torch.threads", 4, 1000)]
    assert "CPU_OVERSUBSCRIBED" not in kinds(diagnosed(tmp_path, [*processes(), launcher(*samples)]))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_the_verdict(tmp_path: Path, bad: float) -> None:
    """From step 31 on."""
    found = diagnosed(tmp_path, processes(loss=lambda step: bad if step > 30 else 1.0))
    assert (found.verdict.kind, found.verdict.severity) == ("NON_FINITE", CRITICAL)
    assert found.verdict.evidence["steps"] == [31]


def test_a_single_bad_loss_with_good_ones_after_it_is_a_warning(tmp_path: Path) -> None:
    """Training went on."""
    found = diagnosed(tmp_path, processes(loss=lambda step: math.nan if step == 20 else 1.0))
    assert of_kind(found, "NON_FINITE").severity == WARN


def test_a_run_that_is_going_on_is_judged(tmp_path: Path) -> None:
    """A process that lives, with an open forward of a moment ago."""
    (trainer,) = processes()
    here = {"boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(), "end": None}
    living = trainer._replace(pid=os.getpid(), process={**(trainer.process or {}), **here})
    assert diagnosed(tmp_path, [living]).verdict.kind == "COMPUTE_BOUND"


def test_clocks_that_disagree_change_nothing(tmp_path: Path) -> None:
    """The second rank runs on a host whose clock is an hour behind."""
    first, second = processes(ranks=2, phases=phases(input_wait=40))
    behind = {"start": {"mono_ns": START_NS, "wall_ns": WALL_NS - 3600 * SECOND}, "boot_id": "1"}
    other = second._replace(host="other", process={**(second.process or {}), **behind})
    assert kinds(diagnosed(tmp_path, [first, other])) == ["INPUT_BOUND"]
