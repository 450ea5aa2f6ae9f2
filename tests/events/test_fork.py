"""Forks: the child records into its own files, and never touches those of its parent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.events.harness import process, processes, run

if TYPE_CHECKING:
    from pathlib import Path

FORK = """
def fork(work):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


def test_a_child_has_its_own_files(core_name: str, tmp_path: Path) -> None:
    """A forked child records into a folder of its own, from number 1, with nothing open."""
    run(
        core_name,
        tmp_path,
        FORK
        + """
span = core.Span("x")
with core.Span("outer"):
    core.mark("before")
    def work():
        with span:
            core.mark("child")
    fork(work)
    core.mark("after")
core.end()
""",
    )
    parent, child = sorted(processes(tmp_path), key=lambda found: len(found.events), reverse=True)
    assert parent.tree() == [("outer", None), ("before", "outer"), ("after", "outer")]
    assert child.tree() == [("x", None), ("child", "x")]
    assert [event.seq for event in child.listed()] == [1, 2]
    assert set(child.threads) == {1}
    assert not parent.gaps


def test_a_span_open_across_the_fork_stays_the_parents(core_name: str, tmp_path: Path) -> None:
    """Left in the child, by `with`, stop(), a call or a generator's end, it changes nothing anywhere."""
    run(
        core_name,
        tmp_path,
        FORK
        + """
clock = [100]
core.set_clock(lambda: clock[0])
span, loose, called, lived = (core.Span(name) for name in ("with", "start", "call", "life"))
def work():
    clock[0] += 1000
    span.__exit__(None, None, None)
    loose.stop()
    lived_life.close()
loose.start()
lived_life = core.Life(lived)
lived_life.resume()
lived_life.suspend()
items = core.iterate([1, 2], core.Span("wait"), core.Span("block"))
next(items)
pid = [0]
@called.wrap
def fork_inside():
    pid[0] = os.fork()
with span:
    fork_inside()
    if pid[0] == 0:
        work()
        del items
        os._exit(0)
    os.waitpid(pid[0], 0)
    clock[0] += 5
loose.stop()
lived_life.close()
del items
core.end()
""",
    )
    found = process(tmp_path)  # the child made no folder
    durations = {found.name(event): event.dur for event in found.listed()}
    assert durations == {"with": 5, "start": 5, "call": 0, "life": 5, "wait": 0, "block": 5}


def test_a_child_that_records_nothing_makes_nothing(core_name: str, tmp_path: Path) -> None:
    """Forking alone asks for no files."""
    run(
        core_name,
        tmp_path,
        FORK
        + """
core.mark("m")
fork(lambda: None)
core.end()
""",
    )
    assert process(tmp_path).tree() == [("m", None)]


def test_names_keep_their_ids(core_name: str, tmp_path: Path) -> None:
    """Names that the parent knew are in the child's file, under the same ids; new ones follow."""
    run(
        core_name,
        tmp_path,
        FORK
        + """
old = core.Span("old")
with old: pass
def work():
    with old: pass
    with core.Span("new"): pass
fork(work)
core.end()
""",
    )
    parent, child = sorted(processes(tmp_path), key=lambda found: len(found.events))
    assert child.tree() == [("old", None), ("new", None)]
    assert parent.only("old").name == child.only("old").name


def test_step_and_epoch_are_inherited(core_name: str, tmp_path: Path) -> None:
    """A loader worker starts with its parent's step."""
    run(
        core_name,
        tmp_path,
        FORK
        + """
core.set_context(7, 3)
fork(lambda: core.mark("m"))
core.end()
""",
    )
    event = process(tmp_path).only("m")
    assert (event.step, event.epoch) == (7, 3)


def test_arguments_are_written_for_each_process(core_name: str, tmp_path: Path) -> None:
    """A span that encoded its arguments before the fork has them in the child too."""
    run(
        core_name,
        tmp_path,
        FORK
        + """
span = core.Span("x", args={"a": 1})
with span: pass
fork(lambda: span.wrap(int)())
core.end()
""",
    )
    for found in processes(tmp_path):
        assert found.args(found.only("x")) == {"a": 1}


@pytest.mark.parametrize("count", [100, 3000])
def test_parent_and_child_both_go_on(core_name: str, tmp_path: Path, count: int) -> None:
    """After a fork both record on, and neither loses anything to the other."""
    run(
        core_name,
        tmp_path,
        FORK
        + f"""
span = core.Span("x")
def many():
    for _ in range({count}):
        with span: pass
many()
def child():
    many()
    fork(many)
fork(child)
many()
core.end()
""",
    )
    assert sorted(len(found.events) for found in processes(tmp_path)) == [count, count, 2 * count]
    assert not any(found.gaps or event.open for found in processes(tmp_path) for event in found.listed())


@pytest.mark.parametrize("forks", [20, pytest.param(500, marks=pytest.mark.soak)])
def test_forks_while_threads_record(core_name: str, tmp_path: Path, forks: int) -> None:
    """Forks in the middle of other threads' work: no deadlock, no lost child."""
    run(
        core_name,
        tmp_path,
        FORK
        + f"FORKS = {forks}"
        + """
span, stop = core.Span("x"), threading.Event()
def work():
    while not stop.is_set():
        with span:
            core.mark("m", args={"a": 1})
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for i in range(FORKS):
    fork(lambda: [core.mark("child", key=i) for _ in range(10)])
stop.set()
for thread in threads: thread.join()
core.end()
""",
    )
    found = processes(tmp_path)
    assert len(found) == forks + 1
    keys = sorted(event.key for one in found for event in one.named("child"))
    assert keys == sorted(list(range(forks)) * 10)
    assert not any(one.gaps for one in found)


def test_a_forked_thread_keeps_recording(core_name: str, tmp_path: Path) -> None:
    """A fork from a thread other than the main one gives a child whose only thread is its first."""
    run(
        core_name,
        tmp_path,
        FORK
        + """
core.mark("main")
def work():
    core.mark("thread")
    fork(lambda: core.mark("child"))
thread = threading.Thread(target=work)
thread.start(); thread.join()
core.end()
""",
    )
    child = min(processes(tmp_path), key=lambda found: len(found.events))
    assert child.tree() == [("child", None)]
    assert child.only("child").thread == 1


def test_multiprocessing_pools(core_name: str, tmp_path: Path) -> None:
    """Workers of a fork pool record without doing anything for it."""
    run(
        core_name,
        tmp_path,
        """
import multiprocessing
span = core.Span("x")
@span.wrap
def square(n): return n * n
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(square, range(100), chunksize=5) == [n * n for n in range(100)]
    pool.close(); pool.join()
core.end()
""",
    )
    assert sum(len(found.named("x")) for found in processes(tmp_path)) == 100
