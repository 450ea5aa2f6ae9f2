"""Which values say something about their item, so that two items should not have the same."""

from __future__ import annotations

import re

from sonde.capture.rules.observations import Sight, whole
from sonde.values.note import SCALAR, TEXT

FEW = 16  # elements: a shorter array of whole numbers may well be the same by chance, such as a size
# What items have in common by right: masks, axes, sizes, constants of the data set.
SHARED = re.compile(
    r"mask|pad|position|(^|_)(time|t|grid|axis|axes|size|shape|lengths?|seed|index|idx|meta|info|version)(s|_|$)"
    r"|wave|freq|coord|lambda|weight|edge|adj|attention|token_type|(^|_)seg|anchor|mean|std|scale|config|param",
    re.IGNORECASE,
)
LABELS = re.compile(r"label|target|class|one_?hot|categor|(^|_)(y|gt|truth|id|ids)(_|$)", re.IGNORECASE)


def identifies(one: Sight) -> bool:
    """Is this an array that describes one item, and no axis, mask or label?"""
    if not one.array or one.note.digest is None or one.size < 2 or SHARED.search(one.field) or label(one):
        return False
    return (one.size >= FEW or _fractions(one)) and not _axis(one)


def label(one: Sight) -> bool:
    """Is this what the item is sorted under: a number or text of such a name, or a row of zeros and a one?"""
    return bool(LABELS.search(one.name)) or _onehot(one)


def plain(one: Sight) -> bool:
    """A number or a text."""
    return one.note.kind in (SCALAR, TEXT)


def flat(one: Sight) -> bool:
    """Do all its elements have the same value? (An empty picture looks like any other one.)"""
    return one.note.low is not None and one.note.low == one.note.high


def _fractions(one: Sight) -> bool:
    """Does it hold numbers that are not whole? (Codes of categories are often kept as floats.)"""
    value = whole(one)
    if not one.dtype.startswith(("float", "bfloat")):
        return False
    return value is None or bool((value != value.round()).any())


def _onehot(one: Sight) -> bool:
    shape, note = one.note.shape or (), one.note
    if len(shape) != 1 or note.low != 0 or note.high != 1 or note.mean is None:
        return False
    return abs(note.mean * one.size - 1) < 1e-3


def _axis(one: Sight) -> bool:
    """Numbers in rising or falling order, as on a scale of time or wavelength."""
    value = whole(one)
    if (
        value is None
        or len(value.shape) != 1
        or one.size < 3
        or not one.dtype.startswith(("int", "uint", "float", "bfloat"))
    ):
        return False
    left, right = value[:-1], value[1:]
    return bool((left < right).all()) or bool((left > right).all())
