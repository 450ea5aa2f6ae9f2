"""Tokens: per batch, per second, and the share of padding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sonde.store import probe

if TYPE_CHECKING:
    from sonde.analysis.run import Run


@dataclass(frozen=True)
class Tokens:
    """Those of the field with the most tokens, in the batches that `--learning` sampled; padding is among them."""

    field: str
    batches: int  # sampled
    per_batch: float
    padding: float | None  # share
    per_s: float | None  # of all ranks, while they trained


def tokens(run: Run) -> Tokens | None:
    """Those of a run; None: no batch with token ids was sampled."""
    names = run.database.source.name_counts.values()
    if not any(one.cat == f"{probe.FIELD}tokens" for named in names for one in named):
        return None
    found = run.sql(
        """
        SELECT field, count(*), avg(tokens), sum(padding * tokens) / nullif(sum(tokens), 0) FROM fields
        WHERE tokens IS NOT NULL AND step IS NOT NULL GROUP BY field ORDER BY sum(tokens) DESC, field LIMIT 1
        """
    ).fetchall()
    if not found:
        return None
    rates = run.sql(
        """
        SELECT sum(coalesce(batches, micro_batches, 1)) / (sum(dur_ns) / 1e9) FROM steps
        WHERE NOT warmup AND dur_ns > 0 GROUP BY process
        """
    ).fetchall()
    field, count, each, padding = found[0]
    per_s = sum(rate for (rate,) in rates if rate) * each if rates else None
    return Tokens(field, count, each, padding, per_s)
