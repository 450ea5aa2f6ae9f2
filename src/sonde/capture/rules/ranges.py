"""Pictures in 0..255 among others in 0..1, and pictures that were scaled down twice."""

from __future__ import annotations

from typing import Any

from sonde.capture.rules.observations import EVALUATION, Sight, Sights, Who, members, sentence
from sonde.finding import WARN, Finding

KIND = "range"
FULL = 255
SIDE = 8  # pixels of the smallest picture
MARGIN = 0.05  # share of the range by which noise, an offset or a resampling may go beyond its ends


def ranges(seen: Sights) -> list[Finding]:
    """Only what has the marks of a forgotten or repeated division by 255: other data may have any range."""
    return [*_between_items(seen), *_between_calls(seen), *_twice(seen)]


def _small(one: Sight) -> bool:
    """Numbers as they are after a division by 255, and perhaps after mean and spread were taken out."""
    low, high, mean = one.note.low, one.note.high, one.note.mean
    if low is None or high is None or mean is None or low == high:
        return False
    return (low >= -MARGIN and high <= 1 + MARGIN) or (-5 <= low < 0 < high <= 5 and abs(mean) <= 3)


def _large(one: Sight) -> bool:
    """Numbers as they are in a picture file."""
    low, high, mean = one.note.low, one.note.high, one.note.mean
    if low is None or high is None or mean is None:
        return False
    return low >= -MARGIN * FULL and 64 <= high <= (1 + MARGIN) * FULL and mean >= 10


def _pictures(sights: list[Sight]) -> list[Sight]:
    return [one for one in sights if one.dtype.startswith(("float", "bfloat")) and _wide(one)]


def _wide(one: Sight) -> bool:
    """Two dimensions of some size: a picture, or a batch of them."""
    return one.array and sum(side >= SIDE for side in one.note.shape or ()) >= 2


def _between_items(seen: Sights) -> list[Finding]:
    """The same field of different items."""
    found: list[Finding] = []
    for series in seen.series.values():
        alike = _pictures(list(series.values()))
        finding = _odd(alike)
        if finding and not any(one.evidence["items"] == finding.evidence["items"] for one in found):
            found.append(finding)
    return found


def _between_calls(seen: Sights) -> list[Finding]:
    """What one model was given in different calls, such as in training and in validation."""
    inputs: dict[Any, list[Sight]] = {}
    for one in _pictures(seen.all):
        if one.stage == EVALUATION and not one.output:
            inputs.setdefault((one.place, (one.note.shape or ())[1:]), []).append(one)
    return [finding for sights in inputs.values() if (finding := _odd(sights))]


def _odd(sights: list[Sight]) -> Finding | None:
    large = [one for one in sights if _large(one)]
    small = [one for one in sights if _small(one)]
    if not large or not small or len(large) + len(small) < len(sights):
        return None
    odd, usual = (large, small) if len(large) <= len(small) else (small, large)
    one, other = odd[0], usual[0]
    items = list(dict.fromkeys(who for sight in odd for who in members(sight)))
    why = (
        f"Ranges differ: the {one}{sentence(items)} goes from {one.note.low:.3g} to {one.note.high:.3g}, elsewhere "
        f"from {other.note.low:.3g} to {other.note.high:.3g}{_when(one, other)}."
    )
    step = "A division by 255 or another normalisation is missing in one code path. Normalise all items the same way."
    evidence = one.evidence(items, range=[one.note.low, one.note.high], usual=[other.note.low, other.note.high])
    return Finding(KIND, WARN, 0.9, why, step, evidence)


def _when(one: Sight, other: Sight) -> str:
    if one.who is not None or one.call.batch is None or other.call.batch is None:
        return ""
    return f" (batch {one.call.batch} of loader {one.call.loader}, and batch {other.call.batch} of loader {other.call.loader})"


def _twice(seen: Sights) -> list[Finding]:
    """uint8, then an array of as many numbers with exactly its range divided by 255 * 255."""
    found: dict[str, tuple[Sight, dict[Who, None]]] = {}
    raw: dict[tuple[Who, int], Sight] = {}
    for one in seen.arrays:
        if one.who is None:
            continue
        if one.dtype == "uint8" and _wide(one) and (one.note.high or 0) >= 64:
            raw[one.who, one.size] = one
        elif _divided(raw.get((one.who, one.size)), one):
            found.setdefault(one.name, (one, {}))[1][one.who] = None
    first = {tuple(items): one for one, items in reversed(found.values())}  # what follows from it has the same items
    return [_small_finding(one, list(items)) for items, one in first.items()]


def _divided(before: Sight | None, after: Sight) -> bool:
    if before is None or not after.dtype.startswith("float") or not before.note.high or after.note.high is None:
        return False
    return abs(after.note.high * FULL * FULL / before.note.high - 1) < 0.01


def _small_finding(one: Sight, items: list[Who]) -> Finding:
    why = (
        f"Scaled down twice: the {one}{sentence(items)} goes only up to {one.note.high:.3g}, as if divided by "
        "255 twice."
    )
    step = "Remove one of the divisions; ToTensor, for example, already divides by 255."
    return Finding(KIND, WARN, 0.95, why, step, one.evidence(items, range=[one.note.low, one.note.high]))
