"""A real recording that grows by as many steps as a test asks for: a program that waits for its tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = """
import math, sys, time
import sonde
from sonde import ai

sonde.init(dir=sys.argv[1], name="grown")
step = 0
for line in sys.stdin:
    for _ in range(int(line)):
        with sonde.trace_step(step=step):
            with ai.dataloader.fetch:
                time.sleep(0.002 if step % 10 else 0.02)
            with ai.compute.forward:
                time.sleep(0.001)
            with ai.compute.backward:
                time.sleep(0.001)
            sonde.log(loss=2 + math.cos(step / 10))
        step += 1
    print("done", flush=True)
"""


class Growing:
    """A program that is being recorded."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.folder = folder
        self.process = process
        self.steps = 0

    @property
    def id(self) -> str:
        """The name of its run."""
        (found,) = (path.name for path in self.folder.iterdir() if path.is_dir())
        return found

    def grow(self, steps: int) -> None:
        """Do so many more steps; they are on disk when this returns."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline(), "the program has ended"
        self.steps += steps

    def finish(self) -> None:
        """Let it come to its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


@contextmanager
def growing(folder: Path, steps: int) -> Iterator[Growing]:
    """A program with some steps, which goes on; in the end it finishes, or is as the test left it."""
    line = [sys.executable, "-c", PROGRAM, str(folder)]
    environment = os.environ | {"SONDE_ENABLED": "1"}
    with subprocess.Popen(line, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        found = Growing(folder, process)
        try:
            found.grow(steps)
            yield found
        finally:
            found.finish()
