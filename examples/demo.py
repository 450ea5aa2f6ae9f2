"""The main job in two minutes: a `kill -9` that loses nothing, and a training whose verdict names its slow items.

    make demo        or        python examples/demo.py

First two processes of two threads each, with a torch loader and its workers: one process trains; the other hangs while it
writes a checkpoint and is killed. `sonde show` then tells where the time went in all of them, and what the dead one was
doing. Then `slow.py`, a training in which Sonde is not mentioned, under `sonde run`: the card says what is wrong with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

import sonde
from sonde import ai

STEPS = 40


class Pictures(Dataset[int]):
    """A dataset in which one picture in ten takes long to decode."""

    def __len__(self) -> int:
        return STEPS * 4

    @ai.data.item
    def __getitem__(self, index: int) -> int:
        time.sleep(0.012 if index % 10 == 0 else 0.001)
        return index


@ai.compute.forward
def forward(batch: object) -> None:
    """Stand in for a model."""
    time.sleep(0.002)


@ai.compute.backward
def backward() -> None:
    """Stand in for its gradients."""
    time.sleep(0.003)


def write_metrics(stop: threading.Event) -> None:
    """The second thread of each process."""
    while not stop.wait(0.02):
        with ai.other.log:
            time.sleep(0.001)


@ai.pipeline.train
def train() -> None:
    """Train on batches that two loader workers prepare."""
    loader = DataLoader(Pictures(), batch_size=4, num_workers=2)
    for step, batch in ai.dataloader.fetch.iter(enumerate(loader)):
        ai.update(step=step, epoch=0)
        with ai.compute.step:
            forward(batch)
            backward()
        sonde.log(loss=1.0 / (step + 1))


def hang() -> None:
    """Write a checkpoint that never gets written."""
    ai.update(step=STEPS)
    with ai.checkpoint.capture(args={"path": "model-40.pt"}):
        print("hanging", flush=True)
        time.sleep(600)


def part(work: Callable[[], None]) -> None:
    """What each of the two processes does: its work, and a second thread beside it."""
    stop = threading.Event()
    writer = threading.Thread(target=write_metrics, args=(stop,), name="metrics", daemon=True)
    writer.start()
    work()
    stop.set()
    writer.join()


def start(name: str) -> subprocess.Popen[str]:
    """Start this file again; the child joins the run by itself."""
    return subprocess.Popen([sys.executable, __file__, name], stdout=subprocess.PIPE, text=True)


def main() -> None:
    """Both parts."""
    survive()
    diagnose()


def diagnose() -> None:
    """Train with nothing of Sonde in the script; the card at the end has the verdict. Then the page."""
    script = Path(__file__).with_name("slow.py")
    print("\nNow a training that does not know of Sonde, with three slow items in its data:\n", flush=True)
    subprocess.run([sys.executable, "-m", "sonde", "run", "--name", "slow", str(script)], check=True)
    subprocess.run([sys.executable, "-m", "sonde", "report", "--html", "sonde-runs/slow.html"], check=True)


def survive() -> None:
    """Record, kill, show."""
    with sonde.init(name="demo") as session:
        hanging, training = start("hang"), start("train")
        assert hanging.stdout is not None
        hanging.stdout.readline()
        training.wait(300)
        os.kill(hanging.pid, signal.SIGKILL)
        hanging.wait(30)
    print(f"Killed process {hanging.pid} with -9. What it did, and what it was doing, is in the run:\n")
    subprocess.run([sys.executable, "-m", "sonde", "show", str(session.path)], check=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["hang"]:
        part(hang)
    elif sys.argv[1:] == ["train"]:
        part(train)
    else:
        main()
