"""Losses and metrics that frameworks log, as the table `metrics` has them."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from sonde.analysis.run import open_run  # noqa: E402

HEAD = """
import os, warnings
os.environ["KERAS_BACKEND"] = "torch"
warnings.simplefilter("ignore")
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
torch.manual_seed(0)
points = torch.randn(64, 8)
classes = (points.sum(1) > 0).long()
batches = DataLoader(TensorDataset(points, classes), 16)
"""
PROGRAMS = {
    "sonde": """
import sonde
net = nn.Linear(8, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for given, wanted in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(given), wanted).backward()
        optimizer.step()
    sonde.log(val_loss=1.0 - epoch / 4, rows=3)
""",
    "huggingface": """
import transformers
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 2)
    def forward(self, given=None, labels=None):
        scores = self.layer(given)
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}
rows = [{"given": one, "labels": wanted} for one, wanted in zip(points, classes)]
arguments = transformers.TrainingArguments(
    "out", num_train_epochs=2, per_device_train_batch_size=16, eval_strategy="epoch", report_to=[], use_cpu=True,
    disable_tqdm=True, save_strategy="no", logging_steps=2)
transformers.Trainer(Model(), arguments, train_dataset=rows, eval_dataset=rows).train()
""",
    "lightning": """
import lightning.pytorch as lightning
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 2)
    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
    def validation_step(self, batch, _):
        self.log("val_loss", nn.functional.cross_entropy(self.layer(batch[0]), batch[1]))
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
lightning.Trainer(max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False).fit(Model(), batches, batches)
""",
    "keras": """
import keras
model = keras.Sequential([keras.layers.Dense(2)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(points.numpy(), classes.numpy(), epochs=2, batch_size=16, validation_split=0.5, verbose=0)
""",
    "ignite": """
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Loss
net = nn.Linear(8, 2)
loss = nn.CrossEntropyLoss()
trainer = create_supervised_trainer(net, torch.optim.SGD(net.parameters(), 0.1), loss)
first, second = (create_supervised_evaluator(net, {"val_loss": Loss(loss)}) for _ in range(2))
@trainer.on(Events.EPOCH_COMPLETED)
def evaluate(_):
    first.run(batches)
    second.run(batches)
trainer.run(batches, 2)
""",
}
NAMES = {"huggingface": "eval_loss", "ignite": "val_loss#2"}
LIBRARIES = {"huggingface": "transformers"}


@pytest.mark.parametrize("source", PROGRAMS)
def test_evaluation_losses_are_recorded_of_an_unedited_program(source: str, tmp_path: Path) -> None:
    """One for each of two epochs, at its step; what is of training is not called an evaluation."""
    if find_spec(LIBRARIES.get(source, source)) is None:
        pytest.skip(f"{source} is not installed")
    (tmp_path / "train.py").write_text(HEAD + PROGRAMS[source])
    command = [sys.executable, "-m", "sonde", "run", "-q", "--dir", "runs", "--", sys.executable, "train.py"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=240)
    (folder,) = (tmp_path / "runs").iterdir()
    with open_run(folder) as run:
        found = run.sql(
            "SELECT step, name, value, source FROM metrics WHERE evaluation AND contains(name, 'loss') ORDER BY time_ns"
        ).fetchall()
        others = run.sql("SELECT DISTINCT name FROM metrics WHERE NOT evaluation").fetchall()
    assert {one[3] for one in found} == {source}
    named = [one for one in found if one[1] == NAMES.get(source, "val_loss")]
    assert len(named) == 2
    assert named[0][0] < named[1][0]
    assert named[1][2] < named[0][2]
    assert not {name for (name,) in others} & {"val_loss", "eval_loss"}
