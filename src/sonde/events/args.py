"""Turns the arguments of an event into a JSON object, whatever they hold: bounded, always valid, never raising."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import cast

from sonde.guard import guard

TOTAL_FACTOR = 16  # all arguments of one event together may have so many times the limit of one text
MIN_TOTAL = 4096
MAX_DEPTH = 8
MAX_ITEMS = 256  # of one list or dict
MAX_INT_BITS = 4096
ROOM_FOR_NUMBER = 8
CIRCULAR = "<circular>"
TOO_DEEP = "<too deep>"
LEFT_OUT = "<left out: the arguments are too long>"

_Items = list[object] | tuple[object, ...] | set[object] | frozenset[object]
_dump = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False).encode


def encode(args: Mapping[str, object], limit: int) -> tuple[bytes, bool]:
    """The arguments as one JSON object, and whether something was cut. `limit`: the longest text, in characters."""
    if _is_plain(args, limit):
        return _dump(args).encode(), False
    plain = _JsonValues(limit)
    shown = plain.value(args, 0)
    if not isinstance(shown, dict):  # an object that only said it was a mapping
        shown = {"args": shown}
    return _dump(shown).encode(), plain.cut


def merge(outer: bytes, inner: bytes) -> bytes:
    """One object of two encoded ones; where both have a name, the inner value stands."""
    return _dump(json.loads(outer) | json.loads(inner)).encode()


def clean(text: str) -> str:
    """The text as valid Unicode: a lone surrogate becomes its backslash escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _is_plain(args: object, limit: int) -> bool:
    """Most arguments are a few small numbers and words: they need no walk."""
    if type(args) is not dict or len(args) > 16:
        return False
    for name, value in args.items():
        if type(name) is not str or not name.isascii() or len(name) > limit:
            return False
        kind = type(value)
        if kind is str:
            if len(value) > limit or not value.isascii():
                return False
        elif kind is int:
            if value.bit_length() > MAX_INT_BITS:
                return False
        elif kind is float:
            if not math.isfinite(value):
                return False
        elif kind is list:
            if not _are_numbers(value, limit):
                return False
        elif kind is not bool and value is not None:
            return False
    return True


def _are_numbers(values: list[object], limit: int) -> bool:
    """The items of a batch: whole numbers, and not so many that they would have to be cut."""
    if not values or len(values) > MAX_ITEMS or set(map(type, values)) != {int}:
        return False
    bits = max(map(int.bit_length, cast("list[int]", values)))
    return len(values) * (2 + ROOM_FOR_NUMBER + bits // 3) < max(TOTAL_FACTOR * limit, MIN_TOTAL)


class _JsonValues:
    """Makes plain JSON values of any objects, within the limits; notes whether it had to cut."""

    __slots__ = ("cut", "inside", "limit", "room")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.room = max(TOTAL_FACTOR * limit, MIN_TOTAL)
        self.cut = False
        self.inside: set[int] = set()  # the containers around the value at hand

    def value(self, value: object, depth: int) -> object:
        if self.room <= 0:
            self.cut = True
            return LEFT_OUT
        with guard("turning an argument into text"):
            return self.convert(value, depth)
        return self.text(f"<unprintable {type(value).__name__}>")

    def convert(self, value: object, depth: int) -> object:
        if value is None or value is True or value is False:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int):
            return self.integer(value)
        if isinstance(value, float):
            return self.number(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return self.raw(value)
        if isinstance(value, Mapping | list | tuple | set | frozenset):
            return self.container(value, depth)
        return self.thing(value, depth)

    def text(self, value: str) -> str:
        part = str.__getitem__(value, slice(0, self.limit))  # of a subclass too, whatever it overrides
        left = str.__len__(value) - len(part)
        if left:
            self.cut = True
            part += f"... ({left} more characters)"
        self.room -= len(part)
        return clean(part)

    def integer(self, value: int) -> int | str:
        bits = int.bit_length(value)
        self.room -= ROOM_FOR_NUMBER + bits // 3
        if bits > MAX_INT_BITS:
            self.cut = True
            return f"<int of {bits} bits>"
        return int.__index__(value) if type(value) is not int else value

    def number(self, value: float) -> float | str:
        self.room -= 20
        plain = float.__float__(value)
        if math.isnan(plain):
            return "NaN"
        if math.isinf(plain):
            return "Infinity" if plain > 0 else "-Infinity"
        return plain

    def raw(self, value: bytes | bytearray | memoryview) -> str:
        size = value.nbytes if isinstance(value, memoryview) else len(value)
        if isinstance(value, memoryview) and not value.c_contiguous:
            return self.text(f"<memoryview of {size} bytes>")
        part = bytes(memoryview(value).cast("B")[: self.limit])
        shown = self.text(repr(part))
        if size > len(part):
            self.cut = True
            shown += f"... ({size - len(part)} more bytes)"
        return shown

    def container(self, value: Mapping[object, object] | _Items, depth: int) -> object:
        if id(value) in self.inside:
            return self.text(CIRCULAR)
        if depth > MAX_DEPTH:
            self.cut = True
            return self.text(TOO_DEEP)
        self.inside.add(id(value))
        try:
            return self.mapping(value, depth) if isinstance(value, Mapping) else self.sequence(value, depth)
        finally:
            self.inside.discard(id(value))

    def mapping(self, value: Mapping[object, object], depth: int) -> dict[str, object]:
        shown: dict[str, object] = {}
        for count, name in enumerate(value):
            if count == MAX_ITEMS or self.room <= 0:
                self.cut = True
                shown["..."] = f"{len(value) - count} more"
                break
            self.room -= 2
            shown[self.name(name)] = self.value(value[name], depth + 1)
        return shown

    def name(self, name: object) -> str:
        with guard("turning the name of an argument into text"):
            return self.text(name if isinstance(name, str) else str(name))
        return self.text(f"<unprintable {type(name).__name__}>")

    def sequence(self, value: _Items, depth: int) -> list[object]:
        shown: list[object] = []
        for count, item in enumerate(value):
            if count == MAX_ITEMS or self.room <= 0:
                self.cut = True
                shown.append(f"... ({len(value) - count} more)")
                break
            self.room -= 2
            shown.append(self.value(item, depth + 1))
        return shown

    def thing(self, value: object, depth: int) -> object:
        """Arrays and tensors by what they are, single numbers by their value, anything else by its text."""
        kind = type(value)
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        if shape is None or dtype is None:
            return self.text(str(value))
        item = getattr(value, "item", None)
        if tuple(shape) == () and callable(item) and depth <= MAX_DEPTH:
            single = item()
            # numpy's longdouble gives itself back
            return self.text(str(single)) if type(single) is kind else self.value(single, depth + 1)
        return self.text(f"<{kind.__name__} {tuple(shape)} {dtype}>")
