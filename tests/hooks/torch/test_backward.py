"""Backward passes: each one is told once, whichever way it is started."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.hooks.torch.told import told  # noqa: E402

from sonde.hooks.torch.backward import backward  # noqa: E402

ORIGINAL = torch.autograd.backward


@pytest.fixture(autouse=True)
def _restored() -> Any:
    yield
    assert torch.autograd.backward is ORIGINAL


def loss() -> Any:
    """Something to differentiate."""
    return (torch.ones(3, requires_grad=True) * 2).sum()


def test_a_pass_of_a_tensor_is_told_with_it() -> None:
    """`loss.backward()` goes through `torch.autograd.backward`."""
    with told(backward) as (seen,):
        value = loss()
        value.backward()
    assert len(seen.calls) == 1
    assert seen.calls[0].args[0] is value
    assert seen.calls[0].error is None


def test_a_pass_that_is_started_by_the_function_is_told() -> None:
    """With several tensors."""
    with told(backward) as (seen,):
        values = [loss(), loss()]
        torch.autograd.backward(values)
    assert seen.calls[0].args == (values,)


def test_gradients_that_are_only_computed_are_not_told() -> None:
    """`torch.autograd.grad` is not a backward pass of training."""
    start = torch.ones(3, requires_grad=True)
    with told(backward) as (seen,):
        torch.autograd.grad((start * 2).sum(), start)
        torch.autograd.functional.jacobian(lambda x: x * 2, torch.ones(2))
    assert seen.begun == 0


def test_an_exception_inside_passes() -> None:
    """A second pass through a freed graph is the user's mistake."""
    start = torch.ones(3, requires_grad=True)
    value = (start * start).sum()
    with told(backward) as (seen,):
        value.backward()
        with pytest.raises(RuntimeError, match="second time"):
            value.backward()
    assert [call.error is None for call in seen.calls] == [True, False]


def test_a_pass_inside_a_hook_of_another_is_not_told() -> None:
    """It belongs to the outer one."""

    def again(gradient: Any) -> None:
        with torch.enable_grad():
            loss().backward()

    value = loss()
    value.register_hook(again)
    with told(backward) as (seen,):
        value.backward()
    assert seen.begun == 1


class Own(torch.Tensor):
    """A tensor with its own idea of what functions do."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


def test_tensors_of_other_classes_are_told_once() -> None:
    """They come to the function twice."""
    start = torch.ones(3).as_subclass(Own).requires_grad_()
    with told(backward) as (seen,):
        (start * 2).sum().backward()
    assert seen.begun == 1
    assert torch.equal(start.grad, torch.full((3,), 2.0))
