"""Several processes that train one model: started by torchrun, joined by ignite, agreed on weights, gradients and numbers.

Gradients are summed by one collective for each step, weighted by how many items each rank had: what comes out is the
gradient of all items together, whatever their number, and no item has to be visited twice to even out the ranks.
"""

from __future__ import annotations

import atexit
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde import ranks
from sonde.ai.tree import ai
from sonde.pipeline.training.ignite import library

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


class World(NamedTuple):
    """How many processes there are, and which one this is."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Is this the rank that writes files and reports progress?"""
        return self.rank == 0


ALONE = World()


@contextmanager
def joined(*, gpu: bool) -> Iterator[World]:
    """The world that torchrun has made. Without torchrun the process is alone.

    A group that is made here stays until the process exits: torchrun's store keeps its addresses, so a second one would hang.
    """
    if (ranks.current().world_size or 1) == 1:
        yield ALONE
        return
    from torch import distributed

    idist = library().distributed
    if distributed.is_initialized():
        idist.sync()
    else:
        idist.initialize("nccl" if gpu else "gloo")
        atexit.register(idist.finalize)
    yield World(idist.get_rank(), idist.get_world_size())


def same_weights(model: torch.nn.Module, world: World) -> None:
    """Give all ranks the parameters and buffers of the first one."""
    if world.size > 1:
        _share([*model.parameters(), *model.buffers()])


def same_buffers(model: torch.nn.Module, world: World) -> None:
    """Give all ranks the buffers (running statistics) of the first one."""
    if world.size > 1:
        _share(list(model.buffers()))


def _share(tensors: list[torch.Tensor]) -> None:
    from torch import distributed

    with ai.comm.bcast:
        for tensor in tensors:
            distributed.broadcast(tensor.detach(), 0)


def sum_gradients(parameters: list[torch.nn.Parameter], count: int, world: World) -> int:
    """Sum up gradients and counts of items over all ranks; how many items there were.

    Each gradient is that of a sum over items. Where no rank has a gradient there is none afterwards.
    """
    if world.size == 1 or not parameters:
        return count
    import torch
    from torch import distributed

    device = parameters[0].device
    grads = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
    there = torch.tensor([float(one.grad is not None) for one in parameters] + [float(count)], device=device)
    flat = torch.cat([grad.detach().reshape(-1).float() for grad in grads] + [there])
    with ai.comm.all_reduce:
        distributed.all_reduce(flat)
    total, given = int(flat[-1].item()), flat[-1 - len(parameters) : -1].tolist()
    start = 0
    for one, used in zip(parameters, given, strict=True):
        part = flat[start : start + one.numel()].reshape(one.shape).to(one.dtype)
        start += one.numel()
        one.grad = part.clone() if used else None
    return total


def sum_numbers(numbers: dict[str, float], world: World) -> dict[str, float]:
    """Sum up numbers by name over all ranks; a rank may lack some."""
    if world.size == 1:
        return numbers
    total: dict[str, float] = {}
    for part in gathered(numbers, world):
        for name, value in part.items():
            total[name] = total.get(name, 0.0) + value
    return total


def collected(value: Any, world: World) -> list[Any]:
    """What each rank has, for the first one; nothing for the others."""
    if world.size == 1:
        return [value]
    from torch import distributed

    values: list[Any] | None = [None] * world.size if world.first else None
    with ai.comm.gather:
        distributed.gather_object(value, values)
    return values or []


def gathered(value: Any, world: World) -> list[Any]:
    """What each rank has, in the order of ranks."""
    if world.size == 1:
        return [value]
    from torch import distributed

    values: list[Any] = [None] * world.size
    with ai.comm.all_gather:
        distributed.all_gather_object(values, value)
    return values
