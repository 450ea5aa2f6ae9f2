"""A convolutional network on images that a loader decodes, crops and normalises one by one."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.programs.clock import timed

SIDE, CLASSES, ITEMS, BATCH = 40, 10, 512, 16


class Images(Dataset[tuple[Tensor, int]]):
    """PNG files in a folder."""

    def __init__(self, folder: Path) -> None:
        random = np.random.default_rng(0)
        self.files = [folder / f"{index}.png" for index in range(ITEMS)]
        for file in self.files:
            Image.fromarray(random.integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8)).save(file)

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Decode, crop, normalise."""
        pixels = np.asarray(Image.open(self.files[index]), dtype=np.float32) / 255
        image = torch.from_numpy(pixels).permute(2, 0, 1)[:, 4:36, 4:36]
        return (image - 0.5) / 0.25, index % CLASSES


def epochs(loader: DataLoader[Any]) -> Iterator[Any]:
    """The loader again and again."""
    while True:
        yield from loader


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 8 * 8, CLASSES),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(Images(Path(folder)), BATCH, shuffle=True)
        for images, labels in timed(epochs(loader), int(sys.argv[1])):
            optimizer.zero_grad()
            loss_of(model(images), labels).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
