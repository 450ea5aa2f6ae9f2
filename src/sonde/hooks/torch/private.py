"""The private names of torch that Sonde uses. tests/hooks/torch/test_private.py says which one a new torch has renamed."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


def sequence_number() -> Callable[[], int]:
    """The function that returns how many nodes autograd has made in this thread."""
    found: Callable[[], int] = _torch()._C._autograd._get_sequence_nr
    return found


def graph_task() -> Callable[[], int]:
    """The function that returns which backward pass the calling thread works for; -1: none."""
    found: Callable[[], int] = _torch()._C._current_graph_task_id
    return found


def tracing_state() -> Callable[[], Any]:
    """The function that returns the state of `torch.jit.trace` in this thread; None: it does not run."""
    found: Callable[[], Any] = _torch()._C._get_tracing_state
    return found


def copy_on_write() -> Callable[[Any], bool]:
    """The function that tells whether a tensor shares its memory until one of them is written (`torch._lazy_clone`)."""
    found: Callable[[Any], bool] = _torch()._C._is_cow_tensor
    return found


def exchange() -> Any:
    """DLPack's exchange for C, which is public, but which torch offers only since 2.10; None: it has none."""
    return getattr(_torch().Tensor, "__dlpack_c_exchange_api__", None)


def is_wrapped(tensor: Any) -> bool:
    """Does this tensor stand for another one inside a transform of `torch.func`? Then it has no memory itself."""
    return bool(_torch()._C._functorch.is_functorch_wrapped_tensor(tensor))


def without_modes() -> AbstractContextManager[object]:
    """Modes that see every operation, such as a counter of them, are off; that costs time, and mostly there are none."""
    if not _torch()._C._len_torch_dispatch_stack():
        return nullcontext()
    found: AbstractContextManager[object] = sys.modules["torch.utils._python_dispatch"]._disable_current_modes()
    return found


def forward_hooks(module: Any) -> tuple[Any, ...]:
    """Where functions of the program may change what a module gets or gives."""
    shared = sys.modules["torch.nn.modules.module"]
    own = (module._forward_pre_hooks, module._forward_hooks)
    return (*own, shared._global_forward_pre_hooks, shared._global_forward_hooks)


def _torch() -> Any:
    return sys.modules["torch"]
