"""Models and data with one fault each, and the loop that trains them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

from sonde.nonfinite.watch import NonFiniteWatch

Module: Any = nn.Module
Data: Any = Dataset
nan = float("nan")


class Items(Data):
    """Thirty-two items of four numbers; `bad` is NaN in one of its pixels."""

    def __init__(self, bad: int | None = None, label: bool = False) -> None:
        self.bad, self.label = bad, label

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        torch.manual_seed(index)
        image, target = torch.rand(4) + 0.1, torch.rand(2)
        if index == self.bad:
            (target if self.label else image)[1] = nan
        return image, target


class Log(Module):
    """Code of the program, as a layer."""

    def forward(self, value: Any) -> Any:
        return torch.log(value)


class PlainLog(Module):
    """The same, with types that TorchScript knows."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return torch.log(value)


class Pair(Module):
    """Gives two tensors in a tuple, or in a dict; the second one is bad."""

    def __init__(self, mapping: bool) -> None:
        super().__init__()
        self.mapping = mapping

    def forward(self, value: Any) -> Any:
        bad = torch.log(-value.abs() - 1)
        return {"mean": value, "deep": {"spread": bad}} if self.mapping else (value, (bad, None))


@dataclass
class Boxed:
    """Two tensors."""

    image: Any
    target: Any


class Closed:
    """Two tensors, in an object like any other."""

    def __init__(self, image: Any, target: Any) -> None:
        self.image, self.target = image, target


class Boxing(Module):
    """Gives a dataclass; what is in it is bad where its input is negative."""

    def forward(self, value: Any) -> Any:
        return Boxed(torch.log(value), None)


class Taking(Module):
    """Takes something out of a dataclass that a layer gave."""

    def __init__(self) -> None:
        super().__init__()
        self.made, self.layer = Boxing(), nn.Linear(4, 2)

    def forward(self, value: Any) -> Any:
        return self.layer(self.made(value).image)


class InPlace(Module):
    """Changes its input, and gives it."""

    def forward(self, value: Any) -> Any:
        return value.sub_(1e3).log_()


class Twice(Module):
    """Uses one layer twice; only the second time what it gives is bad."""

    def __init__(self) -> None:
        super().__init__()
        self.log, self.layer = Log(), nn.Linear(4, 2)

    def forward(self, value: Any) -> Any:
        return self.layer(self.log(self.log(value.abs() * 0.5 + 0.1)))


class Between(Module):
    """Has code of its own between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, value: Any) -> Any:
        hidden = self.first(value)
        hidden = torch.log(hidden - 1e3) * 2
        return self.second(hidden)


class After(Between):
    """Has it after the last layer."""

    def forward(self, value: Any) -> Any:
        return torch.sqrt(self.second(self.first(value)) - 1e3)


class Masked(Between):
    """Hides all values of some items, whose softmax is of nothing then."""

    def __init__(self) -> None:
        super().__init__()
        self.soft = nn.Softmax(dim=1)

    def forward(self, value: Any) -> Any:
        scores = self.first(value) @ torch.eye(4)
        return self.second(self.soft(scores.masked_fill(value[:, :1] > 0.5, -float("inf"))))


class Attention(Module):
    """Attention as it is often written: the item whose keys are all hidden has a softmax of nothing."""

    def __init__(self, dropout: bool, divided: float | None = None) -> None:
        super().__init__()
        self.mixed, self.last, self.divided = nn.Linear(1, 3), nn.Linear(4, 2), divided
        self.drop = nn.Dropout(0.1) if dropout else None

    def forward(self, value: Any) -> Any:
        query, key, given = self.mixed(value.unsqueeze(2)).split(1, dim=2)
        scores = query @ key.transpose(1, 2) / 2.0
        scores = scores / (value.shape[1] if self.divided is None else scores.abs() * self.divided)
        scores = scores.masked_fill((value < 0)[:, None, :], -float("inf"))
        weights = torch.softmax(scores, dim=-1)
        weights = weights if self.drop is None else self.drop(weights)
        return self.last((weights @ given).squeeze(2))


class Exponential(Between):
    """Divides infinities by each other, which an exponential has made."""

    def forward(self, value: Any) -> Any:
        hidden = (self.first(value) * 0 + 1000).exp()
        return self.second(hidden / hidden.sum(1, keepdim=True))


class Earlier(Between):
    """Makes it in code, calls a layer, and uses it after that."""

    def __init__(self) -> None:
        super().__init__()
        self.third = nn.Linear(4, 4)

    def forward(self, value: Any) -> Any:
        root = torch.sqrt(self.first(value) - 1e3)
        return self.second(root * 0.5 + self.third(value))


class Frozen(Between):
    """Makes it without gradients: in a layer, or in code."""

    def __init__(self, layer: bool) -> None:
        super().__init__()
        self.log = Log() if layer else torch.log

    def forward(self, value: Any) -> Any:
        with torch.no_grad():
            hidden = self.log(value)
        return self.second(hidden)


class Infinite(Module):
    """Gives infinities."""

    def forward(self, value: Any) -> Any:
        return value.abs() / 0


class LogLoss(nn.modules.loss._Loss):
    """A loss as a module, of numbers that are all negative."""

    def forward(self, given: Any, wanted: Any) -> Any:
        return torch.log(given - 1e3).mean() + wanted.mean()


class Ordered(Between):
    """Takes the logarithm of its rows in another order: `how` says how it comes to that."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.inner = how, nn.Linear(4, 4)
        for layer in (self.first, self.inner):
            nn.init.eye_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, value: Any) -> Any:
        order = torch.tensor([3, 0, 1, 2, 7, 6, 4, 5])
        if self.how == "data":  # before the first layer, where nothing has a graph
            return self.second(torch.log(self.first(value[order])))
        hidden = getattr(self, self.how)(self.first(value), order)
        return self.second(torch.log(self.inner(hidden)))

    def index(self, hidden: Any, order: Any) -> Any:
        return hidden[order]

    def twice(self, hidden: Any, order: Any) -> Any:
        return hidden[order].relu().sub(0.0).index_select(0, order.argsort()) + hidden.clamp(max=0)

    def select(self, hidden: Any, order: Any) -> Any:
        return hidden.index_select(-2, order)

    def flip(self, hidden: Any, _order: Any) -> Any:
        return hidden.flip(0)

    def same(self, hidden: Any, _order: Any) -> Any:
        return hidden.unsqueeze(1)[torch.arange(len(hidden)), torch.zeros(len(hidden), dtype=torch.long)]

    def features(self, hidden: Any, _order: Any) -> Any:
        return hidden.index_select(1, torch.tensor([3, 2, 1, 0]))

    def mixed(self, hidden: Any, order: Any) -> Any:
        return hidden[order] + hidden * 1e-3

    def sort(self, hidden: Any, _order: Any) -> Any:
        return hidden.sort(0)[0]

    def part(self, hidden: Any, order: Any) -> Any:
        return torch.cat([hidden[order[:4]], hidden[order[4:]]])

    def write(self, hidden: Any, order: Any) -> Any:
        return torch.zeros_like(hidden).index_put((order,), hidden)


