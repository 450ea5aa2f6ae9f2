"""The level of detail of a timeline: the pyramids of sealed parts where a window is wide, the events where it is narrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.questions.timeline.lanes import of_threads

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sonde.analysis.parts.tables import PartTables
    from sonde.analysis.questions.timeline.lanes import Lane, Thread
    from sonde.analysis.run import Run

COLUMNS = (
    "process", "coalesce(lane, 0) AS lane", "depth", "single", "level", "start_ns", "end_ns", "count", "busy_ns", "longest_ns",
    "cat", "name", "seq",
)  # fmt: skip
_EACH = (
    "process, coalesce(lane, 0) AS lane, depth, true AS single, 0 AS level, start_ns, start_ns + dur_ns AS end_ns, "
    "1 AS count, dur_ns AS busy_ns, dur_ns AS longest_ns, cat, name, seq"
)


def spans_between(run: Run, some: Iterable[Lane], low: int, high: int, width: int) -> str:
    """The query for the spans of some lanes from `low` to `high`: one by one, or in bins that are no wider than `width`."""
    threads = {(process, lane or 0) for one in some for process, lane in one.threads}
    parts, level = run.database.parts, width.bit_length() - 1
    shown, fine = _levels(parts, threads, level)
    others = threads.difference(*shown.values(), *fine.values())
    if fine or others:
        run.database.make("events")
    inside = f"start_ns <= {high} AND (end_ns IS NULL OR end_ns >= {low})"
    found = []
    for own, of in shown.items():
        found.append(
            f"{_pyramid(parts, of)} AND {inside} AND (level = {own} AND NOT single OR level >= {own} AND single)"
        )
    for lowest, of in fine.items():  # so what is short began not long before the window: of the events, few are read
        found.append(f"{_pyramid(parts, of)} AND {inside} AND level >= {lowest} AND single")
        short = f"start_ns BETWEEN {low - (1 << lowest)} AND {high} AND dur_ns < {1 << lowest}"
        found.append(f"{_events(of)} AND {short} AND start_ns + dur_ns >= {low}")
    if others:
        found.append(f"{_events(others)} AND start_ns <= {high} AND (dur_ns IS NULL OR start_ns + dur_ns >= {low})")
    return " UNION ALL ".join(found)


def _pyramid(parts: PartTables, threads: set[Thread]) -> str:
    files = parts.selects("pyramid", COLUMNS, {process for process, _ in threads})
    return f"SELECT * FROM ({' UNION ALL '.join(files)}) WHERE {of_threads(threads)}"


def _events(threads: set[Thread]) -> str:
    return f"SELECT {_EACH} FROM events WHERE kind = 'span' AND {of_threads(threads)}"


def _levels(
    parts: PartTables, threads: set[Thread], level: int
) -> tuple[dict[int, set[Thread]], dict[int, set[Thread]]]:
    """Threads by the level of the pyramid that shows them; and those that need more detail, by the lowest level that they have."""
    shown: dict[int, set[Thread]] = {}
    fine: dict[int, set[Thread]] = {}
    for one in parts.lanes:
        thread = (one.process, one.lane or 0)
        if thread not in threads:
            continue
        if one.lowest is None or one.lowest <= level:
            shown.setdefault(level if one.lowest is None else min(level, one.highest), set()).add(thread)
        else:
            fine.setdefault(one.lowest, set()).add(thread)
    return shown, fine
