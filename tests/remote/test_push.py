"""What is pushed is what was recorded: once, resumably, by several hosts, and while processes write."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from tests.remote.hosts import FaultyStore, content, push_as, ranks_on

import sonde
from sonde.analysis.seal import seal
from sonde.errors import RemoteError, RunNotFound
from sonde.remote.pull import missing_in, pull
from sonde.remote.push import push
from sonde.testing import build_training

PATIENCE = 60


def objects(url: str) -> dict[str, int]:
    """The objects below a folder, with their sizes."""
    root = Path(url.removeprefix("file://"))
    return {path.relative_to(root).as_posix(): path.stat().st_size for path in root.rglob("*") if path.is_file()}


def test_a_pulled_run_says_what_the_pushed_one_says(tmp_path: Path, url: str) -> None:
    """Every event and step of a raw run comes back, of all processes."""
    run = build_training(tmp_path / "run", ranks=2, steps=400, workers=1)
    push(run, url)
    back = pull(f"{url}/run", tmp_path / "back")
    assert content(back.path) == content(run)
    assert back.notes == []
    assert missing_in(run, back.path) == []


def test_a_second_push_sends_nothing(tmp_path: Path, url: str) -> None:
    """What is there is not sent again."""
    run = build_training(tmp_path / "run", steps=5)
    push(run, url)
    before = objects(url)
    assert push(run, url).objects == 0
    assert objects(url) == before


def test_a_sealed_run_replaces_its_raw_files(tmp_path: Path, url: str) -> None:
    """After sealing, the place holds the tables, and a copy that was pulled before becomes the sealed run."""
    run = build_training(tmp_path / "run", ranks=2, steps=50)
    push(run, url)
    pull(f"{url}/run", tmp_path / "back")
    before = content(run)
    seal(run, force=True)
    push(run, url)
    back = pull(f"{url}/run", tmp_path / "back")
    with sonde.open_run(back.path) as opened:
        assert opened.sealed
    assert content(back.path) == before
    assert not list(back.path.glob("*/events.seg"))


def test_a_run_whose_raw_files_are_many_is_sent_anew_when_it_is_sealed(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packs that nothing refers to do not stay at the place."""
    monkeypatch.setattr("sonde.remote.push.WASTE", 0)
    run = build_training(tmp_path / "run", ranks=2, steps=500)
    push(run, url)
    (old,) = [name for name in objects(url) if name.endswith(".pack")]
    seal(run, force=True)
    push(run, url)
    assert old not in objects(url)
    assert content(pull(f"{url}/run", tmp_path / "back").path) == content(run)


