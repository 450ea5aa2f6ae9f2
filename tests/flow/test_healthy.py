"""Healthy trainings of many kinds: the watch raises no alarm, and the results are the same to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from sonde import guard
from sonde.flow import watch_nonfinite

STEPS = 4
Module: Any = nn.Module


def _fit(net: Any, step: Callable[[int], Any], optimizer: Any = None) -> Any:
    optimizer = optimizer or torch.optim.Adam(net.parameters(), lr=1e-2)
    for number in range(STEPS):
        optimizer.zero_grad()
        step(number).backward()
        optimizer.step()
    return net


def mlp() -> Any:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    return _fit(net, lambda _: nn.CrossEntropyLoss()(net(torch.randn(6, 4)), torch.arange(6) % 3))


def convolution() -> Any:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten())
    head = nn.Sequential(net, nn.LazyLinear(2))
    head(torch.randn(2, 3, 8, 8))
    images = torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last)
    return _fit(head, lambda _: functional.mse_loss(head(images), torch.ones(4, 2)))


def transformer() -> Any:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    return _fit(net, lambda _: net(torch.randn(2, 5, 8), mask=mask, is_causal=True).pow(2).mean())


def masked_attention() -> Any:
    class Attention(Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.soft = nn.Linear(8, 8), nn.Linear(8, 8), nn.Softmax(dim=-1)

        def forward(self, value: Any) -> Any:
            scores = self.query(value) @ self.key(value).transpose(1, 2)
            return self.soft(scores.masked_fill(torch.ones(5, 5).triu(1).bool(), float("-inf"))) @ value

    net = Attention()
    return _fit(net, lambda _: net(torch.randn(2, 5, 8)).pow(2).mean())


def recurrent() -> Any:
    net = nn.LSTM(4, 6, 2)
    return _fit(net, lambda _: net(torch.randn(7, 3, 4))[0].pow(2).mean())


def adversarial() -> Any:
    maker, judge = nn.Sequential(nn.Linear(2, 4), nn.Tanh()), nn.Sequential(nn.Linear(4, 1))
    first, second = (torch.optim.SGD(one.parameters(), lr=0.01) for one in (maker, judge))
    loss = nn.BCEWithLogitsLoss()
    for _ in range(STEPS):
        second.zero_grad()
        made = maker(torch.randn(5, 2))
        real = torch.randn(5, 4, requires_grad=True)
        slope = torch.autograd.grad(judge(real).sum(), real, create_graph=True)[0]
        (loss(judge(made.detach()), torch.zeros(5, 1)) + (slope.norm(2, dim=1) - 1).pow(2).mean()).backward()
        second.step()
        first.zero_grad()
        loss(judge(made), torch.ones(5, 1)).backward()
        first.step()
    return nn.ModuleList([maker, judge])


def half_precision() -> Any:
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))

    def step(_: int) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return functional.mse_loss(net(torch.randn(6, 4)).float(), torch.ones(6, 2))

    return _fit(net, step)


def scaled() -> Any:
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    scaler: Any = torch.amp.GradScaler("cpu", init_scale=2.0**127)  # too large at first: updates are skipped
    for _ in range(STEPS):
        optimizer.zero_grad()
        scaler.scale(functional.mse_loss(net(torch.randn(6, 4) * 50), torch.ones(6, 2))).backward()
        scaler.step(optimizer)
        scaler.update()
    return net


def embedding() -> Any:
    net = nn.Sequential(nn.EmbeddingBag(10, 4, sparse=True, mode="sum"), nn.Linear(4, 2))
    ids = torch.randint(0, 10, (6, 3))
    return _fit(net, lambda _: net(ids).pow(2).mean(), torch.optim.SGD(net.parameters(), lr=0.1))


def mapping() -> Any:
    class Net(Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 4)

        def forward(self, value: Any) -> Any:
            return {"logits": self.body(value), "extra": (value, None), "name": "net"}

    net = Net()
    return _fit(net, lambda _: net(torch.randn(3, 4))["logits"].pow(2).mean())


def checkpointed() -> Any:
    body, head = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 2)

    def step(_: int) -> Any:
        hidden = checkpoint(body, torch.randn(3, 4, requires_grad=True), use_reentrant=False)
        return head(hidden).pow(2).mean()

    return _fit(nn.ModuleList([body, head]), step)


def evaluated() -> Any:
    net = mlp()
    net.eval()
    with torch.inference_mode():
        net(torch.randn(5, 4))
    with torch.no_grad():
        functional.log_softmax(net(torch.randn(5, 4)), dim=1)
    return net


def second_order() -> Any:
    net = nn.Linear(3, 1)
    optimizer: Any = torch.optim.LBFGS(net.parameters(), max_iter=4)
    data, wanted = torch.randn(8, 3), torch.randn(8, 1)

    def closure() -> Any:
        optimizer.zero_grad()
        loss: Any = functional.mse_loss(net(data), wanted)
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(closure)
    return net


def averaged() -> Any:
    net = mlp()
    twin = torch.optim.swa_utils.AveragedModel(net)
    twin.update_parameters(net)
    twin(torch.randn(2, 4))
    return twin


def accumulated() -> Any:
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for number in range(STEPS * 2):
        net(torch.randn(3, 4)).pow(2).mean().backward()
        if number % 2:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return net


def missing_values() -> Any:
    """The data is full of NaN, and the program knows it."""
    net = nn.Linear(4, 2)
    data = torch.randn(8, 4)
    data[::2, 1] = float("nan")
    return _fit(net, lambda _: net(data.nan_to_num()).pow(2).mean())


HEALTHY = [
    mlp, convolution, transformer, masked_attention, recurrent, adversarial, half_precision, scaled, embedding, mapping,
    checkpointed, evaluated, second_order, averaged, accumulated, missing_values,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
@pytest.mark.parametrize("training", HEALTHY, ids=lambda one: one.__name__)
def test_a_healthy_training_raises_no_alarm(training: Callable[[], Any]) -> None:
    """Nothing is born, nothing fails, and the parameters are those of the same training without the watch."""
    before = guard.counts()
    torch.manual_seed(0)
    bare = [one.clone() for one in training().parameters()]
    torch.manual_seed(0)
    with watch_nonfinite(action="stop") as watch:
        watched = list(training().parameters())
        assert watch.birth is None
    assert guard.counts() == before
    assert all(torch.equal(one, other) for one, other in zip(bare, watched, strict=True))
