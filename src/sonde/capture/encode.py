"""Calls as plain JSON, and back: notes, kept values, and the facts about a call. Arrays are put elsewhere, by a name.

Numbers, texts, None and lists of notes stand as they are. A value that JSON has no form for is an object with one key,
which says what it is: {"tuple": [...]}, {"dict": [[key, value], ...]}, {"float": "nan"}, {"array": name}, {"missing": 1}.
"""

from __future__ import annotations

import base64
import math
import sys
from collections.abc import Callable
from typing import Any

from sonde.capture.call import FIELDS, TraceCall
from sonde.values.note import MISSING, CapturedValue, Item, Note
from sonde.values.npy import as_array

MAX_DEPTH = 100
MAX_INT_BITS = 1 << 20  # longer numbers are not kept: they take time that grows with the square of their length
SAFE_INT = 1 << 63

_CONTAINERS: dict[str, Callable[[Any], object]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
_FACTS = tuple(name for name in FIELDS if name not in ("inputs", "output", "changed", "items"))

# What wrong JSON leads to when it is taken apart.
WRONG = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError)


# ── calls ──


def pack_call(call: TraceCall, put: Callable[[Any], str]) -> dict[str, object]:
    """A call as JSON; `put` stores an array and gives its name."""
    about = call.about
    facts = {name: getattr(about, name) for name in _FACTS}
    return {
        **{name: value for name, value in facts.items() if value is not None},
        "inputs": [pack_kept(kept, put) for kept in about.inputs],
        "output": None if about.output is None else pack_kept(about.output, put),
        "changed": [pack_kept(kept, put) for kept in about.changed],
        "items": [list(item) for item in about.items],
    }


def unpack_call(packed: dict[str, Any], get: Callable[[str], object]) -> TraceCall:
    """A call from JSON; `get` gives the array of a name. Raises one of `WRONG` if it is no call."""
    facts = {name: _checked(name, packed[name]) for name in _FACTS if packed.get(name) is not None}
    output = packed.get("output")
    return TraceCall(
        **facts,
        inputs=[unpack_kept(kept, get) for kept in packed["inputs"]],
        output=None if output is None else unpack_kept(output, get),
        changed=[unpack_kept(kept, get) for kept in packed.get("changed", ())],
        items=[_item(*item) for item in packed["items"]],
    )


_TEXTS = ("disp_name", "func_name", "stage_name", "result_name", "thread", "error", "phase")


def _checked(name: str, value: Any) -> Any:
    if isinstance(value, str if name in _TEXTS else int):
        return value
    raise TypeError(f"{name} is {value!r:.50}")


def _item(position: object, index: object, id: object = None) -> Item:
    if not isinstance(position, int) or not isinstance(index, int | str | None) or not isinstance(id, str | None):
        raise TypeError(f"an item is {(position, index, id)!r:.50}")
    return Item(position, index, id)


def pack_kept(kept: CapturedValue, put: Callable[[Any], str]) -> list[object]:
    """A captured value as JSON: name, description, copy."""
    return [kept.name, pack_note(kept.note), pack_value(kept.value, put)]


def unpack_kept(packed: list[Any], get: Callable[[str], object]) -> CapturedValue:
    """A captured value from JSON."""
    name, note, value = packed
    return CapturedValue(_checked("disp_name", name), unpack_note(note), unpack_value(value, get))


# ── notes ──


def pack_note(note: Note) -> dict[str, object]:
    """A description as JSON, without what is as it mostly is."""
    packed = {
        name: _number(value)
        for name, value in note._asdict().items()
        if name != "children" and value != Note._field_defaults.get(name)
    }
    if note.children:
        packed["children"] = [[name, pack_note(child)] for name, child in note.children]
    return packed


