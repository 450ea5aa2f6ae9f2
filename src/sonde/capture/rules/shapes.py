"""Shapes that differ between items where they have to be equal."""

from __future__ import annotations

from collections import Counter

from sonde.capture.rules.observations import COLLATE, EVALUATION, Place, Sight, Sights, Who, leaves, listed
from sonde.finding import CRITICAL, WARN, Finding

KIND = "shapes"
ENOUGH = 4  # items, to call one of them odd


def shapes(seen: Sights) -> list[Finding]:
    """Different shapes are usual before padding or stacking; they are reported where that failed or is not there."""
    found = []
    for place in _last(seen):
        arrays = {who: one for who, one in seen.series[place].items() if one.array}
        counts = Counter(one.note.shape for one in arrays.values())
        if len(counts) > 1:
            found += _differing(arrays, counts)
    return found


def _last(seen: Sights) -> list[Place]:
    """The places behind which nothing can make the shapes equal any more: what collate got, or else the last function."""
    collated = [place for place in seen.series if place[0] == COLLATE and not place[2]]
    outermost = [one for one in seen.all if one.output and one.who is not None and one.call.parent is None]
    last = [one.place for one in outermost if one.stage == outermost[-1].stage and one.stage != EVALUATION]
    return collated or list(dict.fromkeys(last))


def _differing(arrays: dict[Who, Sight], counts: Counter[tuple[int, ...] | None]) -> list[Finding]:
    usual = counts.most_common(1)[0][0]
    odd = {who: one for who, one in arrays.items() if one.note.shape != usual}
    one = next(iter(odd.values()))
    failed = {sight.function for sight in arrays.values() if sight.stage == COLLATE and sight.call.error is not None}
    if failed:
        return [_finding(one, odd, usual, CRITICAL, 0.95, f"{failed.pop()} failed with {one.call.error}.")]
    if any(_ragged(sight) for sight in arrays.values()):
        return [
            _finding(
                one,
                odd,
                usual,
                WARN,
                0.9,
                f"{one.function} turned them into an object array, which models do not accept.",
            )
        ]
    if one.stage == COLLATE:
        return []  # it went well: padded, cut, or kept as a list on purpose
    # Without collate nobody says what was meant: a single odd item among equals is reported, sizes that all differ are not.
    if len(arrays) >= ENOUGH and len(odd) * 4 <= len(arrays):
        return [_finding(one, odd, usual, WARN, 0.7, "All others are equal.")]
    return []


def _ragged(one: Sight) -> bool:
    """Did collate make an object array of arrays that were none?"""
    if one.stage != COLLATE or one.call.output is None or one.dtype == "object":
        return False
    return any(note.dtype == "object" for _, note, _ in leaves(one.call.output.note, ""))


def _finding(
    one: Sight, odd: dict[Who, Sight], usual: tuple[int, ...] | None, severity: str, sure: float, so: str
) -> Finding:
    theirs = ", ".join(sorted({str(sight.note.shape) for sight in odd.values()}))
    why = f"Shapes differ between items: in the {one}, {listed(odd)} {'has' if len(odd) == 1 else 'have'} {theirs}, the others {usual}. {so}"
    step = "Resize, pad or crop the items to one shape before they are collated, or use a collate_fn that pads."
    evidence = one.evidence(
        odd, shapes={str(who): list(sight.note.shape or ()) for who, sight in odd.items()}, usual=list(usual or ())
    )
    return Finding(KIND, severity, sure, why, step, evidence)
