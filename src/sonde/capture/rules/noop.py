"""A transform that returns its input unchanged."""

from __future__ import annotations

import re
from typing import Any

from sonde.capture.rules.observations import GETTER, Sight, Sights, Who, members, sentence
from sonde.finding import INFO, WARN, Finding

KIND = "no_effect"
NAMED = re.compile(
    r"transform(?!er)|augment|normali[sz]e|standardi[sz]e|whiten|jitter|noise|noisy|flip|rotate|blur|perturb",
    re.IGNORECASE,
)
# Objects that a dataset calls to transform its items are known by what was called.
CALLED = ("__call__", "forward")
# An item that has the right size, type or range already stays as it is.
MAY_REST = re.compile(r"resize|crop|pad|clamp|clip|convert|identity|lambda|(^|_)to_?[A-Z]", re.IGNORECASE)
# These do the same each time; any other one may be random, and leave an item alone now and then.
STEADY = re.compile(r"normali[sz]e|standardi[sz]e|whiten", re.IGNORECASE)
ENOUGH = 2  # items, for a steady one
ENOUGH_RANDOM = 4  # items, for others: half of them untouched is usual, so four are a hint,
SURE_RANDOM = 8  # and eight are hardly chance


def idle(seen: Sights) -> list[Finding]:
    """Functions named like a transform whose arrays came out as they went in, for every item."""
    functions: dict[tuple[str, str], list[Any]] = {}
    for call in seen.calls:
        if _transforms(call) and call.error is None and call.output is not None:
            functions.setdefault((call.stage_name, call.disp_name), []).append(call)
    found = []
    for calls in functions.values():
        sights = [one for call in calls for one in seen.got(call)]
        if sights and all(_same(call, seen) for call in calls):
            found += _finding(sights)
    return found


def _transforms(call: Any) -> bool:
    if call.stage_name == GETTER and call.func_name in CALLED and not MAY_REST.search(call.disp_name):
        return True
    return bool(NAMED.search(call.disp_name)) and not MAY_REST.search(call.disp_name)


def _same(call: Any, seen: Sights) -> bool:
    """Each array that came out had gone in: same content, same type."""
    given = {(one.note.type, one.note.digest) for one in seen.given(call) if one.note.digest is not None}
    return all((one.note.type, one.note.digest) in given for one in seen.got(call))


def _finding(sights: list[Sight]) -> list[Finding]:
    one, items = sights[0], _items(sights)
    tried = len({(sight.note.digest, sight.who) for sight in sights})
    random = not STEADY.search(one.function)
    if tried < (ENOUGH_RANDOM if random else ENOUGH):
        return []
    severity = INFO if random and tried < SURE_RANDOM else WARN
    chance = " A random transform may skip one item, but hardly all of them." if random else ""
    why = (
        f"{one.function} ({one.stage}) changed nothing: its output `{one.field}`{sentence(items)} equals its "
        f"input.{chance}"
    )
    step = (
        f"Check that {one.function} is configured as intended (probability, mode, arguments) and that its result is "
        "used."
    )
    return [Finding(KIND, severity, 1 - 0.5**tried if random else 0.9, why, step, one.evidence(items, calls=tried))]


def _items(sights: list[Sight]) -> list[Who]:
    return list(dict.fromkeys(who for sight in sights for who in members(sight)))
