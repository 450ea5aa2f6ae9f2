"""Autoencoder: a small convolutional network that reduces an image to a vector, and learns to restore it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn
from torch.nn import functional

from sonde.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

HALVINGS = 3  # of height and width


class Autoencoder(nn.Module):
    """Images of any number of channels and any size of at least 8 x 8; the result of `infer` is the vector."""

    def __init__(self, config: Mapping[str, Any], sample: np.ndarray[Any, Any]) -> None:
        """`sample` is a batch as `prepare_inputs` makes it: it says how large the images are."""
        super().__init__()
        shape = np.shape(sample)
        if len(shape) != 4 or min(shape[2:]) < 2**HALVINGS:
            raise ModelError(
                "Autoencoder needs a batch of images [items, channels, height, width] of at least 8 x 8, but got "
                f"the shape {shape}. Prepare the inputs accordingly, or choose another model."
            )
        table = config["model"]["Autoencoder"]
        self.size = (shape[2], shape[3])
        first, latent = table["base_channels"], table["latent_dim"]
        widths = [first * 2**n for n in range(HALVINGS)]
        self.small = tuple(-(-side // 2**HALVINGS) for side in self.size)
        self.encoder = _encoder(shape[1], widths, self.small, latent)
        self.decoder = _decoder(shape[1], widths, self.small, latent)

    @staticmethod
    def prepare_inputs(batch_dict: dict[str, Any]) -> np.ndarray[Any, Any]:
        """The images of the batch."""
        images: np.ndarray[Any, Any] = batch_dict["data"]["image"]
        return images

    def forward(self, batch: Tensor) -> Tensor:
        """The vectors of the images."""
        vectors: Tensor = self.encoder(batch)
        return vectors

    def train_batch(self, batch: Tensor) -> dict[str, Tensor]:
        """The squared difference between the images and what was restored, summed up over an image."""
        restored = self.decoder(self.encoder(batch))[:, :, : self.size[0], : self.size[1]]
        difference = functional.mse_loss(restored, batch, reduction="none")
        return {"loss": difference.sum(dim=(1, 2, 3)).mean()}

    def validate_batch(self, batch: Tensor) -> dict[str, Tensor]:
        """The same."""
        return self.train_batch(batch)

    def test_batch(self, batch: Tensor) -> dict[str, Tensor]:
        """The same."""
        return self.train_batch(batch)

    def infer_batch(self, batch: Tensor) -> Tensor:
        """The vectors of the images."""
        return self.forward(batch)


def _encoder(channels: int, widths: list[int], small: tuple[int, ...], latent: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in zip([channels, *widths], widths, strict=False):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.GELU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(widths[-1] * small[0] * small[1], latent))


def _decoder(channels: int, widths: list[int], small: tuple[int, ...], latent: int) -> nn.Sequential:
    wide = widths[::-1]
    layers: list[nn.Module] = [
        nn.Linear(latent, wide[0] * small[0] * small[1]),
        nn.GELU(),
        nn.Unflatten(1, (wide[0], small[0], small[1])),
    ]
    for before, after in zip(wide, [*wide[1:], channels], strict=True):
        layers += [nn.ConvTranspose2d(before, after, 4, stride=2, padding=1), nn.GELU()]
    return nn.Sequential(*layers[:-1], nn.Sigmoid())
