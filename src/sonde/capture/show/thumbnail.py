"""Small pictures of captured values that look like images, as PNG bytes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from sonde.guard import guard
from sonde.picture import as_image, png, shrunk
from sonde.values.npy import as_array

SIDE = 96  # pixels of one picture, at most
ROW_SIDE = 48  # of each picture where several stand for a batch
MAX_ROWS = 4  # of a batch


@guard("making a small picture of an array", default=())
def thumbnails(
    value: object, scale: tuple[float, float] | None = None, rows: Iterable[int] = ()
) -> tuple[tuple[str, bytes], ...]:
    """One PNG for an image, a few for a batch of images (the first ones, and `rows`), none for anything else.

    Each with its name: "row 3". `scale` is the range of numbers from black to white; None: that of the image itself.
    """
    array = as_array(value)
    if array is None or array.dtype.kind not in "buif" or array.size == 0:
        return ()
    image = as_image(array)
    if image is not None:
        return (("", png(shrunk(image, SIDE, scale))),)
    if array.ndim not in (3, 4) or as_image(array[0]) is None:
        return ()
    wanted = sorted({*range(MAX_ROWS), *islice(rows, MAX_ROWS)} & set(range(len(array))))
    images = [(row, as_image(array[row])) for row in wanted]
    return tuple((f"row {row}", png(shrunk(one, ROW_SIDE, scale))) for row, one in images if one is not None)
