"""Takes a value as it is at this moment: a description, a digest, and a bounded copy that later code cannot change."""

from __future__ import annotations

from sonde.values.note import Kept
from sonde.values.registry import find
from sonde.values.walk import Keep, Walk

__all__ = ["DESCRIBED", "FULL", "OFF", "SUMMARY", "Keep", "freeze"]

FULL = Keep("full")
DESCRIBED = Keep("described")
SUMMARY = Keep("summary")
OFF = Keep("off")


def freeze(value: object, keep: Keep = FULL, name: str = "") -> Kept:
    """What is kept of `value`. Never raises, never changes the value, and looks at each part of it once.

    Copies are plain: arrays and tensors without their subclass, devices and gradients; containers as dict, list, tuple
    and set; tables as a dict of arrays, images as an array. Objects that are known by their text only are not copied.
    """
    note, copy = Walk(keep, find).value(value, name)
    return Kept(name, note, copy)
