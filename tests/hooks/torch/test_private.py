"""The private names of torch that Sonde uses do what they did; one that is gone is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sonde.hooks.torch import private

FUNCTIONS = ["sequence_number", "graph_task", "tracing_state", "copy_on_write", "queue_callback"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_torch_has_the_name(name: str) -> None:
    """Each is found in this torch."""
    try:
        found = getattr(private, name)()
    except AttributeError as error:
        pytest.fail(f"torch {torch.__version__} has renamed what private.{name} uses: {error}")
    assert callable(found)


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
