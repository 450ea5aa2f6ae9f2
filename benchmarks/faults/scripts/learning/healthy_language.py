"""Healthy: a small language model with warm-up, decay and clipping."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import begin
from torch import nn

STEPS, LENGTH = 500, 24

begin()
table = torch.softmax(3 * torch.randn(40, 40), 1)
text = [0]
for _ in range(6000):
    text.append(int(torch.multinomial(table[text[-1]], 1)))
tokens = torch.tensor(text)


class Model(nn.Module):
    """Tokens to the next ones."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(40, 48), nn.Embedding(LENGTH, 48)
        layer = nn.TransformerEncoderLayer(48, 4, 96, dropout=0.1, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(48, 40)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Scores of the next tokens."""
        hidden = self.tokens(given) + self.places(torch.arange(given.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(given.shape[1])
        return self.head(self.blocks(hidden, mask=mask, is_causal=True))  # type: ignore[no-any-return]


net = Model()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 50, 1 - step / (STEPS + 1)))
for _ in range(STEPS):
    starts = torch.randint(0, len(tokens) - LENGTH - 1, (16,))
    batch = torch.stack([tokens[start : start + LENGTH + 1] for start in starts.tolist()])
    optimizer.zero_grad(set_to_none=True)
    scores = net(batch[:, :-1])
    nn.functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten()).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    schedule.step()
