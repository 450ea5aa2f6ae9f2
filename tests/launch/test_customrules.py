"""Rules of one's own act on a program that runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import sonde
from sonde import stopping
from sonde.analysis.run import open_run
from sonde.cli.live import customrules
from sonde.errors import SondeError
from sonde.store.request import StopRequest, ask_stop, asked_stop
from sonde.testing import build_run

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
    assert done.stderr.count("sonde: The rule RAISES in mine.py failed: ValueError: no. It is off") == 1


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


RANKS = """
import os, time
import torch
import torch.distributed as together
import sonde
torch.set_num_threads(1)
rank = int(os.environ["RANK"])
together.init_process_group("gloo", init_method=f"file://{os.path.abspath('meeting')}", rank=rank, world_size=2)
model = torch.nn.Sequential(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(torch.ones(8000, 4), batch_size=2)
for step, batch in enumerate(loader):
    time.sleep(0.02)
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
    together.all_reduce(torch.ones(1))
    if sonde.should_stop():
        break
open(f"stopped-{rank}", "w").write(str(step))
together.destroy_process_group()
"""
OF_RANKS = """
import os, time
def look_deep(facts):
    return {"why": "Odd.", "next": "Look.", "then": ["deepen", "dump"]}
def raises(facts):
    return 1 / 0
def enough(facts):
    if os.path.exists(__file__ + ".now"):
        return {"why": "Enough.", "next": "Stop.", "then": "stop"}
def hangs(facts):
    time.sleep(1000)
"""


def test_rules_act_on_all_ranks_and_those_that_fail_are_off(tmp_path: Path) -> None:
    """Two ranks write their batches, record the same steps deep, and stop after the same step, whatever other rules do."""
    run = build_run(tmp_path / "sonde-runs" / "one", ())
    (tmp_path / "train.py").write_text(RANKS)
    rules = tmp_path / "mine.py"
    rules.write_text(OF_RANKS)
    env = {name: value for name, value in os.environ.items() if not name.startswith("SONDE")}
    env |= {"WORLD_SIZE": "2", "SONDE_RUN": str(run), "SONDE_BLACKBOX": "2"}
    command = [sys.executable, "-m", "sonde", "run", "-q", "train.py"]
    programs = [subprocess.Popen(command, cwd=tmp_path, env={**env, "RANK": str(rank)}) for rank in range(2)]
    said: list[str] = []
    acting = customrules.Acting(run, [str(rules)], said.append, seconds=12)
    try:
        until = time.monotonic() + 100
        while not any("in depth" in one for one in said) and time.monotonic() < until:
            with suppress(SondeError):
                acting.look()
            time.sleep(0.2)
        failed = list(said)
        (tmp_path / "mine.py.now").touch()
        while not any("to stop" in one for one in said) and time.monotonic() < until:
            acting.look()
    finally:
        codes = [program.wait(timeout=120) for program in programs]
    assert codes == [0, 0]
    assert (tmp_path / "stopped-0").read_text() == (tmp_path / "stopped-1").read_text() != "3999"
    assert [one for one in said if "off until" in one] == [
        "The rule RAISES in mine.py failed: ZeroDivisionError: division by zero. It is off until the program ends.",
        "The rule HANGS in mine.py did not end within 12 s. It is off until the program ends.",
    ]
    assert len([one for one in said if "RAISES" in one or "HANGS" in one]) == 2
    assert failed[-1] == "LOOK_DEEP: Odd. Asked for the last batches."
    with open_run(run) as opened:
        deep = opened.sql("SELECT rank, min(step), max(step) FROM layers GROUP BY rank ORDER BY rank").fetchall()
    assert [(rank, last - first) for rank, first, last in deep] == [(0, 19), (1, 19)]
    assert deep[0][1:] == deep[1][1:]
    assert len([one for one in (run / "blackbox").iterdir() if one.is_dir()]) == 2
