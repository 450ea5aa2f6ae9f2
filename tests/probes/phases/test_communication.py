"""Communication between ranks: two processes on this machine, with torch's own functions and a distributed model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sonde
from sonde.probes import step
from sonde.probes.phases import communication
from sonde.testing import Recorded, record

RANK = """
import os, sys, time, torch, sonde
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
rank, meeting, folder, record = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] == "1"
torch.set_num_threads(1)
if record:
    sonde.init(dir=folder)
dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    optimizer.zero_grad()
    model(torch.full((8, 64), float(rank + step))).mean().backward()
    optimizer.step()
    time.sleep(0.002)
total = torch.ones(4)
dist.all_reduce(total)
work = dist.all_reduce(total, async_op=True)
work.wait()
dist.distributed_c10d.barrier()
objects = [None, None]
dist.all_gather_object(objects, rank)
print(total.tolist(), objects, [p.sum().item().hex() for p in model.parameters()], flush=True)
if record:
    sonde.finish()
# Together and at once: gloo's threads may abort a rank that takes its group down while the other one leaves.
open(f"{meeting}.{rank}", "w").close()
while not all(os.path.exists(f"{meeting}.{other}") for other in range(2)):
    time.sleep(0.01)
os._exit(0)
"""


def ranks(folder: Path, record: bool) -> list[str]:
    """What the two ranks print."""
    folder.mkdir()
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", RANK, str(rank), str(folder / "meeting"), str(folder / f"runs{rank}"),
             str(int(record))],
            stdout=subprocess.PIPE, text=True, cwd=folder,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        printed = [rank.communicate(timeout=120)[0] for rank in running]
    finally:
        for rank in running:
            rank.kill()
    assert [rank.returncode for rank in running] == [0, 0]
    return printed


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What two recorded ranks printed, and the events of the first."""
    folder = tmp_path_factory.mktemp("ranks") / "recorded"
    printed = ranks(folder, record=True)
    (path,) = (folder / "runs0").iterdir()
    with sonde.open_run(path) as run:
        rows = run.sql(
            "select name, key, step, value, dur_ns from events where cat = 'probe' order by start_ns"
        ).fetchall()
    return printed, rows


def test_a_distributed_model_computes_the_same(recorded: Any, tmp_path: Path) -> None:
    """Bit by bit, and all collectives return what they returned."""
    assert ranks(tmp_path / "plain", record=False) == recorded[0]


def test_outermost_collectives_are_spans_with_their_bytes(recorded: Any) -> None:
    """What an operation is made of is not told again; waiting for work is."""
    found = [(name, key) for name, key, *_ in recorded[1] if name.startswith("communication.")]
    assert found[-5:] == [
        ("communication.all_reduce", 16), ("communication.all_reduce", 16), ("communication.wait", 0),
        ("communication.barrier", 0), ("communication.all_gather_object", 0),
    ]  # fmt: skip


def test_the_logger_of_the_model_has_the_times_of_the_step_before(recorded: Any) -> None:
    """In nanoseconds, none longer than the whole."""
    found = [(name, step, value) for name, _, step, value, _ in recorded[1] if name.startswith("ddp.")]
    steps = {step for name, step, _ in found if name == "ddp.backward_comm"}
    assert steps
    assert steps <= set(range(5))
    assert all(0 < value < 60e9 for _, _, value in found)


class Data:
    """What a logger has, and has measured."""

    def __init__(self, **measured: int) -> None:
        self.ints_map = measured


class Logger:
    """The logger of a distributed model: at a forward it has the times of the newest backward pass."""

    def __init__(self) -> None:
        self.passed = 0

    def _get_ddp_logging_data(self) -> Data:
        times = dict.fromkeys(communication.TIMES.values(), self.passed)
        return Data(**times, **{communication.WHICH: self.passed}) if self.passed else Data()


def waits(recorded: Recorded) -> list[tuple[int, float]]:
    """Step and time of each backward pass that was told of."""
    return [(one["step"], one["value"]) for one in recorded.events if one["name"] == "ddp.backward_comm"]


def forward(loggers: Any, logger: Logger) -> None:
    loggers.after(loggers.before((logger,), {}), None, None)


def test_each_backward_pass_of_a_step_is_told_of_in_its_own_step() -> None:
    """Two of them in each step; that of the last is never known."""
    loggers, logger = communication._Loggers(), Logger()
    with record() as recorded:
        for _ in range(2):
            for _ in range(2):
                step.begin()
                forward(loggers, logger)
                logger.passed += 1
            step.end(0)
    assert waits(recorded) == [(0, 1.0), (0, 2.0), (1, 3.0)]


def test_two_forwards_before_a_backward_pass_tell_the_one_before_once() -> None:
    """The logger has nothing new at the second."""
    loggers, logger = communication._Loggers(), Logger()
    with record() as recorded:
        step.begin()
        forward(loggers, logger)
        logger.passed = 1
        forward(loggers, logger)
        forward(loggers, logger)
    assert waits(recorded) == [(0, 1.0)]


def test_a_logger_that_fails_is_asked_no_more() -> None:
    """And the program goes on."""

    class Failing(Logger):
        asked = 0

        def _get_ddp_logging_data(self) -> Data:
            Failing.asked += 1
            raise RuntimeError

    loggers, logger = communication._Loggers(), Failing()
    with record() as recorded:
        step.begin()
        for _ in range(3):
            forward(loggers, logger)
    assert Failing.asked == 1
    assert waits(recorded) == []
