"""OVERFITTING: few items, a large network, and the losses that Lightning logs."""

from __future__ import annotations

import logging
import warnings

import torch
from benchmarks.faults.lessons import lesson, loader
from benchmarks.faults.parts import begin, perceptron
from lightning.pytorch import LightningModule, Trainer
from torch import nn


class Model(LightningModule):
    """A perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.net = perceptron(hidden=256)

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
    seen, unseen = loader(lesson(256, noise=8.0)), loader(lesson(320, noise=8.0, seed=8), 64, shuffle=False)
    trainer = Trainer(
        max_epochs=20, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
    )
    trainer.fit(Model(), seen, unseen)
