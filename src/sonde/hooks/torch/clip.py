"""`torch.nn.utils.clip_grad_norm_(parameters, max_norm, ...)`, which returns the norm of all gradients before they were clipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.hooks.torch.outermost import OutermostPoint

if TYPE_CHECKING:
    from types import ModuleType


def _places(torch: ModuleType) -> list[tuple[Any, str]]:
    return [(torch.nn.utils, "clip_grad_norm_"), (torch.nn.utils.clip_grad, "clip_grad_norm_")]


clip = OutermostPoint("torch.nn.utils.clip_grad_norm_", "to see norms before clipping", library="torch", find=_places)
