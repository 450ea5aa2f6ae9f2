"""The types that Sonde ships: a strict mypy of a user's project accepts them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """\
import sonde
from sonde import ai

@ai.compute.forward
def forward(batch: list[float]) -> float:
    return sum(batch)

def train() -> None:
    with sonde.init("typed"), sonde.span("load"):
        for step, batch in ai.dataloader.fetch.iter(enumerate([[1.0], [2.0]])):
            ai.update(step=step)
            sonde.log(loss=forward(batch))
    with sonde.flow.trace(items=2) as seen:
        forward([1.0])
    print(sonde.open_run("sonde-runs/x").sql("select 1").fetchall(), seen)
"""


def test_strict_mypy_of_a_users_project_accepts_sonde(tmp_path: Path) -> None:
    """`py.typed` is found, decorated functions keep their types, and a wrong call is an error."""
    (tmp_path / "right.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text(PROGRAM + "\nforward('no list of numbers')\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "right.py", "wrong.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    assert 'wrong.py:17: error: Argument 1 to "forward" has incompatible type "str"' in done.stdout
    assert done.stdout.count("error:") == 1, done.stdout
