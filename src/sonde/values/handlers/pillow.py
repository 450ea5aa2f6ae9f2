"""Describes images of PIL: as the array of their pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy
import PIL.Image

from sonde.values.handlers import arrays
from sonde.values.note import ARRAY, Note
from sonde.values.walk import Frozen, type_name

if TYPE_CHECKING:
    from sonde.values.walk import Handler, Walk


def image(value: PIL.Image.Image, walk: Walk) -> Frozen:
    """An image. One whose file was opened but not read yet is left alone: reading it here would change what it does."""
    if getattr(value, "tile", None):
        shape = (value.height, value.width)
        return Frozen(
            Note(ARRAY, type_name(value), text=f"mode={value.mode}, not read yet", shape=shape, cut=walk.copies)
        )
    note, copy = arrays.describe(numpy.asarray(value), walk, type=type_name(value), of=value)
    return Frozen(note._replace(text=f"mode={value.mode}"), copy)


HANDLERS: dict[type, Handler] = {PIL.Image.Image: image}
