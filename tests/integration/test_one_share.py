"""One number, one definition: the share of time that a recorded run waits for data is the same wherever Sonde shows it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch")

import sonde

if TYPE_CHECKING:
    from pathlib import Path

WAITING = """
import time, torch
from torch.utils.data import DataLoader, Dataset

class Files(Dataset):
    def __len__(self):
        return 240
    def __getitem__(self, index):
        time.sleep({seconds})
        return torch.ones(4), index % 3

model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for points, classes in DataLoader(Files(), batch_size=4):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(points), classes).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("kind", "seconds"), [("INPUT_BOUND", "0.002"), ("SLOW_ITEMS", "0.1 if index in (61, 122, 183) else 0.0003")]
)
def test_the_share_of_waiting_is_one_figure(tmp_path: Path, kind: str, seconds: str) -> None:
    """Verdict, card, page, digest, JSON and summary have it; a comparison has it from blocks of the same steps."""
    (tmp_path / "train.py").write_text(WAITING.replace("{seconds}", seconds))
    ask(tmp_path, "run", "--quiet", "train.py")
    report = json.loads(ask(tmp_path, "report", "--json", "--html", "page.html", "--static"))
    waited = next(phase["share"] for phase in report["phases"] if phase["phase"] == "input_wait")
    shown = f"{100 * waited:.0f} %"

    assert report["verdict"]["kind"] == kind
    assert f"{shown} of the step time" in report["verdict"]["why"]
    assert re.search(rf"input wait +\S+ +{shown} ", ask(tmp_path, "report"))
    assert re.search(rf"</i>input wait</td><td>{shown}</td>", (tmp_path / "page.html").read_text())
    assert re.search(rf"input wait \S+ \S+ \({shown}\)", ask(tmp_path, "report", "--brief"))
    (run,) = (tmp_path / "sonde-runs").iterdir()
    assert sonde.summary(run)["sonde/phases/input_wait/share"] == waited
    compared = json.loads(ask(tmp_path, "compare", *[run.name] * 3, "--by", "input_wait_share", "--json"))
    assert compared["ranking"][0]["input_wait_share"] == pytest.approx(waited, abs=0.01)  # of means of blocks


def ask(folder: Path, *words: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "sonde", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=True).stdout
