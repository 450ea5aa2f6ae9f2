"""Arrays that look like images as small PNG files; non-finite values are highlighted."""

from __future__ import annotations

import math
import struct
import zlib
from typing import TYPE_CHECKING, Any

from sonde.lazy import numpy

if TYPE_CHECKING:
    Array = numpy.ndarray[Any, Any]

MIN_SIDE = 8  # of what looks like an image
MAX_ASPECT = 8
MAX_PIXELS = 1 << 22  # that are read for one picture
COLOURS = (1, 3, 4)
NOT_FINITE = (230, 30, 90)  # the colour of NaN and infinity


def as_image(array: Array) -> Array | None:
    """The array with its colours in the last dimension, if it looks like an image."""
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3:
        return None
    if _fits(array.shape[:2]) and array.shape[2] in COLOURS:
        return array
    if _fits(array.shape[1:]) and array.shape[0] in COLOURS:
        return array.transpose(1, 2, 0)
    return None


def _fits(sides: tuple[int, ...]) -> bool:
    return min(sides) >= MIN_SIDE and max(sides) <= MAX_ASPECT * min(sides)


def shrunk(image: Array, side: int, scale: tuple[float, float] | None = None) -> Array:
    """An image of at most `side` pixels, as bytes: means of blocks, with the colours stretched from `scale`, or their range."""
    skip = max(1, math.isqrt(image.shape[0] * image.shape[1] // MAX_PIXELS))
    image = image[::skip, ::skip]
    block = -(-max(image.shape[:2]) // side)
    height, width = (max(1, length // block) for length in image.shape[:2])
    down, across = (min(block, length) for length in image.shape[:2])
    blocks = image[: height * down, : width * across].reshape(height, down, width, across, image.shape[2])
    with numpy.errstate(all="ignore"):
        means = blocks.astype(numpy.float64).mean(axis=(1, 3))
        return _coloured(means, image.dtype, scale)


def _coloured(means: Array, dtype: Any, scale: tuple[float, float] | None) -> Array:
    finite = numpy.isfinite(means)
    low, high = (0.0, 255.0) if dtype == numpy.uint8 else scale or _range(means[finite])
    # Halves, because the distance of two numbers may be too large for a number.
    shares = (means / 2 - low / 2) / (high / 2 - low / 2) if high > low else numpy.full_like(means, 0.5)
    grey = (numpy.where(finite, shares, 0) * 255).round().clip(0, 255).astype(numpy.uint8)
    if finite.all():
        return grey
    coloured = grey[:, :, :3].copy() if grey.shape[2] >= 3 else numpy.repeat(grey, 3, axis=2)
    coloured[~finite.all(axis=2)] = NOT_FINITE
    return coloured


def _range(values: Array) -> tuple[float, float]:
    return (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)


def png(image: Array) -> bytes:
    """The bytes of a PNG file: 8 bits for each of 1, 3 or 4 colours."""
    height, width, colours = image.shape
    kind = {1: 0, 3: 2, 4: 6}[colours]
    rows = b"".join(b"\0" + row.tobytes() for row in image)
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows, 6)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
