"""What tensors can be looked at, and a bounded look at them: nothing here is seen by autograd, or waits for a device."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.hooks.torch import private
from sonde.native import moments

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

native: Any = moments  # None: C was not built
MOST = 1 << 20  # elements of a result that are looked at, from the first items of the batch on


class unseen:  # noqa: N801  it reads as a word in `with unseen():`
    """A block whose operations are seen neither by autograd nor by modes of the program."""

    __slots__ = ("_grad", "_modes", "_torch")

    def __enter__(self) -> None:
        self._torch = torch = sys.modules["torch"]
        self._modes: AbstractContextManager[object] = private.without_modes()
        self._modes.__enter__()
        self._grad = torch.is_grad_enabled()
        torch.set_grad_enabled(False)

    def __exit__(self, *error: object) -> None:
        self._torch.set_grad_enabled(self._grad)
        self._modes.__exit__(None, None, None)


def plain(tensor: Any) -> Any:
    """The part of a tensor that lies in this process, as numbers; None: there is nothing to be looked at."""
    torch = sys.modules["torch"]
    kind = type(tensor)
    if kind is not torch.nn.Parameter and kind is not torch.Tensor and hasattr(tensor, "to_local"):
        tensor = tensor.to_local()  # of a DTensor its own shard
    if tensor.layout is torch.sparse_coo:
        tensor = private.sparse_values(tensor)
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized or tensor.is_nested:
        return None
    found = tensor.detach()
    if found.is_complex():
        found = torch.view_as_real(found.resolve_conj())
    return found if found.untyped_storage().nbytes() else None  # a program may have freed it


def first_rows(tensor: Any) -> Any:
    """A bounded number of the first items in a batch."""
    if tensor.numel() <= MOST or not tensor.ndim:
        return tensor
    return tensor[: max(1, len(tensor) * MOST // tensor.numel())]


def spread(tensor: Any, most: int) -> Any:
    """At most so many elements, evenly spaced."""
    size = tensor.numel()
    return tensor.reshape(-1)[:: -(-size // most)] if size > most else tensor


class Moments(NamedTuple):
    """Numbers, or, of a tensor that C cannot read, tensors with one element. `beyond`: None if it was not asked for."""

    mean: Any
    norm: Any
    nonzero: Any
    nonfinite: Any
    beyond: Any


def moments_of(tensor: Any, beyond: tuple[float, float] | None = None) -> Moments:
    """What a tensor with elements is like; `beyond`: a middle, and how far from it elements are counted."""
    found = None if native is None else native.moments(tensor, *(beyond or (0.0, math.inf)))
    if found is None:
        return _moments(tensor, beyond)
    total, squares, nonzero, nonfinite, far = found
    return Moments(total / tensor.numel(), math.sqrt(squares), nonzero, nonfinite, None if beyond is None else far)


def _moments(tensor: Any, beyond: tuple[float, float] | None) -> Moments:
    torch = sys.modules["torch"]
    far = None if beyond is None else torch.count_nonzero((tensor - beyond[0]).abs() >= beyond[1])
    bad = torch.count_nonzero(torch.isfinite(tensor).logical_not_())
    return Moments(tensor.mean(dtype=torch.float32), norm(tensor), torch.count_nonzero(tensor), bad, far)


def distance(one: Any, other: Any) -> Any:
    """The norm of what two tensors of one shape differ by: a number, or a tensor with one element."""
    squares = None if native is None else native.distance(one, other)
    return norm(one - other) if squares is None else math.sqrt(squares)


def active(tensor: Any, unit: int) -> Any:
    """How many units are not zero everywhere; this dimension counts them."""
    found = None if native is None else native.active(tensor, unit)
    if found is not None:
        return found
    others = [at for at in range(tensor.ndim) if at != unit]
    return sys.modules["torch"].count_nonzero(tensor.abs().amax(others))


def norm(tensor: Any) -> Any:
    """The Euclidean norm, at least in single precision."""
    torch = sys.modules["torch"]
    if tensor.dtype is torch.float32 or tensor.dtype is torch.float64:
        return torch.linalg.vector_norm(tensor)
    return torch.linalg.vector_norm(tensor, dtype=torch.float32)


def capturing() -> bool:
    """Does the program capture a graph of a device? What we computed now would become a part of it."""
    cuda = sys.modules["torch"].cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())
