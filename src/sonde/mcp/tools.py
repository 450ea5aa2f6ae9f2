"""The tools of `sonde mcp`, as plain functions from arguments to text. Each opens the run anew: it may still be growing."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from sonde import units
from sonde.analysis.live import stacks as asking
from sonde.analysis.postmortem.blackbox import black_box
from sonde.analysis.questions.items import items as slowest_items
from sonde.analysis.questions.layers import layers as layer_times
from sonde.analysis.records.schema import COLUMNS, PHASES, RESIDUAL
from sonde.analysis.run import Run
from sonde.compare.runs import compare_runs
from sonde.errors import QueryRefused, SondeError, UnknownName
from sonde.mcp.answer import fit, hint
from sonde.mcp.brief import digest
from sonde.remote.cache import fetch
from sonde.remote.storage import is_url
from sonde.terminal.blackbox import draw_page
from sonde.terminal.compare import draw_comparison
from sonde.views.blackbox import blackbox
from sonde.views.choose import RECORD_ONE, find_run
from sonde.views.report import report as make_report
from sonde.views.runs import list_runs, with_outcomes
from sonde.views.safe import printable
from sonde.views.words import phase_name

if TYPE_CHECKING:
    from sonde.views.runs import RunEntry

MOST_RUNS = 15
MOST_ROWS = 20  # of a table, unless more are asked for
MOST_ASKED = 500  # rows, however many are asked for: more do not fit an answer
OUTCOME_SECONDS = 3.0
QUERY_SECONDS = 20.0
STACK_SECONDS = 3.0
MOST_FRAMES = 12  # of a thread
WIDTH = 100
ORDERS = {"slowest": "dur_ns DESC", "last": "start_ns DESC", "first": "start_ns"}


class Tools:
    """The tools over one folder of runs. A run is a path, a folder's name, or a part of it; without it the newest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def runs(self, limit: int = MOST_RUNS) -> str:
        """List recorded runs, newest first: id, how it ended, verdict, steps, median step, loss. Start here."""
        found = with_outcomes(list_runs(self.folder, _rows(limit)), OUTCOME_SECONDS)
        if not found.runs:
            raise SondeError(f"No runs in {found.dir}. {RECORD_ONE}")
        left = [f"[{found.left_out} older runs; raise limit to see them]"] if found.left_out else []
        newest = found.runs[0].id
        more = [hint("report", "verdict, evidence, next step", run=newest)]
        if len(found.runs) > 1:
            more.append(hint("compare", "the two newest runs", a=found.runs[1].id, b=newest))
        return fit([*map(_entry, found.runs), *left], more)

    def report(self, run: str | None = None) -> str:
        """Diagnose a run: verdict, why, next step, evidence, slowest steps, items, ranks, and which tool to call next."""
        with self._opened(run) as opened:
            return digest(make_report(opened))

    def steps(
        self,
        run: str | None = None,
        order: str = "slowest",
        rank: int | None = None,
        limit: int = MOST_ROWS,
        offset: int = 0,
    ) -> str:
        """List steps with duration, phases and loss. order: slowest, last or first."""
        if order not in ORDERS:
            raise UnknownName(f"Unknown order {order!r}. Valid: {', '.join(ORDERS)}.")
        chosen = "" if rank is None else f"WHERE coalesce(rank, 0) = {int(rank)}"
        parts = ", ".join(f"{part}_ns" for part in (*PHASES, RESIDUAL))
        with self._opened(run) as opened:
            ((total,),) = opened.sql(f"SELECT count(*) FROM steps {chosen}").fetchall()
            rows = opened.sql(
                f"SELECT step, rank, dur_ns, loss, {parts} FROM steps {chosen} ORDER BY {ORDERS[order]} "
                f"LIMIT {_rows(limit)} OFFSET {max(offset, 0)}"
            ).fetchall()
            name = opened.id
        if not rows:
            raise UnknownName(f"No such steps: {name} has {units.plural(total, 'step')} here.")
        more = [hint("step", "one step with its items", run=name, step=rows[0][0])]
        if offset + len(rows) < total:
            given = {"run": name, "order": order, "offset": offset + len(rows)}
            more.append(hint("steps", f"the next of {units.count(total)}", **given))
        return fit([f"{units.count(total)} steps, {order} first", *map(_step_line, rows)], more)

    def step(self, step: int, run: str | None = None, rank: int | None = None) -> str:
        """Show one step: its phases beside the median step, and its slowest items."""
        chosen = "" if rank is None else f"AND coalesce(rank, 0) = {int(rank)}"
        with self._opened(run) as opened:
            parts = (*PHASES, RESIDUAL)
            columns = ", ".join(f"{part}_ns" for part in parts)
            usual = ", ".join(f"(SELECT median({part}_ns) FROM steps WHERE NOT warmup)" for part in ("dur", *parts))
            rows = opened.sql(
                f"SELECT step, rank, loss, epoch, samples, dur_ns, {columns} FROM steps WHERE step = {int(step)} {chosen}"
            ).fetchall()
            if not rows:
                raise UnknownName(_no_step(opened, step, rank))
            (medians,) = opened.sql(f"SELECT {usual}").fetchall()
            lines = [line for row in rows for line in _phases_of(row, medians)]
            lines += _items_of(opened, step, rank)
            name = opened.id
        return fit(lines, [hint("items", "all items of this step", run=name, step=step)])

    def items(self, run: str | None = None, step: int | None = None, limit: int = MOST_ROWS) -> str:
        """List dataset items: the slowest of the run, or those of one step with worker and load time."""
        with self._opened(run) as opened:
            name = opened.id
            if step is not None:
                lines = _items_of(opened, step, None, _rows(limit))
                return fit(lines, [hint("step", "the phases of this step", run=name, step=step)])
            found = slowest_items(opened, _rows(limit))
            if not found.seen:
                raise SondeError(f"{name} has no load times of items. Items of a step: items(step=N).")
            where = _steps_with(opened, [one.index for one in found.slowest[:5] if one.index is not None])
        spread = f"median {units.duration(found.p50_ns)}, p99 {units.duration(found.p99_ns)}, longest {units.duration(found.max_ns)}"
        lines = [f"{units.count(found.seen)} loads; {spread}; {units.count(found.errors)} failed"]
        for one in found.slowest:
            times = "" if one.times is None else f", {units.times(one.times)} the median item"
            loads = units.plural(one.fetched, "load")
            seen = where.get(one.index, "")
            lines.append(f"item {one.id or one.index}: median {units.duration(one.median_ns)}{times}, {loads}{seen}")
        return fit([printable(line) for line in lines], [hint("steps", "single steps", run=name)])

    def layers(self, run: str | None = None, limit: int = MOST_ROWS, offset: int = 0) -> str:
        """List layers, costliest first: forward, backward, memory. Needs a run of `sonde deep` or trace_model_instance."""
        with self._opened(run) as opened:
            found, name = layer_times(opened), opened.id
        if not found:
            raise SondeError(f"{name} has no layer times. Record them with: sonde deep train.py")
        lines = [
            f"{one.layer or '(model)'} {one.type or ''}: forward {units.duration(one.forward_ns)}, backward "
            f"{units.duration(one.backward_ns)}, {_share(one.share)}, activations {units.size(one.activation_bytes)}"
            for one in found[offset : offset + _rows(limit)]
        ]
        left = len(found) - offset - len(lines)
        following = [hint("layers", f"{left} more", run=name, offset=offset + len(lines))] if left > 0 else []
        return fit([printable(line) for line in lines], [*following, hint("report", "the verdict", run=name)])

    def first_nan(self, run: str | None = None) -> str:
        """Show what produced the first NaN (layer, batch, items), or the exception with its item, and the last batches."""
        with self._opened(run) as opened:
            view = blackbox(opened, black_box(opened))
            lines = _drawn(lambda console: draw_page(view, console))
            name = opened.id
        newest = next((one.step for one in reversed(view.batches) if one.step is not None), None)
        more = [] if newest is None else [hint("items", "the items of the last batch", run=name, step=newest)]
        return fit(lines, [*more, hint("report", "the verdict", run=name)])

    def compare(self, a: str, b: str) -> str:
        """Compare two runs: is b faster than a (the baseline), where, what differs, and are the numbers the same."""
        with self._opened(a) as first, self._opened(b) as second:
            view = compare_runs(first, second)
        lines = _drawn(lambda console: draw_comparison(view, console))
        return fit(
            lines, [hint("report", "B on its own", run=view.b.id), hint("report", "A on its own", run=view.a.id)]
        )

    def query(self, sql: str | None = None, run: str | None = None, limit: int = MOST_ROWS) -> str:
        """Answer one SELECT (DuckDB) over the tables of a run, at most 20 s. Without sql: the tables and their columns."""
        if sql is None:
            schema = [f"{table}: {', '.join(name for name, _ in columns)}" for table, columns in COLUMNS.items()]
            return fit([*schema, "Columns that end in _ns are nanoseconds. Unknown values are NULL, never 0."])
        with self._opened(run) as opened, _in_time(opened), _sentences():
            found = opened.sql(sql)
            most = _rows(limit)
            rows = found.limit(most + 1).fetchall()
            head = " | ".join(found.columns)
        shown = [head, *(" | ".join(map(_cell, row)) for row in rows[:most])]
        left = ["[more rows; add LIMIT and OFFSET, or raise limit]"] if len(rows) > most else []
        return fit([printable(line) for line in [*shown, *left]])

    def stacks(self, run: str | None = None) -> str:
        """Show where every thread of a running program is now; for an ended one, what was open at its end."""
        path = self._path(run)
        try:
            found = asking.running(path)
        except SondeError:
            return self.first_nan(str(path))
        lines: list[str] = []
        for info in found:
            answer = asking.ask(path, info.host, info.pid, STACK_SECONDS)
            lines.append(f"{asking.named(info)}: {answer.problem or 'all threads, innermost call first'}")
            lines += _frames(answer.text())
        return fit(lines, [hint("report", "the verdict", run=path.resolve().name)])

    def _path(self, run: str | None) -> Path:
        return fetch(run).path if run is not None and is_url(run) else find_run(run, self.folder)

    @contextmanager
    def _opened(self, run: str | None) -> Iterator[Run]:
        with Run([self._path(run)], threads=1) as opened:
            yield opened


