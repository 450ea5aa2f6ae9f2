"""The private names of torch that Sonde uses do what they did; one that is gone is named."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

from sonde.hooks.torch import private

ROOT = Path(private.__file__).parents[2]
OURS = {  # attributes of our own with the same name
    ("store/untrusted.py", "_values"),
    ("events/twin.py", "_base"),
    ("events/twin.py", "_iterator"),
    ("pipeline/config.py", "_values"),
    ("store/reading/blobs.py", "_base"),
}


def _node() -> Any:
    return (torch.ones(2, requires_grad=True) * 2).grad_fn


def _iterator(workers: int = 0) -> Any:
    return iter(DataLoader([1, 2, 3, 4], num_workers=workers))  # type: ignore[arg-type]


def _profiled(answer: Callable[[], bool]) -> bool:
    with torch.profiler.profile():
        return answer()


def _wrapped_by_fsdp() -> str:
    from torch.distributed.fsdp import _common_utils as fsdp

    return fsdp.FSDP_WRAPPED_MODULE


def _wrapped_by_checkpoint() -> str:
    from torch.distributed.algorithms._checkpoint import checkpoint_wrapper

    return checkpoint_wrapper._CHECKPOINT_WRAPPED_MODULE


def _linear() -> Any:
    return torch.nn.Linear(2, 2)


def _compiled() -> bool:
    return bool(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)) == 2)


# One row for each private name: the function of private.py that uses it, and something that it gives as long as the name is right.
USES: dict[str, Callable[[], object]] = {
    "sequence_number": private.sequence_number,
    "graph_task": private.graph_task,
    "tracing_state": private.tracing_state,
    "copy_on_write": lambda: private.copy_on_write() is not private._perhaps,
    "queue_callback": private.queue_callback,
    "node_number": lambda: private.node_number(_node()) >= 0,
    "sparse_values": lambda: private.sparse_values(torch.eye(2).to_sparse()).shape == (2,),
    "recompile_targets": lambda: private.recompile_targets(import_module(private.CONVERTER)),
    "version": lambda: private.version(torch.ones(2).add_(1)) == 1,
    "is_view": lambda: private.is_view((base := torch.ones(2))[:1], base),
    "saved": lambda: private.saved((torch.ones(2, requires_grad=True) ** 3).grad_fn, "exponent") == 3,
    "can_save": lambda: private.can_save(_node(), "self"),
    "raw_saved": lambda: private.raw_saved(torch.ones(2, requires_grad=True).exp().grad_fn, "result") is not None,
    "result_shape": lambda: private.result_shape(_node()) == (2,),
    "run_backward_code": private.run_backward_code,
    "without_functions": private.without_functions,
    "profiling": lambda: _profiled(private.profiling),
    "children": lambda: list(private.children(torch.nn.Sequential(_linear()))) == ["0"],
    "compiled_frames": lambda: _compiled() and private.compiled_frames() > 0,
    "is_compiled": lambda: hasattr(_linear(), "_compiled_call_impl"),
    "COMPILED": lambda: hasattr(torch.compile(_linear()), private.COMPILED),
    "loss_class": lambda: isinstance(torch.nn.MSELoss(), private.loss_class()),
    "when_device_used": lambda: callable(torch.cuda._lazy_call),
    "log_every_backward": lambda: callable(DistributedDataParallel._set_ddp_runtime_logging_sample_rate),
    "ddp_log_targets": lambda: private.ddp_log_targets(torch),
    "logged_times": lambda: callable(private.ddp_log_targets(torch)[0][0]._get_ddp_logging_data),
    "auto_collation": lambda: private.auto_collation(_iterator()),
    "collate_fn": lambda: private.collate_fn(_iterator()),
    "dataset": lambda: private.dataset(_iterator()) == [1, 2, 3, 4],
    "index_sampler": lambda: private.index_sampler(_iterator()),
    "num_workers": lambda: private.num_workers(_iterator()) == 0,
    "num_yielded": lambda: private.num_yielded(_iterator()) == 0,
    "is_loader_iterator": lambda: private.is_loader_iterator(_iterator()),
    "send_index": lambda: private.send_index(_iterator(1)) > 0,
    "has_workers": lambda: private.has_workers(_iterator(1)),
    "tasks": lambda: private.tasks(_iterator(1)),
    "index_queues": lambda: private.index_queues(_iterator(1)),
    "is_iterable": lambda: private.is_iterable(_stream()),
    "has_endless_sampler": lambda: private.has_endless_sampler(_stream()),
    "living_iterator": lambda: hasattr(_stream(), *private.WITHOUT_ITERATOR),
    "fetcher": lambda: type(private.fetcher(_iterator())) is private.fetcher_class(iterable=False),
    "iterator_classes": lambda: type(_iterator()) is private.iterator_classes()[0],
    "next_index_target": lambda: _exist(private.next_index_target(torch)),
    "next_batch_target": lambda: _exist(private.next_batch_target(torch)),
    "put_target": lambda: _exist(private.put_target(torch)),
    "fetcher_target": lambda: _exist(private.fetcher_target(torch)),
    "fetch_targets": lambda: _exist(private.fetch_targets(torch)),
    "worker_loop_target": lambda: _exist(private.worker_loop_target(torch)),
    "worker_loop": private.worker_loop,
    "stats_targets": lambda: private.stats_targets(torch),
    "reset_targets": lambda: private.reset_targets(torch),
    # A build without CUDA has the functions that call these, but not these.
    "memory_stats": lambda: "_C._cuda_memoryStats(" in inspect.getsource(torch.cuda.memory),
    "reset_peaks": lambda: "_C._cuda_resetPeakMemoryStats(" in inspect.getsource(torch.cuda.memory),
    "WRAPPERS": lambda: {_wrapped_by_fsdp(), _wrapped_by_checkpoint(), private.COMPILED} == private.WRAPPERS,
}
ELSEWHERE = {"exchange", "COMPILER"}  # public names; tests of what uses them fail without them


class _Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


def _stream() -> Any:
    return DataLoader(_Stream())


def _exist(targets: list[tuple[Any, str]]) -> bool:
    return all(callable(getattr(owner, name)) for owner, name in targets)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", USES)
def test_torch_has_the_name(name: str) -> None:
    """Each is found in this torch."""
    try:
        found = USES[name]()
    except AttributeError as error:
        pytest.fail(f"torch {torch.__version__} has renamed what private.{name} uses: {error}")
    assert found, f"torch {torch.__version__} has renamed what private.{name} uses"


def test_every_function_of_private_is_tried_here() -> None:
    """A new one needs a row, or a test of its own."""
    tree = ast.parse(Path(private.__file__).read_text())
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    names |= {
        one.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for one in node.targets
        if isinstance(one, ast.Name)
    }
    names |= {
        node.target.id for node in tree.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    here = Path(__file__).read_text()
    assert {
        name for name in names if name[0] != "_" and f"private.{name}" not in here and name not in USES
    } == ELSEWHERE


def test_private_names_of_torch_stand_in_one_file() -> None:
    """No other module of ours names one of those that private.py names, nor another one below `torch`."""
    names = set(re.findall(r"""(?:\.|["'])(_[a-zA-Z]\w+)""", (ROOT / "hooks/torch/private.py").read_text())) - {"_C"}
    strays = []
    for path in ROOT.rglob("*.py"):
        where = path.relative_to(ROOT).as_posix()
        if where == "hooks/torch/private.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "value", None)
            if not isinstance(name, str) or (where, name) in OURS:
                continue
            own = isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls")
            below = isinstance(node, ast.Attribute) and re.search(r"\btorch[.a-z]*\._[a-zA-Z]", ast.unparse(node))
            known = (name in names and not own) or name.startswith("_saved_")
            if known or below or re.search(r"\btorch[.a-z]*\._[a-zA-Z]", name):
                strays.append(f"{where}:{getattr(node, 'lineno', 0)}: {name}")
    assert not strays, "Move these private names of torch to hooks/torch/private.py: " + ", ".join(strays)


