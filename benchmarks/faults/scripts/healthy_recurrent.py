"""Healthy: sequences of different lengths, packed, in a recurrent network."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import SEED, begin, marked
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sequences(Dataset[tuple[torch.Tensor, int]]):
    """Some are twice as long as others."""

    def __init__(self, count: int) -> None:
        made = torch.Generator().manual_seed(SEED)
        self.items = [torch.randn(20 + number % 20, 16, generator=made) for number in range(count)]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.items[index], index % 10


class Reader(nn.Module):
    """The last state of a recurrent network."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.GRU(16, 96, batch_first=True)
        self.last = nn.Linear(96, 10)

    def forward(self, packed: nn.utils.rnn.PackedSequence) -> torch.Tensor:
        """Scores of each sequence."""
        return self.last(self.inner(packed)[1][-1])  # type: ignore[no-any-return]


def collate(items: list[tuple[torch.Tensor, int]]) -> tuple[nn.utils.rnn.PackedSequence, torch.Tensor]:
    """The sequences behind each other."""
    packed = nn.utils.rnn.pack_sequence([one for one, _ in items], enforce_sorted=False)
    return packed, torch.tensor([label for _, label in items])


begin()
net = Reader()
optimizer = torch.optim.Adam(net.parameters())
for sequences, classes in DataLoader(Sequences(1600), batch_size=16, shuffle=True, collate_fn=collate):
    with marked(net):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(sequences), classes).backward()
        optimizer.step()