def test_hosts_without_a_shared_disk_become_one_run(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hosts push what each recorded under one id, and a report has all four ranks."""
    for host, ranks in (("node-0", (0, 1)), ("node-1", (2, 3))):
        push_as(monkeypatch, host, ranks_on(tmp_path / host, host, ranks), url, id="job-7")
    back = pull(f"{url}/job-7", tmp_path / "back")
    with sonde.open_run(back.path) as run:
        assert run.id == "job-7"
        assert run.sql("SELECT DISTINCT host, rank FROM steps ORDER BY rank").fetchall() == [
            ("node-0", 0), ("node-0", 1), ("node-1", 2), ("node-1", 3),
        ]  # fmt: skip
        assert run.notes == []


def test_a_process_that_two_hosts_pushed_is_there_once(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run on a shared disk that was pushed from two hosts is the same run."""
    run = build_training(tmp_path / "run", ranks=2, steps=20)
    push_as(monkeypatch, "login-1", run, url)
    push_as(monkeypatch, "login-2", run, url)
    assert content(pull(f"{url}/run", tmp_path / "back").path) == content(run)


def test_each_host_writes_below_its_own_prefix(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No object of a host lies outside of the folder with its name."""
    push_as(monkeypatch, "node-0", ranks_on(tmp_path / "node-0", "node-0", (0,)), url, id="job")
    assert all(name.startswith("job/node-0-") for name in objects(url))


def test_an_interrupted_push_goes_on_where_it_stopped(
    tmp_path: Path, faulty: type[FaultyStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packs that were sent before the store went away are not sent again."""
    monkeypatch.setattr("sonde.remote.pack.PACK", 4096)
    run = build_training(tmp_path / "run", ranks=4, steps=500)
    sent: list[str] = []

    def fail_later(operation: str, path: str) -> None:
        if operation == "write" and len(sent) == 3:
            raise ConnectionError("the network is down")
        if operation == "write":
            sent.append(path.rpartition("/")[2])

    faulty.fault = staticmethod(fail_later)
    with pytest.raises(RemoteError, match="network is down"):
        push(run, "faulty://runs")
    assert len(sent) == 3
    sent.clear()
    faulty.fault = staticmethod(
        lambda operation, path: sent.append(path.rpartition("/")[2]) if operation == "write" else None
    )
    push(run, "faulty://runs")
    assert sent[0].startswith("000004")
    assert sent[-1].startswith("manifest.json")
    assert content(pull("faulty://runs/run", tmp_path / "back").path) == content(run)


def test_a_fault_that_passes_is_tried_again(tmp_path: Path, faulty: type[FaultyStore]) -> None:
    """One failed write costs nothing."""
    failed: list[str] = []

    def fail_once(operation: str, path: str) -> None:
        if operation == "write" and path not in failed:
            failed.append(path)
            raise TimeoutError

    faulty.fault = staticmethod(fail_once)
    run = build_training(tmp_path / "run", steps=5)
    assert push(run, "faulty://runs").objects == 1
    assert content(pull("faulty://runs/run", tmp_path / "back").path) == content(run)


def test_a_place_that_lost_everything_gets_everything_again(tmp_path: Path, faulty: type[FaultyStore]) -> None:
    """Who emptied the bucket is not left with a manifest of nothing."""
    run = build_training(tmp_path / "run", steps=5)
    push(run, "faulty://runs")
    faulty.store.clear()
    again = push(run, "faulty://runs")
    assert again.objects == 1
    assert "Everything was sent again" in again.notes[0]
    assert content(pull("faulty://runs/run", tmp_path / "back").path) == content(run)


def test_another_run_at_the_same_place_is_refused(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs that push under one name are told apart before anything is mixed."""
    for job in ("one", "two"):
        run = build_training(tmp_path / job / "run", steps=3)
        meta = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps(meta | {"job": job}))
    push(tmp_path / "one" / "run", url, "shared")
    with pytest.raises(RemoteError, match=r"already holds another run: run of .* \(job one\).*--id"):
        push(tmp_path / "two" / "run", url, "shared")


def test_a_full_disk_does_not_stop_a_push(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sent cannot be noted: that is said, and the run is at its place."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    run = build_training(tmp_path / "run", steps=5)
    monkeypatch.setattr("sonde.remote.push.write_json", full)
    done = push(run, url)
    assert done.notes == [
        f"Cannot note what was pushed in {run} (No space left on device): the next push sends everything again."
    ]
    monkeypatch.undo()
    assert content(pull(f"{url}/run", tmp_path / "back").path) == content(run)


def test_no_credentials_are_written_down(tmp_path: Path, faulty: type[FaultyStore]) -> None:
    """Neither the run nor the place has what the URL had."""
    run = build_training(tmp_path / "run", steps=3)
    push(run, "faulty://me:hunter2@runs?token=hunter3")
    push(run, "faulty://runs/there?signature=hunter4")
    local = b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())
    there = b"".join(bytes(one.getvalue()) for one in faulty.store.values())
    assert b"hunter" not in local + there


def test_what_is_no_run_is_not_pushed(tmp_path: Path, url: str) -> None:
    """A folder without a run.json of ours is refused."""
    (tmp_path / "other").mkdir()
    with pytest.raises(RunNotFound, match="is not a run"):
        push(tmp_path / "other", url)


PROGRAM = """
    import sys, threading, time
    import sonde
    from sonde import ai

    def work(stop):
        number = 0
        while not stop.is_set():
            with ai.compute.forward:
                sonde.counter("n", number)
            if number % 50 == 0:
                sonde.mark("round", args={"number": number})
            if number % 2000 == 0:
                time.sleep(0.02)
            number += 1

    stop = threading.Event()
    threads = [threading.Thread(target=work, args=(stop,)) for _ in range(2)]
    with sonde.init("busy", dir=sys.argv[1]):
        for thread in threads: thread.start()
        print("ready", flush=True)
        sys.stdin.readline()
        stop.set()
        for thread in threads: thread.join()
"""


def test_a_run_is_pushed_while_two_threads_write_it(tmp_path: Path, url: str) -> None:
    """Each copy of a running program has no gap and nothing damaged, and each has more than the one before."""
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path / "runs")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        (run,) = (tmp_path / "runs").iterdir()
        counts = []
        for _ in range(3):
            time.sleep(0.1)
            assert push(run, url).running == 1
            back = pull(f"{url}/{run.name}", tmp_path / "back")
            with sonde.open_run(back.path) as opened:
                counts.append(opened.sql("SELECT count(*) FROM events").fetchall()[0][0])
                assert opened.drops.total == 0
                assert opened.notes == [f"{run.name}: {back.notes[0]}"]
                assert back.notes[0].startswith("still running when last pushed")
        program.communicate("end\n", timeout=PATIENCE)
    finally:
        program.kill()
        program.wait()
        for stream in (program.stdin, program.stdout):
            if stream is not None:
                stream.close()
    assert counts == sorted(set(counts))
    push(run, url)
    back = pull(f"{url}/{run.name}", tmp_path / "back")
    assert content(back.path) == content(run)
    assert missing_in(run, back.path) == []
