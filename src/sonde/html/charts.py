"""The charts of a report as inline SVG. Texts stand beside the drawings, so that these may stretch with the page."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from sonde import units
from sonde.analysis.questions.timeline.history import Axis, HostStrip, Piece, Strip
from sonde.html.markup import safe, tag
from sonde.views.words import phase_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sonde.views.charts import Charts, Line

HEIGHT = 1000  # of every drawing, in its own units
LEVELS = 9  # of the heat map
LABELLED = 40  # hosts that all have a name beside them
LABELLED_OF_MANY = 24
CLIPPED = 40  # a mean that is so many times the median is cut off there and marked


def stacked(pieces: Sequence[Piece], along: Axis, phases: Sequence[str]) -> str:
    """The mean step of each piece, stacked by phase."""
    known = [piece for piece in pieces if piece.phases]
    if not known:
        return ""
    sums = sorted(sum((piece.phases or {}).values()) for piece in known)
    top, clipped = _top(sums)
    paths = []
    below = {piece.place: 0.0 for piece in known}
    for phase in phases:
        points = [
            (piece.place, below[piece.place], below[piece.place] + (piece.phases or {}).get(phase, 0.0))
            for piece in known
        ]
        paths.append(f'<path class="f-{phase}" d="{_columns(points, top)}"/>')
        below = {place: upper for place, _, upper in points}
    hints = [_hint(piece.place, _stack_hint(piece, along)) for piece in known]
    cut = [piece.place for piece in known if clipped and sum((piece.phases or {}).values()) > top]
    paths.append(f'<path class="cut" d="{"".join(f"M{place} 0h1v24h-1z" for place in cut)}"/>' if cut else "")
    note = f"Columns with a red top are cut off; the longest is {units.duration(clipped)}." if clipped else ""
    key = _key(*((phase, phase_name(phase)) for phase in phases))
    return _framed("".join(paths + hints), along, _ticks(top, units.duration), along.pieces) + key + _note(note)


def ordered(pieces: Sequence[Piece], along: Axis) -> str:
    """Single steps from the fastest to the slowest, on a logarithmic scale."""
    known = sorted((piece for piece in pieces if piece.least_ns > 0), key=lambda piece: piece.most_ns)
    if not known:
        return ""
    up, ticks = _logarithmic(known)
    drawn = (
        f'<path class="band" d="{_columns([(place, 0, up(one.most_ns)) for place, one in enumerate(known)], 1.0, 4)}"/>'
    )
    drawn += "".join(
        _hint(place, f"{_range(along, one.place, 1)}: {units.duration(one.most_ns)}") for place, one in enumerate(known)
    )
    ends = (
        f"fastest {units.duration(known[0].most_ns)}",
        f"median {units.duration(known[len(known) // 2].most_ns)}",
        f"slowest {units.duration(known[-1].most_ns)}",
    )
    return _frame(drawn, ticks, len(known)) + tag("div", "".join(tag("span", safe(end)) for end in ends), "along")


def _logarithmic(known: Sequence[Piece]) -> tuple[Callable[[float], float], list[tuple[float, str]]]:
    """How high a time stands on a logarithmic scale, and its ticks."""
    low = math.floor(math.log10(min(piece.least_ns for piece in known)))
    high = math.ceil(math.log10(max(piece.most_ns for piece in known)) + 1e-9)
    high = max(high, low + 1)
    ticks = [(place / (high - low), units.duration(10 ** (low + place))) for place in range(high - low + 1)]
    return lambda ns: (math.log10(max(ns, 1)) - low) / (high - low), ticks[:: -(-len(ticks) // 6)]


def spread(pieces: Sequence[Piece], along: Axis) -> str:
    """Least to most, p50 and p95 of the step time in each piece, on a logarithmic scale."""
    known = [piece for piece in pieces if piece.least_ns > 0]
    if not known:
        return ""
    up, ticks = _logarithmic(known)
    band = _columns([(piece.place, up(piece.least_ns), up(piece.most_ns)) for piece in known], 1.0, least=4)
    lines = [
        f'<path class="line l-{name}" d="{_steps([(piece.place, up(value(piece))) for piece in known])}"/>'
        for name, value in _POINTS.items()
    ]
    hints = [_hint(piece.place, _spread_hint(piece, along)) for piece in known]
    drawn = f'<path class="band" d="{band}"/>' + "".join(lines + hints)
    return _framed(drawn, along, ticks, along.pieces) + _key(("band", "min to max"), ("p50", "p50"), ("p95", "p95"))


_POINTS: dict[str, Callable[[Piece], float]] = {"p50": lambda piece: piece.p50_ns, "p95": lambda piece: piece.p95_ns}


def heat(charts: Charts) -> str:
    """One row for each rank: how long it took by itself, piece by piece."""
    along, strips = charts.heat_axis, charts.strips
    if along is None or len(strips) < 2:
        return ""
    values = sorted(value for strip in strips for value in strip.values.values())
    low, high = values[len(values) // 20], values[-1 - len(values) // 100]
    rows = "".join(
        tag("div", tag("span", safe(_rank(strip))) + _strip(strip, along, low, high), "strip") for strip in strips
    )
    scale = "".join(f'<i class="h{level}"></i>' for level in range(LEVELS))
    legend = tag("p", f"{units.duration(low)} {scale} {units.duration(high)}", "scale")
    more = f"{charts.strips_left_out} more ranks are not shown." if charts.strips_left_out else ""
    return tag("div", rows, "heat") + _below(along) + legend + _note(more)


def host_heat(charts: Charts) -> str:
    """One row for each host, the latest first: how much longer its slowest rank took than that of the median host, piece by piece."""
    along, hosts = charts.heat_axis, charts.hosts
    if along is None or not hosts:
        return ""
    high = charts.hosts_high_ns
    labelled = hosts if len(hosts) <= LABELLED else hosts[:LABELLED_OF_MANY]
    rows = [tag("div", tag("span", safe(host.host)) + _host(host, along, high), "strip wide") for host in labelled]
    rows += [
        tag("div", "<span></span>" + _host(host, along, high), "strip wide thin") for host in hosts[len(labelled) :]
    ]
    scale = "".join(f'<i class="h{level}"></i>' for level in range(LEVELS))
    legend = tag("p", f"0 {scale} {units.duration(high)} longer", "scale")
    more = (
        f"The other {len(hosts) - len(labelled)} hosts are below, in the same order."
        if len(hosts) > len(labelled)
        else ""
    )
    return tag("div", "".join(rows), "heat") + tag("div", _below(along), "wide") + legend + _note(more)


def _host(host: HostStrip, along: Axis, high: float) -> str:
    """A strip of cells; neighbours of one colour are one cell, and those that are not late are left out."""
    drawn = []
    for level, some in itertools.groupby(sorted(host.values.items()), key=lambda cell: _level(cell[1][0], 0.0, high)):
        cells = list(some)
        place, width = cells[0][0], cells[-1][0] - cells[0][0] + 1
        late, rank = max((value for _, value in cells), key=lambda value: value[0])
        if level:
            hint = f"{safe(host.host)}, {_range(along, place, width)}: rank {rank} {units.duration(late)} longer"
            drawn.append(f'<rect class="h{level}" x="{place}" width="{width}" height="1"><title>{hint}</title></rect>')
    return f'<svg viewBox="0 0 {along.pieces} 1" preserveAspectRatio="none">{"".join(drawn)}</svg>'


def _rank(strip: Strip) -> str:
    return strip.process if strip.rank is None else f"rank {strip.rank}"


def _strip(strip: Strip, along: Axis, low: float, high: float) -> str:
    cells: list[tuple[int, int, int, float]] = []  # place, width, level, the longest in it
    for place, value in strip.values.items():
        level = _level(value, low, high)
        if cells and cells[-1][2] == level and cells[-1][0] + cells[-1][1] == place:
            start, width, _, most = cells.pop()
            cells.append((start, width + 1, level, max(most, value)))
        else:
            cells.append((place, 1, level, value))
    drawn = "".join(
        f'<rect class="h{level}" x="{place}" width="{width}" height="1"><title>{safe(_rank(strip))}, '
        f"{_range(along, place, width)}: {units.duration(most)}</title></rect>"
        for place, width, level, most in cells
    )
    return f'<svg viewBox="0 0 {along.pieces} 1" preserveAspectRatio="none">{drawn}</svg>'


def _level(value: float, low: float, high: float) -> int:
    if high <= low * 1.02:  # all the same: no rank is to stand out
        return 0
    return max(0, min(LEVELS - 1, int((value - low) / (high - low) * LEVELS)))


def memory(charts: Charts) -> str:
    """A line for each process."""
    more = f"{charts.memory_left_out} smaller ones are not shown." if charts.memory_left_out else ""
    return lines(charts.memory, charts.memory_ns, lambda value: units.size(round(value))) + _note(more)


def lines(shown: Sequence[Line], lasted: int, label: Callable[[float], str], *, from_zero: bool = True) -> str:
    """Lines over so many ns, with a key if there are several. `from_zero`: else the scale begins at the lowest value."""
    if not shown:
        return ""
    values = [value for line in shown for _, value in line.points]
    low = min(0.0, *values) if from_zero else min(values)
    high = max(values) * 1.05 if from_zero else max(values)
    if high <= low:  # a line that never changes is drawn in the middle
        low, high = (min(0.0, 2 * low), max(0.0, 2 * low)) if low else (0.0, 1.0)
    drawn = "".join(f'<path class="line m{place}" d="{_path(line, low, high)}"/>' for place, line in enumerate(shown))
    ticks = _ticks(high, label) if from_zero and low == 0 else _between(low, high, label)
    key = _key(*((f"m{place}", line.name) for place, line in enumerate(shown))) if len(shown) > 1 or from_zero else ""
    return _framed(drawn, Axis("ns", 0, lasted / HEIGHT, HEIGHT), ticks, HEIGHT) + key


def _between(low: float, high: float, label: Callable[[float], str]) -> list[tuple[float, str]]:
    return [(place / 4, label(low + (high - low) * place / 4)) for place in range(5)]


def _path(line: Line, low: float, high: float) -> str:
    points = [f"{x * HEIGHT:.0f} {HEIGHT - (y - low) / (high - low) * HEIGHT:.0f}" for x, y in line.points]
    return "M" + "L".join(points if len(points) > 1 else points * 2)


def bar(parts: Sequence[tuple[str, float]], whole: float) -> str:
    """A bar of phases, as long as they are of `whole`."""
    place, drawn = 0.0, []
    for phase, value in parts:
        width = value / whole * HEIGHT if whole else 0
        drawn.append(
            f'<rect class="f-{phase}" x="{place:.0f}" width="{max(width, 0):.0f}" height="1">'
            f"<title>{safe(phase_name(phase))} {units.duration(value)}</title></rect>"
        )
        place += width
    return f'<svg class="bar" viewBox="0 0 {HEIGHT} 1" preserveAspectRatio="none">{"".join(drawn)}</svg>'


def meter(share: float, css: str) -> str:
    """A single bar."""
    width = max(0, min(HEIGHT, round(share * HEIGHT)))
    rect = f'<rect class="{css}" width="{width}" height="1"/>'
    return f'<svg class="meter" viewBox="0 0 {HEIGHT} 1" preserveAspectRatio="none">{rect}</svg>'


# ── how ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _top(sums: Sequence[float]) -> tuple[float, float | None]:
    """How far the axis reaches, and the longest, if that is further."""
    middle, most = sums[len(sums) // 2], sums[-1]
    if middle > 0 and most > CLIPPED * middle:
        return CLIPPED * middle, most
    return most * 1.05 or 1.0, None


def _y(value: float, top: float) -> int:
    return HEIGHT - round(min(value / top, 1.0) * HEIGHT)


def _columns(points: Sequence[tuple[int, float, float]], top: float, least: int = 0) -> str:
    """Columns from one height to another, side by side, as one path."""
    drawn = []
    for place, lower, upper in points:
        high, low = _y(upper, top), _y(lower, top)
        if low - high < least:
            high = low - least
        if low > high:
            drawn.append(f"M{place} {low}V{high}h1V{low}z")
    return "".join(drawn)


def _steps(points: Sequence[tuple[int, float]]) -> str:
    drawn, before = [], None
    for place, value in points:
        y = _y(value, 1.0)
        drawn.append(f"V{y}H{place + 1}" if before == place else f"M{place} {y}H{place + 1}")
        before = place + 1
    return "".join(drawn)


def _hint(place: int, text: str) -> str:
    return f'<rect class="hint" x="{place}" width="1" height="{HEIGHT}"><title>{text}</title></rect>'


def _stack_hint(piece: Piece, along: Axis) -> str:
    parts = sorted((piece.phases or {}).items(), key=lambda one: -one[1])
    label = "".join(f"\n{phase_name(phase)} {units.duration(ns)}" for phase, ns in parts if ns)
    return f"{_range(along, piece.place, 1)}: {units.duration(sum(ns for _, ns in parts))}{label}"


def _spread_hint(piece: Piece, along: Axis) -> str:
    return (
        f"{_range(along, piece.place, 1)}: p50 {units.duration(piece.p50_ns)}, p95 {units.duration(piece.p95_ns)}, "
        f"{units.duration(piece.least_ns)} to {units.duration(piece.most_ns)}"
    )


def _range(along: Axis, place: int, width: int) -> str:
    first, last = along.first + place * along.width, along.first + (place + width) * along.width
    if along.unit == "ns":
        return f"{units.duration(first - along.first)} to {units.duration(last - along.first)}"
    low, high = math.ceil(first), math.ceil(last) - 1
    return f"step {low:,}" if high <= low else f"steps {low:,} to {high:,}"


def _ticks(top: float, label: Callable[[float], str]) -> list[tuple[float, str]]:
    """Round places on a linear axis: (how far up, the label)."""
    rough = top / 4
    power = 10 ** math.floor(math.log10(rough)) if rough > 0 else 1
    step = next((power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough), rough)
    return [(place * step / top, label(place * step) if place else "0") for place in range(int(top / step) + 1)]


def _framed(drawn: str, along: Axis, ticks: Sequence[tuple[float, str]], width: int) -> str:
    """A drawing with its scale on the left, and what it runs along below."""
    return _frame(drawn, ticks, width) + _below(along)


def _frame(drawn: str, ticks: Sequence[tuple[float, str]], width: int) -> str:
    rules = "".join(f'<path class="rule" d="M0 {_y(place, 1.0)}H{width}"/>' for place, _ in ticks)
    labels = "".join(
        f'<text x="100%" y="{max(100 - place * 100, 0):.1f}%" dy="{"0.9em" if place > 0.95 else "0.3em"}">{safe(text)}</text>'
        for place, text in ticks
    )
    scale = f'<svg class="ticks">{labels}</svg>'
    plot = f'<svg class="plot" viewBox="0 0 {width} {HEIGHT}" preserveAspectRatio="none">{rules}{drawn}</svg>'
    return tag("div", scale + plot, "chart")


def _below(along: Axis) -> str:
    last = along.first + along.width * along.pieces
    if along.unit == "step":
        ends = [f"step {along.first:,}", f"{round((along.first + last) / 2):,}", f"{math.ceil(last) - 1:,}"]
    else:
        whole = along.width * along.pieces
        ends = ["0 s", units.duration(whole / 2), units.duration(whole)]
    return tag("div", "".join(tag("span", safe(text)) for text in ends), "along")


def _key(*entries: tuple[str, str]) -> str:
    return tag("p", "".join(tag("span", f'<i class="k-{css}"></i>{safe(text)}') for css, text in entries), "key")


def _note(text: str) -> str:
    return tag("p", safe(text), "note") if text else ""
