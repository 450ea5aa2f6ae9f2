"""A batch at a glance, and the last loss, in C. `sample.py` does the same where this was not built, or a batch is not plain."""

from collections.abc import Callable
from typing import Any

class Latest:
    """Writes losses, and knows the last one."""

    def __call__(self, span: Any, value: float, /) -> None:
        """Write it; tell of it if it is not finite."""

    def take(self) -> float | None:
        """The last one since this was asked before; None: there was none."""

def prepare(parts: tuple[Any, ...], /) -> None:
    """Take what is needed: the class of tensors, the capsule of the exchange between libraries (DLPack) or None, the function that
    makes a digest, the class of a look.
    """

def glance(data: object, exclude: frozenset[str], /) -> tuple[Any, Any] | None:
    """The parts of a batch, and the look at them; None: it holds something that Python has to look at."""

def latest(note: Callable[[Any, float], object], told: Callable[[float], object], /) -> Latest:
    """What calls `note` for each loss, and `told` for one that is not finite."""
