"""Small pictures of captured values that look like images, as PNG bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.flow.npy import as_array
from sonde.guard import guard
from sonde.picture import as_image, png, shrunk

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

SIDE = 96  # pixels of one picture, at most
ROW_SIDE = 48  # of each picture where several stand for a batch
MAX_ROWS = 4  # of a batch


@guard("making a small picture of an array", default=())
def thumbnails(value: object) -> tuple[bytes, ...]:
    """One PNG for an image, a few for a batch of images, none for anything else."""
    array = as_array(value)
    if array is None or array.dtype.kind not in "buif" or array.size == 0:
        return ()
    pictures = _pictures(array)
    side = SIDE if len(pictures) == 1 else ROW_SIDE
    return tuple(png(shrunk(picture, side)) for picture in pictures)


def _pictures(array: Array) -> list[Array]:
    """The images in an array, each with its colours in the last dimension."""
    image = as_image(array)
    if image is not None:
        return [image]
    if array.ndim in (3, 4) and as_image(array[0]) is not None:
        rows = [as_image(row) for row in array[:MAX_ROWS]]
        return [row for row in rows if row is not None]
    return []
