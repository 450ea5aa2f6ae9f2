"""A small language model on characters: four transformer blocks, batches cut out of one text, gradients clipped."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.programs.clock import timed

CONTEXT, WIDTH, HEADS, BLOCKS, BATCH, VOCABULARY = 32, 64, 4, 4, 8, 96


class Block(nn.Module):
    """Causal self-attention and an MLP, each beside a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        """One block."""
        batch, time, _ = x.shape
        heads = self.attention(self.norm_1(x)).view(batch, time, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, time, WIDTH))
        result: Tensor = x + self.mlp(self.norm_2(x))
        return result


class Model(nn.Module):
    """Characters to the next character."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def batches(text: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Random windows of the text, without a loader."""
    while True:
        starts = torch.randint(len(text) - CONTEXT - 1, (BATCH,)).tolist()
        yield (
            torch.stack([text[at : at + CONTEXT] for at in starts]),
            torch.stack([text[at + 1 : at + CONTEXT + 1] for at in starts]),
        )


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for tokens, following in timed(batches(torch.randint(VOCABULARY, (10_000,))), int(sys.argv[1])):
        loss = functional.cross_entropy(model(tokens).flatten(0, 1), following.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


if __name__ == "__main__":
    main()
