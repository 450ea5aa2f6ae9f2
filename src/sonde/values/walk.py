"""Goes through a value once, part by part, within bounds; each part is described by the handler of its type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from sonde.guard import guard
from sonde.values import digest as digests, identity
from sonde.values.note import AGAIN, ARRAY, HIDDEN, MISSING, OBJECT, Note

DEPTH = 20  # levels of containers in containers
WIDTH = 1000  # children of one container
NOTES = 20_000  # descriptions in all
ELEMENTS = 100_000  # parts beyond those, which only count for the digest
TEXT = 500  # characters of a text or an object that are shown
LONG = 100_000  # characters of a text that are searched for addresses
NAME = 200  # characters of a type, a key, a dtype
DEFAULT_LIMIT = 64_000_000

NOT_KEPT = repr(MISSING)

_describing = guard("describing a value")

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MAIN = ("builtins", "__main__", "__mp_main__")  # a class of the script has one name, in a spawned process too


class Keep(NamedTuple):
    """What is kept of a value.

    `full`: a copy and its description. `described`: no copy. `summary`: no copy, and of texts only length and digest.
    `off`: only types and shapes.
    """

    values: str = "full"
    limit: int = DEFAULT_LIMIT  # bytes of copies, for one captured value with all its parts
    exclude: frozenset[str] | tuple[str, ...] = ()  # names of arguments, keys and fields that are never looked at


class Frozen(NamedTuple):
    """What a handler makes of a value: the description and the copy."""

    note: Note
    value: object = MISSING


class Children(NamedTuple):
    """What a container holds; `digests` also covers parts that are not described."""

    notes: tuple[tuple[str, Note], ...]
    values: list[object]
    digests: list[int] | None  # None: there were too many to look at them all
    cut: bool


class Walk:
    """One walk through one captured value: what is to be kept, how much room is left, and where we are."""

    __slots__ = (
        "copies",
        "depth",
        "elements",
        "exclude",
        "find",
        "inside",
        "left",
        "partial",
        "room",
        "shows",
        "texts",
    )

    def __init__(self, keep: Keep, find: Callable[[type], Handler]) -> None:
        self.find = find
        self.exclude = keep.exclude
        self.shows = keep.values != "off"  # may the content be read at all?
        self.texts = keep.values in ("full", "described")  # may texts be shown?
        self.copies = keep.values == "full"
        self.room = keep.limit
        self.depth = 0
        self.left = NOTES
        self.elements = ELEMENTS
        self.partial = not self.shows  # something was left unread: no digest of what is around it
        self.inside: set[int] = set()  # the containers around the value at hand

    def value(self, value: object, name: str = "") -> Frozen:
        """Describe (and copy) one value; `name` is its key or field, where it has one. Never raises."""
        self.left -= 1
        if name and name in self.exclude:
            return Frozen(Note(HIDDEN, "", text="<hidden>"))
        if id(value) in self.inside:
            return Frozen(Note(AGAIN, type_name(value), text=f"<the {type_name(value)} around it>"))
        with _describing:
            return _numbered(self.find(type(value))(value, self), value)
        return self.text(value)

    def text(self, value: object) -> Frozen:
        """Any object by its type and text."""
        name = type_name(value)
        if not self.shows:
            return Frozen(Note(OBJECT, name, text=NOT_KEPT))
        text, known = f"<unprintable {name}>", False
        with guard("turning a value into text"):
            text = repr(value)
            known = _is_value(value)
        if len(text) < LONG and _ADDRESS.search(text):
            text, known = _ADDRESS.sub("", text), False
        shown = shorten(text) if self.texts else f"<{name}>"
        return Frozen(Note(OBJECT, name, text=shown, digest=digests.of_text(name, text) if known else None))

    def children(self, parts: Iterable[tuple[str, object]], around: object, *, named: bool = True) -> Children:
        """Describe the parts of the container `around`; `named`: by keys or fields, which may be excluded."""
        if self.depth >= DEPTH:
            self.partial = True
            return Children((), [], None, cut=True)
        self.depth += 1
        self.inside.add(id(around))
        try:
            return self._children(parts, named)
        finally:
            self.depth -= 1
            self.inside.discard(id(around))

    def _children(self, parts: Iterable[tuple[str, object]], named: bool) -> Children:
        notes: list[tuple[str, Note]] = []
        values: list[object] = []
        found: list[int] = []
        more = False  # than are described
        for name, part in parts:
            if len(notes) < WIDTH and self.left > 0:
                note, copy = self.value(part, name if named else "")
                notes.append((name, note))
                values.append(copy)
                found.append(digests.unknown(note) if note.digest is None else note.digest)
            else:
                more = True
                if self.elements <= 0 or self.partial:
                    self.partial = True
                    break
                found.append(self.digest(part, name if named else ""))
        cut = more or any(note.cut for _, note in notes)
        return Children(tuple(notes), values, None if self.partial else found, cut)

    def digest(self, value: object, name: str = "") -> int:
        """Only the digest of a part."""
        self.elements -= 1
        known = None if name and name in self.exclude else digests.scalar(value)
        if known is not None:
            return known
        copies, self.copies = self.copies, False
        try:
            note = self.value(value, name).note
        finally:
            self.copies = copies
        return digests.unknown(note) if note.digest is None else note.digest


Handler: TypeAlias = "Callable[[Any, Walk], Frozen]"


def _numbered(frozen: Frozen, value: object) -> Frozen:
    """Arrays are numbered: that is how a change in place is found."""
    note = frozen.note
    if note.identity is not None or note.kind != ARRAY:
        return frozen
    return frozen._replace(note=note._replace(identity=identity.number(value)))


def _is_value(value: object) -> bool:
    """Does the text tell the content? Only of types that compare by value: a model prints the same with other weights."""
    kind = type(value)
    by_value = kind.__eq__ is not object.__eq__ and kind.__hash__ not in (None, object.__hash__)
    return by_value or isinstance(value, type | Enum)


def type_name(value: object) -> str:
    """`numpy.ndarray`, `int`, `Sample`: the name of a value's class, with its module unless that is the script."""
    kind = type(value)
    module, name = getattr(kind, "__module__", ""), kind.__qualname__.replace("<locals>.", "")
    return name[:NAME] if module in _MAIN or not isinstance(module, str) else f"{module}.{name}"[:NAME]


def shorten(text: str, limit: int = TEXT) -> str:
    """The text, or its beginning and how much more there is."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text) - limit} more characters)"


def clean(text: str) -> str:
    """A name that is valid Unicode and not too long."""
    text = shorten(text, NAME)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
