"""Chains of arrays that are probably the same value on its way through the stages, in order of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sonde.capture.rules.observations import Sight, Sights


class ChainStep(NamedTuple):
    """A value before and after something was done to it."""

    before: Sight
    after: Sight


def steps(seen: Sights) -> Iterator[ChainStep]:
    """Pairs of arrays with equally many elements: into a function and out of it, or of one name and one item."""
    for call in seen.calls:
        given, got = seen.given(call), seen.got(call)
        for after in got:
            alike = [one for one in given if one.size == after.size]
            if after.size > 1 and len(alike) == 1 and sum(one.size == after.size for one in got) == 1:
                yield ChainStep(alike[0], after)
    last: dict[tuple[object, str, int], Sight] = {}
    for one in seen.arrays:
        if one.who is None or one.size < 2:
            continue
        key = (one.who, one.name, one.size)
        if key in last and last[key].call is not one.call:
            yield ChainStep(last[key], one)
        last[key] = one