def _rows(limit: int) -> int:
    return min(max(limit, 1), MOST_ASKED)


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _entry(one: RunEntry) -> str:
    found = one.outcome
    if found is None:
        return f"{one.id}: {one.ended}, verdict {units.MISSING}"
    loss = "" if found.loss is None else f", loss {units.brief(found.loss)}"
    steps = units.plural(found.steps, "step")
    return f"{one.id}: {one.ended}, {found.verdict} ({found.severity}), {steps}, median {units.duration(found.p50_ns)}{loss}"


def _step_line(row: tuple[Any, ...]) -> str:
    step, rank, dur, loss, *parts = row
    named = sorted(
        ((ns, part) for ns, part in zip(parts, (*PHASES, RESIDUAL), strict=True) if ns), key=lambda one: -one[0]
    )
    where = "" if rank is None else f" rank {rank}"
    ended = "" if loss is None else f", loss {units.brief(loss)}"
    phases = ", ".join(f"{phase_name(part)} {units.duration(ns)}" for ns, part in named[:4])
    return f"step {step}{where}: {units.duration(dur)}{ended}; {phases}"


def _phases_of(row: tuple[Any, ...], medians: tuple[Any, ...]) -> list[str]:
    step, rank, loss, epoch, samples, dur, *parts = row
    facts = [] if rank is None else [f"rank {rank}"]
    facts += [f"{what} {value}" for what, value in (("epoch", epoch), ("samples", samples)) if value is not None]
    facts += [] if loss is None else [f"loss {units.brief(loss)}"]
    lines = [
        f"step {step}: {', '.join(facts)}",
        f"  whole {units.duration(dur)}, median step {units.duration(medians[0])}",
    ]
    for part, ns, usual in zip((*PHASES, RESIDUAL), parts, medians[1:], strict=True):
        if ns is not None:
            lines.append(f"  {phase_name(part)} {units.duration(ns)}, median {units.duration(usual)}")
    return lines