def unpack_note(packed: dict[str, Any], depth: int = 0) -> Note:
    """A description from JSON."""
    if depth > MAX_DEPTH:
        raise ValueError("values are nested too deep")
    fields = {name: _NOTE_FIELDS[name](value) for name, value in packed.items() if name != "children"}
    children = tuple((str(name), unpack_note(child, depth + 1)) for name, child in packed.get("children", ()))
    return Note(**fields, children=children)


def _number(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 64:
        return hex(value) if value.bit_length() <= MAX_INT_BITS else None
    return value


def _whole(value: Any) -> int:
    return int(value, 16) if isinstance(value, str) else int(value)


def _any_number(value: Any) -> float | int | bool | None:
    if isinstance(value, str):
        return int(value, 16) if "0x" in value else float(value)
    return value if isinstance(value, float | int) else None


_NOTE_FIELDS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("kind", "type", "text", "dtype", "device"), str),
    **dict.fromkeys(("length", "digest", "nonfinite", "nbytes", "identity"), _whole),
    **dict.fromkeys(("low", "high", "mean", "std"), float),
    "value": _any_number,
    "shape": lambda sizes: tuple(int(size) for size in sizes),
    "cut": bool,
}


# ── values ──


def pack_value(value: object, put: Callable[[Any], str], depth: int = 0) -> object:
    """A copy as JSON; {"missing": 1} for what cannot be written."""
    if value is None or isinstance(value, bool | str):
        return str(value) if isinstance(value, str) else value
    if depth > MAX_DEPTH:
        return {"missing": 1}
    plain = _pack_plain(value)
    if plain is not None:
        return plain
    packed = _pack_container(value, put, depth)
    return packed if packed is not None else _pack_array(value, put)


def _pack_plain(value: object) -> object:
    """Python's own numbers and bytes. NumPy's float64 is a float too, but has to come back as what it was."""
    if type(value) is int and value.bit_length() <= MAX_INT_BITS:
        return value if abs(value) < SAFE_INT else {"int": hex(value)}
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if type(value) is complex:
        return {"complex": [str(value.real), str(value.imag)]}
    if isinstance(value, bytes | bytearray):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    return None


def _pack_container(value: object, put: Callable[[Any], str], depth: int) -> object:
    if isinstance(value, dict):
        return {
            "dict": [[pack_value(key, put, depth + 1), pack_value(one, put, depth + 1)] for key, one in value.items()]
        }
    for name, kind in _CONTAINERS.items():
        if isinstance(value, kind):  # type: ignore[arg-type]
            return {name: [pack_value(one, put, depth + 1) for one in value]}  # type: ignore[attr-defined]
    return None


def _pack_array(value: object, put: Callable[[Any], str]) -> object:
    array = as_array(value)
    if array is None:
        return {"missing": 1}
    return {"scalar" if _is_scalar(value) else "array": put(array)}


def _is_scalar(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def unpack_value(packed: Any, get: Callable[[str], object], depth: int = 0) -> object:
    """A copy from JSON. Tensors come back as NumPy arrays."""
    if depth > MAX_DEPTH:
        raise ValueError("values are nested too deep")
    if packed is None or isinstance(packed, bool | int | float | str):
        return packed
    ((kind, inner),) = packed.items()
    if kind in _CONTAINERS:
        return _CONTAINERS[kind]([unpack_value(one, get, depth + 1) for one in inner])
    if kind == "dict":
        return {unpack_value(key, get, depth + 1): unpack_value(one, get, depth + 1) for key, one in inner}
    if kind in ("array", "scalar"):
        return _unpack_array(kind, get(inner))
    return _PLAIN[kind](inner)


def _unpack_array(kind: str, array: Any) -> object:
    return array[()] if kind == "scalar" and array is not MISSING else array


_PLAIN: dict[str, Callable[[Any], object]] = {
    "int": lambda digits: int(digits, 16),
    "float": float,
    "complex": lambda parts: complex(float(parts[0]), float(parts[1])),
    "bytes": lambda letters: base64.b64decode(letters, validate=True),
    "missing": lambda _: MISSING,
}
