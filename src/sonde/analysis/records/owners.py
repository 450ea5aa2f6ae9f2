"""Which process the loader workers of a run work for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    Row = dict[str, Any]

WORKER = "worker"  # the role


def owners(rows: Sequence[Row]) -> dict[str, str]:
    """For each loader worker the process whose batches it fetches.

    That is its parent; where the parent is unknown (a fork server), the one that is no worker and has the same host and rank.
    """
    pids = {(row["host"], row["pid"]): row["process"] for row in rows if row["role"] != WORKER}
    places: dict[tuple[object, object], list[str]] = {}
    for row in rows:
        if row["role"] in ("main", "trainer", "child"):
            places.setdefault((row["host"], row["rank"]), []).append(row["process"])
    found = {}
    for row in rows:
        alike = places.get((row["host"], row["rank"]), [])
        owner = pids.get((row["host"], row["parent_pid"])) or (alike[0] if len(alike) == 1 else None)
        if row["role"] == WORKER and owner is not None:
            found[row["process"]] = owner
    return found
