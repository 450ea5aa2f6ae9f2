"""The private names of torch that Sonde uses. tests/hooks/torch/test_private.py says which one a new torch has renamed."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import ModuleType

    Target = tuple[Any, str]  # an owner, and the name of its function that is patched

COMPILER = "torch._dynamo"
CONVERTER = "torch._dynamo.convert_frame"  # the module that compiles a function
COMPILED = "_orig_mod"  # the module inside a compiled one
WRAPPERS = {COMPILED, "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}  # parts of a path that are no layers

# ── tensors and nodes of autograd ────────────────────────────────────────────────────────────────────────────────────

node_number: Callable[[Any], int] = methodcaller("_sequence_nr")  # in the order in which nodes were made
sparse_values: Callable[[Any], Any] = methodcaller("_values")  # of a tensor that may not be coalesced
version: Callable[[Any], int] = attrgetter("_version")  # how often a tensor was changed in place


def is_view(tensor: Any, of: Any) -> bool:
    """Is a tensor a view of another one, or of the same base?"""
    base = tensor._base
    return base is not None and (base is of or base is getattr(of, "_base", None))


def saved(node: Any, name: str, default: Any = None) -> Any:
    """What a node has saved under this name; raises RuntimeError after its backward pass."""
    return getattr(node, f"_saved_{name}", default)


def can_save(node: Any, name: str) -> bool:
    """Do nodes of this kind save something under this name?"""
    return hasattr(type(node), f"_saved_{name}")


def raw_saved(node: Any, name: str) -> Any:
    """The same, before the hooks that unpack it."""
    return getattr(node, f"_raw_saved_{name}", None)


def result_shape(node: Any) -> tuple[int, ...]:
    """The shape of the first result of a node; () if it is not known."""
    about = getattr(node, "_input_metadata", None)
    return tuple(about[0].shape) if about else ()


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
    """The function that says whether a tensor shares its memory until one of them is written (`torch._lazy_clone`)."""
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
    """Where torch keeps what `torch.compiler.is_compiling` returns: the names of a module, and that of the flag among them."""
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


def without_functions(*, subclasses: bool = False) -> AbstractContextManager[object]:
    """`__torch_function__` is not called: that of anything, or only that of subclasses of tensors."""
    native = _torch()._C
    found: AbstractContextManager[object] = (
        native.DisableTorchFunctionSubclass() if subclasses else native.DisableTorchFunction()
    )
    return found


def run_backward_code() -> Any:
    """The code of the function in which torch runs a backward pass; None: it has no such function."""
    engine = getattr(sys.modules.get("torch.autograd.graph"), "_engine_run_backward", None)
    return getattr(engine, "__code__", None)


# ── modules ──────────────────────────────────────────────────────────────────────────────────────────────────────────

children: Callable[[Any], dict[str, Any]] = attrgetter("_modules")


def compiled_frames() -> int:
    """How many frames torch.compile has looked at in this process."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return int(counters["frames"]["total"]) if "frames" in counters else 0


def is_compiled(module: Any) -> bool:
    """Has torch.compile taken this module?"""
    return hasattr(module, COMPILED) or getattr(module, "_compiled_call_impl", None) is not None


def loss_class() -> type:
    """The base class of torch's losses."""
    found: type = _torch().nn.modules.loss._Loss
    return found


# ── devices and ranks ────────────────────────────────────────────────────────────────────────────────────────────────


def memory_stats(device: int) -> dict[object, Any]:
    """The statistics of the memory allocator of a CUDA device."""
    found: dict[object, Any] = _torch()._C._cuda_memoryStats(device)
    return found


def reset_peaks(device: int) -> None:
    """Reset the peaks in these statistics."""
    _torch()._C._cuda_resetPeakMemoryStats(device)


def stats_targets(torch: ModuleType) -> list[Target]:
    """The functions that read the statistics of allocators."""
    return _existing(torch._C, "_cuda_memoryStats", "_accelerator_getDeviceStats")


def reset_targets(torch: ModuleType) -> list[Target]:
    """The functions that reset the peaks of allocators."""
    return _existing(torch._C, "_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats")


def when_device_used(backend: Any, callback: Callable[[], None]) -> None:
    """Call when torch begins to use a device of this backend (`torch.cuda`, `torch.xpu`), or now if it does already."""
    backend._lazy_call(callback)


def ddp_log_targets(torch: ModuleType) -> list[Target]:
    """The function by which a distributed model logs the times of a backward pass."""
    return _existing(getattr(getattr(torch._C, "_distributed_c10d", None), "Logger", None), "set_runtime_stats_and_log")


def log_every_backward(model: Any) -> None:
    """Let a distributed model measure each backward pass."""
    model._set_ddp_runtime_logging_sample_rate(1)


def logged_times(logger: Any) -> dict[str, Any]:
    """What the logger of a distributed model has measured."""
    found: dict[str, Any] = logger._get_ddp_logging_data().ints_map
    return found


