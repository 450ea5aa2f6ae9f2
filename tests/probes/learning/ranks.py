"""Trains on two ranks with gloo, and prints a digest of the weights: python ranks.py ddp|fsdp."""

from __future__ import annotations

import hashlib
import sys

import torch
import torch.distributed as dist
from torch import nn


def main(how: str) -> None:
    """Five steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net: nn.Module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    if how == "ddp":
        net = nn.parallel.DistributedDataParallel(net)
    else:
        from torch.distributed.fsdp import fully_shard

        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
        fully_shard(net[0], mesh=mesh)  # type: ignore[index]
        fully_shard(net, mesh=mesh)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    torch.manual_seed(dist.get_rank())
    for _ in range(5):
        optimizer.zero_grad()
        net(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    whole = [getattr(one, "full_tensor", lambda one=one: one)().detach() for one in net.parameters()]
    print("weights", hashlib.sha256(b"".join(one.numpy().tobytes() for one in whole)).hexdigest(), flush=True)
    dist.barrier()  # a rank that leaves while the other still exchanges may end it with SIGABRT, also without Sonde
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
