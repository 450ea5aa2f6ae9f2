"""Communication between ranks: the functions of `torch.distributed`, waiting for their work, groups, and distributed models.

Subscribers of `collective` see outermost calls, also inside a backward pass: `all_gather_object` is one call, whatever it is made
of. A fast path gets the function, whose `__name__` is that of the operation. Not seen: the all-reduce of a
`DistributedDataParallel` model, which never passes through Python (`ddp_made` sees such models: they have a logger), and
functional collectives. `group_made` is `init_process_group`, which gives a process its rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.hooks.points import Point
from sonde.hooks.torch import private
from sonde.hooks.torch.outermost import OutermostPoint

if TYPE_CHECKING:
    from types import ModuleType

    from sonde.hooks.points import Attribute


OPERATIONS = (
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_reduce_coalesced",
    "all_to_all", "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast", "broadcast_object_list", "gather",
    "gather_object", "irecv", "isend", "monitored_barrier", "recv", "recv_object_list", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "scatter", "scatter_object_list", "send", "send_object_list",
)  # fmt: skip


def _places(torch: ModuleType) -> list[Attribute]:
    distributed = torch.distributed
    if not distributed.is_available():
        return []
    owners = (distributed, distributed.distributed_c10d)
    found = [(owner, name) for name in OPERATIONS for owner in owners if hasattr(owner, name)]
    return [*found, (distributed.Work, "wait")]


def _group_places(torch: ModuleType) -> list[Attribute]:
    distributed = torch.distributed
    if not distributed.is_available():
        return []
    owners = (distributed, distributed.distributed_c10d, getattr(distributed, "device_mesh", None))
    return [(owner, "init_process_group") for owner in owners if hasattr(owner, "init_process_group")]


def _model_place(torch: ModuleType) -> list[Attribute]:
    return [(torch.nn.parallel.DistributedDataParallel, "__init__")]


collective = OutermostPoint(
    "torch.distributed", "to see communication between ranks", in_backward=True, library="torch", find=_places
)
group_made = Point(
    "torch.distributed.init_process_group", "to learn the rank of this process", library="torch", find=_group_places
)
ddp_made = Point(
    "torch DistributedDataParallel", "to find the logger of distributed models", library="torch", find=_model_place
)
ddp_logged = Point(
    "torch Logger of DistributedDataParallel",
    "to learn when it has the times of a backward pass",
    library="torch",
    find=private.ddp_log_targets,
)
