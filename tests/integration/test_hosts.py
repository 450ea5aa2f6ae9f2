"""Real ranks on hosts with names and clocks of their own, and a job that torchrun starts again after a crash."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.integration.launching import run, script

import sonde
from sonde.analysis.questions.goodput import goodput
from sonde.testing import MS

if TYPE_CHECKING:
    from tests.integration.conftest import Programs

pytest.importorskip("torch")

SKEW = 250 * MS
TIMEOUT = 240


def named(command: list[str]) -> list[str]:
    """A command on a host with a name of its own: `$0`."""
    return ["unshare", "-u", "sh", "-c", 'hostname "$0" && exec "$@"', "{host}", *command]


def can_name_hosts() -> bool:
    command = [word.format(host="node-x") for word in named(["true"])]
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


RANK = """
    import os, sys
    import sonde
    sonde.init("train", dir="runs")
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=int(os.environ["RANK"]), world_size=2)
    model = torch.nn.Linear(64, 64)
    distributed = sys.argv[1] == "ddp"
    if distributed:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(int(sys.argv[2])):
        optimizer.zero_grad()
        model(torch.ones(8, 64)).sum().backward()
        if not distributed:
            dist.all_reduce(model.weight.grad)
        optimizer.step()
    dist.barrier()
    sonde.finish()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort a rank whose peer is gone
"""


@pytest.mark.skipif(
    shutil.which("faketime") is None, reason="there is no faketime here; on Debian: apt install faketime"
)
@pytest.mark.skipif(not can_name_hosts(), reason="this user may not name hosts (unshare -u)")
@pytest.mark.parametrize(
    ("mode", "steps"),
    [
        ("plain", 60),
        pytest.param("ddp", 210, marks=pytest.mark.soak),
        pytest.param("plain", 210, marks=pytest.mark.soak),
    ],
)
def test_the_clock_of_another_host_is_found(programs: Programs, mode: str, steps: int) -> None:
    """Two hosts find one run in a shared folder; one clock is 250 ms ahead, and the stated error covers that."""
    path = script(programs.folder, RANK)
    ranks = []
    for rank, host in enumerate(("node-a", "node-b")):
        fake = ["faketime", "-f", f"+{SKEW / 1e9}"] if rank else []
        command = [word.format(host=host) for word in named([*fake, sys.executable, str(path), mode, str(steps)])]
        env = {"RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "job", "GLOO_SOCKET_IFNAME": "lo"}
        ranks.append(
            subprocess.Popen(command, env=programs.environment(env), cwd=programs.folder, stderr=subprocess.PIPE)
        )
    for one in ranks:
        _, errors = one.communicate(timeout=TIMEOUT)
        assert one.returncode == 0, errors.decode()
    (folder,) = programs.dir.glob("2*")
    with sonde.open_run(folder) as found:
        rows = found.sql(
            "SELECT host, source, offset_ns, error_ns, collectives, jumps FROM hosts ORDER BY host"
        ).fetchall()
        assert found.sql("SELECT count(DISTINCT rank) FROM steps").fetchall() == [(2,)]
    first, (host, source, offset, error, collectives, jumps) = rows
    assert first[:4] == ("node-a", "reference", 0, 0)
    assert (host, source, jumps) == ("node-b", "collectives", 0)
    assert collectives >= steps * 0.9
    assert abs(offset - SKEW) <= error < SKEW / 2


TRAINING = """
    import os, sys, time
    import sonde
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    rank, attempt = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
    store = "file://" + os.path.abspath("store-" + attempt)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    model, first = torch.nn.Linear(4, 1), 0
    if os.path.exists("saved.pt"):
        saved = torch.load("saved.pt")
        first = saved["step"] + 1
        model.load_state_dict(saved["model"])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(first, 20):
        with sonde.trace_step(step=step):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            dist.all_reduce(model.weight.grad)
            optimizer.step()
            time.sleep(0.01)
        if step % 5 == 4:
            dist.barrier()
            if dist.get_rank() == 0:
                torch.save({"step": step, "model": model.state_dict()}, "saved.part")
                os.replace("saved.part", "saved.pt")
            dist.barrier()
        if step == 12 and attempt == "0":
            sys.exit(3)
    dist.barrier()
    sonde.finish()
    os._exit(0)
"""


def test_a_job_that_torchrun_starts_again_is_one_run_with_two_attempts(programs: Programs) -> None:
    """The crash after step 12 loses steps 10 to 12: goodput says so."""
    path = script(programs.folder, TRAINING)
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "--max-restarts",
        "1",
    ]
    run(programs, "-q", "--dir", str(programs.dir), *torchrun, str(path), env={"GLOO_SOCKET_IFNAME": "lo"})
    (folder,) = programs.dir.glob("2*")
    with sonde.open_run(folder) as opened:
        found = goodput(opened)
    assert found is not None
    assert (found.steps, found.repeated) == (20, 3)
    first, second = found.attempts
    assert (first.first_step, first.last_step, first.repeated, first.ranks) == (0, 12, 3, 2)
    assert (second.first_step, second.last_step, second.repeated, second.ranks) == (10, 19, 0, 2)
    assert second.waited_ns is not None
    assert second.waited_ns > 0
    assert found.share is not None
    assert 0 < found.share < 1
