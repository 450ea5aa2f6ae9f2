"""Parts sealed on a real Dask cluster of processes: the same files, and clear words when the cluster fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sonde.analysis.parts import partition as plan_module
from sonde.analysis.parts.manifest import manifest_of
from sonde.analysis.parts.partition import Part
from sonde.analysis.records import schema
from sonde.analysis.records.load import offsets_of
from sonde.analysis.records.locate import process_folders
from sonde.analysis.run import Run, open_run
from sonde.analysis.seal import seal
from sonde.analysis.sealing import cluster
from sonde.analysis.sealing.cluster import on_dask
from sonde.analysis.sealing.engines import in_loop
from sonde.errors import ClusterError, SettingError
from sonde.store.process import read_info
from sonde.testing import Straggler, build_training, synthetic_run

# Of Dask itself, at the end of a cluster whose scheduler or workers were killed.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:distributed"),
]


def training(path: Path, ranks: int = 3, steps: int = 20) -> Path:
    return build_training(path, ranks=ranks, steps=steps, workers=1)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each rank."""
    monkeypatch.setattr(plan_module, "EVENTS", 1)


def digests(folder: Path) -> dict[str, str]:
    found = json.loads(manifest_of(folder).read_text())
    return {name: one["digest"] for name, one in found["parts"].items()}


def copy_of(run: Path, name: str) -> Path:
    return Path(shutil.copytree(run, run.parent / name / run.name))


def parts_of(run: Path) -> list[Part]:
    folders = process_folders(run)
    infos = [read_info(one, []) for one in folders]
    return plan_module.plan("run", list(zip(folders, infos, strict=True)), offsets_of(infos, {}), set())


@contextmanager
def scheduler(
    workers: int = 1, folder: Path | None = None
) -> Iterator[tuple[str, subprocess.Popen[bytes], list[subprocess.Popen[bytes]]]]:
    """A scheduler and workers as a batch system starts them: processes of their own, without anything that starts them again."""
    place = folder or Path.cwd()
    file = place / "scheduler.json"
    common = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": place}
    head = [
        sys.executable,
        "-m",
        "distributed.cli.dask_scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--no-dashboard",
    ]
    started: list[Any] = [subprocess.Popen([*head, "--scheduler-file", str(file)], **common)]  # type: ignore[call-overload]
    try:
        until = time.monotonic() + 60
        while not file.exists() and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(0.2)
        address = json.loads(file.read_text())["address"]
        one = [
            sys.executable,
            "-m",
            "distributed.cli.dask_worker",
            address,
            "--no-dashboard",
            "--nthreads",
            "1",
            "--no-nanny",
        ]
        started += [subprocess.Popen(one, **common) for _ in range(workers)]  # type: ignore[call-overload]
        yield address, started[0], started[1:]
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()


def test_a_cluster_writes_the_files_that_a_loop_writes(tmp_path: Path) -> None:
    """Byte by byte, by the digests, over two processes on this host."""
    run = training(tmp_path / "run")
    copy = copy_of(run, "copy")
    seal(run)
    told: list[tuple[int, int]] = []
    seal(copy, engine=on_dask("local:2"), progress=lambda *one: told.append(one))
    assert digests(copy) == digests(run)
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_sealed_run_needs_no_cluster(tmp_path: Path) -> None:
    """There is nothing to do, so nothing is connected to."""
    run = training(tmp_path / "run", ranks=1)
    seal(run)
    assert seal(run, engine=on_dask("tcp://127.0.0.1:9")).processes == 2


