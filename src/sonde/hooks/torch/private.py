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
    found: Callable[[Any], bool] = getattr(_torch()._C, "_is_cow_tensor", _perhaps)
    return found


def _perhaps(_tensor: Any) -> bool:
    """Where torch does not say, torch operations look at each tensor: slow, and safe."""
    return True


def queue_callback() -> Callable[[Callable[[], None]], None]:
    """The function that lets another one be called at the end of the backward pass that runs."""
    found: Callable[[Callable[[], None]], None] = _torch().autograd.Variable._execution_engine.queue_callback
    return found


def compile_flag() -> tuple[dict[str, Any], str]:
    """Where torch keeps what `torch.compiler.is_compiling` tells: the names of a module, and that of the flag among them."""
    return vars(_torch().compiler), "_is_compiling_flag"


def read_instead(compiler: Any, replacement: object) -> None:
    """Let `torch._dynamo` (`compiler`) read the Python implementation of an object that it cannot read."""
    compiler.trace_rules._polyfilled_function_ids.add(id(replacement))


def pass_over(compiler: Any, code: Any) -> None:
    """Let `torch._dynamo` run this code as it is."""
    compiler.eval_frame.skip_code(code)


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
