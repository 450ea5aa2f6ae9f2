"""The items of a batch, drawn: pictures, curves with their histograms, and numbers. Non-finite values are highlighted."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from sonde import units
from sonde.html.markup import safe, tag

if TYPE_CHECKING:
    from sonde.views.items import Curve, Exhibit, ItemValue

HEIGHT = 100  # of a curve, in its own units
MOST_LARGE = 2  # items that went wrong are drawn large, if they are no more


def gallery(exhibits: list[Exhibit]) -> str:
    """A card for each item."""
    large = sum(one.guilty for one in exhibits) <= MOST_LARGE
    return tag("div", "".join(_item(one, large) for one in exhibits), "items") if exhibits else ""


def _item(one: Exhibit, large: bool) -> str:
    head = tag("p", tag("b", safe(one.name)) + tag("span", safe(f"at {one.position}")), "name")
    drawn = any(sight.picture is not None or sight.curve is not None for sight in one.sights)
    css = "item" + (" guilty" if one.guilty else "") + (" large" if one.guilty and drawn and large else "")
    return tag("div", head + "".join(map(_sight, one.sights)), css)


def _sight(sight: ItemValue) -> str:
    drawn = ""
    if sight.picture is not None:
        data = base64.b64encode(sight.picture).decode()
        drawn = f'<img alt="{safe(sight.path)}" src="data:image/png;base64,{data}">'
    elif sight.curve is not None:
        drawn = _curve(sight.curve, sight.low, sight.high)
    return drawn + _facts(sight)


def _facts(sight: ItemValue) -> str:
    """`image 3 x 32 x 32, 0 to 1`, and how much of it is not finite."""
    if sight.numbers:
        label = tag("b", safe(sight.path)) + f" {safe(', '.join(sight.numbers))}"
    else:
        shape = " x ".join(map(str, sight.shape))
        extent = (
            ""
            if sight.low is None or sight.high is None
            else f", {units.brief(sight.low)} to {units.brief(sight.high)}"
        )
        label = tag("b", safe(sight.path)) + f" {shape}{extent}"
    hot = f"{units.count(sight.nonfinite)} non-finite" if sight.nonfinite else ""
    return tag("p", label, "fact") + (tag("p", hot, "fact hot") if hot else "")


def _curve(curve: Curve, low: float | None, high: float | None) -> str:
    """The extent of each piece from left to right, a loud bar where it is not finite, and the histogram below."""
    width = len(curve.low)
    hits = "".join(f'<rect class="hit" x="{place}" width="1" height="{HEIGHT}"/>' for place in curve.bad)
    drawn = _extent(curve, low, high) + hits
    plot = f'<svg viewBox="0 0 {width} {HEIGHT}" preserveAspectRatio="none">{drawn}</svg>'
    return plot + _bins(curve.bins)


def _extent(curve: Curve, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""

    def up(value: float) -> float:
        # Halves, because the distance of two numbers may be too large for a number.
        share = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5
        return HEIGHT * (0.94 - 0.88 * share)

    columns = [
        f"M{place} {up(most):.1f}h1V{up(least) + 1:.1f}h-1z"
        for place, (least, most) in enumerate(zip(curve.low, curve.high, strict=True))
        if least is not None and most is not None
    ]
    points = [
        f"{place + 0.5} {(up(least) + up(most)) / 2:.1f}"
        for place, (least, most) in enumerate(zip(curve.low, curve.high, strict=True))
        if least is not None and most is not None
    ]
    return f'<path class="extent" d="{"".join(columns)}"/><path class="curve" d="M{"L".join(points)}"/>'


def _bins(bins: list[int]) -> str:
    most = max(bins, default=0)
    if not most:
        return ""
    towers = "".join(f"M{place} 20V{20 - 20 * count / most:.1f}h.9V20z" for place, count in enumerate(bins) if count)
    return (
        f'<svg class="bins" viewBox="0 0 {len(bins)} 20" preserveAspectRatio="none">'
        f'<path class="tower" d="{towers}"/></svg>'
    )
