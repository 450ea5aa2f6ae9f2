"""A small image pipeline in plain PyTorch, which knows nothing of Sonde: what the tests of traces run."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset


def double(image: torch.Tensor) -> torch.Tensor:
    """A transform."""
    return image * 2


class Shift:
    """A transform that is an object."""

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return image + self.by


class Pictures(Dataset[dict[str, Any]]):
    """Pictures of one colour each, with ids."""

    def __init__(self, count: int = 50, transform: Any = double, broken: int | None = None) -> None:
        self.count = count
        self.transform = transform
        self.broken = broken

    def __len__(self) -> int:
        return self.count

    def get_image(self, index: int) -> torch.Tensor:
        if index == self.broken:
            raise OSError(f"picture {index} is broken")
        return torch.full((1, 4, 4), float(index))

    def get_object_id(self, index: int) -> str:
        return str(100 + index)

    def __getitem__(self, index: int) -> dict[str, Any]:
        image = self.get_image(index)
        if self.transform is not None:
            image = self.transform(image)
        return {"image": image, "object_id": self.get_object_id(index), "label": index % 2}


class Stream(IterableDataset[torch.Tensor]):
    """Numbers from 0 on."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Any:
        return (torch.tensor([float(n)]) for n in range(self.count))

    def __len__(self) -> int:
        return self.count


class Net(nn.Module):
    """A model."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 2)
        self.drop = nn.Dropout(0.5)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(self.drop(batch.flatten(1)))
        return out


def loader(dataset: Any = None, **options: Any) -> DataLoader[Any]:
    """A loader of eight pictures at a time."""
    return DataLoader(Pictures() if dataset is None else dataset, **{"batch_size": 8, **options})


def train(data: Any, epochs: int = 1, device: str = "cpu") -> list[float]:
    """A plain loop; the loss of each batch."""
    model = Net()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(epochs):
        for batch in data:
            images, labels = batch["image"].to(device), batch["label"].to(device)
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
