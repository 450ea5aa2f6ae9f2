"""A batch at a glance, and the batches that are kept, in C.

The modules of `blackbox/` do the same where this was not built, or a batch is not plain.
"""

from collections.abc import Callable
from typing import Any

def prepare(
    *,
    tensor: type,
    exchange: Any,  # torch's capsule for DLPack; None: it has none
    copied_late: Callable[[Any], bool],  # is this tensor copied on write?
    digest: Callable[[Any, int], int],  # (bytes, seed)
    look: type,  # the class `Look`
) -> None:
    """Take what is needed of torch, and what makes a digest."""

def glance(data: object, exclude: frozenset[str], /) -> tuple[Any, Any] | None:
    """The parts of a batch, and the look at them; None: it holds something that Python has to look at."""

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

def delivery(
    slow: Callable[[Any, Any, Any], None],
    /,
    *,
    box: State,  # the black box
    context: Callable[[], tuple[int | None, int | None]],  # step and epoch
    kept: type,  # the class of what is kept
    book: Any,  # the ledger
    sampled: bytes,  # how its entry of a digest begins, before key and digest, if that is of a sample,
    read: bytes,  # or of all there is
    note: Callable[[int, int, bool], object],  # (key, digest, whole): writes such an entry where C cannot
) -> Delivery:
    """What is told of batches that are delivered, in the place of `slow`, which does it where something is unusual: a batch that
    is not plain or makes the ring too large, a loss to be judged, a look around that is due.
    """
