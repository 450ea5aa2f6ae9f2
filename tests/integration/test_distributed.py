"""Two ranks as libraries make them: accelerate, sharded models and optimizers, distributed checkpoints; none of it edited."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.conftest import Programs
from tests.integration.launching import run, script

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
# The ranks are forked from one process that has all imports. They train a model that is sharded, save it, and train another
# one with an optimizer that is sharded.
RANKS = """
    import torch.multiprocessing as mp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer
    import torch.distributed.checkpoint as checkpoint

    def made():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))

    def train(model, optimizer):
        for step in range(4):
            optimizer.zero_grad()
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()

    def rank(number):
        os.environ["RANK"], os.environ["WORLD_SIZE"] = str(number), "2"
        store = "file://" + os.path.abspath("store")
        dist.init_process_group("gloo", init_method=store, rank=number, world_size=2)
        model = made()
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        checkpoint.save({"model": model.state_dict()}, checkpoint_id="saved")
        other = made()
        train(other, ZeroRedundancyOptimizer(other.parameters(), torch.optim.SGD, lr=0.1))
        leave()

    if __name__ == "__main__":
        mp.start_processes(rank, nprocs=2, start_method="fork")
"""
SHARDED, ZERO = range(4), range(4, 8)  # the steps of the one and of the other

# Ranks that only the program knows. Each has a loader with a worker that is not forked, and rank 1 forks a helper.
SPAWNED = """
    import torch.multiprocessing as mp

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 8
        def __getitem__(self, index):
            return torch.ones(4) * index

    def rank(number):
        store = "file://" + os.path.abspath("store")
        dist.init_process_group("gloo", init_method=store, rank=number, world_size=2)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=1, multiprocessing_context="spawn"):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
        if number == 1 and os.fork() == 0:
            sys.modules["sonde"].mark("helping")
            os._exit(0)
        leave()

    if __name__ == "__main__":
        mp.start_processes(rank, nprocs=2, start_method="spawn")
"""


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """What two ranks recorded that learn their rank late."""
    programs = Programs(tmp_path_factory.mktemp("late"))
    run(programs, "-q", str(script(programs.folder, BEGIN + SPAWNED)))
    return programs


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """What the two ranks recorded."""
    programs = Programs(tmp_path_factory.mktemp("ranks"))
    run(programs, "-q", str(script(programs.folder, BEGIN + RANKS)))
    return programs


def steps(programs: Programs) -> list[tuple[int, int]]:
    """Rank, and how many steps it has."""
    return programs.rows("SELECT rank, count(*) FROM steps GROUP BY rank ORDER BY rank")


def times(programs: Programs, name: str) -> dict[int, list[int]]:
    """The steps in which each rank has a span of this name."""
    found = programs.rows(
        "SELECT rank, list(step ORDER BY start_ns) FROM events "
        f"WHERE cat = 'probe' AND kind = 'span' AND name = '{name}' GROUP BY rank"
    )
    return dict(found)


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
    run(programs, "-q", str(accelerate), "launch", *words, "--dynamo_backend", "no", str(path))
    assert steps(programs) == [(0, 4), (1, 4)]
    for name in ("forward", "backward", "optimizer"):
        assert times(programs, name) == {0: [0, 1, 2, 3], 1: [0, 1, 2, 3]}


def test_a_fully_sharded_model_has_its_steps_and_a_distributed_checkpoint_is_one(ranks: Programs) -> None:
    """FSDP2 on the CPU, and `torch.distributed.checkpoint.save`, which writes its parts by functions that are seen too."""
    assert (ranks.folder / "saved" / ".metadata").exists()
    assert steps(ranks) == [(0, 8), (1, 8)]
    for name in ("forward", "backward", "optimizer"):
        found = times(ranks, name)
        assert [[step for step in found[rank] if step in SHARDED] for rank in range(2)] == [list(SHARDED)] * 2
    assert [len(times(ranks, "checkpoint")[rank]) for rank in range(2)] == [1, 1]


def test_an_optimizer_that_holds_another_ends_one_step_per_update(ranks: Programs) -> None:
    """`ZeroRedundancyOptimizer` steps an inner optimizer of its own."""
    assert steps(ranks) == [(0, 8), (1, 8)]
    found = times(ranks, "optimizer")
    assert [[step for step in found[rank] if step in ZERO] for rank in range(2)] == [list(ZERO)] * 2


PROCESSES = "SELECT rank, world_size, role FROM processes WHERE rank IS NOT NULL ORDER BY ALL"


def test_ranks_that_only_the_program_knows_are_learned_from_torch(late: Programs) -> None:
    """Those of `torch.multiprocessing.spawn`: trainers with their steps; their workers and helpers belong to them."""
    of_0, of_1 = ("trainer", "worker"), ("child", "trainer", "worker")
    assert late.rows(PROCESSES) == [*((0, 2, role) for role in of_0), *((1, 2, role) for role in of_1)]
    assert steps(late) == [(0, 4), (1, 4)]
    assert times(late, "backward") == {0: [0, 1, 2, 3], 1: [0, 1, 2, 3]}


def test_ranks_that_were_learned_stay_when_the_run_is_sealed(late: Programs, tmp_path: Path) -> None:
    """The tables of a sealed run have them too."""
    sealed = Programs(tmp_path)
    shutil.copytree(late.only, sealed.dir / late.only.name)
    subprocess.run([sys.executable, "-m", "sonde", "seal", str(sealed.only)], check=True, capture_output=True)
    assert list((sealed.only / "parts").glob("manifest-*.json"))
    assert sealed.rows(PROCESSES) == late.rows(PROCESSES)
    assert steps(sealed) == steps(late)


def test_only_the_chosen_of_ranks_that_learn_it_late_is_recorded_whole(programs: Programs) -> None:
    """With its worker; of the other one only the ends of steps are noted."""
    run(programs, "-q", "--ranks", "1", str(script(programs.folder, BEGIN + SPAWNED)))
    assert steps(programs) == [(0, 4), (1, 4)]
    assert times(programs, "backward") == {1: [0, 1, 2, 3]}
    assert programs.rows("SELECT DISTINCT rank FROM events WHERE name IN ('item', 'fetch')") == [(1,)]
