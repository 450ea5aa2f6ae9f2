"""The cost of recording a run: number of records times cost of a record, measured in the run itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sonde.analysis.records.gaps import measured

if TYPE_CHECKING:
    from sonde.analysis.run import Run

FEWEST = 20  # pairs: the median of fewer says nothing


@dataclass(frozen=True)
class Cost:
    """An estimate. `share`: of the time that the processes which trained were recorded for; `worker_share`: the same of loader
    workers. None: not known.
    """

    records: int
    trainer_records: int
    worker_records: int
    record_ns: float | None
    pairs: int
    total_ns: int | None
    share: float | None
    worker_share: float | None
    size: int  # bytes of the run folder
    basis: str


def cost(run: Run) -> Cost:
    """What recording cost."""
    rows = measured(run.rows)
    gaps = run.database.record_gaps()
    pairs = sum(count for _, count in gaps)
    each = sum(ns for ns, _ in gaps) / len(gaps) if pairs >= FEWEST else None
    records = sum(row["events"] for row in rows)
    total = _lived(rows)
    workers = [row for row in run.rows if row["role"] == "worker" and row["events"]]
    of_workers, theirs = sum(row["events"] for row in workers), _lived(workers)
    return Cost(
        records=sum(row["events"] or 0 for row in run.rows),
        trainer_records=records,
        worker_records=of_workers,
        record_ns=each,
        pairs=pairs if each is not None else 0,
        total_ns=total,
        share=each * records / total if each is not None and total else None,
        worker_share=each * of_workers / theirs if each is not None and theirs else None,
        size=run.size,
        basis=_basis(each),
    )


def _lived(rows: list[dict[str, Any]]) -> int | None:
    """How long processes were recorded for, together."""
    times = [
        max(row["end_ns"] or 0, row["last_ns"] or 0) - row["start_ns"] for row in rows if row["start_ns"] is not None
    ]
    return sum(times) if times and min(times) > 0 else None


def _basis(each: float | None) -> str:
    if each is None:
        return f"Not measured: fewer than {FEWEST} pairs of records with only Sonde's own code between them."
    return (
        "Estimated as records x measured cost per record. The cost is the median time between two records with only "
        "Sonde's own code between them, hooks included. It is measured in training processes and used for loader "
        "workers too."
    )
