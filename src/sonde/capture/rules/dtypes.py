"""Changes of the dtype that lose digits or values, or cost speed and memory."""

from __future__ import annotations

import itertools
import re
from typing import Any

from sonde.capture.rules.chains import ChainStep, steps
from sonde.capture.rules.observations import EVALUATION, Sight, Sights, Who, listed, members, sentence
from sonde.finding import CRITICAL, WARN, Finding

KIND = "dtype"
NARROW = ("float32", "float16", "bfloat16")
# The largest whole number up to which a type can distinguish all whole numbers.
EXACT = {"float32": 2**24, "float16": 2**11, "bfloat16": 2**8}
# Making whole numbers of fractions is the work of these.
MEANT = re.compile(r"mask|thresh|label|target|class|segment|binar|quanti|bucket|digiti|round|bin(s|_|$)", re.IGNORECASE)


def dtypes(seen: Sights) -> list[Finding]:
    """uint8 to float32 and float64 to float32 are what every pipeline does, and no findings."""
    found: dict[tuple[Any, ...], tuple[ChainStep, str, dict[Who, None]]] = {}
    for step in steps(seen):
        what = _harm(step)
        if what:
            entry = found.setdefault((what, step.after.name), (step, what, {}))
            entry[2].update(dict.fromkeys(members(step.after)))
    lossy = [_HARMS[what](step, list(items)) for step, what, items in found.values()]
    return lossy + _mixed_items(seen) + _widened(seen)


def _harm(step: ChainStep) -> str | None:
    before, after = step
    if before.dtype == after.dtype or MEANT.search(after.field) or MEANT.search(after.function):
        return None
    if before.dtype.startswith(("float", "bfloat")) and after.dtype.startswith(("int", "uint")):
        return "cut" if _fractions(before) and _all_zero(after) else None
    if before.dtype.startswith(("int", "uint")) and after.dtype in EXACT:
        return "blurred" if _beyond(before, after) else None
    return None


def _fractions(one: Sight) -> bool:
    """Numbers of which all lie between -1 and 1, and are not all the same."""
    low, high = one.note.low, one.note.high
    return low is not None and high is not None and -1 <= low < high <= 1


def _all_zero(one: Sight) -> bool:
    """At most the rare exact 1 is left of them."""
    low, high, mean = one.note.low, one.note.high, one.note.mean
    return low is not None and high is not None and mean is not None and -1 <= low <= high <= 1 and abs(mean) < 0.05


def _beyond(before: Sight, after: Sight) -> bool:
    """Are there numbers too large for the new type, that were not scaled down?"""
    low, high, now = before.note.low, before.note.high, after.note.high
    if low is None or high is None or now is None or low == high:
        return False
    return max(abs(low), abs(high)) > EXACT[after.dtype] and abs(now - high) <= abs(high) * 0.01


def _cut(step: ChainStep, items: list[Who]) -> Finding:
    before, after = step
    why = (
        f"Values were lost: {before.dtype} numbers from {before.note.low:.3g} to {before.note.high:.3g} in the "
        f"{before} became {after.dtype} in the {after}{sentence(items)}, where nearly all are 0."
    )
    return Finding(
        KIND,
        CRITICAL,
        0.9,
        why,
        f"Scale them before the conversion to {after.dtype}, or keep {before.dtype}.",
        _types(step, items),
    )


def _blurred(step: ChainStep, items: list[Who]) -> Finding:
    before, after = step
    why = (
        f"Precision was lost: {before.dtype} numbers up to {before.note.high:.0f} in the {before} became "
        f"{after.dtype} in the {after}{sentence(items)}. {after.dtype} is exact for integers only up to "
        f"{EXACT[after.dtype]:,}."
    )
    return Finding(
        KIND, WARN, 0.9, why, "Subtract an offset first, keep integers, or use float64.", _types(step, items)
    )


_HARMS = {"cut": _cut, "blurred": _blurred}


def _types(step: ChainStep, items: list[Who]) -> dict[str, Any]:
    return step.after.evidence(
        items, before=step.before.dtype, after=step.after.dtype, since=step.before.call.disp_name
    )


def _mixed_items(seen: Sights) -> list[Finding]:
    """One field with several types: stacking makes the widest one of them, or fails."""
    found: list[Finding] = []
    for series in seen.series.values():
        types: dict[str, list[Who]] = {}
        for who, one in series.items():
            if one.array:
                types.setdefault(one.dtype, []).append(who)
        if len(types) < 2 or any("str" in name or name.startswith("<U") for name in types):
            continue
        (usual, _), *others = sorted(types.items(), key=lambda entry: -len(entry[1]))
        odd = [who for _, items in others for who in items]
        one = series[odd[0]]
        if any(two.evidence["items"] == [who.plain() for who in odd] for two in found):
            continue  # the same items at a later place
        why = f"The {one} has several dtypes: {one.dtype} for {listed(odd)}, {usual} for the others."
        evidence = one.evidence(odd, types=sorted(types), usual=usual)
        found.append(Finding(KIND, WARN, 0.9, why, f"Return one dtype for all items from {one.function}.", evidence))
    return found


def _widened(seen: Sights) -> list[Finding]:
    """float64 in a call that also gets narrower numbers, or that failed, or after the data was narrower before."""
    found: dict[tuple[str, str], Finding] = {}
    for call in seen.calls:
        if call.stage_name != EVALUATION:
            continue
        given = [one for one in seen.given(call) if one.size > 1]
        wide = [one for one in given if one.dtype == "float64"]
        narrow = [one for one in given if one.dtype in NARROW]
        for one in wide:
            if (one.function, one.field) in found:
                continue
            before = _narrower(one, seen)
            if narrow or (before is not None and (call.error is not None or one.note.type.startswith("numpy"))):
                found[one.function, one.field] = _wide(one, narrow[0] if narrow else before, seen)
    return list(found.values())


def _narrower(one: Sight, seen: Sights) -> Sight | None:
    """The last earlier sight of as many numbers, or of one item's share of them, in a narrower type."""
    sizes = {one.size, one.size // max(len(one.call.items), 1)}
    batch = (one.call.loader, one.call.batch)
    earlier = itertools.takewhile(lambda sight: sight is not one, seen.arrays)
    alike = [s for s in earlier if s.size in sizes and (s.call.loader, s.call.batch) == batch and s.dtype in NARROW]
    return alike[-1] if alike else None


def _wide(one: Sight, other: Sight | None, seen: Sights) -> Finding:
    failed = one.call.error
    if other is not None and other.call is one.call:
        what = f"next to `{other.field}`, which is {other.dtype}: the result is computed in float64"
    else:
        what = f"although the data was {other.dtype if other else 'narrower'} in the {other}"
    first = next(s for s in seen.all if s.array and s.dtype == "float64" and s.call.batch == one.call.batch)
    why = (
        f"The {one} is float64, {what}{f', and it failed with {failed}' if failed else ''}. float64 first "
        f"appears in the {first}."
    )
    step = f'Convert it to float32 in {first.function}: `.astype("float32")`, or `.float()` for a tensor.'
    evidence = one.evidence(members(one), first=first.call.disp_name, first_stage=first.stage, first_field=first.field)
    return Finding(KIND, CRITICAL if failed else WARN, 0.8, why, step, evidence)
