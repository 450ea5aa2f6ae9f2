"""A flame graph as nested boxes: as wide as the time, with what is called below. Nothing in it needs a script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.html.markup import safe
from sonde.views.words import phase_name

if TYPE_CHECKING:
    from sonde.analysis.questions.samples import Call

ROW = 18  # pixels
WIDE = 1000  # units across
TEXT = 6.2  # units of one letter, about
SHADES = 4


def flame(whole: Call) -> str:
    """The graph; nothing without samples."""
    if not whole.dur_ns:
        return ""
    boxes: list[str] = []
    place = 0.0
    for phase in sorted(whole.calls.values(), key=lambda one: -one.dur_ns):
        _box(phase, place, 0, whole.dur_ns, f"f-{phase.name}", boxes)
        place += WIDE * phase.dur_ns / whole.dur_ns
    deep = _depth(whole)
    return f'<svg class="flame" viewBox="0 0 {WIDE} {deep * ROW}" role="img">{"".join(boxes)}</svg>'


def _box(call: Call, left: float, depth: int, whole: int, css: str, boxes: list[str]) -> None:
    width = WIDE * call.dur_ns / whole
    name = call.name if depth else phase_name(call.name)
    label = safe(f"{name}: {units.duration(call.dur_ns)}, {units.share(call.dur_ns / whole)}")
    fits = int(width / TEXT)
    shown = name if len(name) <= fits else f"{name[: fits - 1]}…" if fits > 3 else ""
    text = f'<text x="{left + 3:.1f}" y="{depth * ROW + 12.5:.1f}">{safe(shown)}</text>' if shown else ""
    opacity = f' fill-opacity="{0.9 - 0.15 * (depth % SHADES):.2f}"' if depth else ""
    boxes.append(
        f'<g><title>{label}</title><rect class="{css}" x="{left:.1f}" y="{depth * ROW}" width="{max(width - 0.5, 0.5):.1f}" '
        f'height="{ROW - 1}" rx="2"{opacity}/>{text}</g>'
    )
    for one in sorted(call.calls.values(), key=lambda one: -one.dur_ns):
        _box(one, left, depth + 1, whole, css, boxes)
        left += WIDE * one.dur_ns / whole


def _depth(call: Call) -> int:
    return max((1 + _depth(one) for one in call.calls.values()), default=0)