def test_the_sequence_number_counts_the_nodes_of_autograd() -> None:
    """An operation that is differentiated raises it; others do not."""
    count, given = private.sequence_number(), torch.ones(2, requires_grad=True)
    before = count()
    torch.ones(2) * 2
    assert count() == before
    given * 2
    assert count() == before + 1


def test_the_graph_task_tells_a_backward_pass() -> None:
    """-1 outside of one."""
    task, seen = private.graph_task(), []
    given: Any = torch.ones(2, requires_grad=True)
    given.register_hook(lambda _: seen.append(task()))
    given.sum().backward()
    assert task() == -1
    assert seen[0] >= 0


def test_the_tracing_state_tells_a_trace() -> None:
    """None outside of `torch.jit.trace`."""
    state, seen = private.tracing_state(), []

    def double(x: Any) -> Any:
        seen.append(state() is not None)
        return x * 2

    torch.jit.trace(double, torch.ones(2), check_trace=False)  # type: ignore[no-untyped-call]
    assert seen == [True]
    assert state() is None


def test_a_tensor_that_is_copied_on_write_is_told() -> None:
    """Until it is written."""
    lazy = torch._lazy_clone(torch.ones(3))
    assert private.copy_on_write()(lazy)
    lazy.add_(1)
    assert not private.copy_on_write()(lazy), f"torch {torch.__version__} has renamed torch._C._is_cow_tensor"


