"""`/items`: the items of the datasets, and one of them with every load."""

from __future__ import annotations

import shlex
from math import isfinite, nan
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING
from urllib.parse import quote

from sonde import config
from sonde.analysis.questions.items import LOADED, each_item
from sonde.analysis.records.schema import quoted
from sonde.errors import UnknownName
from sonde.views.itemvalues import StoredValue, values_of_item
from sonde.web.asking import Ask, rows
from sonde.web.endpoints.arrays import value_fields
from sonde.web.endpoints.traces import traced_values

if TYPE_CHECKING:
    from sonde.analysis.run import Run

SORT = ("median_ns", "index", "id", "loads", "max_ns", "total_ns")
COLUMNS = ("index", "id", "loads", "median_ns", "max_ns", "total_ns", "times")
MOST_LOADS = 1000
LOSS = "loss"  # of the names that `sonde.log_items` may be given
MOST_FILES = 100
_EACH = f'SELECT "index", id, loads, median_ns, most_ns AS max_ns, total_ns FROM ({each_item(f"items WHERE {LOADED}")})'


def items(run: Run, ask: Ask) -> object:
    """All items, the slowest first."""
    (median,) = run.sql(f"SELECT median(dur_ns) FROM items WHERE {LOADED}").fetchall()[0]
    sought = ask.query.get("q", "")
    where = f'WHERE contains(coalesce(id, "index"::VARCHAR), {quoted(sought)})' if sought else ""
    each = f"SELECT * FROM ({_EACH}) {where}"
    sort, order = ask.choice("sort", SORT), ask.choice("order", ("desc", "asc"))
    (total,) = run.sql(f"SELECT count(*) FROM ({each})").fetchall()[0]
    page = f"LIMIT {ask.integer('limit', 100, 1, 10_000)} OFFSET {ask.integer('offset', 0, 0, 10**12)}"
    found = run.sql(f'{each} ORDER BY "{sort}" {order} NULLS LAST, "index", id {page}').fetchall()
    return {
        "total": total,
        "median_ns": median,
        "columns": list(COLUMNS),
        "rows": [[*row, row[3] / median if median else None] for row in found],
    }


def item(run: Run, ask: Ask) -> object:
    """One item: by its index, or as `id:KEY`."""
    given, started = ask.path["index"], run.started or 0
    key = given.removeprefix("id:") if given.startswith("id:") else None
    index = None if key is not None else ask.place("index")
    where = f"id = {quoted(key)}" if key is not None else f'"index" = {index}'
    loads = _with_loss(
        run,
        f"SELECT rank, process, loader, round, batch, position, step, worker, start_ns - {started} AS start_ns, dur_ns, error "
        f"FROM items WHERE {where} ORDER BY start_ns LIMIT {MOST_LOADS}",
    )
    (all_loads,) = run.sql(f"SELECT count(*) FROM items WHERE {where}").fetchall()[0]
    used = [] if index is None else _used(run, index, started)
    if not loads and not used:
        raise UnknownName(f"Item {given} is not in the batches of this run.")
    each = rows(run.sql(f"SELECT * FROM ({_EACH}) WHERE {where} LIMIT 1"))
    (median,) = run.sql(f"SELECT median(dur_ns) FROM items WHERE {LOADED}").fetchall()[0]
    about = (
        each[0]
        if each
        else {"index": None if key is not None else int(given), "id": key, "loads": len(loads) or len(used)}
    )
    own = about.get("median_ns")
    losses = _losses(run, where)
    values = [*map(_value, values_of_item(run, index, key)), *traced_values(run, ask, index, key)]
    steps = [one["step"] for one in loads or used if one["step"] is not None]
    seen = {one["step"] for one in values}  # whose batch was kept: one looks at it, and wants to have it again
    again = next((step for step in steps if step in seen), steps[0] if steps else None)
    return {
        "item": about | {"times": own / median if own and median else None},
        "loads": loads or used,
        "files": _files(run, where),
        "values": values,
        "loss": _mean(losses),
        "losses": losses,
        "replay": None if again is None else f"sonde flow replay {_named(run)} {_script(run)}:DATASET --step {again}",
        "left_out": max(all_loads - len(loads), 0),
    }


def _named(run: Run) -> str:
    """What a command calls the run: its name, or its place if it is not where commands look for runs."""
    here = run.path.resolve()
    return run.id if here.parent == Path(config.load().dir).resolve() else shlex.quote(str(here))


def _script(run: Run) -> str:
    """The script of the run, in which its dataset is."""
    command = run.meta.get("command")
    words = command if isinstance(command, list) else []
    return next((str(word) for word in words if str(word).endswith(".py")), "SCRIPT")


def _files(run: Run, where: str) -> list[dict[str, object]]:
    """What was read for it, if files were watched: over all its loads."""
    place = "process, loader, round, batch, position"
    return rows(
        run.sql(
            "SELECT file AS path, sum(calls)::BIGINT AS calls, sum(bytes)::BIGINT AS bytes, sum(dur_ns)::BIGINT AS dur_ns FROM reads "
            f"WHERE file IS NOT NULL AND ({place}) IN (SELECT ({place}) FROM items WHERE {where}) "
            f"GROUP BY 1 ORDER BY bytes DESC NULLS LAST, path LIMIT {MOST_FILES}"
        )
    )


def _losses(run: Run, where: str) -> list[dict[str, object]]:
    """What the program has logged for this item."""
    return rows(
        run.sql(
            "SELECT name, purpose, step, rank, loader, round, batch, position, value FROM item_values "
            f"WHERE {where} ORDER BY step NULLS LAST, name LIMIT {MOST_LOADS}"
        )
    )


def _mean(losses: list[dict[str, object]]) -> float | None:
    """The mean loss in training; of an item that was never trained with, in evaluation."""
    for purpose in ("train", "evaluate"):
        values = [one["value"] for one in losses if one["name"] == LOSS and one["purpose"] == purpose]
        numbers = [value for value in values if isinstance(value, float) and isfinite(value)]
        if numbers:
            return fmean(numbers)
        if values:
            return nan
    return None


def _value(one: StoredValue) -> dict[str, object]:
    shown, place = one.value, one.array
    return {
        "stage": one.stage,
        "source": one.source,
        "step": one.step,
        "field": shown.path,
        "dtype": one.dtype,
        **value_fields(shown),
        "array": f"/arrays/{quote(place.dump, safe='')}/{place.batch}/{place.value}/{place.position}",
    }


def _used(run: Run, index: int, started: int) -> list[dict[str, object]]:
    """The batches that the ledger says it was in, where its loads were not recorded one by one."""
    return _with_loss(
        run,
        f"SELECT rank, process, loader, round, batch, list_position(indices, {index}) - 1 AS position, step, worker, "
        f"start_ns - {started} AS start_ns, NULL AS dur_ns, NULL AS error FROM batches WHERE list_contains(indices, {index}) "
        f"ORDER BY start_ns LIMIT {MOST_LOADS}",
    )


def _with_loss(run: Run, loads: str) -> list[dict[str, object]]:
    """These loads, each with the loss of the step that used its batch; that of the item alone is there only if the program gives it."""
    return rows(
        run.sql(
            f"""
            WITH loads AS MATERIALIZED ({loads})
            SELECT loads.*, step_loss FROM loads LEFT JOIN (
                SELECT process, step, arg_max(loss, start_ns) AS step_loss FROM steps
                WHERE step IN (SELECT step FROM loads) GROUP BY process, step
            ) USING (process, step) ORDER BY loads.start_ns
            """
        )
    )
