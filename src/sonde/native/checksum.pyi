"""A batch at a glance, in C. `blackbox/checksum.py` does the same where this was not built, or a batch is not plain."""

from collections.abc import Callable
from typing import Any

def prepare(
    *,
    tensor: type,
    exchange: Any,  # torch's capsule for DLPack; None: it has none
    copied_late: Callable[[Any], bool],  # is this tensor copied on write?
    digest: Callable[[Any, int], int],  # (bytes, seed)
    look: type,  # the class `Fingerprint`
) -> None:
    """Take what is needed of torch, and what makes a digest."""

def glance(data: object, exclude: frozenset[str], /) -> tuple[Any, Any] | None:
    """The parts of a batch, and the look at them; None: it holds something that Python has to look at."""
