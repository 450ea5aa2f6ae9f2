"""Which items of the datasets were in the batches of some steps, and which ones are the slowest of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sonde.analysis.records.schema import quoted

if TYPE_CHECKING:
    from sonde.analysis.run import Run


@dataclass(frozen=True)
class StepItem:
    """One item. `index` is what the dataset was asked for, `id` its key where that is no number."""

    index: int | None
    id: str | None
    worker: int | None
    dur_ns: int | None

    @property
    def name(self) -> str:
        """What it is called."""
        return self.id if self.id is not None else "n/a" if self.index is None else str(self.index)


@dataclass(frozen=True)
class ItemLoads:
    """An item that took long, over all times that it was fetched."""

    index: int | None
    id: str | None
    fetched: int
    median_ns: float
    max_ns: int
    times: float | None  # the median item so many times


@dataclass(frozen=True)
class ItemSummary:
    """All items of the datasets. `slowest` by the median of their own loads, the slowest first."""

    seen: int
    p50_ns: float | None
    p99_ns: float | None
    max_ns: int | None
    errors: int
    slowest: list[ItemLoads]


NONE = ItemSummary(0, None, None, None, 0, [])


LOADED = "dur_ns IS NOT NULL AND NOT error"  # what an exception or Ctrl-C cut off is no measurement


MANY = 1_000_000  # rows: of more than that, quantiles are taken of some


def sampled(rows: str, count: float, by: str = "start_ns") -> str:
    """The same rows, or of very many some, spread evenly; `count`: how many there are, `by`: a column in which they differ."""
    every = -(-int(count) // MANY)
    return f"{rows} AND hash({by}, process) % {every} = 0" if every > 1 else rows


def slow_items(loads: str, least: float) -> str:
    """The items whose own median is at least `least` ns, as SQL. Only those that once took so long are looked at."""
    once = f'SELECT hash("index", id) FROM {loads} AND dur_ns >= {least!r}'
    candidates = f'{loads} AND hash("index", id) IN ({once})'
    return f"({each_item(candidates)}) WHERE median_ns >= {least!r}"


def each_item(loads: str) -> str:
    """One row for each item, as SQL. Its own median decides whether it is slow; of two loads, that is the faster one.

    `loads`: rows of the table `items`, with their condition. A load that a hiccup of the host made long is not the item's fault.
    """
    return (
        "SELECT index, id, list(DISTINCT worker) FILTER (worker IS NOT NULL) AS workers, min(rank) AS rank, count(*) AS loads, "
        "quantile_disc(dur_ns, 0.5) AS median_ns, max(dur_ns) AS most_ns, sum(dur_ns) AS total_ns, "
        f"any_value(file) AS file, max(bytes) AS bytes FROM {loads} GROUP BY index, id"
    )


def items(run: Run, most: int) -> ItemSummary:
    """What is known of the items."""
    seen, longest, errors = run.sql(
        f"SELECT count(*), max(dur_ns) FILTER ({LOADED}), count(*) FILTER (error) FROM items"
    ).fetchall()[0]
    if not seen:
        return NONE
    points = run.sql(
        f"SELECT quantile_cont(dur_ns, [0.5, 0.99]) FROM {sampled(f'items WHERE {LOADED}', seen)}"
    ).fetchall()[0][0]
    middle, high = points or (None, None)
    found = run.sql(
        f"SELECT index, id, loads, median_ns, most_ns FROM ({each_item(f'items WHERE {LOADED}')}) "
        f"ORDER BY median_ns DESC, index, id LIMIT {most}"
    ).fetchall()
    slowest = [
        ItemLoads(index, id, loads, median, longest, median / middle if middle else None)
        for index, id, loads, median, longest in found
    ]
    return ItemSummary(seen, middle, high, longest, errors, slowest)


def items_of(run: Run, steps: Sequence[tuple[str, int]], most: int) -> dict[tuple[str, int], list[StepItem]]:
    """For each (process, step) the items of its batches that took longest."""
    if not steps:
        return {}
    wanted = ", ".join(f"({quoted(process)}, {step})" for process, step in steps)
    processes = ", ".join({quoted(process) for process, _ in steps})
    rows = run.sql(
        f"""
        SELECT process, step, index, id, worker, dur_ns FROM items
        WHERE process IN ({processes}) AND (process, step) IN ({wanted}) AND loader IS NOT NULL AND dur_ns IS NOT NULL
        ORDER BY dur_ns DESC, start_ns, position
        """
    ).fetchall()
    found: dict[tuple[str, int], list[StepItem]] = {}
    for process, step, *item in rows:
        if len(found.setdefault((process, step), [])) < most:
            found[process, step].append(StepItem(*item))
    return found
