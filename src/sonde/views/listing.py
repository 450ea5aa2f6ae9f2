"""What `sonde show RUN TABLE` shows: the first rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sonde.analysis.run import Run

# Columns that say the most, in the order in which a narrow terminal keeps them.
IMPORTANT = (
    "name", "cat", "step", "phase", "layer", "field", "norm", "update_ratio", "leaf", "mean", "std", "zeros", "batch", "index", "file", "bytes", "metric", "dur_ns", "rank", "purpose", "input_wait_ns",
    "forward_ns", "backward_ns", "optimizer_ns", "residual_ns", "loss", "device_ns", "device_peak_bytes", "evaluation_ns",
    "communication_ns", "wait_ns", "fetch_ns", "indices", "rss", "worker", "start_ns", "time_ns", "state", "pid", "value", "calls", "key", "kind", "thread", "args",
)  # fmt: skip


# How rows are sorted, where it is not by time and process.
_ORDERS = {
    "events": ("start_ns", "process", "seq"),
    "phases": ("step NULLS LAST", "process", "start_ns NULLS LAST", "phase"),
    "batches": ("start_ns", "process", "loader", "round", "batch"),
    "items": ("start_ns", "process", "loader", "round", "batch", "position"),
    "item_values": ("step NULLS LAST", "process", "loader", "round", "batch", "position", "name"),
    "files": ("bytes DESC NULLS LAST", "process", "file"),
    "reads": ("time_ns", "process", "position", "file"),
    "losses": ("step NULLS LAST", "process", "optimizer"),
    "layers": ("step NULLS LAST", "process", "forward_ns DESC", "layer"),
    "gradients": ("step NULLS LAST", "process", "optimizer", "param_group", "model", "layer"),
    "activations": ("step NULLS LAST", "process", "model", "layer"),
    "fields": ("step NULLS LAST", "process", "loader", "round", "batch", "field"),
    "samples": ("time_ns", "process", "thread"),
    "memory": ("time_ns", "process", "pid", "device", "rss", "allocated", "reserved", "peak"),
    "system": ("time_ns", "process", "pid", "metric"),
    "metrics": ("time_ns", "step", "name"),
    "waits": ("attempt", "step"),
    "hosts": ("source <> 'reference'", "host", "from_ns"),
}


@dataclass(frozen=True)
class Listing:
    """The first rows of a table, and how many it has."""

    table: str  # empty: the answer to a query
    columns: list[str]
    rows: list[list[object]]
    total: int
    started_ns: int | None  # when the run began


def listing(run: Run, table: str, limit: int) -> Listing:
    """The first `limit` rows (0: all) in the order of time. Raises UnknownName if there is no such table."""
    found = run.table(table)
    ((total,),) = found.aggregate("count(*)").fetchall()
    ordered = found.order(", ".join(_ORDERS.get(table, ("start_ns", "process"))))
    rows = (ordered.limit(limit) if limit > 0 else ordered).fetchall()
    return Listing(table, list(found.columns), [list(row) for row in rows], total, run.started)
