"""A variational autoencoder on vectors from a loader."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.programs.clock import timed

PIXELS, HIDDEN, LATENT, ITEMS, BATCH = 784, 400, 20, 4_096, 64


class Autoencoder(nn.Module):
    """Encoder, sample, decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(PIXELS, HIDDEN)
        self.mean, self.log_variance = nn.Linear(HIDDEN, LATENT), nn.Linear(HIDDEN, LATENT)
        self.decoder = nn.Sequential(nn.Linear(LATENT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, PIXELS), nn.Sigmoid())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The reconstruction, and the distribution it was drawn from."""
        hidden = functional.relu(self.encoder(x))
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        drawn = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return self.decoder(drawn), mean, log_variance


def epochs(loader: DataLoader[Any]) -> Iterator[Any]:
    """The loader again and again."""
    while True:
        yield from loader


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.rand(ITEMS, PIXELS)), BATCH, shuffle=True)
    for (images,) in timed(epochs(loader), int(sys.argv[1])):
        optimizer.zero_grad()
        made, mean, log_variance = model(images)
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        loss = functional.binary_cross_entropy(made, images, reduction="sum") + divergence
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