# ── loaders ──────────────────────────────────────────────────────────────────────────────────────────────────────────

auto_collation: Callable[[Any], bool] = attrgetter("_auto_collation")  # does the iterator make batches of items?
collate_fn: Callable[[Any], Any] = attrgetter("_collate_fn")
dataset: Callable[[Any], Any] = attrgetter("_dataset")
index_sampler: Callable[[Any], Any] = attrgetter("_index_sampler")
num_workers: Callable[[Any], int] = attrgetter("_num_workers")
num_yielded: Callable[[Any], int] = attrgetter("_num_yielded")  # batches that the iterator has delivered
send_index: Callable[[Any], int] = attrgetter("_send_idx")  # number of the next batch that a worker is asked for


def is_loader_iterator(iterator: Any) -> bool:
    """Is this an iterator of torch's loader?"""
    return hasattr(iterator, "_sampler_iter")


def has_workers(iterator: Any) -> bool:
    """Does this iterator use workers?"""
    return hasattr(iterator, "_task_info")


def tasks(iterator: Any) -> dict[int, tuple[Any, ...]]:
    """The batches that workers were asked for, by number: the worker first; {} without workers."""
    found: dict[int, tuple[Any, ...]] = getattr(iterator, "_task_info", {})
    return found


def is_iterable(loader: Any) -> bool:
    """Is the dataset of a loader, or of an iterator of one, iterable?"""
    return bool(loader._dataset_kind == _torch().utils.data._DatasetKind.Iterable)


def has_endless_sampler(loader: Any) -> bool:
    """Has this loader the sampler that torch gives to iterable datasets?"""
    return type(loader.sampler).__name__ == "_InfiniteConstantSampler"


def index_queues(iterator: Any) -> list[Any]:
    """The queues through which workers get their tasks."""
    found: list[Any] = getattr(iterator, "_index_queues", [])
    return found


def living_iterator(loader: Any) -> Any:
    """The iterator with persistent workers that a loader uses again; None: it has none."""
    return getattr(loader, "_iterator", None)


WITHOUT_ITERATOR = {"_iterator": None}  # among the attributes of a loader: it has none


def fetcher(iterator: Any) -> Any:
    """What makes the batches of an iterator without workers."""
    return getattr(iterator, "_dataset_fetcher", None)


def fetcher_class(*, iterable: bool) -> type:
    """The class of that, for an iterable dataset or one with items."""
    kinds = _torch().utils.data._utils.fetch
    found: type = kinds._IterableDatasetFetcher if iterable else kinds._MapDatasetFetcher
    return found


def iterator_classes() -> tuple[type, type]:
    """The classes of iterators without and with workers."""
    kinds = _torch().utils.data.dataloader
    return kinds._SingleProcessDataLoaderIter, kinds._MultiProcessingDataLoaderIter


def next_index_target(torch: ModuleType) -> list[Target]:
    """An iterator asks its sampler."""
    return [(torch.utils.data.dataloader._BaseDataLoaderIter, "_next_index")]


def next_batch_target(torch: ModuleType) -> list[Target]:
    """An iterator delivers a batch."""
    return [(torch.utils.data.dataloader._BaseDataLoaderIter, "__next__")]


def put_target(torch: ModuleType) -> list[Target]:
    """An iterator asks a worker for a batch."""
    return [(torch.utils.data.dataloader._MultiProcessingDataLoaderIter, "_try_put_index")]


def fetcher_target(torch: ModuleType) -> list[Target]:
    """A fetcher is made."""
    return [(torch.utils.data._utils.fetch._BaseDatasetFetcher, "__init__")]


def fetch_targets(torch: ModuleType) -> list[Target]:
    """A batch is made of items."""
    kinds = torch.utils.data._utils.fetch
    return [(kinds._MapDatasetFetcher, "fetch"), (kinds._IterableDatasetFetcher, "fetch")]


def profiling() -> bool:
    """Is a profiler of torch running on this thread? A second one would end it."""
    return bool(_torch().autograd._profiler_enabled())


def worker_loop_target(torch: ModuleType) -> list[Target]:
    """A worker begins."""
    return [(torch.utils.data._utils.worker, "_worker_loop")]


def worker_loop() -> Callable[..., None]:
    """The function that a worker runs; torch is imported for it."""
    from torch.utils.data._utils import worker

    found: Callable[..., None] = worker._worker_loop
    return found


def recompile_targets(module: ModuleType) -> list[Target]:
    """The function that finds why a compiled function must be compiled again: `(entries, frame, ...)` gives the reasons."""
    return _existing(module, "get_and_maybe_log_recompilation_reasons")


def _existing(owner: Any, *names: str) -> list[Target]:
    return [(owner, name) for name in names if hasattr(owner, name)]


def _torch() -> Any:
    return sys.modules["torch"]
