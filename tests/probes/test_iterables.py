"""Loaders, trainers and arrays of other libraries, each installed beside this environment for the test: waits, samples and steps."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from importlib.metadata import version
from pathlib import Path

import pytest

from sonde.analysis.run import Run, open_run

pytestmark = pytest.mark.soak
SECONDS = 900
LOOP = """
import sonde
session = sonde.init("loop")
seen = 0
for batch in sonde.wrap_dataloader(loader(), size=size):
    with sonde.trace_step():
        seen += 1
sonde.finish()
print(seen)
"""
GRAIN = """
import time
import grain.python as grain
import numpy as np
class Source:
    def __len__(self): return 64
    def __getitem__(self, index): time.sleep(0.002); return np.full(4, index)
def loader():
    sampler = grain.IndexSampler(64, grain.NoSharding(), shuffle=True, seed=0, num_epochs=1)
    return grain.DataLoader(data_source=Source(), sampler=sampler, operations=[grain.Batch(8)], worker_count=0)
size = len
"""
WEBDATASET = """
import time
import numpy as np
import webdataset
with webdataset.TarWriter("data.tar") as file:
    for index in range(64):
        file.write({"__key__": f"{index:04d}", "x.npy": np.full(4, index)})
def slow(item): time.sleep(0.002); return item
def loader():
    return webdataset.WebDataset("data.tar", shardshuffle=False).decode().to_tuple("x.npy").map(slow).batched(8)
size = lambda batch: len(batch[0])
"""
TENSORFLOW = """
import time
import numpy as np
import tensorflow
def slow(x): time.sleep(0.002); return x
def loader():
    data = tensorflow.data.Dataset.from_tensor_slices(np.arange(64))
    return data.map(lambda x: tensorflow.numpy_function(slow, [x], x.dtype)).batch(8)
size = len
"""
# Not mosaicml-streaming: it needs a torchvision that was built for the torch of this environment.
LIBRARIES = {"grain": GRAIN, "webdataset": WEBDATASET, "tensorflow-cpu": TENSORFLOW}


def run_with(package: str, folder: Path, program: str, *line: str) -> tuple[str, Run]:
    """Run a program with a package that is not in this environment, but sees everything that is; what it printed, and its run."""
    venv.create(folder / "env", with_pip=True)
    python = folder / "env/bin/python"
    there = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    source = Path(__file__).resolve().parents[2] / "src"
    Path(there.stdout.strip(), "beside.pth").write_text(f"{sysconfig.get_path('purelib')}\n{source}\n")
    (folder / "held").write_text(f"torch=={version('torch')}\n")  # the newest build brings gigabytes for devices
    install = [str(python), "-m", "pip", "install", "-q", "-c", str(folder / "held"), package]
    made = subprocess.run(install, capture_output=True, timeout=SECONDS, check=False)
    if made.returncode:
        pytest.skip(f"{package} does not install here")
    (folder / "program.py").write_text(program)
    env = {name: value for name, value in os.environ.items() if not name.startswith("SONDE")}
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29513"} if package == "deepspeed" else {}
    env |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"} if package == "deepspeed" else {}
    done = subprocess.run(
        [python, *line, "program.py"], cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (found,) = (folder / "sonde-runs").iterdir()
    return done.stdout, open_run(found)


@pytest.mark.parametrize("package", LIBRARIES)
def test_waits_and_samples_of_a_loader_are_recorded(package: str, tmp_path: Path) -> None:
    """Eight batches of eight. Each item takes 2 ms, several at a time where a library has threads for it."""
    printed, run = run_with(package, tmp_path, LIBRARIES[package] + LOOP)
    assert printed.splitlines()[-1] == "8"
    with run:
        ((steps, samples, waited),) = run.sql(
            "SELECT count(*), sum(samples), sum(input_wait_ns) / 1e6 FROM steps"
        ).fetchall()
        ((batches, sizes),) = run.sql("SELECT count(*), sum(size) FROM batches WHERE wait_ns IS NOT NULL").fetchall()
    assert (steps, samples, batches, sizes) == (8, 64, 8, 64)
    assert waited >= 8 * 2


JAX = """
import time
import jax, jax.numpy as jnp
import sonde
@jax.jit
def update(weights, x):
    return weights - 0.1 * jax.grad(lambda w: ((x @ w) ** 2).mean())(weights)
def data():
    for index in range(30):
        time.sleep(0.002)
        yield jnp.ones((8, 4)) * index / 30
weights = jnp.ones(4)
with sonde.init("jax"):
    for x in sonde.wrap_dataloader(data(), size=len):
        with sonde.trace_step():
            weights = update(weights, x).block_until_ready()
print(weights[0])
"""


def test_a_loop_of_jax_has_steps_and_waits(tmp_path: Path) -> None:
    """Marked by `trace_step`; the rest of a step is what JAX computes."""
    _, run = run_with("jax", tmp_path, JAX)
    with run:
        ((steps, samples, waited, rest),) = run.sql(
            "SELECT count(*), sum(samples), sum(input_wait_ns) / 1e6, sum(residual_ns) FROM steps"
        ).fetchall()
    assert (steps, samples) == (30, 240)
    assert waited >= 60
    assert rest > 0


RAY = """
import ray
import ray.train
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
def work():
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    model = ray.train.torch.prepare_model(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = ray.train.torch.prepare_data_loader(DataLoader(TensorDataset(torch.ones(64, 4)), batch_size=4))
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
ray.init(num_cpus=2, include_dashboard=False)
TorchTrainer(work, scaling_config=ScalingConfig(num_workers=2)).fit()
"""


def test_ray_train_on_one_node_is_recorded_without_an_edit(tmp_path: Path) -> None:
    """Both workers in one run, with their ranks."""
    _, run = run_with("ray[train]", tmp_path, RAY, "-m", "sonde", "run", "-q")
    with run:
        found = run.sql(
            "SELECT rank, count(*), count(forward_ns), count(communication_ns) > 0 FROM steps GROUP BY 1 ORDER BY 1"
        ).fetchall()
    assert found == [(0, 8, 8, True), (1, 8, 8, True)]


DEEPSPEED = """
import torch
import deepspeed
from torch.utils.data import TensorDataset
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
config = {"train_batch_size": 8, "gradient_accumulation_steps": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.01}}}
engine, _, loader, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), training_data=TensorDataset(torch.ones(80, 4)), config=config)
for (x,) in loader:
    loss = engine(x.to(engine.device)).sum()
    engine.backward(loss)
    engine.step()
print("trained")
"""


def test_deepspeed_is_recorded_without_an_edit(tmp_path: Path) -> None:
    """A step is an update, with its micro-batches."""
    _, run = run_with("deepspeed", tmp_path, DEEPSPEED, "-m", "sonde", "run", "-q")
    with run:
        found = run.sql(
            "SELECT count(*), min(micro_batches), count(forward_ns), count(backward_ns), count(optimizer_ns) FROM steps"
        ).fetchall()
    assert found == [(10, 2, 10, 10, 10)]
