"""Faults that a recording must survive, each with real processes and exact counts. Full numbers run in `make soak`."""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from sonde.analysis.run import open_run

soak = pytest.mark.soak


def start(folder: Path, code: str, *arguments: object, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start a program that records into folder/runs; the code finds `sonde` and `ai` imported and recording on."""
    head = (
        f"import os, sys, signal, time\nimport sonde\nfrom sonde import ai\nsonde.init(dir={str(folder / 'runs')!r})\n"
    )
    script = folder / "program.py"
    script.write_text(head + textwrap.dedent(code))
    environment = {name: value for name, value in os.environ.items() if name != "SONDE_RUN"}
    return subprocess.Popen(
        [*prefix, sys.executable, str(script), *map(str, arguments)],
        env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[str], timeout: float = 120) -> str:
    """Wait for a program, and give what it printed."""
    try:
        out, error = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    process.stderr_text = error  # type: ignore[attr-defined]
    return out


def newest(folder: Path) -> Path:
    """The only run that was recorded."""
    (run,) = (folder / "runs").iterdir()
    return run


def count(run: Path, where: str = "kind = 'span' and not open") -> int:
    """How many events there are."""
    with open_run(run) as opened:
        return int(opened.sql(f"select count(*) from events where {where}").fetchall()[0][0])


COUNTING = """
    import mmap
    with open(sys.argv[1], "r+b") as file:
        done = mmap.mmap(file.fileno(), 8)
    view = memoryview(done).cast("Q")
    number = 0
    while True:
        with ai.compute.step:
            with ai.data.item:
                pass
        number += 1
        view[0] = number
"""


@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=soak)])
def test_every_span_completed_before_kill_9_is_readable(tmp_path: Path, kills: int) -> None:
    """A program counts its finished spans in a mapped file; after a kill at a random moment all of them are there."""
    chance = random.Random(7)
    for number in range(kills):
        folder = tmp_path / str(number)
        folder.mkdir()
        counter = folder / "done"
        counter.write_bytes(bytes(8))
        process = start(folder, COUNTING, counter)
        deadline = time.monotonic() + 30
        while struct.unpack("<Q", counter.read_bytes())[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(chance.random() * 0.2)
        process.kill()
        process.communicate()
        done = struct.unpack("<Q", counter.read_bytes())[0]
        with open_run(newest(folder)) as run:
            steps, items = run.sql(
                "select count(*) filter (name = 'step' and not open), count(*) filter (name = 'item' and not open) from events"
            ).fetchall()[0]
            assert done <= steps <= done + 1
            assert done <= items <= done + 1
            assert run.drops.total == 0
        shutil.rmtree(folder)


ENDINGS = {
    "os._exit": ("os._exit(3)", 3),
    "SIGSEGV": ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(5)", -signal.SIGTERM),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    "exception": ("raise ValueError('theirs')", 1),
    "exit": ("sys.exit(4)", 4),
    "end of script": ("", 0),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_lost_and_the_exit_code_stays_however_a_program_ends(tmp_path: Path, ending: str) -> None:
    """5,000 finished spans and one open one are there, and the program's own end is unchanged."""
    code, status = ENDINGS[ending]
    process = start(
        tmp_path, f"for i in range(5000):\n    with ai.data.item: pass\nai.checkpoint.capture.start()\n{code}\n"
    )
    finish(process)
    assert process.returncode == status
    run = newest(tmp_path)
    assert count(run) == 5000
    assert count(run, "open and name = 'capture' and dur_ns is null") == 1
    with open_run(run) as opened:
        assert opened.drops.total == 0


@pytest.mark.parametrize(("threads", "spans"), [(20, 1000), pytest.param(200, 10_000, marks=soak)])
def test_all_spans_of_many_threads_are_there_with_right_durations(tmp_path: Path, threads: int, spans: int) -> None:
    """Each thread's spans are its own: right counts, right parents, and a sleeping span lasts as long as its sleep."""
    process = start(
        tmp_path,
        f"""
        import threading
        ready = threading.Barrier({threads})
        def work(number):
            ready.wait()
            with sonde.span("thread", key=number):
                with sonde.span("sleep", key=number):
                    time.sleep(0.01 + 0.001 * (number % 10))
                for _ in range({spans}):
                    with ai.data.item: pass
        threads = [threading.Thread(target=work, args=(n,)) for n in range({threads})]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        """,
    )
    finish(process, 600)
    assert process.returncode == 0, process.stderr_text  # type: ignore[attr-defined]
    with open_run(newest(tmp_path)) as run:
        assert run.drops.total == 0
        per_thread = run.sql(
            """select p.key, count(*), count(distinct e.tid) from events e join events p on e.parent = p.seq
            where e.name = 'item' and not e.open and e.tid = p.tid group by 1"""
        ).fetchall()
        assert len(per_thread) == threads
        assert all(row[1:] == (spans, 1) for row in per_thread)
        late = run.sql(
            """select count(*) from events where name = 'sleep'
            and dur_ns between 1000000 * (10 + key % 10) and 60000000000 and depth = 1"""
        ).fetchall()
        assert late[0][0] == threads


@pytest.mark.parametrize("forks", [20, pytest.param(500, marks=soak)])
def test_forks_neither_deadlock_nor_lose_a_child(tmp_path: Path, forks: int) -> None:
    """A program forks while its other threads record; every child leaves its own spans, the parent keeps its own."""
    process = start(
        tmp_path,
        f"""
        import threading
        stop = False
        def busy():
            while not stop:
                with ai.data.item: pass
        threads = [threading.Thread(target=busy, daemon=True) for _ in range(3)]
        [thread.start() for thread in threads]
        ai.pipeline.train.start()
        failed = 0
        for number in range({forks}):
            child = os.fork()
            if child == 0:
                ai.pipeline.train.stop()
                for _ in range(100):
                    with ai.compute.forward: pass
                os._exit(0)
            failed += os.waitpid(child, 0)[1] != 0
        stop = True
        [thread.join() for thread in threads]
        ai.pipeline.train.stop()
        sys.exit(failed)
        """,
    )
    finish(process, 300)
    assert process.returncode == 0, process.stderr_text  # type: ignore[attr-defined]
    with open_run(newest(tmp_path)) as run:
        assert run.drops.total == 0
        children = run.sql(
            "select process, count(*) from events where name = 'forward' and not open group by 1"
        ).fetchall()
        assert [row[1] for row in children] == [100] * forks
        trains = run.sql("select open, count(*) from events where name = 'train' group by 1").fetchall()
        assert trains == [(False, 1)]


def test_a_file_size_limit_loses_and_counts_records_and_the_program_runs_on(tmp_path: Path) -> None:
    """Under RLIMIT_FSIZE, even with SIGXFSZ at its default, the program ends well; read plus drops is what it did."""
    process = start(
        tmp_path,
        """
        import resource
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        with ai.data.item: pass
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        for _ in range(20_000):
            with ai.data.item: pass
        print("ran on")
        """,
    )
    assert finish(process).strip() == "ran on"
    assert process.returncode == 0
    with open_run(newest(tmp_path)) as run:
        read = run.sql("select count(*) from events").fetchall()[0][0]
        assert run.drops.total > 10_000
        assert read + run.drops.total == 20_001


FULL_DISK = """
    import pathlib, shutil
    folder = pathlib.Path(sys.argv[1])
    def spans(count):
        for _ in range(count):
            with ai.data.item: pass
    spans(2_000)
    filler = folder / "runs" / "filler"
    file = os.open(filler, os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(file, bytes(4096))
    except OSError:
        os.close(file)
    spans(10_000)
    try:
        (folder / "runs" / "theirs").write_bytes(bytes(100_000))
    except OSError as error:
        print("full", error.errno)
    filler.unlink()
    (folder / "runs" / "theirs").unlink(missing_ok=True)
    spans(5_000)
    sonde.finish()
    (run,) = (folder / "runs").iterdir()
    shutil.copytree(run, folder / "copy" / run.name)
    sys.exit(7)
"""


def test_a_full_disk_loses_and_counts_records_and_recording_resumes_when_space_returns(tmp_path: Path) -> None:
    """On a small file system that fills up: own exit code, exact losses, and what comes after is there again."""
    (tmp_path / "runs").mkdir()
    mount = f'mount -t tmpfs -o size=1m none {tmp_path / "runs"} && exec "$@"'
    prefix = ("unshare", "--mount", "--map-root-user", "sh", "-c", mount, "sh")
    probe = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("this machine does not let a test mount a small file system")
    process = start(tmp_path, FULL_DISK, tmp_path, prefix=prefix)
    out = finish(process)
    assert process.returncode == 7, process.stderr_text  # type: ignore[attr-defined]
    assert "full 28" in out
    (run,) = (tmp_path / "copy").iterdir()
    with open_run(run) as opened:
        read, last = opened.sql("select count(*), max(seq) from events").fetchall()[0]
        assert opened.drops.total > 1_000
        assert read + opened.drops.total == 17_000
        assert last == 17_000
        after = opened.sql("select count(*) from events where seq > 13500").fetchall()[0][0]
        assert after == 3_500


def test_a_size_cap_thins_out_details_first_and_keeps_steps_longest(tmp_path: Path) -> None:
    """Near the cap items go first; everything that was not taken is counted."""
    process = start(
        tmp_path,
        """
        sonde.finish()
        sonde.init(dir=sys.argv[1], cap="1MB")
        for step in range(2_000):
            with ai.compute.step:
                for _ in range(10):
                    with ai.data.item: pass
        """,
        tmp_path / "capped",
    )
    finish(process)
    assert process.returncode == 0, process.stderr_text  # type: ignore[attr-defined]
    (run,) = (tmp_path / "capped").iterdir()
    with open_run(run) as opened:
        items, steps = opened.sql(
            "select count(*) filter (name = 'item'), count(*) filter (name = 'step') from events"
        ).fetchall()[0]
        assert steps == 2_000
        assert 10_000 < items < 20_000
        assert items + steps + opened.drops.total == 22_000


def test_descriptors_closed_by_the_program_never_lead_into_its_own_files(tmp_path: Path) -> None:
    """A program that closes all descriptors and opens files of its own finds only its own bytes in them."""
    process = start(
        tmp_path,
        """
        with ai.data.item: pass
        os.closerange(3, 256)
        files = [os.open(f"theirs-{n}", os.O_RDWR | os.O_CREAT) for n in range(20)]
        for _ in range(5_000):
            with ai.data.item(args={"a": 1}): pass
        sonde.finish()
        print(sum(os.fstat(file).st_size for file in files))
        """,
    )
    assert finish(process).strip() == "0"
    assert process.returncode == 0
    with open_run(newest(tmp_path)) as run:
        read = run.sql("select count(*) from events").fetchall()[0][0]
        assert read + run.drops.total == 5_001
