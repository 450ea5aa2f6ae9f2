"""A snapshot of a value: a description, a digest, and a bounded copy that later code cannot change."""

from __future__ import annotations

from sonde.values.note import CapturedValue
from sonde.values.registry import find
from sonde.values.walk import Keep, Walk

__all__ = ["DESCRIBED", "FULL", "OFF", "SUMMARY", "Keep", "digest", "freeze"]

FULL = Keep("full")
DESCRIBED = Keep("described")
SUMMARY = Keep("summary")
OFF = Keep("off")


def freeze(value: object, keep: Keep = FULL, name: str = "") -> CapturedValue:
    """What is kept of `value`. Never raises, never changes the value, and looks at each part of it once.

    Copies are plain: arrays and tensors without their subclass, devices and gradients; containers as dict, list, tuple
    and set; tables as a dict of arrays, images as an array. Objects that are known by their text only are not copied.
    """
    note, copy = Walk(keep, find).value(value, name)
    return CapturedValue(name, note, copy)


def digest(value: object) -> int | None:
    """A number that is equal for equal values, in every process and on every device; None if nothing can be said.

    For an array: xxh3 over the canonical name of its dtype, its shape and its elements in C order. So it depends on the
    order and on the dtype, not on byte order, strides or library: an ndarray and the tensor made from it have the same
    one. Arrays of texts go by their texts; containers by their parts; a dict and a set without regard to order.
    """
    return freeze(value, SUMMARY).note.digest
