"""Rules of one's own act on a program that runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import sonde
from sonde import stopping
from sonde.store.request import StopRequest, ask_stop, asked_stop

PROGRAM = """
import time
import torch
import sonde
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
until = time.monotonic() + 100
while time.monotonic() < until and not sonde.should_stop():
    time.sleep(0.02)
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
print("stopped" if time.monotonic() < until else "nobody said so")
"""
RULES = """
def enough(facts):
    count = facts.number("SELECT count(*) FROM steps")
    if count and count > 20:
        return {"why": f"More than 20 steps.", "next": "Stop.", "then": ["stop", "deepen"]}
def raises(facts):
    raise ValueError("no")
"""


def test_a_rule_stops_the_program(tmp_path: Path) -> None:
    """And says so; one that raises is named once, and training goes on."""
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "mine.py").write_text(RULES)
    (tmp_path / "sonde.toml").write_text("rules = ['mine.py']\n")
    env = {name: value for name, value in os.environ.items() if not name.startswith("SONDE")}
    done = subprocess.run(
        [sys.executable, "-m", "sonde", "run", "train.py"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    assert done.stdout.splitlines()[0] == "stopped"
    assert "sonde: ENOUGH: More than 20 steps. Asked the program to stop." in done.stderr
    assert done.stderr.count("sonde: The rule RAISES in mine.py failed: ValueError: no") == 1


def test_nobody_is_asked_to_stop_where_nothing_is_recorded() -> None:
    """And nothing raises."""
    assert sonde.should_stop() is False


def test_a_rank_stops_at_the_step_that_was_named(tmp_path: Path) -> None:
    """Not before it, and at every look after it."""
    stopping._Seen.run = ""
    with sonde.init(dir=tmp_path) as session:
        assert session.path is not None
        ask_stop(session.path, StopRequest(7, "enough"))
        assert asked_stop(str(session.path)) == StopRequest(7, "enough")
        answers = []
        for step in (5, 6, 7, 8):
            sonde.ai.update(step=step)
            answers.append(sonde.should_stop())
    assert answers == [False, False, True, True]
    assert sonde.should_stop() is False
