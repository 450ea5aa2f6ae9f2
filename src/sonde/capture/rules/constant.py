"""A field that is the same for all items."""

from __future__ import annotations

from collections.abc import Hashable

from sonde.capture.rules.identifying import flat, identifies, label, plain
from sonde.capture.rules.observations import Sight, Sights, Who, listed
from sonde.finding import INFO, WARN, Finding

KIND = "constant_field"
ENOUGH = 4  # items with the same array
ENOUGH_LABELS = 32  # items with the same label: fewer come together by chance, or because the data is sorted


def constant(seen: Sights) -> list[Finding]:
    """Each such field once, at the first place where it is seen."""
    found: list[Finding] = []
    reported: set[Hashable] = set()
    for series in seen.series.values():
        one = next(iter(series.values()))
        contents = {_content(sight) for sight in series.values()}
        if len(contents) != 1 or len(series) < _enough(one) or not _given(one):
            continue
        key = contents.pop() if one.array else (one.name, contents.pop())
        follows = bool(found) and one.name.isdigit()  # a part without a name: probably made of what was named before
        if key is not None and key not in reported and not follows:
            reported.add(key)
            found.append(_finding(one, list(series)))
    return found


def _content(one: Sight) -> Hashable:
    if not plain(one):
        return one.note.digest
    return one.note.value if one.note.value is not None else one.note.text


def _enough(one: Sight) -> float:
    if identifies(one):
        return float("inf") if flat(one) and one.note.low == 1 else ENOUGH  # all ones are a placeholder
    return ENOUGH_LABELS if label(one) else float("inf")


def _given(one: Sight) -> bool:
    """Does the function get which item is wanted? If not, its answer need not depend on it."""
    return bool(one.call.inputs)


def _finding(one: Sight, items: list[Who]) -> Finding:
    what = f"always {one.note.low:.4g}" if flat(one) else "the same array" if one.array else f"always {_content(one)!r}"
    why = f"The {one} is constant: {what} for all {len(items)} items ({listed(items)})."
    reads = one.function if one.output else f"the code that feeds {one.function}"
    step = f"Check that {reads} reads each item's own data, not always the same."
    if not one.array:
        step = "Trace more items, shuffled, to confirm it."
    severity, sure = (WARN, 0.9) if one.array else (INFO, 0.7)
    return Finding(KIND, severity, sure, why, step, one.evidence(items, digest=one.note.digest))
