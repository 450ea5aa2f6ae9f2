"""The table `phases`: the phases of the steps as rows, with the moment of the first call and how many there were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.records import schema
from sonde.analysis.tables import steps
from sonde.analysis.training.reader import DEVICE_TIMES

if TYPE_CHECKING:
    from collections.abc import Collection

    import duckdb

_PHASES = ", ".join(f"({place}::UTINYINT, '{phase}')" for place, phase in enumerate((*schema.PHASES, schema.RESIDUAL)))


def create(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the table. Needs the rows of `steps`, which are read once, however many phases there are."""
    made = {
        "phase": "f.phase",
        "start_ns": f"start_ns + {_each('after', 'NULL')}",
        "dur_ns": _each("ns", "CASE WHEN whole THEN residual_ns END"),
        "calls": _each("calls", "NULL"),
        "device_ns": _each("device", "NULL", DEVICE_TIMES),
        "step": "s.step",
    }
    columns = ", ".join(f'{made.get(name, f"s.{name}")} AS "{name}"' for name, _ in schema.PHASE_ROWS)
    connection.execute(
        f"""
        CREATE OR REPLACE VIEW phases AS
        SELECT {columns} FROM {steps.ROWS} s
        CROSS JOIN (VALUES {_PHASES}) f(place, phase) WHERE {made["dur_ns"]} IS NOT NULL
        """
    )


def _each(what: str, residual: str, phases: Collection[str] = schema.PHASES) -> str:
    """The column that each of some phases has of something, as SQL."""
    cases = " ".join(f"WHEN {schema.PHASES.index(phase)} THEN {phase}_{what}" for phase in phases)
    return f"(CASE f.place {cases} ELSE {residual} END)"
