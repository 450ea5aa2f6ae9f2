"""A small training in which one picture holds a block of NaN. There is nothing of Sonde in it.

sonde run --blackbox --watch-nonfinite examples/nan.py        keeps the last batches
sonde blackbox --html last.html                               names the picture and shows it
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BROKEN = 342


class Galaxies(Dataset[dict[str, object]]):
    """Blurred discs on a dark sky, each with an id and a class."""

    def __len__(self) -> int:
        return 480

    def __getitem__(self, index: int) -> dict[str, object]:
        generator = torch.Generator().manual_seed(index)
        label = index % 3
        axis = torch.linspace(-1, 1, 32)
        x, y = torch.meshgrid(axis, axis, indexing="xy")
        shift = torch.rand(2, generator=generator) * 0.6 - 0.3
        disc = torch.exp(-((x - shift[0]) ** 2 * (2 + 6 * label) + (y - shift[1]) ** 2 * 8))
        tint = torch.tensor([1.0, 0.8, 0.5 + 0.2 * label]).view(3, 1, 1)
        image = disc * tint * 0.9 + torch.rand(3, 32, 32, generator=generator) * 0.1
        if index == BROKEN:
            image[:, 8:14, 18:26] = float("nan")  # a dead patch of the detector
        return {"image": image, "label": label, "object_id": f"galaxy-{index:04d}"}


def main() -> None:
    """Train for one epoch."""
    torch.manual_seed(5)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(3),
    )
    model(torch.zeros(1, 3, 32, 32))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    criterion = nn.CrossEntropyLoss()
    loader = DataLoader(Galaxies(), batch_size=12, shuffle=True)
    for batch in loader:
        optimizer.zero_grad()
        loss = criterion(model(batch["image"]), batch["label"])
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
