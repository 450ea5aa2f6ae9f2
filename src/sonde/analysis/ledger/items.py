"""What went into a step: its batches with their items, from the ledger, and what else is known of these items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.analysis.records.schema import quoted
from sonde.errors import UnknownName
from sonde.store.probe import ITER, PROBE, batch_key

if TYPE_CHECKING:
    import duckdb

    from sonde.analysis.ledger.ledger import LedgerBatch
    from sonde.analysis.run import Run

# What `run.items(step=...)` has; those of the table `items` that do not come from the ledger may be null.
COLUMNS = (
    ("rank", "BIGINT"),
    ("loader", "BIGINT"),
    ("round", "BIGINT"),
    ("batch", "BIGINT"),
    ("worker", "BIGINT"),
    ("position", "BIGINT"),
    ("index", "BIGINT"),
    ("id", "VARCHAR"),
    ("start_ns", "BIGINT"),
    ("dur_ns", "BIGINT"),
    ("error", "BOOLEAN"),
    ("process", "VARCHAR"),
)
_PLACE = ("process", "loader", "round", "batch", "position")


class StepBatch(NamedTuple):
    """One batch that a step was made with; `content` is what the ledger says, None if it says nothing."""

    process: str
    rank: int | None
    loader: int
    round: int
    batch: int
    worker: int | None
    content: LedgerBatch | None


def step_batches(run: Run, step: int, rank: int | None = None) -> list[StepBatch]:
    """The batches of a step, micro-batches included, in the order of their delivery; of one rank, or of all.

    Raises UnknownName if the run has no such step.
    """
    where = f"purpose <> 'evaluate' {_ranked(rank)}"
    found = run.sql(
        f"""
        SELECT process, rank, loader, round, batch, worker FROM batches
        WHERE step = {int(step)} AND {where} ORDER BY coalesce(rank, 0), process, start_ns
        """
    ).fetchall()
    if not found:
        raise UnknownName(_absent(run, step, rank))
    return [StepBatch._make((*row, _content(run, row))) for row in found]


def loader_workers(run: Run, one: StepBatch) -> int:
    """How many workers the loader of a batch had."""
    found = run.sql(
        f"""
        SELECT max(try_cast(args->>'$.workers' AS BIGINT)) FROM events
        WHERE cat = '{PROBE}' AND name = '{ITER}' AND key = {batch_key(one.loader, one.round, 0)}
          AND process = {quoted(one.process)}
        """
    ).fetchall()
    worker = one.worker if one.content is None else one.content.worker
    return max(found[0][0] or 0, 0 if worker is None else worker + 1)


def _ranked(rank: int | None) -> str:
    """A program without ranks is its own rank 0."""
    return "" if rank is None else f"AND coalesce(rank, 0) = {int(rank)}"


def _content(run: Run, row: tuple[Any, ...]) -> LedgerBatch | None:
    process, _, loader, round, batch, _ = row
    ledger = run.database.ledgers.of(process)
    return None if ledger is None else ledger.batch(batch_key(loader, round, batch))


def _absent(run: Run, step: int, rank: int | None) -> str:
    """Why there is no such step, and which there are."""
    ranks = [number for (number,) in run.sql("SELECT DISTINCT coalesce(rank, 0) FROM steps ORDER BY 1").fetchall()]
    if not ranks:
        return f"Step {step} is not in the run {run.id}: it has no steps."
    if rank is not None and rank not in ranks:
        return f"No rank {rank} in the run {run.id}. Ranks with steps: {', '.join(map(str, ranks))}."
    whose = "" if rank is None else f" of rank {rank}"
    low, high, there = run.sql(
        f"SELECT min(step), max(step), count(*) FILTER (step = {int(step)}) FROM steps WHERE true {_ranked(rank)}"
    ).fetchall()[0]
    if there:
        return f"The items of step {step}{whose} are unknown: no loader delivered a batch for it."
    return f"Step {step}{whose} is not in the run {run.id}, which has steps {low} to {high}."


def step_items(run: Run, step: int, rank: int | None = None) -> duckdb.DuckDBPyRelation:
    """The items of a step, one row each."""
    batches = step_batches(run, step, rank)
    rows = [row for one in batches for row in _rows(one)]
    known = {(one.loader, one.round, one.batch) for one in batches}
    keys = ", ".join(f"({loader}, {round}, {batch})" for loader, round, batch in sorted(known))
    timed = f"""
        SELECT {", ".join(_PLACE)}, any_value("index") AS "index", any_value(id) AS id, any_value(worker) AS worker,
               any_value(start_ns) AS start_ns, any_value(dur_ns) AS dur_ns, any_value(error) AS error
        FROM items WHERE (loader, round, batch) IN ({keys}) GROUP BY ALL
    """
    database = run.database
    database.make("items")
    table = database.keep(("process", "rank", *_PLACE[1:], "index", "id", "worker"), _TYPES, rows)
    columns = ", ".join(_column(name) for name, _ in COLUMNS)
    # Batches that the ledger does not know have one row with no position: what the table `items` has of them takes its place.
    return database.connection.sql(
        f"""
        SELECT {columns} FROM {table} l LEFT JOIN ({timed}) t
        ON t.process = l.process AND t.loader = l.loader AND t.round = l.round AND t.batch = l.batch
           AND (l.position IS NULL OR t.position = l.position)
        ORDER BY coalesce(rank, 0), process, loader, round, batch, position
        """
    )


_TYPES = ("VARCHAR", *("BIGINT",) * 6, "VARCHAR", "BIGINT")


def _column(name: str) -> str:
    if name in ("position", "index", "id", "worker"):
        return f'coalesce(l."{name}", t."{name}") AS "{name}"'
    return f'{"t" if name in ("start_ns", "dur_ns", "error") else "l"}."{name}" AS "{name}"'


def _rows(one: StepBatch) -> list[tuple[Any, ...]]:
    place = (one.process, one.rank, one.loader, one.round, one.batch)
    content = one.content
    if content is None:
        return [(*place, None, None, None, one.worker)]
    if content.indices is not None:
        return [(*place, number, index, None, content.worker) for number, index in enumerate(content.indices)]
    keys = content.keys or []
    texts = [key if isinstance(key, str) else repr(key) for key in keys] + [None] * (content.size - len(keys))
    return [(*place, number, None, text, content.worker) for number, text in enumerate(texts)]