def test_an_address_at_which_nothing_answers_is_an_error_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the address."""
    monkeypatch.setattr("sonde.analysis.sealing.scheduler.CONNECT_S", 1.0)
    run = training(tmp_path / "run", ranks=1)
    with pytest.raises(ClusterError, match=r"No Dask scheduler answers at tcp://127.0.0.1:9"):
        seal(run, engine=on_dask("tcp://127.0.0.1:9"))
    assert seal(run).processes == 2


@pytest.mark.parametrize("where", ["local:0", "local:many", "local:-2"])
def test_a_number_of_processes_that_is_none_is_refused(tmp_path: Path, where: str) -> None:
    """Before anything is started."""
    run = training(tmp_path / "run", ranks=1)
    with pytest.raises(SettingError, match="local:4"):
        seal(run, engine=on_dask(where))


def test_an_engine_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """With the one that does."""
    with pytest.raises(SettingError, match='engine="dask"'):
        open_run(training(tmp_path / "run", ranks=1), engine="spark")


# ── the rest takes longer ────────────────────────────────────────────────────────────────────────────────────────────


def answers(folder: Path, **how: Any) -> dict[str, list[str]]:
    with open_run(folder, **how) as run:
        return {name: sorted(map(repr, run.table(name).fetchall())) for name in schema.TABLES}


def sums(folder: Path) -> str:
    """Also of floats, whose sum depends on their order: as a report asks, in one thread."""
    with Run([folder], threads=1) as run:
        return repr(
            run.sql("SELECT sum(dur_ns), sum(loss), avg(loss), quantile_cont(dur_ns, 0.5) FROM steps").fetchall()
        )


@pytest.mark.soak
@pytest.mark.parametrize("state", ["raw", "half", "sealed"])
def test_answers_are_the_same_on_a_cluster(tmp_path: Path, state: str) -> None:
    """Of a job of several hosts with workers, a straggler and a restart; with a client of the user's own."""
    from distributed import Client, LocalCluster

    run = synthetic_run(
        tmp_path / "run", ranks=6, steps=60, workers=2, hosts=2, stragglers=[Straggler(3)], restarts=1, repeated=5
    )
    raw = answers(run)
    here = copy_of(run, "here")
    seal(here)
    if state == "half":
        seal(run, engine=lambda source, parts: in_loop(source, parts[:5]))
    elif state == "sealed":
        seal(run)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as made, Client(made) as client:
        assert answers(run, engine="dask", client=client) == raw == answers(here)
        assert sums(run) == sums(here)
        assert client.status == "running"
    assert not list(run.glob("*/events.seg"))


@pytest.mark.soak
def test_a_worker_that_is_killed_costs_nothing(tmp_path: Path) -> None:
    """Another one does its part again, and the files are those of a loop."""
    from distributed import Client, LocalCluster

    run = synthetic_run(tmp_path / "run", ranks=24, steps=400, workers=1)
    copy = copy_of(run, "copy")
    seal(run)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as made, Client(made) as client:
        workers = client.run(os.getpid)
        killed: list[int] = []

        def after(done: int, total: int) -> None:
            if done == 3:
                pid = next(iter(workers.values()))
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

        seal(copy, engine=on_dask(client), progress=after)
        assert killed
    assert digests(copy) == digests(run)


@pytest.mark.soak
def test_a_scheduler_that_is_killed_is_an_error_and_sealing_goes_on_later(tmp_path: Path) -> None:
    """Parts that were done are kept; no record is lost or counted twice."""
    run = synthetic_run(tmp_path / "run", ranks=24, steps=400, workers=1)
    raw = answers(run)
    with scheduler(workers=2, folder=tmp_path) as (address, head, _):

        def after(done: int, total: int) -> None:
            if done == 2:
                head.kill()

        with pytest.raises(
            ClusterError, match=rf"connection to the Dask scheduler {address} was lost\. Finished parts"
        ):
            seal(run, engine=on_dask(address), progress=after)
    assert 2 <= len(digests(run)) < 24
    assert answers(run) == raw
    seal(run)
    assert answers(run) == raw


@pytest.mark.soak
def test_workers_that_all_end_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not an endless wait."""
    monkeypatch.setattr(cluster, "GONE_S", 2.0)
    run = synthetic_run(tmp_path / "run", ranks=24, steps=400, workers=1)
    with scheduler(workers=1, folder=tmp_path) as (address, _, workers):

        def after(done: int, total: int) -> None:
            workers[0].kill()

        with pytest.raises(ClusterError, match="All workers of the Dask scheduler"):
            seal(run, engine=on_dask(address), progress=after)


@pytest.mark.soak
def test_a_scheduler_without_workers_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some time: a batch system may be slow."""
    monkeypatch.setattr(cluster, "WORKERLESS_S", 1.0)
    run = training(tmp_path / "run", ranks=1)
    with (
        scheduler(workers=0, folder=tmp_path) as (address, _, _),
        pytest.raises(ClusterError, match="has had no workers for 1 s"),
    ):
        seal(run, engine=on_dask(address))


@pytest.mark.soak
def test_a_worker_without_the_folder_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one on a host without the shared disk. Nothing is removed."""
    run = training(tmp_path / "run")
    elsewhere = copy_of(run, "elsewhere")
    with scheduler(workers=1, folder=tmp_path) as (address, _, _):
        # What the worker is asked for is not there; what is read here is.
        engine = on_dask(address)
        with pytest.raises(ClusterError, match=r"Dask worker .* cannot see .*the run folder at the same path"):
            list(engine(str(tmp_path / "away"), parts_of(run)))
        # It has another disk at the same path: what it writes is not seen here.
        monkeypatch.setattr(cluster, "SEEN_S", 0.5)
        monkeypatch.setattr(cluster, "whole_part", lambda *_: None)
        with pytest.raises(ClusterError, match="must be on a disk that all hosts share"):
            seal(elsewhere, engine=on_dask(address))
    assert len(list(elsewhere.glob("*/events.seg"))) == 6
