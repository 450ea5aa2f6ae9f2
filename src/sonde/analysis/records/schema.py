"""The tables of a run: their columns, and the queries that make them of raw parts and sealed files.

`docs/reference/tables.md` describes them. Raw and sealed runs give the same rows for the same query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sonde.errors import nearest
from sonde.store import record

if TYPE_CHECKING:
    import duckdb

Columns = Sequence[tuple[str, str]]

EVENTS = (
    ("host", "VARCHAR"),
    ("rank", "BIGINT"),
    ("pid", "BIGINT"),
    ("tid", "BIGINT"),
    ("thread", "VARCHAR"),
    ("seq", "BIGINT"),
    ("parent", "BIGINT"),
    ("depth", "BIGINT"),
    ("kind", "VARCHAR"),
    ("cat", "VARCHAR"),
    ("name", "VARCHAR"),
    ("start_ns", "BIGINT"),
    ("dur_ns", "BIGINT"),
    ("value", "DOUBLE"),
    ("key", "BIGINT"),
    ("epoch", "BIGINT"),
    ("step", "BIGINT"),
    ("open", "BOOLEAN"),
    ("error", "BOOLEAN"),
    ("args", "VARCHAR"),
    ("meta", "BOOLEAN"),
    ("cut", "BOOLEAN"),
    ("lane", "BIGINT"),
    ("process", "VARCHAR"),
)
PROCESSES = (
    ("host", "VARCHAR"),
    ("pid", "BIGINT"),
    ("parent_pid", "BIGINT"),
    ("rank", "BIGINT"),
    ("local_rank", "BIGINT"),
    ("world_size", "BIGINT"),
    ("attempt", "BIGINT"),
    ("role", "VARCHAR"),
    ("worker", "BIGINT"),
    ("start_ns", "BIGINT"),
    ("end_ns", "BIGINT"),
    ("exit_code", "BIGINT"),
    ("signal", "BIGINT"),
    ("core", "VARCHAR"),
    ("drops", "BIGINT"),
    ("state", "VARCHAR"),
    ("reason", "VARCHAR"),
    ("exception", "VARCHAR"),
    ("last_ns", "BIGINT"),
    ("events", "BIGINT"),
    ("process", "VARCHAR"),
)
WAITS = (
    ("attempt", "BIGINT"),
    ("step", "BIGINT"),
    ("ranks", "BIGINT"),
    ("rank", "BIGINT"),
    ("host", "VARCHAR"),
    ("own_ns", "BIGINT"),
    ("waited_ns", "BIGINT"),
    ("process", "VARCHAR"),
)
HOSTS = (
    ("host", "VARCHAR"),
    ("processes", "BIGINT"),
    ("ranks", "BIGINT"),
    ("from_ns", "BIGINT"),
    ("until_ns", "BIGINT"),
    ("at_ns", "BIGINT"),
    ("offset_ns", "BIGINT"),
    ("drift_ppm", "DOUBLE"),
    ("error_ns", "BIGINT"),
    ("collectives", "BIGINT"),
    ("source", "VARCHAR"),
    ("jumps", "BIGINT"),
    ("jump_ns", "BIGINT"),
    ("jump_after_ns", "BIGINT"),
    ("jump_before_ns", "BIGINT"),
)
# What else is known of a process; kept when a run is sealed, and no part of the public table.
MORE = (
    ("boot_id", "VARCHAR"),
    ("offset_ns", "BIGINT"),
    ("lost_space", "BIGINT"),
    ("lost_cap", "BIGINT"),
    ("lost_ring", "BIGINT"),
    ("lost_args", "BIGINT"),
    ("corrupt", "BIGINT"),
    ("notes", "VARCHAR"),  # a JSON list of texts
)
# The phases of a step. With the residual they add up to its duration.
PHASES = (
    "input_wait",
    "h2d",
    "forward",
    "backward",
    "optimizer",
    "communication",
    "checkpoint",
    "evaluation",
)
RESIDUAL = "residual"
STEPS = (
    ("host", "VARCHAR"),
    ("rank", "BIGINT"),
    ("pid", "BIGINT"),
    ("step", "BIGINT"),
    ("epoch", "BIGINT"),
    ("start_ns", "BIGINT"),
    ("dur_ns", "BIGINT"),
    ("micro_batches", "BIGINT"),
    ("samples", "BIGINT"),
    *((f"{phase}_ns", "BIGINT") for phase in (*PHASES, RESIDUAL)),
    ("gc_ns", "BIGINT"),
    ("device_peak_bytes", "BIGINT"),
    ("loss", "DOUBLE"),
    ("warmup", "BOOLEAN"),
    ("skipped", "BOOLEAN"),
    ("batches", "BIGINT"),
    ("process", "VARCHAR"),
)
LOSSES = (
    ("host", "VARCHAR"),
    ("rank", "BIGINT"),
    ("pid", "BIGINT"),
    ("step", "BIGINT"),
    ("epoch", "BIGINT"),
    ("optimizer", "BIGINT"),
    ("loss", "DOUBLE"),
    ("process", "VARCHAR"),
)
PHASE_ROWS = (
    ("host", "VARCHAR"),
    ("rank", "BIGINT"),
    ("pid", "BIGINT"),
    ("step", "BIGINT"),
    ("phase", "VARCHAR"),
    ("start_ns", "BIGINT"),
    ("dur_ns", "BIGINT"),
    ("calls", "BIGINT"),
    ("device_ns", "BIGINT"),
    ("process", "VARCHAR"),
)
BATCHES = (
    ("host", "VARCHAR"),
    ("rank", "BIGINT"),
    ("pid", "BIGINT"),
    ("loader", "BIGINT"),
    ("round", "BIGINT"),
    ("batch", "BIGINT"),
    ("epoch", "BIGINT"),
    ("step", "BIGINT"),
    ("purpose", "VARCHAR"),
    ("worker", "BIGINT"),
    ("size", "BIGINT"),
    ("start_ns", "BIGINT"),
    ("wait_ns", "BIGINT"),
    ("fetch_ns", "BIGINT"),
    ("collate_ns", "BIGINT"),
    ("made_ns", "BIGINT"),
    ("indices", "BIGINT[]"),
    ("process", "VARCHAR"),
)
ITEMS = (
    ("host", "VARCHAR"),
    ("rank", "BIGINT"),
    ("loader", "BIGINT"),
    ("round", "BIGINT"),
    ("batch", "BIGINT"),
    ("step", "BIGINT"),
    ("position", "BIGINT"),
    ("index", "BIGINT"),
    ("id", "VARCHAR"),
    ("worker", "BIGINT"),
    ("pid", "BIGINT"),
    ("start_ns", "BIGINT"),
    ("dur_ns", "BIGINT"),
    ("error", "BOOLEAN"),
    ("file", "VARCHAR"),
    ("bytes", "BIGINT"),
    ("process", "VARCHAR"),
)
ITEM_VALUES = (
    ("host", "VARCHAR"),
    ("rank", "BIGINT"),
    ("pid", "BIGINT"),
    ("loader", "BIGINT"),
    ("round", "BIGINT"),
    ("batch", "BIGINT"),
    ("step", "BIGINT"),
    ("purpose", "VARCHAR"),
    ("position", "BIGINT"),
    ("index", "BIGINT"),
    ("id", "VARCHAR"),
    ("name", "VARCHAR"),
    ("value", "DOUBLE"),
    ("process", "VARCHAR"),
)
READS = (
    ("host", "VARCHAR"),
    ("rank", "BIGINT"),
    ("loader", "BIGINT"),
    ("round", "BIGINT"),
    ("batch", "BIGINT"),
    ("step", "BIGINT"),
    ("position", "BIGINT"),
    ("worker", "BIGINT"),
    ("pid", "BIGINT"),
    ("time_ns", "BIGINT"),
    ("file", "VARCHAR"),
    ("size", "BIGINT"),
    ("opens", "BIGINT"),
    ("calls", "BIGINT"),
    ("bytes", "BIGINT"),
    ("dur_ns", "BIGINT"),
    ("disk_bytes", "BIGINT"),
    ("native", "BOOLEAN"),
    ("process", "VARCHAR"),
)
FILES = (
    ("host", "VARCHAR"),
    ("rank", "BIGINT"),
    ("file", "VARCHAR"),
    ("size", "BIGINT"),
    ("items", "BIGINT"),
    ("opens", "BIGINT"),
    ("calls", "BIGINT"),
    ("bytes", "BIGINT"),
    ("dur_ns", "BIGINT"),
    ("disk_bytes", "BIGINT"),
    ("native", "BOOLEAN"),
    ("process", "VARCHAR"),
)
LAYERS = (
    ("host", "VARCHAR"),
    ("rank", "BIGINT"),
    ("pid", "BIGINT"),
    ("step", "BIGINT"),
    ("model", "VARCHAR"),
    ("layer", "VARCHAR"),
    ("type", "VARCHAR"),
    ("forward_ns", "BIGINT"),
    ("backward_ns", "BIGINT"),
    ("activation_bytes", "BIGINT"),
    ("parameter_bytes", "BIGINT"),
    ("gradient_bytes", "BIGINT"),
    ("calls", "BIGINT"),
    ("compiled", "BOOLEAN"),
    ("process", "VARCHAR"),
)
GRADIENTS = (
    ("host", "VARCHAR"),
    ("rank", "BIGINT"),
    ("pid", "BIGINT"),
    ("step", "BIGINT"),
    ("optimizer", "BIGINT"),
    ("param_group", "BIGINT"),
    ("model", "VARCHAR"),
    ("layer", "VARCHAR"),
    ("norm", "DOUBLE"),
    ("zeros", "DOUBLE"),
    ("nonfinite", "DOUBLE"),
    ("weight_norm", "DOUBLE"),
    ("update_norm", "DOUBLE"),
    ("update_ratio", "DOUBLE"),
    ("process", "VARCHAR"),
)
ACTIVATIONS = (
    ("host", "VARCHAR"),
    ("rank", "BIGINT"),
    ("pid", "BIGINT"),
    ("step", "BIGINT"),
    ("model", "VARCHAR"),
    ("layer", "VARCHAR"),
    ("mean", "DOUBLE"),
    ("std", "DOUBLE"),
    ("zeros", "DOUBLE"),
    ("saturated", "DOUBLE"),
    ("dead", "DOUBLE"),
    ("calls", "BIGINT"),
    ("process", "VARCHAR"),
)
FIELDS = (
    ("host", "VARCHAR"),
    ("rank", "BIGINT"),
    ("pid", "BIGINT"),
    ("step", "BIGINT"),
    ("loader", "BIGINT"),
    ("round", "BIGINT"),
    ("batch", "BIGINT"),
    ("field", "VARCHAR"),
    ("size", "BIGINT"),
    ("low", "DOUBLE"),
    ("high", "DOUBLE"),
    ("mean", "DOUBLE"),
    ("std", "DOUBLE"),
    ("nonfinite", "DOUBLE"),
    ("distinct", "BIGINT"),
    ("tokens", "BIGINT"),
    ("padding", "DOUBLE"),
    ("process", "VARCHAR"),
)
SAMPLES = (
    ("host", "VARCHAR"),
    ("rank", "BIGINT"),
    ("pid", "BIGINT"),
    ("worker", "BIGINT"),
    ("thread", "VARCHAR"),
    ("step", "BIGINT"),
    ("phase", "VARCHAR"),
    ("time_ns", "BIGINT"),
    ("dur_ns", "BIGINT"),
    ("function", "VARCHAR"),
    ("file", "VARCHAR"),
    ("line", "BIGINT"),
    ("leaf", "VARCHAR"),
    ("stack", "VARCHAR"),
    ("process", "VARCHAR"),
)
METRICS = (
    ("host", "VARCHAR"),
    ("rank", "BIGINT"),
    ("pid", "BIGINT"),
    ("step", "BIGINT"),
    ("epoch", "BIGINT"),
    ("time_ns", "BIGINT"),
    ("name", "VARCHAR"),
    ("value", "DOUBLE"),
    ("evaluation", "BOOLEAN"),
    ("source", "VARCHAR"),
    ("process", "VARCHAR"),
)
MEMORY = (
    ("host", "VARCHAR"),
    ("rank", "BIGINT"),
    ("pid", "BIGINT"),
    ("time_ns", "BIGINT"),
    ("step", "BIGINT"),
    ("rss", "BIGINT"),
    ("device", "VARCHAR"),
    ("allocated", "BIGINT"),
    ("reserved", "BIGINT"),
    ("peak", "BIGINT"),
    ("process", "VARCHAR"),
)
SYSTEM = (
    ("host", "VARCHAR"),
    ("pid", "BIGINT"),
    ("time_ns", "BIGINT"),
    ("metric", "VARCHAR"),
    ("value", "DOUBLE"),
    ("process", "VARCHAR"),
)
COLUMNS: dict[str, Columns] = {
    "events": EVENTS,
    "processes": PROCESSES,
    "steps": STEPS,
    "phases": PHASE_ROWS,
    "losses": LOSSES,
    "batches": BATCHES,
    "items": ITEMS,
    "item_values": ITEM_VALUES,
    "files": FILES,
    "reads": READS,
    "layers": LAYERS,
    "gradients": GRADIENTS,
    "activations": ACTIVATIONS,
    "fields": FIELDS,
    "samples": SAMPLES,
    "metrics": METRICS,
    "memory": MEMORY,
    "system": SYSTEM,
    "waits": WAITS,
    "hosts": HOSTS,
}
TABLES = tuple(COLUMNS)
# The events without most of those that only steps are made of: of a long raw run they stay in their files until all events
# are asked for. In sealed parts, those of batches and items are not here either. What failed or is open is here in any case.
BESIDE = "beside"
LOOSE = "loose"  # the same of processes that are in no sealed part: of these, tables have to be made
MADE = TABLES[2:]  # of the others, when they are first asked for

_KINDS = ((record.SPAN, "span"), (record.COUNTER, "counter"), (record.MARK, "mark"))
_RAW = {
    "host": "lanes.host",
    "rank": "lanes.rank",
    "pid": "lanes.pid",
    "tid": "lanes.tid",
    "thread": "lanes.thread",
    "kind": f"CASE raw.kind & {record.KIND_MASK} "
    + " ".join(f"WHEN {number} THEN '{word}'" for number, word in _KINDS)
    + " END",
    "cat": "names.cat",
    "name": "names.name",
    "open": f"raw.kind & {record.OPEN} <> 0",
    "error": f"raw.kind & {record.ERROR} <> 0",
    "args": "CASE WHEN raw.args IS NOT NULL THEN nullif(sonde_args(lanes.number, raw.args), '') END",
    "meta": f"raw.kind & {record.META} <> 0",
    "cut": f"raw.kind & {record.CUT} <> 0",
    "lane": "lanes.ordinal",
    "process": "lanes.process",
}


def unknown(name: str) -> str:
    """What is said of a table that does not exist."""
    return f"No table {name!r}. {nearest(name, list(TABLES))}"


def names(columns: Columns) -> str:
    """The names of columns, as a query lists them."""
    return ", ".join(f'"{name}"' for name, _ in columns)


def raw_events(parts: Sequence[str], suffix: str = "", kind: str = "VARCHAR") -> str:
    """The events of raw parts, each given by the query that selects its rows. `suffix`: of the tables with their texts."""
    made = {**_RAW, "kind": f"({_RAW['kind']})::{kind}"}
    columns = ", ".join(f'{made.get(name, f"raw.{name}")} AS "{name}"' for name, _ in EVENTS)
    rows = " UNION ALL ".join(parts)
    return (
        f"SELECT {columns} FROM ({rows}) raw JOIN lanes{suffix} lanes ON raw.lane = lanes.id "
        f"JOIN names{suffix} names ON raw.name = names.id"
    )


def joined(selects: Sequence[str]) -> str:
    """All events of several queries."""
    columns = ", ".join(f'NULL::{type} AS "{name}"' for name, type in EVENTS)
    return " UNION ALL ".join(selects) or f"SELECT {columns} WHERE false"


def misfit(connection: duckdb.DuckDBPyConnection, source: str, columns: Columns) -> str | None:
    """The first column that a source lacks under this very name and type: its file is damaged; None: it has them all."""
    found = {name: type for name, type, *_ in connection.execute(f"DESCRIBE FROM {source}").fetchall()}
    return next((name for name, type in columns if found.get(name) != type), None)


def quoted(text: str) -> str:
    """A text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
