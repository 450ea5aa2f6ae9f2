"""Programs that free, share and resize the memory of tensors, and switch stacks inside a model, end as they do without Sonde."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
from tests.integration.conftest import Programs, programs
from tests.integration.launching import run, script

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["programs"]

# It prints what must be the same with and without Sonde: losses, shapes, and whether tensors still share their memory.
STRESS = """
import asyncio, contextlib, gc, sys
import greenlet
import torch
from torch import nn
from torch.utils.data import DataLoader

torch.set_num_threads(1)
torch.manual_seed(0)
rounds, traced = int(sys.argv[1]), "trace" in sys.argv


class Freed(nn.Module):
    '''Gives a view whose storage is freed, shrunk, or regrown by half.'''

    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        buffer = torch.empty(2, *x.shape)
        part = buffer[1]
        buffer.untyped_storage().resize_(self.size)
        return part


class Lazy(nn.Module):
    def forward(self, x):
        return torch._lazy_clone(x)


class Yields(nn.Module):
    '''Leaves its call in the middle, for another greenlet.'''

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        greenlet.getcurrent().parent.switch()
        return self.inner(x)


def collate(items):
    big = torch.zeros(64, 4096)
    freed, shrunk = big[32:], torch.zeros(2, 900)[1]
    ids = torch.arange(4)
    for one, size in ((big, 0), (shrunk, 3600), (ids, 0)):
        one.untyped_storage().resize_(size)
    return {"freed": freed, "shrunk": shrunk, "lazy": torch._lazy_clone(torch.ones(4, 4)), "id": ids}


class Items:
    def __init__(self, yields=False):
        self.yields = yields

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if self.yields:
            greenlet.getcurrent().parent.switch()
        return torch.full((4,), float(index))


def train(net, optimizer):
    for x in DataLoader(Items(), batch_size=4):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        print("loss", loss.item())
        x.resize_(32, 32)  # the program's own memory
        assert x.shape == (32, 32)


def storages():
    for size in (0, 8, 16 * 4):
        print("freed", tuple(Freed(size)(torch.randn(4, 4)).shape))
    lazy = Lazy()(torch.randn(100, 100))
    print("lazy", torch._C._is_cow_tensor(lazy))
    for batch in DataLoader(list(range(8)), batch_size=4, collate_fn=collate):
        print("batch", sorted(batch), torch._C._is_cow_tensor(batch["lazy"]))


def gradients():
    net = nn.Linear(64, 64)
    net(torch.randn(2, 64)).sum().backward()
    flat = torch.zeros(4096 + 64)
    net.weight.grad = flat[64:].view(64, 64)
    flat.untyped_storage().resize_(0)
    (net.bias * 1.0).sum().backward()
    net.weight.grad = None
    lost = net(torch.ones(2, 64)).sum()
    lost.untyped_storage().resize_(0)
    lost.backward()
    print("gradients", net.bias.grad.shape)


def greenlets():
    nets = [Yields() for _ in range(3)]
    running = [greenlet.greenlet(lambda net=net: net(torch.randn(2, 4))) for net in nets]
    for one in (*running, *running):  # all begin, and end in the order in which they began
        one.switch()
    for one in running:
        assert one.dead
    begun = greenlet.greenlet(lambda: nets[0](torch.randn(2, 4)))
    begun.switch()
    nn.Linear(4, 4)(torch.randn(2, 4)).sum().backward()
    del begun, nets, running  # one that is never ended
    gc.collect()
    loops = [greenlet.greenlet(lambda: [x.sum().item() for x in DataLoader(Items(True), batch_size=4)]) for _ in range(2)]
    while not all(one.dead for one in loops):
        found = [one.switch() for one in loops if not one.dead]
    print("greenlets", found)


async def tasks():
    async def one(net):
        for _ in range(3):
            net(torch.randn(2, 4)).sum().backward()
            await asyncio.sleep(0)

    await asyncio.gather(*(one(nn.Sequential(nn.Linear(4, 4), nn.Tanh())) for _ in range(3)))
    print("tasks")


net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(rounds):
    with contextlib.ExitStack() as stack:
        if traced:
            stack.enter_context(sys.modules["sonde"].flow.trace())
        train(net, optimizer)
        storages()
        gradients()
        greenlets()
        asyncio.run(tasks())
if "sonde" in sys.modules:
    assert not sys.modules["sonde"].guard.reasons(), sys.modules["sonde"].guard.reasons()
print("end")
"""
EVERYTHING = ("--deep", "--blackbox", "--watch-nonfinite")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], str]:
    """What the program prints without Sonde, in so many rounds."""

    @cache
    def printed(rounds: int) -> str:
        return Programs(tmp_path_factory.mktemp("plain")).run(STRESS, str(rounds)).stdout

    return printed


def _recorded(programs: Programs, options: Sequence[str], mode: str, rounds: int) -> str:
    """What it prints with Sonde; no probe has switched itself off."""
    path = script(programs.folder, STRESS)
    printed = run(programs, "--quiet", *options, str(path), str(rounds), mode).stdout
    assert not programs.rows("select name, args from events where cat = 'probe.off'")
    return printed


@pytest.mark.parametrize("mode", ["record", "trace"])
def test_every_mode_at_once_leaves_the_program_as_it_is(
    programs: Programs, plain: Callable[[int], str], mode: str
) -> None:
    """Freed storages, copy-on-write tensors, resized batches, greenlets and tasks, in a few rounds."""
    assert _recorded(programs, EVERYTHING, mode, 2) == plain(2)


@pytest.mark.soak
@pytest.mark.parametrize(
    "options", [(), *((one,) for one in EVERYTHING), EVERYTHING], ids=lambda one: "".join(one) or "run"
)
@pytest.mark.parametrize("mode", ["record", "trace"])
def test_each_mode_leaves_the_program_as_it_is(
    programs: Programs, plain: Callable[[int], str], options: Sequence[str], mode: str
) -> None:
    """The same, in many rounds."""
    assert _recorded(programs, options, mode, 40) == plain(40)
