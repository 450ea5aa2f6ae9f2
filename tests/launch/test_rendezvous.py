"""Launchers on several nodes, or of several tasks, make one run; whoever comes first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sonde
from sonde.launch.rendezvous import meeting
from sonde.views.report import report

PATIENCE = 180
WORK = """
import sys, time, sonde
with sonde.span("work"):
    time.sleep(0.05)
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""
# As nodes wait for each other at a rendezvous.
WAIT = """
import os, sys, time
while len([name for name in os.listdir(os.environ["SONDE_RUN"]) if name.startswith(".launcher-")]) < int(sys.argv[1]):
    time.sleep(0.01)
"""
NODES = ("torchrun", "--nnodes", "2", "--rdzv-id", "job-42", "--rdzv-endpoint=node0:29500", "train.py")


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests are no job."""
    for name in [name for name in os.environ if name.startswith(("SONDE", "SLURM", "TORCHELASTIC"))]:
        monkeypatch.delenv(name)


def task(number: int, tasks: int, **more: str) -> dict[str, str]:
    """The environment of a task of a Slurm job step."""
    return {
        "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": str(number), "SLURM_LOCALID": str(number % 2),
        "SLURM_NTASKS": str(tasks), **more,
    }  # fmt: skip


def launch(folder: Path, environment: dict[str, str], *words: str, quiet: bool = True) -> subprocess.Popen[str]:
    (folder / "train.py").write_text(WORK)
    options = ["-q"] * quiet
    command = [sys.executable, "-m", "sonde", "run", *options, "--dir", str(folder / "runs"), "train.py", *words]
    return subprocess.Popen(command, env=os.environ | environment, cwd=folder, stderr=subprocess.PIPE, text=True)


def runs(folder: Path) -> list[Path]:
    """The run folders, oldest first; their names do not tell which of one second was first."""
    found = [path for path in (folder / "runs").iterdir() if not path.name.startswith(".")]
    return sorted(found, key=lambda path: int(json.loads((path / "run.json").read_text())["start"]["wall_ns"]))


def test_tasks_that_start_together_are_one_run(tmp_path: Path) -> None:
    """`srun sonde run train.py`: one run with the programs of all tasks; only the first task prints a report."""
    started = [launch(tmp_path, task(number, 3), quiet=False) for number in range(3)]
    said = [one.communicate(timeout=PATIENCE)[1] for one in started]
    assert [one.returncode for one in started] == [0] * 3
    (run,) = runs(tmp_path)
    with sonde.open_run(run) as opened:
        assert opened.sql("SELECT count(*) FROM events WHERE name = 'work'").fetchall() == [(3,)]
        assert opened.sql("SELECT DISTINCT rank FROM processes ORDER BY 1").fetchall() == [(0,), (1,), (2,)]
        assert opened.meta["job"] == "slurm-77-0-train"
    assert "recorded. Next" in said[0]
    assert said[1:] == [""] * 2


def test_one_failed_task_is_not_hidden_by_the_others(tmp_path: Path) -> None:
    """Three launchers end well, one reports a failure: the run crashed."""
    started = [launch(tmp_path, task(number, 2), "5" if number else "0") for number in range(2)]
    for one in started:
        one.communicate(timeout=PATIENCE)
    (run,) = runs(tmp_path)
    with sonde.open_run(run) as opened:
        assert str(opened.ending) == "crashed (exit code 5)"


def test_a_requeued_job_continues_its_run(tmp_path: Path) -> None:
    """Slurm starts a job again under its id: that is the next attempt of one run."""
    for attempt in ("0", "1"):
        for one in [launch(tmp_path, task(number, 2, SLURM_RESTART_COUNT=attempt)) for number in range(2)]:
            one.communicate(timeout=PATIENCE)
    (run,) = runs(tmp_path)
    infos = [json.loads(path.read_text()) for path in run.glob("*/process.json")]
    assert sorted((one["attempt"], one["rank"]) for one in infos if one["role"] != "launcher") == [
        (0, 0), (0, 1), (1000, 0), (1000, 1),
    ]  # fmt: skip


def test_the_same_program_again_in_a_step_is_another_run(tmp_path: Path) -> None:
    """A job step may run a program twice, one after the other."""
    for _ in range(2):
        for one in [launch(tmp_path, task(number, 2)) for number in range(2)]:
            one.communicate(timeout=PATIENCE)
    assert len(runs(tmp_path)) == 2


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (NODES, "torchelastic job-42 node0:29500"),
        (("/env/bin/torchrun", "--nnodes=1:4", "--rdzv_id=x", "t.py"), "torchelastic x "),
        (("python", "-m", "torch.distributed.run", "--nnodes", "2", "--rdzv-id", "x", "t.py"), "torchelastic x "),
        (("torchrun", "--nnodes", "2", "--master-addr", "n0", "--master-port", "1", "t.py"), "torchelastic n0 1"),
        (("accelerate", "launch", "--num_machines", "2", "--main_process_ip", "n0", "t.py"), "torchelastic n0 "),
    ],
)
def test_nodes_of_torchrun_share_what_its_options_say(command: tuple[str, ...], key: str) -> None:
    """The id of the rendezvous, or where the nodes meet."""
    met = meeting(command)
    assert met is not None
    assert met.job.key == key


@pytest.mark.parametrize(
    "command",
    [
        ("torchrun", "--nproc-per-node", "2", "--rdzv-id", "x", "t.py"),
        ("torchrun", "--nnodes", "1", "--rdzv-id", "x", "t.py"),
        ("torchrun", "--nnodes", "2", "t.py", "--rdzv-id", "x"),
        ("python", "train.py", "--nnodes", "2", "--rdzv-id", "x"),
        ("bash", "start.sh"),
    ],
)
def test_a_launcher_that_is_alone_meets_nobody(command: tuple[str, ...]) -> None:
    """One node, or no word of where others are: a run of its own."""
    assert meeting(command) is None


def make_torchrun(folder: Path, nodes: int) -> None:
    """A program of that name, which waits for so many nodes and runs the script."""
    (folder / "train.py").write_text(WORK)
    (folder / "wait.py").write_text(WAIT)
    python = f"{sys.executable} {folder}"
    (folder / "torchrun").write_text(f"#!/bin/sh\n{python}/wait.py {nodes} && exec {python}/train.py\n")
    (folder / "torchrun").chmod(0o755)


def start_node(folder: Path, name: str, gate: int) -> subprocess.Popen[str]:
    """`sonde run torchrun --nnodes 2 ...` on a node of this name."""
    program = (
        f"import os, sys; os.read({gate}, 1); from sonde.store import folder; folder.host = lambda: {name!r}; "
        f"from sonde.launch import rendezvous; rendezvous.host = folder.host; from sonde.cli import main; main()"
    )
    words = ["run", "-q", "--dir", str(folder / "runs"), str(folder / "torchrun"), *NODES[1:]]
    return subprocess.Popen(
        [sys.executable, "-c", program, *words], pass_fds=[gate], cwd=folder, stderr=subprocess.PIPE, text=True
    )


def test_nodes_that_start_together_are_one_run(tmp_path: Path) -> None:
    """Four nodes at the same moment agree on one folder, and nothing else is left."""
    make_torchrun(tmp_path, 4)
    gate, opener = os.pipe()
    nodes = [start_node(tmp_path, f"node-{number}", gate) for number in range(4)]
    os.close(opener)
    said = [one.communicate(timeout=PATIENCE) for one in nodes]
    os.close(gate)
    assert [one.returncode for one in nodes] == [0] * 4, said
    (run,) = runs(tmp_path)
    with sonde.open_run(run) as opened:
        assert opened.sql("SELECT count(DISTINCT host) FROM processes WHERE role = 'launcher'").fetchall() == [(4,)]
        assert opened.sql("SELECT count(*) FROM events WHERE name = 'work'").fetchall() == [(4,)]
        assert report(opened).run.hosts[:2] == ["node-0", "node-1"]


def test_a_node_more_than_last_time_does_not_join_the_run_before(tmp_path: Path) -> None:
    """The id of a rendezvous was used again, with one node more: a run that has ended is not joined."""
    for names in (("node-0",), ("node-1", "node-0")):
        make_torchrun(tmp_path, len(names))
        gate, opener = os.pipe()
        os.close(opener)
        for one in [start_node(tmp_path, name, gate) for name in names]:
            one.communicate(timeout=PATIENCE)
        os.close(gate)
    first, second = runs(tmp_path)
    hosts = [{path.name.rpartition("-")[0].rpartition("-")[0] for path in run.glob("*-*-*")} for run in (first, second)]
    assert "node-1" not in hosts[0]
    assert "node-1" in hosts[1]