class Tokens(Module):
    """Puts the tokens of all items into one row; each has eight numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.each, self.last = nn.Linear(4, 24), nn.Linear(8, 8), nn.Linear(24, 2)
        nn.init.constant_(self.first.weight, 1.0)

    def forward(self, value: Any) -> Any:
        tokens = torch.log(self.first(value).reshape(-1, 8))
        return self.last(self.each(tokens).reshape(len(value), -1))


class Root(Between):
    """Is finite forwards; the gradient of the root of zero is not."""

    def forward(self, value: Any) -> Any:
        return self.second(torch.sqrt(self.first(value) * 0))


class Beside(Between):
    """Has that root in code beside a layer, written before it."""

    def forward(self, value: Any) -> Any:
        hidden = self.first(value)
        distance = ((hidden - hidden.detach()) ** 2).sum(1, keepdim=True).sqrt()
        return self.second(hidden) + distance


class BesideLater(Between):
    """The same, written after it."""

    def forward(self, value: Any) -> Any:
        hidden = self.first(value)
        return self.second(hidden) + ((hidden - hidden.detach()) ** 2).sum(1, keepdim=True).sqrt()


class Checkpointed(Module):
    """Computes its middle again in the backward pass, in the old way."""

    def __init__(self, middle: Any) -> None:
        super().__init__()
        self.first, self.body, self.last = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), middle), nn.Linear(4, 2)

    def forward(self, value: Any) -> Any:
        return self.last(checkpoint(self.body, self.first(value), use_reentrant=True))


class RootLayer(Module):
    """The same as a layer."""

    def forward(self, value: Any) -> Any:
        return torch.sqrt(value * 0)


def train(net: Any, data: Any = None, *, loss: Any = None, epochs: int = 1, **loader: Any) -> Any:
    """The usual loop; returns the parameters."""
    loss = loss or nn.MSELoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(epochs):
        for image, target in DataLoader(data or Items(), batch_size=8, **loader):
            optimizer.zero_grad()
            loss(net(image), target).backward()
            optimizer.step()
    return [one.detach().clone() for one in net.parameters()]


def train_ahead(net: Any, data: Any) -> None:
    """A loop that fetches the next batch before it uses one."""
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    batches = iter(DataLoader(data, batch_size=8))
    following = next(batches, None)
    while following is not None:
        image, target = following
        following = next(batches, None)
        optimizer.zero_grad()
        loss: Any = nn.functional.mse_loss(net(image), target)
        loss.backward()
        optimizer.step()


def birth(watch: NonFiniteWatch) -> dict[str, Any]:
    """What was born."""
    assert watch.birth is not None
    return watch.birth


class Negative(Items):
    """The numbers of item 13 are negative, or those of all."""

    def __init__(self, every: bool = False) -> None:
        super().__init__()
        self.every = every

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image, target = super().__getitem__(index)
        return (-image if self.every or index == 13 else image), target
