"""Fingerprints of plain tensors of the host, in C. Where this was not built, `probes/learning/fingerprint.py` makes them with torch."""

from collections.abc import Callable
from typing import Any

def prepare(
    *,
    tensor: type,
    parameter: type,
    exchange: Any,  # torch's capsule for DLPack; None: it has none
    copied_late: Callable[[Any], bool],  # is this tensor copied on write?
    digest: Callable[[Any, int], int],  # (bytes, seed)
    seed: Callable[[Any], int],  # of the digest of a tensor: by its type and shape
    note: Callable[[Any, float, int], object],  # of the event core: (span, value, key)
    mask: int,  # the bits of a digest that the key has
) -> None:
    """Set the parts of torch and Sonde to use."""

def write(span: Any, tensor: Any, /) -> bool:
    """Record the fingerprint of a tensor under the name of a span; False: it is not plain, and Python has to."""

def write_many(spans: list[Any], tensors: list[Any], /) -> list[tuple[Any, Any]]:
    """The same for a list of each; None has no fingerprint. What Python has to write, in pairs."""
