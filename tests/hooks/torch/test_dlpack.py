"""Reading a tensor's memory leaves the tensor as it was, and none is read that the program has freed."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch

from sonde.hooks.torch import dlpack, private

FREED: dict[str, Any] = {
    "freed": (lambda: torch.ones(8), 0),
    "a view that is not at the begin": (lambda: torch.ones(2, 8)[1], 0),
    "shrunk": (lambda: torch.ones(8), 16),
    "shrunk to just below a view": (lambda: torch.ones(2, 8)[1], 60),
    "shrunk by one byte, with gaps": (lambda: torch.ones(4, 8)[::2, ::3], 4 * (2 * 8 + 6 + 1) - 1),
    "turned": (lambda: torch.ones(4, 8).t(), 124),
}


@pytest.mark.parametrize("name", list(FREED))
def test_a_tensor_that_reaches_beyond_its_storage_is_gone(name: str) -> None:
    """The program may free or shrink a storage under its tensors."""
    make, size = FREED[name]
    tensor = make()
    assert dlpack.is_there(tensor)
    tensor.untyped_storage().resize_(size)
    assert not dlpack.is_there(tensor)
    assert dlpack.is_gone(tensor)


def test_a_tensor_that_ends_where_its_storage_ends_is_there() -> None:
    """Not a byte more is needed."""
    tensor = torch.ones(4, 8)[::2, ::3]
    tensor.untyped_storage().resize_(4 * (2 * 8 + 6 + 1))
    assert dlpack.is_there(tensor)


@pytest.mark.parametrize(
    "tensor",
    [torch.ones(0, 3), torch.tensor(1.0), torch.ones(3).expand(5, 3), torch.ones(2, 2).to_sparse(), torch.ones(2, device="meta")],
    ids=["empty", "single", "repeated", "sparse", "meta"],
)  # fmt: skip
def test_what_was_not_freed_is_there(tensor: Any) -> None:
    """Also what has no storage to compare with."""
    assert dlpack.is_there(tensor)


def test_what_is_no_tensor_is_not_gone() -> None:
    """As an array, or a text."""
    assert not dlpack.is_gone(numpy.ones(3))
    assert not dlpack.is_gone("text")


def test_a_tensor_can_be_resized_after_it_was_read() -> None:
    """`Tensor.numpy()` would forbid it."""
    tensor = torch.arange(4.0, requires_grad=True)
    assert dlpack.array_of(tensor).tolist() == [0, 1, 2, 3]
    assert tensor.detach().resize_(64).shape == (64,)


def test_a_tensor_that_is_copied_on_write_stays_so() -> None:
    """Its numbers are read from a copy."""
    lazy = torch._lazy_clone(torch.arange(3))
    assert dlpack.array_of(lazy).tolist() == [0, 1, 2]
    assert private.copy_on_write()(lazy)
