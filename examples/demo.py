"""The main job in a minute: Sonde names the items that make a training slow, then survives a `kill -9`.

    make demo        or        python examples/demo.py

First `slow.py`, a training that does not mention Sonde, runs under `sonde run`: the card names its slow items, and a page is written.
Then two processes record themselves; one hangs while it saves a checkpoint and is killed. `sonde show` shows what it was doing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import sonde
from sonde import ai

STEPS = 40
PAGE = Path("sonde-runs/slow.html")


@ai.data.item
def load(index: int) -> int:
    """Stand in for reading a picture."""
    time.sleep(0.012 if index % 10 == 0 else 0.001)
    return index


@ai.pipeline.train
def train() -> None:
    """Stand in for a training loop, marked by hand with the vocabulary."""
    for step, _ in ai.dataloader.fetch.iter(enumerate(map(load, range(STEPS)))):
        ai.update(step=step, epoch=0)
        with ai.compute.forward:
            time.sleep(0.002)
        with ai.compute.backward:
            time.sleep(0.003)
        sonde.log(loss=1.0 / (step + 1))


def hang() -> None:
    """Train, then save a checkpoint that never gets saved."""
    train()
    with ai.checkpoint.capture(args={"path": "model-40.pt"}):
        print("hanging", flush=True)
        time.sleep(600)


def diagnose() -> None:
    """Run a training that does not know Sonde. The card has the verdict, the page has the charts."""
    script = Path(__file__).with_name("slow.py")
    print(
        f"1. A slow training. Nothing in {script.name} mentions Sonde.\n\n$ sonde run examples/{script.name}",
        flush=True,
    )
    subprocess.run([sys.executable, "-m", "sonde", "run", "--name", "slow", str(script)], check=True)
    print(f"\n$ sonde report --html {PAGE}", flush=True)
    subprocess.run([sys.executable, "-m", "sonde", "report", "--html", str(PAGE)], check=True)


def survive() -> None:
    """Record, kill, show."""
    print("\n2. A process that hangs and is killed with -9. Its records are safe.\n", flush=True)
    with sonde.init(name="killed") as session:
        hanging = subprocess.Popen([sys.executable, __file__, "hang"], stdout=subprocess.PIPE, text=True)
        assert hanging.stdout is not None
        hanging.stdout.readline()
        os.kill(hanging.pid, signal.SIGKILL)
        hanging.wait(30)
    print(f"$ kill -9 {hanging.pid}\n$ sonde show", flush=True)
    subprocess.run([sys.executable, "-m", "sonde", "show", str(session.path)], check=True)


def main() -> None:
    """Both parts, and where to go from here."""
    diagnose()
    survive()
    command = os.path.relpath(Path(sys.executable).with_name("sonde"))
    print("\nTry next:")
    print(f"  xdg-open {PAGE}    the page of the first report, with charts")
    print(f"  {command} watch examples/slow.py    the same training on a live screen")
    print(f"  {command} run your_train.py    your own training, unedited")


if __name__ == "__main__":
    hang() if sys.argv[1:] == ["hang"] else main()
