"""A value that was changed in place after a function got or returned it, by code that did not return it."""

from __future__ import annotations

from typing import Any

from sonde.capture.rules.observations import EVALUATION, Sight, Sights, Who, members, rows, sentence
from sonde.finding import WARN, Finding
from sonde.values.note import MISSING
from sonde.values.npy import as_array

KIND = "changed_in_place"
PAST = 64  # sights of an object that a new one is held against


def changed(seen: Sights) -> list[Finding]:
    """The same object with other content: recognised by its number, so that a new array of the same name is no alarm."""
    found: dict[tuple[Any, ...], tuple[Sight, Sight, dict[Who, None]]] = {}
    parents = {call.seq: call.parent for call in seen.calls}
    for history in _objects(seen):
        for before, after in _changes(history, parents):
            entry = found.setdefault((before.place, after.place), (before, after, {}))
            entry[2].update(dict.fromkeys(_which(before, after)))
    return [_finding(before, after, list(items)) for before, after, items in found.values()]


def _objects(seen: Sights) -> list[list[Sight]]:
    """Each object with a number: where it was seen, in order of time."""
    objects: dict[int, list[Sight]] = {}
    for one in seen.history:
        if one.note.identity is not None and one.note.digest is not None:
            objects.setdefault(one.note.identity, []).append(one)
    return list(objects.values())


def _changes(history: list[Sight], parents: dict[int, int | None]) -> list[tuple[Sight, Sight]]:
    """What counts: each sight is held against the last one of the same item, or of the same batch."""
    changes = []
    for number, after in enumerate(history):
        past = history[max(number - PAST, 0) : number]
        earlier = [one for one in past if _comparable(one, after, past)]
        before = earlier[-1] if earlier else None
        if before and before.note.digest != after.note.digest and not _returned(before, after, parents):
            changes.append((before, after))
    return changes


def _comparable(before: Sight, after: Sight, history: list[Sight]) -> bool:
    """Could it be expected to be the same? A buffer that is filled again for the next item or batch need not be."""
    same = before.call.batch == after.call.batch and before.call.loader == after.call.loader
    if before.who and after.who and EVALUATION not in (before.stage, after.stage):
        return before.who == after.who and (same or not before.who.stream)
    # In a loop that comes back to a function (generation, adversarial steps) it is filled step by step.
    return same and all(one.function != after.function or one.call is after.call for one in history)


def _returned(before: Sight, after: Sight, parents: dict[int, int | None]) -> bool:
    """Was it changed by a function that gave it back as its result? Then the change was meant."""
    if not after.output:
        return False
    seq: int | None = before.call.seq
    for _ in range(len(parents) + 1):
        if seq is None or seq == after.call.seq:
            break
        seq = parents.get(seq)
    return bool(seq == after.call.seq)


def _which(before: Sight, after: Sight) -> list[Who]:
    """The items whose rows differ, as far as the copies show."""
    old, new = rows(before), rows(after)
    if old is None or new is None or len(old) != len(new):
        return members(after) or members(before)
    return [who for (who, a), (_, b) in zip(old, new, strict=True) if _differs(a, b)]


def _differs(a: Any, b: Any) -> bool:
    a, b = as_array(a), as_array(b)  # what a worker captured comes back as an array, a tensor too
    if a is None or b is None or a.dtype != b.dtype:
        return True
    different = (a != b) & ((a == a) | (b == b))  # noqa: PLR0124  NaN is the only value that is not equal to itself
    return bool(different.any()) if hasattr(different, "any") else bool(different)


def _finding(before: Sight, after: Sight, items: list[Who]) -> Finding:
    if after.left:
        return _inside(before, after, items)
    where = "was returned by" if before.output else "was given to"
    again = "returned again by" if after.output else "given to"
    why = (
        f"`{after.field}`{sentence(items)} was modified in place: it {where} {before.function} ({before.stage}), and "
        f"had other values when {again} {after.function} ({after.stage}){_ranges(before, after)}."
    )
    doer = "between the two" if before.output else f"in {before.function} or after it"
    step = f"Look for an in-place operation (+=, x[...] =, .mul_(), inplace=True) {doer}, and make it work on a copy."
    return Finding(KIND, WARN, 0.99, why, step, _evidence(before, after, items))


def _inside(before: Sight, after: Sight, items: list[Who]) -> Finding:
    why = (
        f"`{after.field}`{sentence(items)} was modified in place by {after.function} ({after.stage}), which does not "
        f"return it{_ranges(before, after)}."
    )
    step = (
        f"Look for an in-place operation (+=, x[...] =, .mul_(), inplace=True) in {after.function}, and make "
        "it work on a copy."
    )
    return Finding(KIND, WARN, 0.99, why, step, _evidence(before, after, items))


def _evidence(before: Sight, after: Sight, items: list[Who]) -> dict[str, Any]:
    digests = {"before": before.note.digest, "after": after.note.digest}
    return after.evidence(
        items, since=before.call.disp_name, since_stage=before.stage, since_field=before.field, **digests
    )


def _ranges(before: Sight, after: Sight) -> str:
    numbers = (before.note.low, before.note.high, after.note.low, after.note.high)
    if any(one is None for one in numbers) or before.value is MISSING is not after.value:
        return ""
    return f" (range {numbers[0]:.3g}..{numbers[1]:.3g} before, {numbers[2]:.3g}..{numbers[3]:.3g} after)"
