"""`/batches`: one batch, with its items."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.records.schema import quoted
from sonde.errors import UnknownName
from sonde.views.itemvalues import values_of_batch
from sonde.web.asking import Ask, rows
from sonde.web.endpoints.arrays import as_address

if TYPE_CHECKING:
    from sonde.analysis.run import Run


def batch(run: Run, ask: Ask) -> object:
    """One batch of a rank's loader."""
    rank, started = ask.rank(), run.started or 0
    loader, round, number = ask.place("loader"), ask.place("round"), ask.place("batch")
    whose = "rank IS NULL" if rank is None else f"rank = {rank}"
    process = ask.query.get("process")
    whose += "" if process is None else f" AND process = {quoted(process)}"
    place = f"{whose} AND loader = {loader} AND round = {round}"
    columns = f"* REPLACE (start_ns - {started} AS start_ns)"
    found = rows(run.sql(f"SELECT {columns} FROM batches WHERE {place} AND batch = {number} LIMIT 1"))
    if not found:
        raise UnknownName(f"There is no batch {number} of loader {loader} in round {round}.")
    one = found[0]
    timed = {
        row["position"]: row
        for row in rows(
            run.sql(
                f'SELECT position, "index", id, worker, start_ns - {started} AS start_ns, dur_ns, error, file, bytes FROM items '
                f"WHERE process = {quoted(one['process'])} AND loader = {loader} AND round = {round} AND batch = {number}"
            )
        )
    }
    indices = one.pop("indices") or []
    size = max(len(indices), *(place + 1 for place in timed if place is not None), 0)
    before, after = run.sql(
        f"SELECT max(batch) FILTER (batch < {number}), min(batch) FILTER (batch > {number}) FROM batches WHERE {place}"
    ).fetchall()[0]
    kept = values_of_batch(run, one["rank"], loader, round, number)
    pictures, guilty = ({}, []) if kept is None else (kept.pictures, kept.guilty)
    return {
        "batch": one,
        "step": one["step"],
        "kept": None if kept is None else f"Its values are saved in {kept.source}.",
        "items": [
            _item(position, indices, timed.get(position), one["worker"])
            | {"thumbnail": as_address(pictures.get(position)), "guilty": position in guilty}
            for position in range(size)
        ],
        "previous": before,
        "next": after,
    }


def _item(position: int, indices: list[int], timed: dict[str, object] | None, worker: object) -> dict[str, object]:
    known = {"position": position, "index": indices[position] if position < len(indices) else None, "worker": worker}
    empty = dict.fromkeys(("id", "start_ns", "dur_ns", "error", "bytes", "file", "thumbnail"))
    return empty | known | {key: value for key, value in (timed or {}).items() if value is not None}
