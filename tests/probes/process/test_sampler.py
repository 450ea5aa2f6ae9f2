"""The sampler inside a process: what a process uses, looked at when the program comes by."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sonde import guard, system
from sonde.probes import step
from sonde.probes.process import sampler
from sonde.testing import Recorded, record


@pytest.fixture(autouse=True)
def nothing_failed() -> Iterator[None]:
    """Nothing of ours fails on the way."""
    before = guard.counts()
    yield
    assert guard.counts() == before


def values(recorded: Recorded, name: str, key: int) -> list[float]:
    """The values of a counter."""
    return [event["value"] for event in recorded.named(name) if event["key"] == key]


def look_twice() -> None:
    """Two steps end, far enough from each other."""
    step.end(0)
    sampler._now.due = 0
    step.end(0)


def test_memory_threads_and_load_of_this_process() -> None:
    """The first look has no load: there is nothing to compare with."""
    with record() as recorded:
        look_twice()
        pages = int(Path("/proc/self/statm").read_text().split()[1]) * sampler.PAGE  # reading the records needs more
    pid = os.getpid()
    assert values(recorded, "rss", pid)[-1] == pytest.approx(pages, rel=0.2)
    assert values(recorded, "threads", pid)[-1] == len(os.listdir("/proc/self/task"))
    assert len(values(recorded, "cpu", pid)) == 1
    assert {event["cat"] for event in recorded.named("rss")} == {"memory"}


def test_how_long_the_training_thread_waited_for_a_core_is_counted() -> None:
    """Since it began, as the kernel counts it."""
    with record() as recorded:
        look_twice()
    found = values(recorded, "cpu.waited", os.getpid())
    assert len(found) == 2
    assert found == sorted(found)
    assert found[1] <= int(Path("/proc/thread-self/schedstat").read_text().split()[1])


def test_between_two_looks_time_passes() -> None:
    """A thousand fast steps are no reason to look a thousand times."""
    with record() as recorded:
        for _ in range(1000):
            step.end(0)
    assert 1 <= len(recorded.named("rss")) <= 100


def test_at_the_start_it_looks_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong with memory often does so at once: 20 looks in the first second, 2 in a later one."""
    now = [10**12]
    monkeypatch.setattr(sampler, "monotonic_ns", lambda: now[0])
    times = []
    with record() as recorded:
        for _ in range(1000):
            now[0] += 10_000_000
            before = sampler._now.due
            step.end(0)
            if sampler._now.due != before:
                times.append(now[0] - 10**12)
    assert sum(at <= 10**9 for at in times) >= 20
    assert sum(at > 9 * 10**9 for at in times) <= 3
    assert recorded.named("rss")


def test_the_peak_of_memory_is_told_also_if_it_is_over() -> None:
    """By the kernel, which sees what lies between two looks."""
    with record() as recorded:
        step.end(0)
        assert len(bytearray(256 * 2**20)) > 0
        sampler._now.due = 0
        step.end(0)
    pid = os.getpid()
    assert values(recorded, "rss.peak", pid)[-1] >= values(recorded, "rss", pid)[-1]
    assert values(recorded, "rss.peak", pid)[-1] >= 256 * 2**20


def test_the_machine_is_looked_at_where_no_launcher_does() -> None:
    """Its memory, with the key 0."""
    with record() as recorded:
        look_twice()
    total = os.sysconf("SC_PHYS_PAGES") * sampler.PAGE
    assert values(recorded, "ram.total", 0)[0] == pytest.approx(total, rel=0.1)
    assert 0 < values(recorded, "ram.used", 0)[0] < total


def test_the_machine_is_left_to_whoever_made_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that joins a run looks at itself only."""
    import sonde

    with record(dir=str(tmp_path)) as recorded:
        run = recorded.path
    monkeypatch.setenv("SONDE_RUN", str(run))
    with sonde.init():
        look_twice()
    joined = Recorded(run)
    assert len(joined.named("rss")) == 2
    assert joined.named("ram.total") == []


def test_a_forked_child_speaks_for_itself(tmp_path: Path) -> None:
    """Its first look comes at once, under its own number, and leaves the machine alone."""
    with record(dir=str(tmp_path)) as recorded:
        step.end(0)
        child = os.fork()
        if child == 0:
            sampler.tick()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    assert [event["key"] for event in recorded.named("rss")] == [os.getpid(), child]
    assert len(recorded.named("ram.total")) == 1


def test_nothing_is_looked_at_outside_of_the_chosen_steps() -> None:
    """Only the ends of steps are written there."""
    with record(steps="1:2") as recorded:
        step.end(0)
        sampler._now.due = 0
        step.end(0)
        sampler._now.due = 0
        step.end(0)
    assert [event["step"] for event in recorded.named("rss")] == [1]


def test_after_the_end_nothing_is_looked_at() -> None:
    """A tick is a comparison then."""
    with record():
        pass
    assert sampler._now.due == sampler.NEVER
    sampler.tick()


def test_threads_of_torch_are_told_when_they_change() -> None:
    """Not at every look."""
    torch: Any = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    try:
        with record() as recorded:
            look_twice()
            torch.set_num_threads(threads + 1)
            sampler._now.due = 0
            step.end(0)
    finally:
        torch.set_num_threads(threads)
    assert values(recorded, "torch.threads", os.getpid()) == [threads, threads + 1]


def test_a_missing_file_is_a_missing_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a zero, and no failure."""
    monkeypatch.setattr(system, "text", lambda _path: None)
    with record() as recorded:
        look_twice()
    assert recorded.named("rss") == recorded.named("ram.total") == recorded.named("disk.read") == []


def write_group(folder: Path, limit: str, used: int, *, cache: int = 0, version: int = 2) -> None:
    """A control group as the kernel shows it. `cache`: files that were read, which count as used."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    total = "" if version == 2 else "total_"
    halves = (cache // 2, cache - cache // 2)
    (folder / "memory.stat").write_text(
        f"inactive_anon 7\n{total}inactive_file {halves[0]}\n{total}active_file {halves[1]}\n"
    )


def test_the_control_group_with_the_least_room_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group above may leave less than the own one, also if it allows more; `max` is no limit."""
    for group, limit, used in (("job/step/part", "max", 10), ("job/step", "800", 100), ("job", "1000", 900)):
        write_group(tmp_path / group, limit, used)
    groups = [str(tmp_path / group) for group in ("job/step/part", "job/step", "job", ".")]
    monkeypatch.setattr(system, "_folders", lambda _pid: groups)
    with record() as recorded:
        step.end(0)
    assert values(recorded, "cgroup.limit", 0) == [1000]
    assert values(recorded, "cgroup.used", 0) == [900]


@pytest.mark.parametrize("version", [1, 2])
def test_files_that_a_control_group_has_read_are_not_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """They fill every container that reads more data than it has memory, and go when there is need."""
    write_group(tmp_path, "1000", 990, cache=701, version=version)
    monkeypatch.setattr(system, "_folders", lambda _pid: [str(tmp_path)])
    assert system.usage(os.getpid()) == (1000, 289)


def test_the_room_is_that_of_the_machine_or_of_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever has less."""
    monkeypatch.setattr(system, "ram", lambda: system.Usage(5000, 1000))
    monkeypatch.setattr(system, "_folders", lambda _pid: [str(tmp_path)])
    assert system.room(os.getpid()) == 4000
    write_group(tmp_path, "1000", 400)
    assert system.room(os.getpid()) == 600
