"""What a model gets: its `prepare_inputs`, checked, and NumPy arrays as tensors on a device. Needs torch only for those."""

from __future__ import annotations

import inspect
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.ai.tree import ai
from sonde.errors import ModelError
from sonde.pipeline.training.ignite import require_torch

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

NAME, OLD_NAME = "prepare_inputs", "to_tensor"


def prepare(model_class: type) -> Callable[[dict[str, Any]], Any]:
    """The function of a model class that makes its inputs of a collated batch: one array, or a tuple of them."""
    name = NAME if hasattr(model_class, NAME) else OLD_NAME
    if not hasattr(model_class, name):
        raise ModelError(
            f"{model_class.__name__} has no prepare_inputs. Add a static method that returns a NumPy array, or a "
            f"tuple of them with the labels last. It gets a batch {{name: {{field: array}}, 'object_id': array}}."
        )
    if not isinstance(inspect.getattr_static(model_class, name), staticmethod):
        raise ModelError(f"{model_class.__name__}.{name} must be static: add @staticmethod above it.")
    if name == OLD_NAME:
        warnings.warn(
            f"{model_class.__name__}.to_tensor is an old name. Rename it to prepare_inputs, and return NumPy arrays.",
            DeprecationWarning,
            stacklevel=2,
        )
    function: Callable[[dict[str, Any]], Any] = getattr(model_class, name)
    return function


def prepared(function: Callable[[Any], Any], batch: dict[str, Any], model: str) -> Any:
    """What `prepare_inputs` makes of a collated batch, checked."""
    try:
        with ai.data.preprocess:
            return checked(function(batch), model)
    except KeyError as error:
        has = {key: sorted(part) if isinstance(part, dict) else "array" for key, part in batch.items()}
        raise ModelError(f"prepare_inputs of {model} asked for {error}, but the batch has {has}.") from error


def checked(prepared: Any, model: str) -> Any:
    """What `prepare_inputs` has returned, if it is one array or a tuple of arrays (or None); lists become tuples."""
    parts = prepared if isinstance(prepared, tuple | list) else (prepared,)
    for part in parts:
        if isinstance(part, np.ndarray):
            if part.dtype.hasobject or part.dtype.kind in "USMm":
                raise ModelError(
                    f"prepare_inputs of {model} returned an array of {part.dtype}, which cannot become a tensor. "
                    "Convert it to numbers there."
                )
        elif part is not None and type(part).__module__.split(".")[0] != "torch":
            raise ModelError(
                f"prepare_inputs of {model} returned {type(part).__name__}. Return one NumPy array, or a tuple of them "
                "with the labels last."
            )
    return tuple(prepared) if isinstance(prepared, list) else prepared


def to_tensors(prepared: Any, device: torch.device | str) -> Any:
    """Arrays as tensors on the device: one as one, a tuple as a tuple. Without a copy where that is possible."""
    with ai.device.transfer:
        if isinstance(prepared, tuple):
            return tuple(_tensor(part, device) for part in prepared)
        return _tensor(prepared, device)


def _tensor(part: Any, device: torch.device | str) -> Any:
    import torch

    if part is None:
        return None
    if isinstance(part, torch.Tensor):
        return part.to(device)
    array = np.ascontiguousarray(part) if any(step < 0 for step in part.strides) else part
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable:
        array = array.copy()  # torch cannot hold memory that must not be written
    return torch.from_numpy(array).to(device, non_blocking=torch.device(device).type == "cuda")


def device_of(wanted: str) -> torch.device:
    """The device that the config names; "auto" is the fastest one there is."""
    require_torch()
    import torch

    if wanted == "auto":
        found = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        return torch.device(found)
    try:
        device = torch.device(wanted)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).splitlines()[0]
        raise ModelError(f"Cannot use the device {wanted!r}: {why:.200}. Use auto or cpu.") from error
    return device
