"""The digest of a value: one 64-bit number for its whole content."""

from __future__ import annotations

from sonde.values.snapshot import SUMMARY, freeze


def digest(value: object) -> int | None:
    """A number that is equal for equal values, in every process and on every device; None if nothing can be said.

    For an array: xxh3 over the canonical name of its dtype, its shape and its elements in C order. So it depends on the
    order and on the dtype, not on byte order, strides or library: an ndarray and the tensor made from it have the same
    one. Arrays of texts go by their texts; containers by their parts; a dict and a set without regard to order.
    """
    return freeze(value, SUMMARY).note.digest
