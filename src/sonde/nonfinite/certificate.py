"""The certificate of a non-finite value: where and how it arose, and which items of the batch have it. Plain data."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.events import core
from sonde.events.recorder import serving
from sonde.hooks.torch import dlpack, private
from sonde.nonfinite import batches, check, items
from sonde.store.certificate import announcement, read_certificate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sonde.nonfinite.batches import Arrival
    from sonde.nonfinite.items import Carrier

MOST_INPUTS = 8
MOST_ITEMS = 16
BACKWARD = ("backward", "gradient")  # places of a pass that runs without gradients itself
CHECKPOINT = "torch.utils.checkpoint"
OURS = ("sonde", "torch")  # packages whose frames are not the program's


class Location(NamedTuple):
    """Where it was found; what is not known is None."""

    where: str
    producer: bool
    layer: str | None = None
    type: str | None = None
    after: str | None = None
    before: str | None = None
    op: str | None = None
    code: str | None = None
    stage: str | None = None


class Inputs(NamedTuple):
    """What went into the place."""

    known: bool
    tensors: tuple[tuple[str, Any], ...] = ()  # by name
    unchanged: bool = True  # else only their shapes are known
    parameters: tuple[str, ...] = ()  # of the layer, that were not finite already


NOTHING = Inputs(known=True)


class Evidence(NamedTuple):
    """What was found, before it is described. `carriers`: tensors with a row per item; the first with bad rows counts."""

    location: Location
    bits: int
    tensor: Any
    inputs: Inputs = NOTHING
    arrival: Arrival | None = None
    carriers: Sequence[Carrier] = ()


def certificate(found: Evidence, *, scaled: bool) -> dict[str, Any]:
    """All that is known. `scaled`: a GradScaler is used."""
    torch = sys.modules["torch"]
    location, bits, tensor, inputs, arrival, carriers = found
    step, epoch = core.get_context()
    positions = _positions(carriers, arrival)
    return {
        **location._asdict(),
        "kind": check.KINDS.get(bits),
        "count": int(check.bad(tensor).sum()),
        "total": tensor.numel(),
        "shape": list(tensor.shape),
        "dtype": _word(tensor.dtype),
        "inputs": [_described(name, one, inputs.unchanged) for name, one in inputs.tensors[:MOST_INPUTS]],
        "inputs_known": inputs.known,
        "parameters": list(inputs.parameters[:MOST_INPUTS]),
        "items": [_item(arrival, position) for position in positions[:MOST_ITEMS]],
        "items_total": len(positions),
        "batch": None if arrival is None else arrival.key,
        "step": step,
        "epoch": epoch,
        "evaluation": not torch.is_grad_enabled() and location.where not in BACKWARD and not _in_checkpoint(),
        "scaled": scaled,
    }


def sentence(facts: dict[str, Any]) -> str:
    """The certificate in one sentence."""
    found = read_certificate(facts)
    return "" if found is None else announcement(found)


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _word(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _described(name: str, tensor: Any, unchanged: bool) -> dict[str, Any]:
    """One input; `unchanged`: it is what it was. Numbers only if it is finite."""
    good = not unchanged or check.look(tensor) == 0
    low, high, mean = _extent(tensor) if unchanged and good and _is_distinct() else (None, None, None)
    shape = [] if tensor.is_nested else list(tensor.shape)
    known = {"name": name, "shape": shape, "dtype": _word(tensor.dtype)}
    return {**known, "min": low, "max": high, "mean": mean, "finite": good}


def _is_distinct() -> bool:
    """May anything of values go into the run? The setting `values` says so."""
    recorder = serving()
    return recorder is None or recorder.settings.values != "off"


def _extent(tensor: Any) -> tuple[float | int | None, ...]:
    """Least, greatest and mean value; None for what has no order, or no values to ask for."""
    torch = sys.modules["torch"]
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type != "meta"
    if not plain or tensor.is_nested or tensor.is_quantized or tensor.is_complex() or tensor.is_mkldnn:
        return None, None, None
    values = check.stored(tensor.detach())
    if not values.numel() or tensor.dtype is torch.bool or private.is_wrapped(tensor) or not dlpack.is_there(values):
        return None, None, None
    with torch.no_grad():
        values = values.double()  # not each dtype can be asked itself
        low, high, mean = values.min().item(), values.max().item(), values.mean().item()
    return (low, high, mean) if tensor.is_floating_point() else (int(low), int(high), mean)


# ── items ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _positions(carriers: Sequence[Carrier], arrival: Arrival | None) -> list[int]:
    size = None if arrival is None or arrival.indices is None else len(arrival.indices)
    for one in carriers:
        tensor = one.tensor
        dim = _batch_dim(tensor, size) if tensor.layout is sys.modules["torch"].strided else None
        if dim is not None:
            wrong = check.bad(tensor).movedim(dim, 0).reshape(tensor.shape[dim], -1).any(1)
            found: list[int] = wrong.nonzero().flatten().tolist()
            if found:
                batch = () if arrival is None else batches.tensors(arrival)
                return items.places(one, found, tensor.shape[dim], batch) or []
    return []


def _batch_dim(tensor: Any, size: int | None) -> int | None:
    """The dimension that counts the items: the first, or the second of several where only that fits.

    The second of two is more often that of numbers of one item, as where tokens of all items lie in one row.
    """
    shape = tuple(tensor.shape)
    if size is None:
        return 0 if len(shape) > 1 and shape[0] > 1 else None
    if len(shape) > 2 and shape[0] != size == shape[1]:
        return 1
    return 0 if shape and shape[0] == size and (len(shape) > 1 or size > 1) else None


def _item(arrival: Arrival | None, position: int) -> dict[str, Any]:
    if arrival is None:
        return {"position": position, "index": None, "id": None}
    index = arrival.indices[position] if arrival.indices is not None and position < len(arrival.indices) else None
    known = batches.identity(arrival, position)
    whole = type(index) is int
    return {
        "position": position,
        "index": index if whole else None,
        "id": known if known is not None or whole or index is None else str(index)[: batches.MOST_TEXT],
    }


# ── code ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def code_of(module: Any) -> str | None:
    """Where the code of a module begins; None if that is not the program's."""
    forward = next((vars(one)["forward"] for one in type(module).__mro__ if "forward" in vars(one)), None)
    code = getattr(forward, "__code__", None)
    if forward is None or code is None or str(forward.__module__).partition(".")[0] in OURS:
        return None
    return f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno} in {forward.__qualname__}"


def _in_checkpoint() -> bool:
    """Is this in a checkpoint of torch, whose forward pass is one of training, though it runs without gradients?"""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != CHECKPOINT:
        frame = frame.f_back
    return frame is not None


def user_code() -> str | None:
    """Where the program is: its innermost line that is neither torch's nor ours."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in OURS:
            code = frame.f_code
            return f"{code.co_filename.rpartition('/')[2]}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return None