def _no_step(run: Run, step: int, rank: int | None) -> str:
    ((low, high),) = run.sql("SELECT min(step), max(step) FROM steps").fetchall()
    whose = "" if rank is None else f" of rank {rank}"
    known = "it has no steps" if low is None else f"it has steps {low} to {high}"
    return f"No step {step}{whose} in {run.id}: {known}."


def _items_of(run: Run, step: int, rank: int | None, most: int = 10) -> list[str]:
    """The items of a step, the slowest first."""
    try:
        found = run.items(step, rank)
    except UnknownName as error:
        return [str(error)]
    rows = found.order("dur_ns DESC NULLS LAST").fetchall()
    names = found.columns
    lines = [f"{units.plural(len(rows), 'item')}, slowest first"]
    for row in rows[:most]:
        one = dict(zip(names, row, strict=True))
        worker = "" if one["worker"] is None else f", worker {one['worker']}"
        failed = ", failed" if one["error"] else ""
        owner = "" if one["rank"] is None else f", rank {one['rank']}"
        item = one["index"] if one["id"] is None else one["id"]
        lines.append(
            f"  item {item}: {units.duration(one['dur_ns'])}{worker}{owner}, position {one['position']}{failed}"
        )
    left = len(rows) - most
    return [printable(line) for line in lines] + ([f"[{left} more items; raise limit to see them]"] if left > 0 else [])


