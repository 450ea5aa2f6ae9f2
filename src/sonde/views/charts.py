"""What the charts of a report show, as plain data: steps, ranks and memory over the time of a run."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.analysis.questions.memory import Series, memory_series
from sonde.analysis.questions.samples import Call, flame
from sonde.analysis.questions.timeline.history import Axis, HostStrip, Piece, Strip, axis, host_strips, pieces, strips
from sonde.analysis.records import label
from sonde.analysis.records.schema import BESIDE
from sonde.store.probe import (
    ACTIVATION,
    FIELD,
    GRADIENT,
    GROUP_BITS,
    LEARNING,
    LOG,
    METRIC,
    PROBE,
    RATE,
    SYSTEM,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sonde.analysis.run import Run

PIECES = 200
SINGLE = 400  # steps of a run that are drawn one by one
CELLS = 3000  # of the heat map, of all ranks together
FEWEST = 24  # cells of a rank
POINTS = 120  # of a line of memory, each with its least and its most
MOST_LINES = 10
LEAST_HEAT = 0.2  # of a rank's own time: the darkest colour is no less, so that chance stays pale
MOST_STRIPS = 64
MOST_BESIDE_HOSTS = 16  # ranks, where there are more and all hosts are drawn


@dataclass(frozen=True)
class Line:
    """One line: (place, value) pairs; places from 0 to 1."""

    name: str
    role: str
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Drawing:
    """Lines of one kind. `first_ns`: when the first one begins, in the time of the run; `lasted_ns`: what their places are shares of."""

    title: str
    lines: list[Line]
    first_ns: int
    lasted_ns: int


@dataclass(frozen=True)
class Heat:
    """How long ranks took by themselves, and how late hosts were, over the pieces of an axis. `hosts_high_ns`: of the darkest cell."""

    axis: Axis | None
    ranks: list[Strip]
    hosts: list[HostStrip]
    hosts_high_ns: float


@dataclass(frozen=True)
class Charts:
    """Everything that is drawn over time. `left_out`: lines and ranks that are not shown."""

    axis: Axis | None
    pieces: list[Piece]
    heat_axis: Axis | None
    strips: list[Strip]
    strips_left_out: int
    hosts: list[HostStrip]  # the latest first; none if there is only one
    hosts_high_ns: float  # how late the darkest cell of a host is
    memory: list[Line]
    memory_left_out: int
    memory_ns: int  # how long memory was looked at
    losses: list[Line]
    losses_ns: int
    evaluation: list[Drawing]
    learning: list[Drawing]
    cpu: list[Line]  # per cent: of one core for a process, of all for a host
    disk: list[Line]  # bytes in a second
    usage_ns: int  # how long these were looked at
    flame: Call  # where the threads that train were seen


def charts(run: Run) -> Charts:
    """The charts of a run."""
    along = axis(run, SINGLE)
    along = along if along and along.width <= 1 else axis(run, PIECES)
    heat = rank_heat(run)
    rows, hosts = heat.ranks, heat.hosts
    latest = _latest(rows, MOST_BESIDE_HOSTS if hosts and len(rows) > MOST_STRIPS else MOST_STRIPS)
    series = [
        one for one in memory_series(run) if one.role not in ("host", "container") and one.what in ("rss", "allocated")
    ]
    shown = sorted(series, key=lambda one: -float(one.value.max()))[:MOST_LINES]
    begun: dict[str, int] = {}  # by host: their clocks may disagree
    for one in shown:
        begun[one.host] = min(int(one.time[0]), begun.get(one.host, int(one.time[0])))
    lasted = max((int(one.time[-1]) - begun[one.host] for one in shown), default=0)
    return Charts(
        axis=along,
        pieces=pieces(run, along) if along else [],
        heat_axis=heat.axis,
        strips=latest,
        strips_left_out=len(rows) - len(latest),
        hosts=hosts,
        hosts_high_ns=heat.hosts_high_ns,
        memory=[_line(one, begun[one.host], max(lasted, 1)) for one in shown],
        memory_left_out=len(series) - len(shown),
        memory_ns=lasted,
        flame=flame(run),
        **_losses(run),
        evaluation=evaluation(run),
        learning=learning(run),
        **_usage(run),
    )


def rank_heat(run: Run) -> Heat:
    """All ranks and hosts of a run; nothing of one that has a single rank."""
    ranks = run.sql("SELECT count(DISTINCT process) FROM steps").fetchall()[0][0]
    machines = len({row["host"] for row in run.rows})
    drawn = machines if ranks > MOST_STRIPS and machines > 1 else ranks  # of many ranks, their hosts
    along = axis(run, max(FEWEST, min(PIECES, CELLS // max(drawn, 1)))) if ranks > 1 else None
    rows = strips(run, along) if along else []
    hosts = host_strips(run, rows)
    return Heat(along, rows, hosts, _high(hosts, rows))


def _high(hosts: list[HostStrip], ranks: list[Strip]) -> float:
    """How late a host has to be for the darkest cell: as the latest usually is, and never next to nothing."""
    if not hosts:
        return 0.0
    chronic = max(sorted(late for late, _ in host.values.values())[len(host.values) // 2] for host in hosts)
    own = sorted(value for strip in ranks for value in strip.values.values())
    return max(chronic, LEAST_HEAT * own[len(own) // 2], 1.0)


def _latest(rows: list[Strip], most: int) -> list[Strip]:
    """All of a few ranks; of many those that take longest, in their order."""
    if len(rows) <= most:
        return rows
    order = sorted(rows, key=lambda one: -sum(one.values.values()) / max(len(one.values), 1))
    kept = {id(one) for one in order[:most]}
    return [one for one in rows if id(one) in kept]


def _losses(run: Run) -> dict[str, Any]:
    """The loss of each training: of ranks, that of the first."""
    rows = run.sql(
        """
        SELECT process, rank, start_ns + dur_ns, loss FROM steps WHERE isfinite(loss) ORDER BY rank NULLS FIRST, process, start_ns
        """
    ).fetchall()
    found: dict[str, list[tuple[int, float]]] = {}
    for process, rank, time, loss in rows:
        if rank in (None, rows[0][1]):
            found.setdefault(process, []).append((time, loss))
    lines, lasted = _drawn({process if len(found) > 1 else "loss": points for process, points in found.items()})
    return {"losses": lines, "losses_ns": lasted}


def evaluation(run: Run) -> list[Drawing]:
    """Metrics of evaluations, of the first rank, each in a drawing of its own."""
    if not (_has(run, LOG) or _has(run, METRIC)):
        return []
    rows = run.sql(
        """
        SELECT name, time_ns, value FROM metrics WHERE evaluation AND isfinite(value)
            AND coalesce(rank, 0) = (SELECT min(coalesce(rank, 0)) FROM metrics WHERE evaluation) ORDER BY time_ns
        """
    ).fetchall()
    found: Measured = {}
    for name, time, value in rows:
        found.setdefault(name, []).append((time, value))
    drawn = {name: points for name, points in found.items() if len(points) > 1}
    lines, lasted = _drawn(drawn)
    begun = min((drawn[line.name][0][0] for line in lines), default=0)
    return [Drawing(line.name, [line], begun - (run.started or 0), lasted) for line in lines]


_OF_LAYER = "t.model || '/' || t.layer"
# For each drawing: the category of its records, the table, whose numbers they are, what is drawn, and of which rows.
_SAMPLED = {
    "Norm of gradients": (GRADIENT, "gradients", _OF_LAYER, "norm", "norm IS NOT NULL"),
    "Update relative to the weights": (GRADIENT, "gradients", _OF_LAYER, "update_ratio", "update_ratio IS NOT NULL"),
    "Share of dead units": (ACTIVATION, "activations", _OF_LAYER, "dead", "dead > 0"),
    "Share of saturated results": (ACTIVATION, "activations", _OF_LAYER, "saturated", "saturated > 0"),
    "Mean of each field of a batch": (FIELD, "fields", "t.field", "mean", "mean IS NOT NULL"),
    "Spread of each field of a batch": (FIELD, "fields", "t.field", "std", "std IS NOT NULL"),
    "Share of values of a batch that are not finite": (FIELD, "fields", "t.field", "nonfinite", "nonfinite > 0"),
    "Share of padding in a batch": (FIELD, "fields", "t.field", "padding", "padding > 0"),
}


def learning(run: Run) -> list[Drawing]:
    """Numbers of layers and of batches in sampled steps, of the first rank, over the time of the run."""
    found = _changing(run)
    for title, (category, table, whose, column, kept) in _SAMPLED.items():
        if not _has(run, category):
            continue
        rows = run.sql(
            f"""
            SELECT {whose}, s.start_ns, max(t.{column}) FROM {table} t JOIN steps s USING (process, step)
            WHERE {kept} AND isfinite(t.{column}) AND coalesce(t.rank, 0) = (SELECT min(coalesce(rank, 0)) FROM {table})
            GROUP BY ALL ORDER BY 2
            """  # noqa: S608  our own names
        ).fetchall()
        measured: Measured = {}
        for name, time, value in rows:
            measured.setdefault(name, []).append((time, value))
        single = whose == _OF_LAYER and len({name.partition("/")[0] for name in measured}) == 1
        named = {name.partition("/")[2] if single else name: points for name, points in measured.items()}
        begun = min((points[0][0] for points in named.values()), default=0)
        lines, lasted = _drawn(named, begun)
        if lines:
            found.append(Drawing(title, lines, begun - (run.started or 0), lasted))
    return found


# What is written whenever it changes: the category of its records, and their name.
_WRITTEN = {"Learning rate": (PROBE, RATE), "Scale of gradients": (LEARNING, "scale")}


def _changing(run: Run) -> list[Drawing]:
    """Learning rates, and the scale of gradients with mixed precision, of the first rank. A rate that never changes is no chart."""
    found = []
    for title, (category, name) in _WRITTEN.items():
        named = run.database.source.name_counts.values()
        if not any((one.cat, one.name) == (category, name) for some in named for one in some):
            continue
        written = f"{BESIDE} WHERE kind = 'counter' AND cat = '{category}' AND name = '{name}' AND isfinite(value)"
        here = f"process = (SELECT arg_min(process, (coalesce(rank, 0), process)) FROM {written})"  # noqa: S608  our own names
        values = f"SELECT coalesce(key, 0), start_ns, value FROM {written} AND {here} ORDER BY start_ns"  # noqa: S608
        rows = run.sql(values).fetchall()
        ((end,),) = run.sql(f"SELECT max(start_ns + dur_ns) FROM steps WHERE {here}").fetchall()  # noqa: S608
        several = len({key >> GROUP_BITS for key, _, _ in rows}) > 1
        held = _held(
            [(_group(key, several) if name == RATE else "scale", time, value) for key, time, value in rows], end
        )
        if len(rows) > len(held) or _has(run, GRADIENT):
            begun = min(points[0][0] for points in held.values())
            lines, lasted = _drawn(held, begun)
            found.append(Drawing(title, lines, begun - (run.started or 0), lasted))
    return found


def _held(rows: list[tuple[str, int, float]], end: int | None) -> Measured:
    """Points of lines that keep each value until the next one, and the last one until the end."""
    held: Measured = {}
    for name, time, value in rows:
        points = held.setdefault(name, [])
        points += [(time, points[-1][1]), (time, value)] if points else [(time, value)]
    for points in held.values():
        points.append((max(end or 0, points[-1][0]), points[-1][1]))
    return held


def _group(key: int, several: bool) -> str:
    """`group 1`, and whose, if there are several optimizers."""
    group = f"group {key & ((1 << GROUP_BITS) - 1)}"
    return f"optimizer {key >> GROUP_BITS}, {group}" if several else group


def _has(run: Run, category: str) -> bool:
    named = run.database.source.name_counts.values()
    return any(one.cat.startswith(category) for some in named for one in some)


Measured = dict[str, list[tuple[int, float]]]  # who or what -> (time, value)


def usage(run: Run) -> tuple[Measured, Measured]:
    """CPU in per cent and disk in bytes in a second, of the host and of the processes that train."""
    rows = run.sql(
        f"""
        SELECT host, coalesce(key, pid), name, start_ns, value FROM {BESIDE} WHERE kind = 'counter' AND cat = '{SYSTEM}'
            AND name IN ('cpu', 'disk.read', 'disk.write') AND isfinite(value) ORDER BY start_ns
        """  # noqa: S608  our own names
    ).fetchall()
    names: dict[tuple[str, int], str] = {
        (row["host"], row["pid"]): label.process(row["role"], row["rank"], None)
        for row in run.rows
        if row["role"] in ("main", "trainer")
    }
    several = len({row[0] for row in rows}) > 1
    cpu: Measured = {}
    disk: Measured = {}
    for host, about, name, time, value in rows:
        who = (
            f"{host}, all cores"
            if about == 0 and several
            else "host, all cores"
            if about == 0
            else names.get((host, about))
        )
        if who is None:
            continue
        if name == "cpu":
            if value or who in cpu:  # the first sample of a host says nothing
                cpu.setdefault(who, []).append((time, value))
        else:
            verb = "reads" if name == "disk.read" else "writes"
            disk.setdefault(f"{who.removesuffix(', all cores')} {verb}", []).append((time, value))
    return cpu, {who: _rates(points) for who, points in disk.items()}


def _usage(run: Run) -> dict[str, Any]:
    cpu, rates = usage(run)
    begun = min((points[0][0] for points in (*cpu.values(), *rates.values()) if points), default=None)
    cpu_lines, lasted = _drawn(cpu, begun)
    disk_lines, also = _drawn({who: points for who, points in rates.items() if any(rate for _, rate in points)}, begun)
    return {"cpu": cpu_lines, "disk": disk_lines, "usage_ns": max(lasted, also)}


def _rates(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Of a count that grows: how fast, in a second."""
    return [
        (later, max(more - count, 0.0) / (later - time) * 1e9)
        for (time, count), (later, more) in pairwise(points)
        if later > time
    ]


