"""The table `layers`: what each layer of a model cost in each step; recorded in deep mode only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.records import schema
from sonde.store import probe

if TYPE_CHECKING:
    import duckdb

    from sonde.analysis.parts.tables import PartTables

_MODEL = "(about.args->>'$.model')"
_MADE = {
    **{name: f"p.{name}" for name in ("host", "rank", "pid", "process")},
    "model": _MODEL,
    # Where there are several models, each layer begins with the name of its own.
    "layer": f"CASE WHEN models > 1 AND layer <> {_MODEL} AND NOT starts_with(layer, {_MODEL} || '.') "
    f"THEN {_MODEL} || '.' || layer ELSE layer END",
    "type": "about.args->>'$.type'",
    "parameter_bytes": "coalesce(try_cast(about.args->>'$.parameters' AS BIGINT), about.key)",
    "gradient_bytes": "try_cast(about.args->>'$.gradients' AS BIGINT)",
    "compiled": "try_cast(about.args->>'$.compiled' AS BOOLEAN)",
}


def create(connection: duckdb.DuckDBPyConnection, sealed: PartTables) -> None:
    """Make the table. A layer of which only the description is known (it was compiled) has a row without a step."""
    columns = ", ".join(f'{_MADE.get(name, name)} AS "{name}"' for name, _ in schema.LAYERS)
    more = [f"UNION ALL {select}" for select in sealed.selects("layers", [name for name, _ in schema.LAYERS])]
    connection.execute(
        f"""
        CREATE OR REPLACE VIEW layers AS
        WITH described AS (
            SELECT process, name AS layer, arg_max(key, seq) AS key, arg_max(args, seq) AS args
            FROM {schema.LOOSE} WHERE kind = 'mark' AND cat = '{probe.LAYER_INFO}' GROUP BY ALL
        ), counted AS (
            SELECT process, count(DISTINCT args->>'$.model') FILTER (layer <> args->>'$.model') AS models FROM described GROUP BY process
        ), timed AS (
            SELECT process, step, name AS layer,
                   sum(dur_ns) FILTER (cat = '{probe.LAYER}')::BIGINT AS forward_ns,
                   sum(dur_ns) FILTER (cat = '{probe.LAYER_BACKWARD}')::BIGINT AS backward_ns,
                   max(key) FILTER (cat = '{probe.LAYER}') AS activation_bytes,
                   count(*) FILTER (cat = '{probe.LAYER}') AS calls
            FROM {schema.LOOSE} WHERE kind = 'span' AND NOT open AND cat IN ('{probe.LAYER}', '{probe.LAYER_BACKWARD}') GROUP BY ALL
        )
        SELECT {columns} FROM timed FULL JOIN described about USING (process, layer)
        LEFT JOIN counted USING (process) JOIN process_numbers p USING (process) {" ".join(more)}
        """
    )
