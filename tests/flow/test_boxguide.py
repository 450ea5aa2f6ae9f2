"""docs/reference/blackbox.md: its examples run, in a program that is recorded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sonde.analysis.postmortem.blackbox import black_box
from sonde.analysis.run import open_run
from sonde.testing import record
from sonde.views.blackbox import blackbox

GUIDE = Path(__file__).resolve().parents[2] / "docs/reference/blackbox.md"

PROGRAM = """
import sonde, sonde.flow
import torch
from torch.utils.data import DataLoader, Dataset

class Survey(Dataset):
    def __len__(self):
        return 9
    def __getitem__(self, index):
        image = torch.full((3, 16, 16), float(index))
        if index == 7:
            image[0, 0, 0] = float("nan")
        return {"image": image, "label": index % 2, "object_id": str(100 + index)}

model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 2))
loader = DataLoader(Survey(), batch_size=3)

def train_one_epoch(model, loader):
    for batch in loader:
        torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"]).backward()
"""


def test_the_examples_of_the_guide_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They find the item, and the page of the run names it."""
    pytest.importorskip("torch")
    names: dict[str, object] = {"__name__": "guide"}
    exec(PROGRAM, names)
    with record(dir=str(tmp_path)) as recorded:
        for block in re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL):
            exec(compile(block, str(GUIDE), "exec"), names)
    assert "107" in capsys.readouterr().out
    assert [path.name[4:13] for path in (recorded.path / "blackbox").iterdir()] == ["nonfinite"]
    with open_run(recorded.path) as run:
        page = blackbox(run, black_box(run))
    assert "item 7 (id 107) of batch 2, already in the dataset's output" in page.births[0].sentence
    assert [names[0] for names in (one.ids for one in page.batches)] == ["100", "103", "106"]
    assert page.batches[-1].culprits == [1]
