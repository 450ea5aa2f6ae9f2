"""The JSON schema of `sonde compare --json`, made of the dataclasses themselves. `python -m sonde.compare.schema` writes it."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Any

from sonde.compare.runs import SCHEMA_VERSION, Comparison, Ranking, Restarts
from sonde.compare.verdict import VERDICTS

FILE = Path(__file__).with_name("compare.schema.json")
PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
ABOUT = (
    "What `sonde compare --json` prints: two runs, a ranking of several, or the restarts of one. Ratios are B / A. Times end in _ns and are "
    "nanoseconds; null: not known."
)


def schema() -> dict[str, Any]:
    """The whole schema."""
    named: dict[str, Any] = {}
    either = [_of(kind, named) for kind in (Comparison, Ranking, Restarts)]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Sonde comparison",
        "description": ABOUT,
        "oneOf": either,
        "$defs": named,
    }


def _of(kind: Any, named: dict[str, Any]) -> dict[str, Any]:
    if dataclasses.is_dataclass(kind):
        return _object(kind, named)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType or origin is typing.Union:
        return {"anyOf": [_of(one, named) for one in inner]}
    if origin is list:
        return {"type": "array", "items": _of(inner[0], named)}
    return {"type": PLAIN[kind]} if kind in PLAIN else {}


def _object(kind: Any, named: dict[str, Any]) -> dict[str, Any]:
    name = kind.__name__
    if name not in named:
        named[name] = {}
        hints = typing.get_type_hints(kind)
        parts = {one.name: _of(hints[one.name], named) for one in dataclasses.fields(kind)}
        if kind in (Comparison, Ranking, Restarts):
            parts["schema_version"] = {"const": SCHEMA_VERSION}
        if kind is Comparison:
            parts["verdict"] = {"enum": list(VERDICTS)}
        about = (kind.__doc__ or "").partition("\n")[0]
        named[name] = {
            "description": about,
            "type": "object",
            "properties": parts,
            "required": list(parts),
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{name}"}


if __name__ == "__main__":
    FILE.write_text(json.dumps(schema(), indent=1) + "\n")
