"""The first place where a NaN or an infinite number appears, and in which items."""

from __future__ import annotations

import math
import re
from typing import Any

from sonde.capture.rules.observations import EVALUATION, Sight, Sights, Who, members, rows, sentence
from sonde.finding import CRITICAL, INFO, WARN, Finding
from sonde.values.note import SCALAR

KIND = "nonfinite"
# Infinite numbers belong into these: -inf hides a position from attention.
MASKS = re.compile(r"mask|bias|_lengths?$", re.IGNORECASE)


def nonfinite(seen: Sights) -> list[Finding]:
    """For each batch the first stage with such numbers; the same place in several batches is one finding."""
    bad = [one for one in seen.all if _bad(one)]
    origins = _origins(bad, {call.seq: call.parent for call in seen.calls})
    places: dict[Any, list[Sight]] = {}
    for one in origins:
        places.setdefault(one.place, []).append(one)
    return [_finding(sights, seen) for sights in places.values()]


def _bad(one: Sight) -> bool:
    if MASKS.search(one.field):
        return False
    if one.note.kind == SCALAR and not one.output:
        return False  # an argument such as best=inf is no data
    value = one.note.value
    return bool(one.note.nonfinite) or (isinstance(value, float) and not math.isfinite(value))


def _origins(bad: list[Sight], parents: dict[int, int | None]) -> list[Sight]:
    """Of each batch: what was bad in the first function, or in others of its stage that did not get it from there."""
    first: dict[Any, Sight] = {}
    dirty = {one.call.seq for one in bad}
    above = {parent for seq in dirty if (parent := parents.get(seq)) is not None}
    found = []
    spoiled = next(((one.call.loader, one.call.batch) for one in bad if one.stage == EVALUATION), None)
    for one in bad:
        batch = (one.call.loader, one.call.batch)
        start = first.setdefault(batch, one)
        if start.stage == EVALUATION and batch != spoiled:
            continue  # the model has learned them from an earlier batch
        same = one.stage == start.stage and one.output == start.output
        if same and (one.function == start.function or (_enters(one) and one.call.seq not in above)):
            found.append(one)
    return found


def _enters(one: Sight) -> bool:
    """Is it an output of a call whose inputs were all finite?"""
    return one.output and not any(kept.note.nonfinite for kept in one.call.inputs)


def _items(sights: list[Sight]) -> list[Who]:
    found: dict[Who, None] = {}
    for one in sights:
        by_row = rows(one)
        if by_row is None:
            found.update(dict.fromkeys(members(one)))
        else:
            found.update({who: None for who, row in by_row if _any_bad(row)})
    return list(found)


def _any_bad(row: Any) -> bool:
    bad = (row != row) | (abs(row) == math.inf)  # noqa: PLR0124  NaN is the only value that is not equal to itself
    return bool(bad.any()) if hasattr(bad, "any") else bool(bad)


def _finding(sights: list[Sight], seen: Sights) -> Finding:
    one, items = sights[0], _items(sights)
    count = sum(sight.note.nonfinite or 1 for sight in sights)
    total = sum(max(sight.size, 1) for sight in sights)
    handled = _handled(one, seen)
    share = f"{count:,} of {total:,} numbers are" if total > 1 else "it is"
    why = f"The first NaN or infinity is in the {one}{sentence(items)}: {share} not finite. {_cause(one, handled)}"
    evidence = one.evidence(items, count=count, of=total, handled=handled)
    return Finding(KIND, INFO if handled else _severity(one), 0.99, why, _next(one, handled), evidence)


def _severity(one: Sight) -> str:
    """A loss or a model's input that is not finite spoils the training; infinite values of a model may be wanted."""
    return WARN if one.stage == EVALUATION and one.output and one.note.kind != SCALAR else CRITICAL


def _handled(one: Sight, seen: Sights) -> bool:
    """Are the results of the model finite, or, where there are none, what was seen last of the batch?"""
    if one.stage == EVALUATION:
        return False
    batch = (one.call.loader, one.call.batch)
    later = [s for s in seen.all if (s.call.loader, s.call.batch) == batch and s.note.nonfinite is not None]
    results = [s for s in later if s.stage == EVALUATION and s.output]
    if results:
        return not any(_bad(s) for s in results)
    last = [s for s in later if s.array]
    return bool(last) and not last[-1].note.nonfinite and last[-1].stage != one.stage


def _cause(one: Sight, handled: bool) -> str:
    if handled:
        return "The output of later stages is finite."
    if not one.output:
        return f"No captured function returned it: it appeared before the call of {one.function}."
    if any(kept.note.shape is not None for kept in one.call.inputs):
        return f"All inputs of {one.function} were finite: it produced the NaN or infinity."
    return "It comes from the data."


def _next(one: Sight, handled: bool) -> str:
    if handled:
        return "Nothing to do if they are replaced or masked on purpose."
    if one.stage == EVALUATION and one.output:
        return (
            f"Check {one.function} for a division by zero, log(0), or sqrt or exp of extreme values. Check "
            "the learning rate."
        )
    return f"Check these items at the source, or replace the numbers in {one.function}."
