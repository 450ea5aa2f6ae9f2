"""The fields of a batch: mean, spread, range, share of values that are not finite, different labels, tokens and padding."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.hooks.torch import dlpack
from sonde.native import stats
from sonde.probes.learning.tensors import first_rows, plain
from sonde.store.probe import FIELD
from sonde.store.record import DETAIL
from sonde.values.nested import parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sonde.probes.learning.pending import PendingNumbers

native: Any = stats  # None: C was not built
CODES = {
    "float32": "f",
    "float64": "d",
    "bool": "?",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "int32": "i",
    "int64": "q",
}
MOST_FIELDS = 16
MOST_LABELS = 1 << 16  # of a batch, that are counted
MASK = "mask"  # what the name of a field ends in that says which tokens are real
FEWEST_TOKENS = 4  # in a row


def look(batch: Any, key: int | None, step: int, exclude: frozenset[str], results: PendingNumbers) -> None:
    """Look at the fields of a batch."""
    torch = sys.modules["torch"]
    found = {
        ".".join(map(str, path)) or "batch": part
        for path, part in parts_of(batch, exclude, MOST_FIELDS)
        if isinstance(part, torch.Tensor)
    }
    for name, part in found.items():
        tensor = plain(part)
        if tensor is not None and tensor.numel():
            scalars = _measured(torch, tensor) | _counted(torch, tensor) | _padded(torch, name, tensor, found)
            results.add(list(scalars.values()), _writer(name, key, step, list(scalars), len(part) if part.ndim else 1))


def named(arguments: tuple[Any, ...], keywords: Mapping[str, Any], forward: Callable[..., Any]) -> dict[str, Any]:
    """The inputs of a model by the names of its parameters, for programs without a loader."""
    code = getattr(forward, "__code__", None)
    words = () if code is None else code.co_varnames[1 : code.co_argcount]
    given = {words[place] if place < len(words) else str(place): one for place, one in enumerate(arguments)}
    return {**given, **keywords}


def _writer(name: str, key: int | None, step: int, words: list[str], rows: int) -> Callable[[list[float]], None]:
    def write(values: list[float]) -> None:
        for what, value in zip((*words, "size"), (*values, rows), strict=True):
            core.counter(name, value, FIELD + what, key, None, DETAIL, step)

    return write


def _measured(torch: Any, tensor: Any) -> dict[str, Any]:
    """Of what is finite; the share of the rest."""
    tensor = first_rows(tensor)
    code = CODES.get(str(tensor.dtype).removeprefix("torch."))
    if native is not None and tensor.is_cpu and code is not None:
        low, high, mean, std, bad = native.stats(dlpack.array_of(tensor.contiguous()), code)
        known = {"low": low, "high": high, "mean": mean, "std": std, "nonfinite": bad / tensor.numel()}
        return {name: value for name, value in known.items() if value is not None}
    wide = tensor.double() if tensor.is_cpu else tensor.float()
    finite = wide.isfinite()
    count = finite.sum()
    mean = wide.where(finite, 0).sum() / count
    far = (wide - mean).where(finite, 0)
    return {
        "low": wide.where(finite, torch.inf).amin(),
        "high": wide.where(finite, -torch.inf).amax(),
        "mean": mean,
        "std": (far * far).sum().div(count).sqrt(),
        "nonfinite": 1 - count / tensor.numel(),
    }


def _counted(torch: Any, tensor: Any) -> dict[str, Any]:
    """How many different labels a batch has, if this is a field with one whole number for each item."""
    whole = not tensor.is_floating_point() and tensor.dtype is not torch.bool
    if not whole or not tensor.is_cpu or not tensor.ndim or tensor.numel() != len(tensor) or len(tensor) > MOST_LABELS:
        return {}
    return {"distinct": torch.unique(tensor).numel()}


def _padded(torch: Any, name: str, tensor: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens of a field with rows of whole numbers, and the share of padding among them: by a mask, or else by equal ends of rows."""
    if tensor.ndim != 2 or tensor.shape[1] < FEWEST_TOKENS or tensor.dtype not in (torch.int64, torch.int32):
        return {}
    if name.lower().endswith(MASK):
        return {}
    masks = (one for other, one in fields.items() if other.lower().endswith(MASK) and one.shape == tensor.shape)
    mask = next(masks, None)
    if mask is not None and not mask.is_floating_point():
        padding = (mask == 0).sum()
    else:
        padding = torch.maximum(*(_ending(torch, rows) for rows in (tensor, tensor.flip(1))))
    return {"tokens": tensor.numel(), "padding": padding.to(tensor.device) / tensor.numel()}


def _ending(torch: Any, rows: Any) -> Any:
    """How many elements are in runs of one value at the ends of rows, longer than one: those of the value that most rows end in."""
    value = rows[:, -1].mode().values
    runs = (rows == value).flip(1).cumprod(1).sum(1)
    return torch.where(runs > 1, runs, 0).sum()
