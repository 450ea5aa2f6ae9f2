"""Two ranks as libraries make them: accelerate, sharded models and optimizers, distributed checkpoints; none of it edited."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.launching import run, script

if TYPE_CHECKING:
    from tests.integration.conftest import Programs

pytest.importorskip("torch")

BEGIN = """
    import os, sys, time
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)

    def leave():
        # Together and at once: gloo's threads may abort a rank that takes its group down while the other one leaves.
        dist.barrier()
        sys.modules["sonde"].finish()
        sys.stdout.flush()
        open(f"left-{dist.get_rank()}", "w").close()
        while not all(os.path.exists(f"left-{rank}") for rank in range(2)):
            time.sleep(0.01)
        os._exit(0)
"""
# The ranks are forked from one process that has all imports: `both(rank)` is called in each of them.
RANKS = """
    import torch.multiprocessing as mp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer
    import torch.distributed.checkpoint as checkpoint

    def rank(number):
        os.environ["RANK"], os.environ["WORLD_SIZE"] = str(number), "2"
        store = "file://" + os.path.abspath("store")
        dist.init_process_group("gloo", init_method=store, rank=number, world_size=2)
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        train(model)
        leave()
"""
TRAIN = """
        for step in range(4):
            optimizer.zero_grad()
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()
"""
START = """
    if __name__ == "__main__":
        mp.start_processes(rank, nprocs=2, start_method="fork")
"""


def steps(programs: Programs) -> list[tuple[int, int]]:
    """Rank, and how many steps it has."""
    return programs.rows("SELECT rank, count(*) FROM steps GROUP BY rank ORDER BY rank")


def times(programs: Programs, *names: str) -> dict[tuple[int, str], int]:
    """How often each rank has a span of these names."""
    found = programs.rows(
        f"SELECT rank, name, count(*) FROM events WHERE cat = 'probe' AND kind = 'span' AND list_contains({list(names)}, name) "
        "GROUP BY ALL"
    )
    return {(rank, name): count for rank, name, count in found}


def test_accelerate_with_two_processes_has_the_steps_of_both(programs: Programs) -> None:
    """Its wrappers around model, optimizer and loader change nothing of what is seen."""
    accelerate = Path(sys.executable).with_name("accelerate")
    if not accelerate.exists():
        pytest.skip("accelerate is not installed")
    program = (
        BEGIN
        + """
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(8, 1)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(16, 8)), batch_size=2)
    model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), data)
    for (batch,) in data:
        optimizer.zero_grad()
        accelerator.backward(model(batch).sum())
        optimizer.step()
    leave()
"""
    )
    path = script(programs.folder, program)
    # On the CPU it starts one process only; with this option it starts two, and the script asks for the CPU.
    words = ["--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"]
    run(programs, str(accelerate), "launch", *words, "--dynamo_backend", "no", str(path))
    assert steps(programs) == [(0, 4), (1, 4)]
    found = times(programs, "forward", "backward", "optimizer", "input_wait")
    assert [found[rank, name] for rank in range(2) for name in ("forward", "backward", "optimizer")] == [4] * 6


def test_a_fully_sharded_model_has_its_steps_and_a_distributed_checkpoint_is_one(programs: Programs) -> None:
    """FSDP2 on the CPU, and `torch.distributed.checkpoint.save`, which writes its parts by functions that are seen too."""
    shard = """
    def train(model):
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
    save = """
        checkpoint.save({"model": model.state_dict()}, checkpoint_id="saved")
"""
    run(programs, str(script(programs.folder, BEGIN + RANKS + shard + TRAIN + save + START)))
    assert (programs.folder / "saved" / ".metadata").exists()
    assert steps(programs) == [(0, 4), (1, 4)]
    found = times(programs, "forward", "backward", "optimizer", "checkpoint")
    assert [found[rank, name] for rank in range(2) for name in ("forward", "backward", "optimizer")] == [4] * 6
    assert [found[rank, "checkpoint"] for rank in range(2)] == [1, 1]


def test_an_optimizer_that_holds_another_ends_one_step_per_update(programs: Programs) -> None:
    """`ZeroRedundancyOptimizer` steps an inner optimizer of its own."""
    shard = """
    def train(model):
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
"""
    run(programs, str(script(programs.folder, BEGIN + RANKS + shard + TRAIN + START)))
    assert steps(programs) == [(0, 4), (1, 4)]
    assert times(programs, "optimizer") == {(0, "optimizer"): 4, (1, "optimizer"): 4}
