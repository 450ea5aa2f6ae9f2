"""Steps that torch.profiler records beside Sonde, and their place on the timeline of the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from sonde import session
from sonde.analysis.run import open_run
from sonde.errors import RunUnreadable
from sonde.exchange.imports.profiler import join
from sonde.probes import step
from sonde.store.folder import PROFILES
from sonde.testing import record


def train(steps: int) -> torch.Tensor:
    """A small training; its last weights."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
    return model[0].weight.detach().clone()  # type: ignore[operator]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight steps, of which two were profiled and joined."""
    with record(dir=str(tmp_path_factory.mktemp("runs")), profile_step="3:5") as recorded:
        train(8)
    with open_run(recorded.path) as opened:
        steps = opened.sql("SELECT * FROM steps ORDER BY ALL").fetchall()
    assert join(recorded.path) > 100
    with open_run(recorded.path) as opened:
        assert opened.sql("SELECT * FROM steps ORDER BY ALL").fetchall() == steps
    return recorded.path


def ask(run: Path, query: str) -> list[tuple[Any, ...]]:
    with open_run(run) as opened:
        return opened.sql(query).fetchall()


def test_the_operators_of_the_named_steps_are_there(run: Path) -> None:
    """In these steps, and in no other one."""
    found = ask(
        run, "SELECT step, count(*) FROM events WHERE cat = 'cpu_op' AND name = 'aten::linear' GROUP BY 1 ORDER BY 1"
    )
    assert found == [(3, 2), (4, 2)]


def test_both_clocks_agree(run: Path) -> None:
    """Each operator of the forward pass lies inside a forward that Sonde saw, within 100 µs."""
    query = """
        SELECT count(*) FROM events o JOIN events f ON f.cat = 'probe' AND f.name = 'forward'
            AND o.start_ns BETWEEN f.start_ns - 100000 AND f.start_ns + f.dur_ns
        WHERE o.cat = 'cpu_op' AND o.name = 'aten::linear'
    """
    assert ask(run, query) == [(4,)]


def test_the_profile_is_a_process_of_its_own(run: Path) -> None:
    """Which trains nothing, and ended well."""
    (row,) = ask(run, "SELECT role, state FROM processes WHERE process NOT IN (SELECT process FROM steps)")
    assert row == ("profiler", "ended")
    found = ask(run, "SELECT cat, name FROM events WHERE pid > 10000000")
    assert ("user_annotation", "Optimizer.step#SGD.step") in found
    assert not {cat for cat, _ in found} & {"probe", "compute"}


def test_what_was_joined_is_not_joined_again(run: Path) -> None:
    """And nothing is left behind."""
    before = sorted(run.iterdir())
    assert join(run) == 0
    assert sorted(run.iterdir()) == before


@pytest.mark.parametrize("given", ["0", "6:100"])
def test_the_first_step_and_a_range_beyond_the_end(tmp_path: Path, given: str) -> None:
    """What there is of the range is recorded."""
    with record(dir=str(tmp_path), profile_step=given) as recorded:
        train(8)
    assert join(recorded.path) > 0
    found = ask(
        recorded.path, "SELECT DISTINCT step FROM events WHERE name = 'aten::linear' AND step IS NOT NULL ORDER BY 1"
    )
    assert found == ([(0,)] if given == "0" else [(6,), (7,)])


def test_training_is_the_same(tmp_path: Path) -> None:
    """To the bit; and after the range the fast paths are taken again."""
    plain = train(8)
    with record(dir=str(tmp_path), profile_step=2):
        assert torch.equal(train(8), plain)
        assert step.now.all


def test_a_program_that_profiles_itself_keeps_its_profile(tmp_path: Path) -> None:
    """Only one profiler can run: ours is switched off, and the run says so."""
    with record(dir=str(tmp_path), profile_step="2:4") as recorded, torch.profiler.profile() as mine:
        train(8)
    assert sum(one.count for one in mine.key_averages() if one.key == "aten::linear") == 16
    assert not (recorded.path / PROFILES).exists()
    assert [event["name"] for event in recorded.events if event["cat"] == "probe.off"] == ["profile"]


def test_a_damaged_profile_is_refused(tmp_path: Path) -> None:
    """With its name, and without a trace in the run."""
    with record(dir=str(tmp_path), profile_step=2) as recorded:
        train(4)
    (file,) = (recorded.path / PROFILES).iterdir()
    file.write_bytes(b"no trace")
    before = sorted(recorded.path.iterdir())
    with pytest.raises(RunUnreadable, match=file.name):
        join(recorded.path)
    assert sorted(recorded.path.iterdir()) == before


NINE_STEPS = """
import torch
m = torch.nn.Linear(4, 4)
o = torch.optim.SGD(m.parameters(), 0.1)
for _ in range(9):
    m(torch.ones(2, 4)).sum().backward(); o.step()
"""


def run_nine_steps(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A training of nine steps under `sonde run`."""
    (folder / "train.py").write_text(NINE_STEPS)
    line = [sys.executable, "-m", "sonde", "run", *options, "train.py"]
    env = os.environ | environment
    return subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, timeout=100, check=True)


def test_sonde_run_says_that_no_step_was_profiled(tmp_path: Path) -> None:
    """The program has fewer steps."""
    done = run_nine_steps(tmp_path, "-q", "--profile-step", "54:57")
    assert done.stderr.startswith("sonde: --profile-step 54:57: nothing was profiled.")


def test_the_variable_profiles_as_the_option_does(tmp_path: Path) -> None:
    """Its steps are on the timeline too."""
    done = run_nine_steps(tmp_path, SONDE_PROFILE_STEP="4:6")
    assert "sonde: torch.profiler recorded " in done.stderr


def test_sonde_run_joins_at_the_end(tmp_path: Path) -> None:
    """Without an edit."""
    done = run_nine_steps(tmp_path, "--profile-step", "4:6")
    assert "sonde: torch.profiler recorded " in done.stderr
    (found,) = (tmp_path / "sonde-runs").iterdir()
    assert ask(found, "SELECT DISTINCT step FROM events WHERE name = 'aten::linear' ORDER BY 1") == [(4,), (5,)]
    assert json.loads((found / "run.json").read_text())["settings"]["profile_step"] == [4, 6]


@pytest.mark.parametrize("given", ["54:", "x", "5:5", "-1"])
def test_a_range_without_an_end_is_refused(given: str) -> None:
    """A profile of all steps fills the memory."""
    with pytest.raises(ValueError, match="a range such as 54:57"):
        session.init(profile_step=given)
