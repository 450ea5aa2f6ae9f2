"""Where two traces differ: calls aligned by stage, function and item, and the first value that is not the same.

    diff = compare(a, b)            # or a.diff(b)
    assert not diff                 # as a test: it is true when they differ
    print(diff)                     # the first difference with both values, then the others
    diff.first, diff.differences, diff.only_a, diff.only_b

Values are the same if their digests are: an array and the tensor made from it, on any device, too. With `rtol`, numbers
may differ by that share (in an array: of its largest number): elements where both traces kept a copy, statistics where
not. Times, threads and processes are not compared.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from sonde.capture.show.text import clean, value_text
from sonde.lazy import numpy
from sonde.values.note import ARRAY, HIDDEN, MAPPING, MISSING, SCALAR, Note

_T = TypeVar("_T")

SHOWN = 20  # differences, and calls of one side only, that are printed
STATISTICS = ("low", "high", "mean", "std")


class Difference(NamedTuple):
    """One value (or fact) that is not the same in both; None where a side does not have it."""

    stage: str
    function: str
    items: str  # "item 3", "items 3, 1, 2", or nothing
    field: str  # "batch.image"; "items" and "error" for the facts about the call
    a: str
    b: str

    @property
    def where(self) -> str:
        """Stage, function, item and field, as words."""
        return f"{self.stage} · {self.function}{f' · {self.items}' if self.items else ''} · {self.field}"


class Diff:
    """What differs between two traces, in the order of the first one. True if anything does."""

    def __init__(self, differences: list[Difference], only_a: list[str], only_b: list[str], compared: int) -> None:
        self.differences = differences
        self.only_a = only_a
        self.only_b = only_b
        self.compared = compared  # calls that both traces have

    @property
    def first(self) -> Difference | None:
        """The first value that differs."""
        return self.differences[0] if self.differences else None

    def __bool__(self) -> bool:
        return bool(self.differences or self.only_a or self.only_b)

    def __str__(self) -> str:
        if not self:
            return f"No difference in {_plural(self.compared, 'call')}."
        parts = [_first(self.differences), _rest(self.differences[1:])]
        parts += [_only("A", self.only_a), _only("B", self.only_b)]
        return "\n".join(line for part in parts for line in part)

    __repr__ = __str__


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _first(differences: list[Difference]) -> list[str]:
    if not differences:
        return []
    one = differences[0]
    return [f"First difference: {one.where}", *_block("A", one.a), *_block("B", one.b)]


def _block(side: str, value: str) -> list[str]:
    head, *more = value.split("\n")
    return [f"\t{side} = {head}", *(f"\t{line}" for line in more)]


def _rest(differences: list[Difference]) -> list[str]:
    if not differences:
        return []
    more = [f"\t... and {len(differences) - SHOWN:,} more"] if len(differences) > SHOWN else []
    return [
        f"{_plural(len(differences), 'later difference')}:",
        *(f"\t{one.where}" for one in differences[:SHOWN]),
        *more,
    ]


def _only(side: str, calls: list[str]) -> list[str]:
    if not calls:
        return []
    more = [f"\t... and {len(calls) - SHOWN:,} more"] if len(calls) > SHOWN else []
    return [f"{_plural(len(calls), 'call')} only in {side}:", *(f"\t{one}" for one in calls[:SHOWN]), *more]


def compare(a: Any, b: Any, *, rtol: float = 0.0) -> Diff:
    """Compare two results, or anything that has stages with calls."""
    pairs, only_a, only_b = _aligned(_facts(a), _facts(b))
    differences = [found for one, other in pairs for found in _call(one, other, rtol)]
    return Diff(differences, [_title(call) for call in only_a], [_title(call) for call in only_b], len(pairs))


def _facts(result: Any) -> list[Any]:
    calls = (call.about for stage in result.stages.values() for call in stage.calls)
    return sorted(calls, key=lambda call: call.seq)


# ── which call belongs to which ──


def _aligned(a: list[Any], b: list[Any]) -> tuple[list[tuple[Any, Any]], list[Any], list[Any]]:
    """Pairs in the order of `a`, and what is left over on each side."""
    names = _names(a, b)
    found: list[tuple[Any, Any]] = []
    for match in (lambda call: (_function(call), *names(call)), _batch):
        others = _numbered(b, match)
        matched = [(call, others[key]) for key, call in _numbered(a, match).items() if key in others]
        found += matched
        a, b = _without(a, [one for one, _ in matched]), _without(b, [other for _, other in matched])
    return sorted(found, key=lambda pair: pair[0].seq), a, b


def _function(call: Any) -> tuple[str, str]:
    return call.stage_name, call.disp_name


def _batch(call: Any) -> tuple[Hashable, ...] | None:
    """The second try, for calls about several items or none: their order."""
    return None if len(call.items) == 1 else (_function(call),)


class _names:  # noqa: N801  a function with a memory
    """The items of a call by id where both traces know the ids, else by index, else not at all."""

    def __init__(self, a: list[Any], b: list[Any]) -> None:
        self.by: dict[tuple[str, str], str | None] = {}
        groups: dict[tuple[str, str], list[Any]] = {}
        for call in [*a, *b]:
            groups.setdefault(_function(call), []).extend(call.items)
        for function, items in groups.items():
            known = [name for name in ("id", "index") if items and all(getattr(one, name) is not None for one in items)]
            self.by[function] = known[0] if known else None

    def __call__(self, call: Any) -> tuple[Hashable, ...]:
        name = self.by[_function(call)]
        return () if name is None else tuple(getattr(item, name) for item in call.items)


def _numbered(calls: list[Any], match: Any) -> dict[Hashable, Any]:
    """Calls by key; those with the same key by their order too."""
    seen: dict[Hashable, int] = {}
    numbered: dict[Hashable, Any] = {}
    for call in calls:
        key = match(call)
        if key is not None:
            seen[key] = seen.get(key, 0) + 1
            numbered[key, seen[key]] = call
    return numbered


def _without(calls: list[Any], gone: Sequence[Any]) -> list[Any]:
    taken = {id(call) for call in gone}
    return [call for call in calls if id(call) not in taken]


# ── two calls ──


def _call(a: Any, b: Any, rtol: float) -> Iterator[Difference]:
    if len(a.items) > 1 and _items(a) != _items(b) and not _same_ids(a, b):
        yield _fact(a, "items", _items(a), _items(b))
    left, right = (_keyed((kept.name, kept) for kept in call.inputs) for call in (a, b))
    for key in left | right:
        yield from _kept(a, left.get(key), right.get(key), rtol)
    if a.error != b.error:
        yield _fact(a, "error", str(a.error), str(b.error))
    elif a.output is not None or b.output is not None:
        yield from _kept(a, a.output, b.output, rtol)


def _same_ids(a: Any, b: Any) -> bool:
    ids = [item.id for item in a.items]
    return None not in ids and ids == [item.id for item in b.items]


def _items(call: Any) -> str:
    words = [
        str(item.id if item.id is not None else item.position if item.index is None else item.index)
        for item in call.items
    ]
    return f"{'item' if len(words) == 1 else 'items'} {clean(', '.join(words))}" if words else ""


def _title(call: Any) -> str:
    items = _items(call)
    return f"{clean(call.stage_name)} · {clean(call.disp_name)}{f' · {items}' if items else ''}"


def _fact(call: Any, field: str, a: str, b: str) -> Difference:
    return Difference(clean(call.stage_name), clean(call.disp_name), _items(call), clean(field), a, b)


def _kept(call: Any, a: Any, b: Any, rtol: float) -> Iterator[Difference]:
    if a is None or b is None:
        there = a if a is not None else b
        yield _fact(call, there.name, _text(a.note if a else None), _text(b.note if b else None))
        return
    for field, one, other in _notes(a.name, (a.note, a.value), (b.note, b.value), rtol):
        yield _fact(call, field, _text(one), _text(other))


def _text(note: Note | None) -> str:
    return "(missing)" if note is None else value_text(note)


# ── two values ──

_Seen = tuple[Note, object]  # a description and its copy


def _notes(field: str, a: _Seen, b: _Seen, rtol: float) -> Iterator[tuple[str, Note | None, Note | None]]:
    """The smallest parts that differ."""
    one, other = a[0], b[0]
    if HIDDEN in (one.kind, other.kind) or (one.digest is not None and one.digest == other.digest):
        return
    if one.children and other.children and one.kind == other.kind:
        yield from _children(field, a, b, rtol)
    elif not _alike(a, b, rtol):
        yield field, one, other


def _children(field: str, a: _Seen, b: _Seen, rtol: float) -> Iterator[tuple[str, Note | None, Note | None]]:
    left, right = _parts(a), _parts(b)
    named = a[0].kind == MAPPING
    for key in left | right:
        below = f"{field}.{key[0]}" if named else f"{field}[{key[0]}]"
        if key in left and key in right:
            yield from _notes(below, left[key], right[key], rtol)
        else:
            yield below, left.get(key, (None,))[0], right.get(key, (None,))[0]


def _keyed(named: Iterable[tuple[str, _T]]) -> dict[tuple[str, int], _T]:
    """By name; several of one name (the keys 1 and "1" of a dict) by their order too."""
    found: dict[tuple[str, int], _T] = {}
    for name, one in named:
        number = 0
        while (name, number) in found:
            number += 1
        found[name, number] = one
    return found


def _parts(seen: _Seen) -> dict[tuple[str, int], _Seen]:
    note, value = seen
    copies = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list | tuple) else []
    if len(copies) != len(note.children):
        copies = [MISSING] * len(note.children)
    return _keyed((name, (child, copy)) for (name, child), copy in zip(note.children, copies, strict=True))


def _alike(a: _Seen, b: _Seen, rtol: float) -> bool:
    """Are two leaves the same, as far as is known? Their digests are not equal or not known."""
    one, other = a[0], b[0]
    if one.kind == SCALAR == other.kind and None not in (one.value, other.value):
        return _near(one.value, other.value, rtol)
    unknown = one.digest is None or other.digest is None
    if one.kind == ARRAY == other.kind and (rtol > 0 or unknown):
        return _arrays_alike(a, b, rtol)
    return unknown and (one.kind, one.text, one.length) == (other.kind, other.text, other.length)


def _arrays_alike(a: _Seen, b: _Seen, rtol: float) -> bool:
    one, other = a[0], b[0]
    if (one.shape, one.dtype, one.nonfinite) != (other.shape, other.dtype, other.nonfinite):
        return False
    scale = max((abs(edge) for edge in (one.low, one.high) if edge is not None and math.isfinite(edge)), default=0.0)
    if rtol > 0 and a[1] is not MISSING is not b[1] and not one.cut and not other.cut:
        return _close(a[1], b[1], rtol * scale)
    return all(_near(getattr(one, name), getattr(other, name), rtol, rtol * scale) for name in STATISTICS)


def _close(a: Any, b: Any, most: float) -> bool:
    """Element by element, none further apart than `most`."""
    left, right = numpy.asarray(_exact(a)), numpy.asarray(_exact(b))
    if left.dtype.kind not in "fciub":
        return bool(numpy.array_equal(left, right))
    return bool(numpy.allclose(left, right, rtol=0, atol=most, equal_nan=True))


def _exact(value: Any) -> Any:
    """A tensor in a type that NumPy has too."""
    narrow = hasattr(value, "is_floating_point") and value.is_floating_point()
    return value.detach().cpu().double() if narrow else value


def _near(a: float | None, b: float | None, rtol: float, atol: float = 0.0) -> bool:
    if a is None or b is None:
        return a is b
    if math.isnan(a) and math.isnan(b):
        return True
    return math.isclose(a, b, rel_tol=rtol, abs_tol=atol) if rtol > 0 else a == b
