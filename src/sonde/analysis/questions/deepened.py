"""Which steps were recorded in depth on demand, and what was recorded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sonde.analysis.records.schema import BESIDE
from sonde.store.probe import DEEPEN

if TYPE_CHECKING:
    from sonde.analysis.run import Run


@dataclass(frozen=True)
class DeepSteps:
    """Some steps. `last` is null while they are recorded, or if the process ended meanwhile; `ranks`: how many processes have them."""

    first: int
    last: int | None
    parts: list[str]
    why: str
    ranks: int


def deepened(run: Run) -> list[DeepSteps]:
    """All of them, in the order of time. Those of ranks that recorded the same steps are one."""
    rows = run.sql(
        f"""
        WITH told AS (SELECT process, args->>'$.id' AS id, args, start_ns FROM {BESIDE} WHERE kind = 'mark' AND cat = '{DEEPEN}'),
        latest AS (SELECT process, id, arg_max(args, start_ns) AS args, min(start_ns) AS begun FROM told GROUP BY ALL)
        SELECT (args->>'$.first')::BIGINT, (args->>'$.last')::BIGINT, args->>'$.parts', args->>'$.why', count(*), min(begun)
        FROM latest GROUP BY 1, 2, 3, 4 ORDER BY 6, 1
        """
    ).fetchall()
    return [
        DeepSteps(first, last, [*map(str, json.loads(parts))], why, ranks) for first, last, parts, why, ranks, _ in rows
    ]
