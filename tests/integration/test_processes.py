"""Processes of every kind record into their own folders of one run, and the program does nothing for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Programs

POOL = """
    import multiprocessing, os, sys
    import sonde

    @sonde.span("task")
    def task(number):
        return os.getpid()

    if __name__ == "__main__":
        method = sys.argv[1]
        sonde.init()
        with sonde.span("all"):
            with multiprocessing.get_context(method).Pool(2) as pool:
                pool.map(task, range(50), chunksize=1)
                pool.close()
                pool.join()
"""

CHILD = """
    import multiprocessing, sys
    import sonde

    def work():
        with sonde.span("work"):
            pass

    if __name__ == "__main__":
        sonde.init()
        sonde.mark("parent")
        child = multiprocessing.get_context(sys.argv[1]).Process(target=work)
        child.start()
        child.join()
        sys.exit(child.exitcode)
"""

METHODS = pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])


@METHODS
def test_a_pool_records_every_task(programs: Programs, method: str) -> None:
    """All tasks of a pool are in the one run, whichever way its processes start."""
    programs.run(POOL, method)
    assert programs.rows("select name, count(*) from events where cat = 'user' group by name order by name") == [
        ("all", 1),
        ("task", 50),
    ]
    assert programs.rows(
        "select count(*) from events where name = 'task' and pid = (select pid from events where name = 'all')"
    ) == [(0,)]


@METHODS
def test_a_child_notes_its_own_end(programs: Programs, method: str) -> None:
    """A child of multiprocessing is known as one, and its end is written although it runs no atexit handlers."""
    programs.run(CHILD, method)
    parent, child = programs.processes
    assert (parent["role"], child["role"]) == ("main", "child")
    assert (parent["end"]["reason"], child["end"]["reason"]) == ("exit", "exit")
    assert child["end"]["mono_ns"] <= parent["end"]["mono_ns"]


def test_a_forked_child_leaves_the_parent_alone(programs: Programs) -> None:
    """A child that exits, and one that finishes, end their own recording; the parent goes on."""
    programs.run("""
        import os, sys, sonde
        sonde.init()
        sonde.mark("before")
        for how in ("finish", "exit", "_exit", "silent"):
            pid = os.fork()
            if pid == 0:
                if how != "silent":
                    sonde.mark(how)
                if how in ("finish", "silent"):
                    sonde.finish()
                if how == "exit":
                    sys.exit(0)
                os._exit(0)
            os.waitpid(pid, 0)
            sonde.mark("between")
    """)
    assert programs.rows("select name, count(*) from events group by name order by name") == [
        ("_exit", 1), ("before", 1), ("between", 4), ("exit", 1), ("finish", 1),
    ]  # fmt: skip
    parent, *children = programs.processes
    assert parent["end"]["reason"] == "exit"
    assert [child["end"] and child["end"]["reason"] for child in children] == ["finish", "exit", None]
    assert {child["parent_pid"] for child in children} == {parent["pid"]}


def test_a_child_without_records_makes_no_folder(programs: Programs) -> None:
    """A process folder is made at the first record, not at the fork."""
    programs.run("""
        import os, sonde
        sonde.init()
        sonde.mark("parent")
        pid = os.fork()
        if pid == 0:
            raise SystemExit
        os.waitpid(pid, 0)
    """)
    assert len(programs.processes) == 1


def test_a_thread_pool_records_every_task(programs: Programs) -> None:
    """The tasks of all threads are there, under the names of the threads."""
    programs.run("""
        import concurrent.futures, sonde
        sonde.init()
        with concurrent.futures.ThreadPoolExecutor(4, thread_name_prefix="mine") as pool:
            list(pool.map(sonde.span("task")(lambda number: number), range(1000)))
    """)
    assert programs.rows("select count(*), bool_and(thread like 'mine%') from events") == [(1000, True)]


def test_exec_gets_a_folder_of_its_own(programs: Programs) -> None:
    """A program that replaces itself keeps its pid, and records as number 1."""
    programs.run("""
        import os, sys, sonde
        sonde.init()
        sonde.mark("first" if len(sys.argv) == 1 else "second")
        if len(sys.argv) == 1:
            os.execv(sys.executable, [sys.executable, __file__, "again"])
    """)
    first, second = programs.processes
    assert first["pid"] == second["pid"]
    assert (first["n"], second["n"]) == (0, 1)
    assert first["end"] is None
    assert programs.rows("select name from events order by start_ns") == [("first",), ("second",)]


def test_another_program_joins_through_the_environment(programs: Programs) -> None:
    """A started Python program that imports sonde records into the run of its parent."""
    programs.run("""
        import subprocess, sys, sonde
        with sonde.init():
            sonde.mark("outer")
            subprocess.run([sys.executable, "-c", "import sonde; sonde.mark('inner')"], check=True)
        subprocess.run([sys.executable, "-c", "import sonde; sonde.mark('after')"], check=True)
    """)
    assert programs.rows("select name from events where cat = 'user' order by name") == [("inner",), ("outer",)]


def test_a_module_that_calls_init_again_in_a_spawned_child_is_harmless(programs: Programs) -> None:
    """init() at the top of the main module runs again in each spawned child, and joins."""
    programs.run("""
        import multiprocessing, sonde
        sonde.init("twice")
        def work():
            sonde.mark("work")
        if __name__ == "__main__":
            child = multiprocessing.get_context("spawn").Process(target=work)
            child.start()
            child.join()
    """)
    assert programs.rows("select count(*) from events where cat = 'user'") == [(1,)]


def test_loader_workers_record(programs: Programs) -> None:
    """Workers of a torch DataLoader record their items, and say which worker they are: two that are forked, one spawned."""
    pytest.importorskip("torch")
    programs.run("""
        import torch, sonde

        class Data(torch.utils.data.Dataset):
            def __init__(self, first):
                self.first = first
            def __len__(self):
                return 20
            @sonde.span("get")
            def __getitem__(self, index):
                sonde.mark("got", key=self.first + index)
                return index

        if __name__ == "__main__":
            sonde.init()
            for number, (method, workers) in enumerate([("fork", 2), ("spawn", 1)]):
                loader = torch.utils.data.DataLoader(
                    Data(100 * number), batch_size=5, num_workers=workers, multiprocessing_context=method
                )
                assert sum(len(batch) for batch in loader) == 20
    """)
    assert programs.rows(
        "select key // 100, count(*), count(distinct pid) from events where name = 'got' group by 1 order by 1"
    ) == [(0, 20, 2), (1, 20, 1)]
    assert programs.rows("select count(*), count(distinct pid) from events where name = 'get'") == [(40, 3)]
    workers = [facts for facts in programs.processes if facts["role"] != "main"]
    found = sorted((facts["role"], facts["worker"]) for facts in workers)
    assert found == [("worker", 0), ("worker", 0), ("worker", 1)]


ELASTIC = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
RANK = "import sonde; sonde.init(); sonde.mark('here')"


def test_ranks_started_by_another_launcher_share_a_run(programs: Programs) -> None:
    """Four ranks of one job, started at the same time, record into one run under their ranks."""
    started = [programs.start(RANK, env=ELASTIC | {"RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(4)]
    assert [program.communicate(timeout=60)[1] for program in started] == [""] * 4
    assert [program.returncode for program in started] == [0] * 4
    assert sorted((facts["rank"], facts["role"]) for facts in programs.processes) == [(n, "trainer") for n in range(4)]


def test_a_second_attempt_of_a_job_is_the_same_run(programs: Programs) -> None:
    """The restarted ranks are told from the ones before by their attempt."""
    for attempt in ("0", "1"):
        for rank in ("0", "1"):
            programs.run(RANK, env=ELASTIC | {"RANK": rank, "TORCHELASTIC_RESTART_COUNT": attempt})
    found = sorted((facts["attempt"], facts["rank"]) for facts in programs.processes)
    assert found == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_child_of_a_rank_is_a_child_of_that_rank(programs: Programs) -> None:
    """A helper process inherits the rank of its trainer, and is no trainer itself."""
    programs.run(CHILD, "spawn", env={"RANK": "3", "WORLD_SIZE": "8"})
    assert [(facts["role"], facts["rank"]) for facts in programs.processes] == [("trainer", 3), ("child", 3)]


def test_ranks_that_a_program_spawns_are_trainers(programs: Programs) -> None:
    """A child that is given a rank of its own is a trainer."""
    programs.run("""
        import multiprocessing, os, sonde
        def work(rank):
            os.environ["RANK"] = str(rank)
            sonde.mark("here")
        if __name__ == "__main__":
            sonde.init()
            for rank in (0, 1):
                child = multiprocessing.get_context("spawn").Process(target=work, args=(rank,))
                child.start()
                child.join()
    """)
    children = [facts for facts in programs.processes if facts["role"] != "main"]
    assert [(facts["role"], facts["rank"]) for facts in children] == [("trainer", 0), ("trainer", 1)]


def test_fifty_forks_at_once_lose_no_child(programs: Programs) -> None:
    """Children forked from a thread while others record all end, and all are there."""
    programs.run("""
        import os, threading, sonde
        sonde.init()
        stop = threading.Event()
        def busy():
            while not stop.is_set():
                with sonde.span("busy", args={"a": 1}):
                    pass
        threads = [threading.Thread(target=busy) for _ in range(2)]
        for thread in threads:
            thread.start()
        children = []
        for _ in range(50):
            pid = os.fork()
            if pid == 0:
                sonde.mark("child")
                os._exit(0)
            children.append(pid)
        for pid in children:
            assert os.waitpid(pid, 0)[1] == 0
        stop.set()
        for thread in threads:
            thread.join()
    """)
    assert programs.rows("select count(*), count(distinct pid) from events where name = 'child'") == [(50, 50)]


def test_a_forked_child_and_the_recording_thread_import_nothing(programs: Programs) -> None:
    """An import whose lock was held by another thread at the fork would never end in the child."""
    done = programs.run("""
        import os, sys, threading, time, sonde
        def imported(event, args):
            if event == "import" and (os.getpid() != parent or threading.current_thread() is not threading.main_thread()):
                os.write(1, f"{args[0]}\\n".encode())
        parent = os.getpid()
        sys.addaudithook(imported)
        sonde.init()
        first = threading.Thread(target=sonde.mark, args=("first",))
        first.start()
        first.join()
        time.sleep(0.3)
        pid = os.fork()
        if pid == 0:
            with sonde.span("child", args={"a": 1.5}):
                time.sleep(0.3)
            os._exit(0)
        os.waitpid(pid, 0)
        def find():  # an exception that ends a thread would be printed, and for that Python 3.13 imports modules
            try:
                import this_is_seen_by_the_test
            except ImportError:
                pass
        threading.Thread(target=find).start()
    """)
    assert done.stdout.split() == ["this_is_seen_by_the_test"]


def test_files_of_a_run_are_private(programs: Programs) -> None:
    """Every folder is 0700 and every file 0600, with an open umask too."""
    programs.run("""
        import os, sonde
        os.umask(0)
        with sonde.init():
            with sonde.span("x", args={"a": 1}):
                pass
    """)
    folders = [programs.dir, programs.only, *(path for path in programs.only.rglob("*") if path.is_dir())]
    files = [path for path in programs.only.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert len(files) >= 7
    assert os.listdir(programs.dir) == [programs.only.name]