def test_modes_that_see_operations_can_be_passed_by() -> None:
    """A counter of operations sees none of those in between."""
    from torch.utils.flop_counter import FlopCounterMode

    given = torch.ones(2, 2)
    with FlopCounterMode(display=False) as counter:
        with private.without_modes():
            given @ given
        assert counter.get_total_flops() == 0
        given @ given
    assert counter.get_total_flops() > 0


def test_the_hooks_of_a_module_are_told() -> None:
    """Its own, and those of all modules."""
    module = torch.nn.ReLU()
    assert not any(private.forward_hooks(module))
    module.register_forward_hook(lambda *_: None)
    module.register_forward_pre_hook(lambda *_: None)
    everywhere = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert [len(one) for one in private.forward_hooks(module)] == [1, 1, 0, 1]
    everywhere.remove()


def test_changes_of_a_tensor_are_counted() -> None:
    """`_version`, by which the black box knows that a batch was changed."""
    tensor = torch.ones(2)
    before = tensor._version
    tensor.add_(1)
    assert tensor._version == before + 1


def test_a_callback_runs_at_the_end_of_a_backward_pass() -> None:
    """After all hooks."""
    seen: list[str] = []
    given: Any = torch.ones(2, requires_grad=True)
    made = given * 2
    made.register_hook(lambda _: private.queue_callback()(lambda: seen.append("end")))
    given.register_hook(lambda _: seen.append("hook"))
    made.sum().backward()
    assert seen == ["hook", "end"]


def test_the_compiler_tells_by_a_flag_that_it_reads() -> None:
    """It is False while it does not."""
    names, flag = private.compile_flag()
    assert names[flag] is False, f"torch {torch.__version__} has renamed torch.compiler.{flag}"


def test_the_compiler_has_what_lets_it_pass_our_code_over() -> None:
    """What is read instead of an object, and what runs as it is."""
    import torch._dynamo as compiler

    replacement = object()
    private.read_instead(compiler, replacement)
    assert id(replacement) in compiler.trace_rules._polyfilled_function_ids
    compiler.trace_rules._polyfilled_function_ids.remove(id(replacement))
    private.pass_over(compiler, (lambda: None).__code__)


def test_a_node_has_its_number() -> None:
    """`_sequence_nr`, by which nodes are told to be of a layer."""
    given = torch.ones(2, requires_grad=True)
    before = private.sequence_number()()
    node: Any = (given * 2).grad_fn
    assert node._sequence_nr() == before


def test_a_tensor_of_a_transform_is_told() -> None:
    """One that stands for others."""
    seen: list[bool] = []

    def same(x: Any) -> Any:
        seen.append(private.is_wrapped(x))
        return x

    torch.vmap(same)(torch.ones(2, 2))
    assert seen == [True]
    assert not private.is_wrapped(torch.ones(2))
