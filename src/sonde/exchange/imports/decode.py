"""Decodes the events of a trace file: many at once, or one at a time where others wrote what JSON does not allow.

Times and arguments stay the text they are in the file: a float64 of microseconds since 1970 has no nanoseconds, and a
run holds arguments as JSON too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from sonde.exchange import jsonvalues

_SIMPLE = (str, int, float, bool, type(None))
_INDENT = b"\n      ", b"\n    "  # of the arguments of torch.profiler, and of their end
_BRACE = ord("{")
_ARGS = attrgetter("args")
_REFUSED = (msgspec.MsgspecError, RecursionError, UnicodeError)


class Event(msgspec.Struct, gc=False):
    """One event as it is in the file. All but times and arguments may be of any type."""

    ph: Any = None
    name: Any = None
    cat: Any = None
    pid: Any = 0
    tid: Any = 0
    ts: msgspec.Raw = msgspec.Raw(b"null")
    dur: msgspec.Raw = msgspec.Raw(b"0")
    args: msgspec.Raw = msgspec.Raw(b"")
    type: Any = None

    def arguments(self) -> dict[str, Any]:
        """The arguments; none if they are no object."""
        try:
            found = msgspec.json.decode(self.args)
        except _REFUSED:
            return {}
        return found if isinstance(found, dict) else {}


_array, _object = msgspec.json.Decoder(list[Event]), msgspec.json.Decoder(Event)
_objects = msgspec.json.Decoder(list[dict[str, Any]])


def array(text: bytes) -> list[Event] | None:
    """The events of a JSON array; None if it is not an array of objects."""
    try:
        return _array.decode(text)
    except _REFUSED:
        return None


def lines(text: bytes) -> list[Event] | None:
    """The events of lines; None if a line is not an object."""
    try:
        return _object.decode_lines(text)
    except _REFUSED:
        return None


def one(text: bytes) -> Event | None:
    """One event. Python's own reader also takes NaN, and text that is not UTF-8."""
    try:
        return _object.decode(text)
    except _REFUSED:
        pass
    try:
        found = json.loads(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    about: dict[str, Any] = {
        name: _clean(found[name]) for name in ("ph", "name", "cat", "pid", "tid", "type") if name in found
    }
    texts = {name: msgspec.Raw(jsonvalues.encoded(found[name])) for name in ("ts", "dur", "args") if name in found}
    return Event(**about, **texts)


def simplify(events: Iterable[Event]) -> None:
    """Make what is neither text nor number a text, so that it can be looked up."""
    for event in events:
        for name in ("ph", "name", "cat", "pid", "tid"):
            if not isinstance(value := getattr(event, name), _SIMPLE):
                setattr(event, name, None if name in ("ph", "name", "cat") else str(value)[:200])


def argument_texts(events: Sequence[Event]) -> list[bytes]:
    """The arguments of each event as they are in the file, without the line breaks of torch.profiler."""
    found = b"\0".join(map(_ARGS, events))
    if not found.isascii():
        found = found.decode("utf-8", "replace").encode()
    if b"\n" in found:  # it cannot be part of a text
        found = found.replace(b"{" + _INDENT[0], b"{").replace(_INDENT[1] + b"}", b"}")
    return found.split(b"\0")


def only_objects(texts: Iterable[bytes]) -> list[bytes]:
    """The texts that are objects with something in them; empty for the others."""
    return [text if len(text) > 2 and text[0] == _BRACE else b"" for text in texts]


def objects(texts: Iterable[bytes]) -> list[dict[str, Any]]:
    """The arguments of each event as objects."""
    try:
        return _objects.decode(b"[" + b",".join([text or b"{}" for text in texts]) + b"]")
    except _REFUSED:  # a number that is too large
        return [json.loads(text or b"{}") for text in texts]


def _clean(value: object) -> object:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
