"""docs/reference/flow.md: its examples run, in the order in which they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs/reference/flow.md"

PROGRAM = """
import torch
from torch.utils.data import DataLoader, Dataset

class Survey(Dataset):
    def __len__(self):
        return 9
    def __getitem__(self, index):
        return {"image": torch.full((3, 16, 16), float(index)), "label": index % 2, "object_id": str(100 + index)}

model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 2))
loader = DataLoader(Survey(), batch_size=3, sampler=[7, 1, 2, 3, 4])

def train_one_epoch(model, loader):
    for batch in loader:
        torch.nn.functional.cross_entropy(model(batch["image"].to("cpu")), batch["label"]).backward()
"""


def test_the_examples_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, in one program."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "guide"}
    exec(PROGRAM, names)
    for block in re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, str(GUIDE), "exec"), names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["before.sonde", "trace.html"]
