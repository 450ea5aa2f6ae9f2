"""The JSON of a comparison fits its schema."""

from __future__ import annotations

import json

import jsonschema

from sonde.compare.schema import FILE, schema

SCHEMA = json.loads(FILE.read_text())


def test_the_file_is_up_to_date() -> None:
    """`make docs` writes it."""
    assert schema() == SCHEMA
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_the_schema_has_the_parts_that_were_promised() -> None:
    """Keys that programs rely on."""
    parts = SCHEMA["$defs"]["Comparison"]["properties"]
    assert {"verdict", "step_time", "numbers", "phases", "settings", "findings", "items"} <= parts.keys()
    words = {"faster", "slower", "same", "mixed", "inconclusive", "not_comparable"}
    assert set(parts["verdict"]["enum"]) == words
    assert {"ratio", "low", "high"} <= SCHEMA["$defs"]["StepTime"]["properties"].keys()
    assert {"identical", "first_difference"} <= SCHEMA["$defs"]["Numbers"]["properties"].keys()
    assert "step" in SCHEMA["$defs"]["Divergence"]["properties"]