def _drawn(found: dict[str, list[tuple[int, float]]], begun: int | None = None) -> tuple[list[Line], int]:
    """The lines that reach highest, and how long they last."""
    shown = sorted((item for item in found.items() if item[1]), key=lambda item: -max(value for _, value in item[1]))
    shown = shown[:MOST_LINES]
    if begun is None:
        begun = min((points[0][0] for _, points in shown), default=0)
    lasted = max((points[-1][0] - begun for _, points in shown), default=0)
    lines = []
    for name, points in shown:
        times, values = np.array([time for time, _ in points]), np.array([value for _, value in points])
        kept = thinned(times, values, POINTS)
        lines.append(Line(name, "", [((time - begun) / max(lasted, 1), value) for time, value in kept]))
    return lines, lasted


def _line(series: Series, begun: int, lasted: int) -> Line:
    name = series.who if series.what == "rss" else f"{series.who}, device"
    points = thinned(series.time, series.value, POINTS)
    return Line(name, series.role, [((time - begun) / lasted, value) for time, value in points])


def thinned(time: NDArray[np.int64], value: NDArray[np.float64], most: int) -> list[tuple[int, float]]:
    """At most `2 * most` of the points: of each stretch the least and the most, in their order."""
    if len(time) <= 2 * most:
        return list(zip(time.tolist(), value.tolist(), strict=True))
    kept: list[int] = []
    for part in np.array_split(np.arange(len(time)), most):
        kept += sorted({int(part[value[part].argmin()]), int(part[value[part].argmax()])})
    return [(int(time[place]), float(value[place])) for place in kept]
