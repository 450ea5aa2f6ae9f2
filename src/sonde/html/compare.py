"""The page of a comparison: the verdict, both distributions of step time, phases, items, settings and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.compare.differences import shown
from sonde.compare.ratio import between, signed
from sonde.html.document import document
from sonde.html.markup import bullets, safe, section, table, tag
from sonde.html.style import STYLE
from sonde.views.words import phase_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sonde.compare.differences import Named
    from sonde.compare.ratio import Ratio
    from sonde.compare.runs import Comparison
    from sonde.compare.verdict import Distribution

HEIGHT = 1000
WIDTH = 1000
GRAVE = {"faster": "info", "same": "info", "slower": "critical"}
OWN_STYLE = """
.dist-a{fill:var(--p50);fill-opacity:.45}.dist-b{fill:var(--p95);fill-opacity:.45}
.k-a{background:var(--p50);opacity:.6}.k-b{background:var(--p95);opacity:.6}
.delta{display:block;width:100%;min-width:140px;height:12px}.more{fill:var(--critical)}.less{fill:var(--info)}
"""
BETWEEN = ["<", "A", "B", "B / A", "95 % interval", "<"]


def comparison_page(view: Comparison) -> str:
    """The whole file, in ASCII."""
    parts = [
        _head(view),
        _verdict(view),
        section("Step time", "All compared statistics. Ratios are B / A.", _times(view)),
        section(
            "Distribution of step times", "Share of the steps, on a logarithmic scale.", _overlaid(view.distribution)
        ),
        section("Phases", "Mean of a step, and how much more or less B takes.", _phases(view)),
        section("Items", _counts(view), _items(view)),
        section("Ranks", "", _named(view.ranks, units.duration)),
        section(
            "Layers", "Forward and backward of a step; the largest change first.", _named(view.layers, units.duration)
        ),
        section("Memory", "", _named(view.memory, _size)),
        section("Evaluation", "As they were logged.", _evaluation(view)),
        section("Findings", "", _findings(view)),
        section("What else differs", "Recorded at the start of each run.", _settings(view)),
        section("Numbers", "Are both the same training?", tag("p", safe(view.numbers.text))),
        section(
            "Resume check", "Effects of each restart.", bullets([line for one in view.resume for line in one.text])
        ),
        section("Notes", "", bullets(view.notes)),
    ]
    title = f"{_word(view)}: {view.a.name} and {view.b.name}"
    return document(title, "comparison", STYLE + OWN_STYLE, "\n".join(part for part in parts if part))


def _word(view: Comparison) -> str:
    return view.verdict.replace("_", " ")


def _head(view: Comparison) -> str:
    names = "".join(tag("p", f"{which}: {safe(one.id)}", "id") for which, one in (("A", view.a), ("B", view.b)))
    return tag("header", tag("h1", f"{safe(view.a.name)} and {safe(view.b.name)}") + names + "<br>")


def _verdict(view: Comparison) -> str:
    content = tag("span", safe(_word(view).upper()), "kind")
    content += "".join(tag("p", safe(one), "why") for one in view.reasons) + tag("p", safe(view.next), "next")
    return tag("div", content, f"verdict {GRAVE.get(view.verdict, 'warn')}")


def _times(view: Comparison) -> str:
    step = view.step_time
    rows = [
        ("median step", step),
        ("fastest tenth", step.p10),
        ("mean step", step.mean),
        ("mean without waits", step.own),
    ]
    cells = [_row(name, one, units.duration) for name, one in rows if one is not None and one.ratio is not None]
    if view.throughput.ratio is not None:
        cells.append(
            _row("samples per second", view.throughput, lambda value: units.number(value and float(f"{value:.4g}")))
        )
    return table(BETWEEN, cells) if cells else ""


def _row(name: str, one: Ratio, formatted: Callable[[float | None], str]) -> list[str]:
    ratio = "" if one.ratio is None else f"{one.ratio:.3f}"
    return [safe(name), formatted(one.a), formatted(one.b), ratio, between(one.low, one.high), safe(one.verdict or "")]


def _overlaid(found: Distribution | None) -> str:
    if found is None:
        return ""
    top = max(*found.a, *found.b) or 1.0
    drawn = "".join(
        f'<path class="dist-{name}" d="{_bars(shares, top)}"/>' for name, shares in (("a", found.a), ("b", found.b))
    )
    plot = f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none">{drawn}</svg>'
    ticks = (
        f'<svg class="ticks"><text x="100%" y="0.9em">{units.share(top)}</text><text x="100%" y="100%">0</text></svg>'
    )
    edges = found.edges_ns
    ends = "".join(tag("span", units.duration(one)) for one in (edges[0], edges[len(edges) // 2], edges[-1]))
    key = tag("p", "".join(tag("span", f'<i class="k-{name.lower()}"></i>{name}') for name in "AB"), "key")
    return tag("div", ticks + plot, "chart") + tag("div", ends, "along") + key


def _bars(shares: Sequence[float], top: float) -> str:
    width = WIDTH / len(shares)
    return "".join(
        f"M{place * width:.1f} {HEIGHT}V{HEIGHT - share / top * HEIGHT:.0f}h{width:.1f}V{HEIGHT}z"
        for place, share in enumerate(shares)
        if share
    )


def _phases(view: Comparison) -> str:
    known = [one for one in view.phases if one.difference_ns is not None]
    most = max((abs(one.difference_ns or 0.0) for one in known), default=0.0)
    rows = [
        [
            safe(phase_name(one.phase)),
            units.duration(one.a_ns),
            units.duration(one.b_ns),
            signed(one.difference_ns),
            f"{signed(one.low_ns)} to {signed(one.high_ns)}",
            _delta(one.difference_ns or 0.0, most),
            safe(one.verdict or ""),
        ]
        for one in known
    ]
    return table(["<", "A", "B", "B - A", "95 % interval", "<", "<"], rows) if rows else ""


def _delta(difference: float, most: float) -> str:
    """A bar to the left for less, to the right for more."""
    half = WIDTH / 2
    width = abs(difference) / most * half if most else 0.0
    start, css = (half, "more") if difference > 0 else (half - width, "less")
    rect = f'<rect class="{css}" x="{start:.0f}" width="{width:.0f}" height="1"/>'
    return f'<svg class="delta" viewBox="0 0 {WIDTH} 1" preserveAspectRatio="none">{rect}</svg>'


def _counts(view: Comparison) -> str:
    return f"Distinct items loaded: {view.items.a:,} in A, {view.items.b:,} in B."


def _items(view: Comparison) -> str:
    found = view.items
    if not found.a and not found.b:
        return ""
    load = table(BETWEEN, [_row("median item", found.load, units.duration)]) if found.load.ratio is not None else ""
    rows = [[safe(one.item), units.duration(one.a_ns), units.duration(one.b_ns)] for one in found.rows]
    return load + (table(["<slowest items", "A", "B"], rows) if rows else "")


def _named(rows: Sequence[Named], formatted: Callable[[float | None], str]) -> str:
    return table(BETWEEN, [_row(one.name, one.ratio, formatted) for one in rows]) if rows else ""


def _size(value: float | None) -> str:
    return units.size(None if value is None else round(value))


def _evaluation(view: Comparison) -> str:
    rows = [
        [
            safe(one.name),
            *(
                units.MISSING if value is None else units.brief(value)
                for value in (one.a_last, one.b_last, one.a_low, one.b_low, one.a_high, one.b_high)
            ),
        ]
        for one in view.evaluation
    ]
    titles = ["<metric", "last in A", "last in B", "lowest in A", "lowest in B", "highest in A", "highest in B"]
    return table(titles, rows) if rows else ""


def _findings(view: Comparison) -> str:
    found = view.findings
    named = [("new in B", one) for one in found.new] + [("gone in B", one) for one in found.gone]
    named += [("in both", one) for one in found.both]
    rows = [[where, safe(one.kind), safe(one.severity), tag("div", safe(one.why), "long")] for where, one in named]
    return table(["<", "<finding", "<severity", "<"], rows) if rows else ""


def _settings(view: Comparison) -> str:
    rows = [
        [safe(one.name), *(tag("div", safe(shown(value)), "long") for value in (one.a, one.b))] for one in view.settings
    ]
    return table(["<", "<A", "<B"], rows) if rows else tag("p", "No recorded difference.")
