"""Healthy: Lightning with validation, dropout and accumulated batches."""

from __future__ import annotations

import logging
import warnings

import torch
from benchmarks.faults.lessons import lesson, loader
from benchmarks.faults.parts import begin
from lightning.pytorch import LightningModule, Trainer
from torch import nn


class Model(LightningModule):
    """A perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """The loss."""
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        """The same, of items that were never seen."""
        self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=2e-3)


if __name__ == "__main__":
    begin()
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    trainer = Trainer(
        max_epochs=10, accumulate_grad_batches=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Model(), loader(lesson()), loader(lesson(640, seed=8), 64, shuffle=False))
