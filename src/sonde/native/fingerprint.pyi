"""A batch at a glance, losses and whose they are, and the batches that are kept, in C.

`sample.py`, `losses.py`, `blackbox.py` and `ring.py` do the same where this was not built, or a batch is not plain.
"""

from collections.abc import Callable
from typing import Any

from sonde.blackbox.losses import Ask, Losses

class Latest(Losses):
    """Writes losses, and knows whose they are."""

    def __call__(self, span: Any, value: float, /) -> None:
        """Write it; tell of it if it is not finite."""

def prepare(parts: tuple[Any, ...], /) -> None:
    """Take what is needed: the class of tensors; of `hooks/torch/private.py` the exchange and what tells that a tensor is copied on
    write; the function that makes a digest, and the class of a look.
    """

def glance(data: object, exclude: frozenset[str], /) -> tuple[Any, Any] | None:
    """The parts of a batch, and the look at them; None: it holds something that Python has to look at."""

def latest(note: Callable[[Any, float], object], told: Callable[[float], object], ask: Ask, /) -> Latest:
    """What calls `note` for each loss, `told` for one that is not finite, and `ask` as `Losses` does."""

class State:
    """What of a black box is asked for each batch."""

    due: int  # when it is time to look around
    suspect: bool  # a loss was not finite
    ring: Any

class Delivery:
    """Is told of batches that are delivered, and keeps the plain ones for the ring."""

    def __call__(self, batch: Any, key: int | None, data: Any, /) -> None:
        """A batch was delivered."""

    def newer(self) -> list[Any]:
        """What was kept since this was asked before, oldest first: newer than all that the ring holds itself."""

def delivery(parts: tuple[Any, ...], slow: Callable[[Any, Any, Any], None], /) -> Delivery:
    """What is told of batches that are delivered, in the place of `slow`, which does it where something is unusual: a batch that
    is not plain or makes the ring too large, a loss to be judged, a look around that is due.

    `parts`: the black box, which is a `State`; what tells step and epoch; the class of what is kept; a `Latest`; the ledger; how its entries of
    digests begin, of a sample and of all there is; what writes such an entry in Python.
    """