def _steps_with(run: Run, indices: Sequence[int]) -> dict[int | None, str]:
    """In which steps some items were."""
    if not indices:
        return {}
    listed = ", ".join(map(str, indices))
    rows = run.sql(
        f'SELECT "index", list(DISTINCT step ORDER BY step)[:3], list(DISTINCT worker ORDER BY worker)[:3] FROM items '
        f'WHERE "index" IN ({listed}) AND step IS NOT NULL GROUP BY 1'
    ).fetchall()
    return {index: f"; in steps {', '.join(map(str, steps))}{_workers(workers)}" for index, steps, workers in rows}


def _workers(workers: list[int | None]) -> str:
    known = [str(one) for one in workers if one is not None]
    return f", workers {', '.join(known)}" if known else ""


def _share(share: float | None) -> str:
    return f"share {units.MISSING}" if share is None else f"{units.share(share)} of all layers"


def _cell(value: object) -> str:
    return "NULL" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _drawn(draw: Any) -> list[str]:
    """What a terminal shows, without colours, blank lines and ends of lines."""
    text = io.StringIO()
    draw(Console(file=text, width=WIDTH, color_system=None, highlight=False, emoji=False, markup=False))
    return [line.rstrip() for line in text.getvalue().splitlines() if line.strip()]


def _frames(text: str) -> list[str]:
    """The stacks, each cut to its innermost calls."""
    lines: list[str] = []
    depth = 0
    for line in text.splitlines():
        depth = depth + 1 if line.startswith("  File") else 0
        if depth <= MOST_FRAMES and line.strip():
            lines.append(printable(line))
    return lines


@contextmanager
def _in_time(run: Run) -> Iterator[None]:
    """Interrupt a query that takes too long."""
    import duckdb

    timer = threading.Timer(QUERY_SECONDS, run.database.connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except duckdb.InterruptException:
        raise QueryRefused(f"The query took over {QUERY_SECONDS:.0f} s and was stopped. Narrow it.") from None
    finally:
        timer.cancel()


@contextmanager
def _sentences() -> Iterator[None]:
    import duckdb

    try:
        yield
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        raise QueryRefused(f"{error}. Call query() without sql for tables and columns.") from None
