"""The same content under two ids or indices."""

from __future__ import annotations

from sonde.capture.rules.identifying import flat, identifies, label
from sonde.capture.rules.observations import Place, Sight, Sights, Who, listed
from sonde.finding import INFO, WARN, Finding
from sonde.values.note import TEXT

KIND = "same_content"


def repeated(seen: Sights) -> list[Finding]:
    """Groups of items, not all, that have an array in common; each group once, at the first place."""
    found: list[Finding] = []
    reported: set[frozenset[Who]] = set()
    series = seen.series
    contents = _contents(series)
    for place in series.values():
        for sights in _groups(place).values():
            items = list(sights)
            if 1 < len(items) < max(len(place), 3) and frozenset(items) not in reported:
                reported.add(frozenset(items))
                found.append(_finding(next(iter(sights.values())), items, contents))
    return found


def _groups(place: dict[Who, Sight]) -> dict[int | None, dict[Who, Sight]]:
    groups: dict[int | None, dict[Who, Sight]] = {}
    for who, one in place.items():
        if identifies(one) and not flat(one):
            groups.setdefault(one.note.digest, {})[who] = one
    return groups


def _contents(series: dict[Place, dict[Who, Sight]]) -> dict[Who, dict[str, set[object]]]:
    """Of each item, what it has under each name: arrays that describe it, and texts."""
    found: dict[Who, dict[str, set[object]]] = {}
    for place in series.values():
        for who, one in place.items():
            if one.output and (identifies(one) or (one.note.kind == TEXT and not label(one))):
                found.setdefault(who, {}).setdefault(one.name, set()).add(one.note.digest or one.note.text)
    return found


def _finding(one: Sight, items: list[Who], contents: dict[Who, dict[str, set[object]]]) -> Finding:
    first, *others = (contents.get(who, {}) for who in items)
    differing = sorted({name for other in others for name in first if first[name] != other.get(name)} - {one.name})
    but = f" Their {', '.join(f'`{name}`' for name in differing)} differ." if differing else ""
    why = f"Duplicate content: the {one} is identical for {listed(items)}.{but}"
    step = "Check whether the data has duplicates, or the function reads the wrong item."
    severity, sure = (INFO, 0.6) if differing else (WARN, 0.95)
    return Finding(KIND, severity, sure, why, step, one.evidence(items, digest=one.note.digest, differing=differing))
