"""Which handler describes which type: Python's own, those of libraries the program has imported, and the user's."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sonde.errors import SettingError
from sonde.guard import guard
from sonde.values.handlers import builtin, containers
from sonde.values.note import Note
from sonde.values.walk import Frozen, type_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.values.walk import Handler, Walk

# Looked up along a class's bases, the nearest first.
BUILTIN: dict[type, Handler] = {
    type(None): builtin.nothing,
    bool: builtin.boolean,
    int: builtin.integer,
    float: builtin.number,
    complex: builtin.imaginary,
    str: builtin.text,
    bytes: builtin.raw,
    bytearray: builtin.raw,
    memoryview: builtin.raw,
    range: builtin.steps,
    list: containers.items,
    deque: containers.items,
    tuple: containers.pair,
    set: containers.group,
    frozenset: containers.group,
    dict: containers.mapping,
    Mapping: containers.mapping,
}


def _numpy() -> dict[type, Handler]:
    from sonde.values.handlers.arrays import HANDLERS

    return HANDLERS


def _torch() -> dict[type, Handler]:
    from sonde.values.handlers.torch import HANDLERS

    return HANDLERS


def _pandas() -> dict[type, Handler]:
    from sonde.values.handlers.pandas import HANDLERS

    return HANDLERS


def _pillow() -> dict[type, Handler]:
    from sonde.values.handlers.pillow import HANDLERS

    return HANDLERS


# A module of handlers is loaded once the program has imported the library.
LIBRARIES: dict[str, Callable[[], dict[type, Handler]]] = {
    "numpy": _numpy,
    "torch": _torch,
    "pandas": _pandas,
    "PIL.Image": _pillow,
}

_own: dict[type, Handler] = {}
_library: dict[type, Handler] = {}
_waiting = dict(LIBRARIES)
_looked = [0]  # how many modules were loaded at the last look; 0: one of ours was still being imported


def register(kind: type, describe: Callable[[Any], object]) -> None:
    """Describe values of the class `kind` and its subclasses with `describe`.

    `describe` gets the value and returns a text, anything that Sonde can describe (an array, a dict of fields, ...), or
    a `sonde.values.note.Note`. It must not change the value. The most specific class wins; a later call replaces an
    earlier one.
    """
    if not isinstance(kind, type):
        raise SettingError(f"register() needs a class, not {kind!r}. Example: register(Sample, lambda s: s.name)")
    if not callable(describe):
        raise SettingError(f"register({kind.__name__}, ...) needs a function of one value, not {describe!r}.")
    _own[kind] = _described(describe)


def find(kind: type) -> Handler:
    """The handler for values of exactly this class."""
    if _waiting and _looked[0] != len(sys.modules):
        _awake()
    for parent in kind.__mro__:
        handler = _own.get(parent) or _library.get(parent) or BUILTIN.get(parent)
        if handler is not None:
            return handler
    return containers.fields if containers.has_fields(kind) else builtin.thing


def _awake() -> None:
    """Load the handlers of libraries that have been imported since the last look."""
    _looked[0] = (
        0 if any(library in sys.modules and not _imported(library) for library in _waiting) else len(sys.modules)
    )
    for library, load in list(_waiting.items()):
        if _imported(library) and _waiting.pop(library, None) is not None:
            with guard(f"loading the handlers for {library}"):
                _library.update(load())


def _imported(library: str) -> bool:
    """Is it there, and all of it? A value may be captured while the library's own import still runs."""
    loaded = sys.modules.get(library)
    return loaded is not None and not getattr(getattr(loaded, "__spec__", None), "_initializing", False)


def _described(describe: Callable[[Any], object]) -> Handler:
    def handler(value: Any, walk: Walk) -> Frozen:
        if not walk.shows:
            return walk.text(value)
        shown = describe(value)
        if isinstance(shown, Note):
            return Frozen(shown)
        if isinstance(shown, str):
            return builtin.words(value, shown)
        found = walk.children([("", shown)], value, named=False)
        if not found.notes:  # it describes itself by itself, again and again
            return walk.text(value)
        note = found.notes[0][1]._replace(type=type_name(value))
        return Frozen(note, found.values[0])

    return handler
