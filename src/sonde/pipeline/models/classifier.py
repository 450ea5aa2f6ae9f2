"""Classifier: a small convolutional network that says to which class an image belongs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from sonde.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


class Classifier(nn.Module):
    """Images of any number of channels and any size of at least 4 x 4, with labels from 0 to `classes` - 1."""

    criterion: nn.Module  # made from the config

    def __init__(self, config: Mapping[str, Any], sample: tuple[np.ndarray[Any, Any], ...]) -> None:
        """`sample` is a batch as `prepare_inputs` makes it: it says how many channels the images have."""
        super().__init__()
        shape = np.shape(sample[0])
        if len(shape) != 4 or min(shape[2:]) < 4:
            raise ModelError(
                "Classifier needs a batch of images [items, channels, height, width] of at least 4 x 4, but got the "
                f"shape {shape}. Prepare the inputs accordingly, or choose another model."
            )
        table = config["model"]["Classifier"]
        width = table["base_channels"]
        self.layers = nn.Sequential(
            nn.Conv2d(shape[1], width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(2 * width, table["classes"]),
        )

    @staticmethod
    def prepare_inputs(batch_dict: dict[str, Any]) -> tuple[np.ndarray[Any, Any], ...]:
        """The images, and the labels if the data has any."""
        data = batch_dict["data"]
        if "label" not in data:
            return (data["image"],)
        return data["image"], np.asarray(data["label"]).astype(np.int64)

    def forward(self, batch: tuple[Tensor, ...]) -> Tensor:
        """A number for each class, the largest for the likeliest one."""
        scores: Tensor = self.layers(batch[0])
        return scores

    def train_batch(self, batch: tuple[Tensor, ...]) -> dict[str, Tensor]:
        """The loss that the config names, and the share of images that were put into the right class."""
        if len(batch) < 2:
            raise ModelError('Classifier needs labels to learn: request the field "label" in the data_request.')
        scores = self.layers(batch[0])
        right = (scores.argmax(1) == batch[1]).float().mean()
        return {"loss": self.criterion(scores, batch[1]), "accuracy": right.detach()}

    def validate_batch(self, batch: tuple[Tensor, ...]) -> dict[str, Tensor]:
        """The same."""
        return self.train_batch(batch)

    def test_batch(self, batch: tuple[Tensor, ...]) -> dict[str, Tensor]:
        """The same."""
        return self.train_batch(batch)

    def infer_batch(self, batch: tuple[Tensor, ...]) -> Tensor:
        """A number for each class."""
        return self.forward(batch)
