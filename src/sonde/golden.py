"""Golden traces: what a test expects of the values in a pipeline, as a JSON file that a person can review.

    with sonde.flow.trace(items=2) as trace:
        next(iter(loader))
    assert_trace_matches(trace, "golden/pipeline.json")

A golden trace holds no value: of each one its type, shape and digest, and some statistics. Times, threads, processes and the order
of calls are not in it, so that loader workers change nothing.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sonde.values.note import AGAIN, ARRAY, HIDDEN, MAPPING, NONE, OBJECT, SCALAR, CapturedValue, Item, Note

SCHEMA = 1
SHOWN = 20  # differences that are printed
STATISTICS = ("low", "high", "mean", "std")

Values = dict[str, dict[str, Any]]  # what is known of each value of a call
Calls = dict[str, Values]  # by stage, function and items


@dataclass
class Golden:
    """How golden traces are treated now; the pytest plugin sets it for each test."""

    folder: Path | None = None  # what relative names are relative to; None: the working folder
    update: bool = False  # write them instead of comparing


current = Golden()


def assert_trace_matches(trace: Any, path: str | os.PathLike[str], *, rtol: float = 0.0) -> None:
    """Fail unless a trace has the stages, shapes, dtypes and digests of a golden one.

    A relative path starts at the folder of the test. With `rtol`, numbers may differ by that share, and statistics count
    instead of digests. `pytest --sonde-update` writes the file.
    """
    __tracebackhide__ = True
    target = (current.folder or Path()) / path
    found = described(trace)
    if current.update:
        _write(target, found)
        return
    complaint = _complaint(target, found, rtol)
    if complaint is not None:
        raise AssertionError(complaint)


def described(trace: Any) -> Calls:
    """What a golden trace keeps of a trace."""
    calls = sorted((call.about for stage in trace.stages.values() for call in stage.calls), key=lambda call: call.seq)
    seen: Counter[str] = Counter()
    found: Calls = {}
    for call in calls:
        title = " · ".join(filter(None, (call.stage_name, call.disp_name, _items(call.items))))
        seen[title] += 1
        if seen[title] > 1:
            title += f" · call {seen[title]}"
        found[title] = _values(call)
    return dict(sorted(found.items()))


def differences(golden: Calls, found: Calls, rtol: float = 0.0) -> list[str]:
    """What is not the same, in words: one text for each value or call."""
    lines = [f"{title}: the golden trace has this call, the new one does not" for title in golden.keys() - found.keys()]
    lines += [f"{title}: a new call" for title in found.keys() - golden.keys()]
    for title in golden.keys() & found.keys():
        old, new = golden[title], found[title]
        for field in old | new:
            if field not in old or field not in new or not _alike(old[field], new[field], rtol):
                lines.append(
                    f"{title} · {field}\n    golden  {_words(old.get(field))}\n    now     {_words(new.get(field))}"
                )
    return sorted(lines)


def _complaint(target: Path, found: Calls, rtol: float) -> str | None:
    try:
        golden = json.loads(target.read_text("utf-8"))
    except FileNotFoundError:
        return f"There is no golden trace {target}. Write it with pytest --sonde-update, then review and commit it."
    except ValueError as error:
        return f"{target} is not a golden trace: {error}. Write it again with pytest --sonde-update."
    if not isinstance(golden, dict) or golden.get("schema") != SCHEMA or not isinstance(golden.get("calls"), dict):
        return f"{target} is not a golden trace of this version. Write it again with pytest --sonde-update."
    lines = differences(golden["calls"], found, rtol)
    if not lines:
        return None
    more = [f"... and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    count = f"{len(lines)} difference{'' if len(lines) == 1 else 's'}"
    head = f"The trace does not match {target}: {count}. To accept it: pytest --sonde-update"
    return "\n".join([head, *lines[:SHOWN], *more])


def _write(target: Path, found: Calls) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    calls = ",\n".join(
        f"  {json.dumps(title, ensure_ascii=False)}: {_lines(values)}" for title, values in found.items()
    )
    text = f'{{\n "schema": {SCHEMA},\n "calls": {{\n{calls}\n }}\n}}\n'
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    part.write_text(text, "utf-8")
    part.replace(target)


def _lines(values: Values) -> str:
    """One value a line, for the reviewer."""
    if not values:
        return "{}"
    lines = (
        f"   {json.dumps(field, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
        for field, value in values.items()
    )
    return "{\n" + ",\n".join(lines) + "\n  }"


def _items(items: tuple[Item, ...]) -> str:
    names = [
        str(one.id if one.id is not None else one.index if one.index is not None else one.position) for one in items
    ]
    return f"{'item' if len(names) == 1 else 'items'} {', '.join(names)}" if names else ""


def _values(call: Any) -> Values:
    kept: list[tuple[str, CapturedValue]] = [(f"in.{one.name}", one) for one in call.inputs]
    kept += [(f"changed.{one.name}", one) for one in call.changed]
    kept += [] if call.output is None else [("out", call.output)]
    found = {field: value for name, one in kept for field, value in _leaves(name, one.note)}
    return found | ({"error": {"type": call.error}} if call.error else {})


def _leaves(field: str, note: Note) -> Iterator[tuple[str, dict[str, Any]]]:
    if note.kind in (HIDDEN, AGAIN):
        return
    if note.children:
        for name, child in note.children:
            yield from _leaves(f"{field}.{name}" if note.kind == MAPPING else f"{field}[{name}]", child)
        return
    yield field, {name: value for name, value in _facts(note).items() if value is not None}


def _facts(note: Note) -> dict[str, Any]:
    """What is compared of a value. Of objects that only print, the text may hold an address: their type counts."""
    if note.kind == ARRAY:
        numbers = {name: _number(getattr(note, name)) for name in STATISTICS}
        shape = list(note.shape or ())
        return {
            "dtype": note.dtype,
            "shape": shape,
            "digest": _hex(note),
            "nonfinite": note.nonfinite or None,
        } | numbers
    if note.kind == SCALAR:
        return {"type": note.type, "value": _number(note.value)}
    if note.kind in (NONE, OBJECT):
        return {"type": note.type}
    return {"type": note.type, "length": note.length, "text": note.text or None, "digest": _hex(note)}


def _hex(note: Note) -> str | None:
    return None if note.digest is None else f"{note.digest:016x}"


def _number(value: float | None) -> float | int | str | None:
    """A number that JSON has; the others are texts."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _alike(old: dict[str, Any], new: dict[str, Any], rtol: float) -> bool:
    if old.keys() - {"digest"} != new.keys() - {"digest"}:
        return False
    exact = {name for name in old.keys() | new.keys() if name not in (*STATISTICS, "value", "digest")}
    if any(old.get(name) != new.get(name) for name in exact):
        return False
    if rtol == 0 and "digest" in old and "digest" in new:
        return bool(old["digest"] == new["digest"])
    if rtol == 0 and "digest" in old.keys() | new.keys():
        return False
    scale = max((abs(old[name]) for name in ("low", "high") if isinstance(old.get(name), int | float)), default=0.0)
    if "digest" in old and not any(name in old for name in STATISTICS) and "value" not in old:
        return bool(old["digest"] == new.get("digest"))
    return all(_near(old[name], new[name], rtol, scale) for name in (*STATISTICS, "value") if name in old)


def _near(old: object, new: object, rtol: float, scale: float) -> bool:
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (old, new))
    if not numbers or rtol == 0:
        return old == new
    return math.isclose(old, new, rel_tol=rtol, abs_tol=rtol * scale)  # type: ignore[arg-type]


def _words(value: dict[str, Any] | None) -> str:
    if value is None:
        return "(missing)"
    return "  ".join(_word(name, one) for name, one in value.items())


def _word(name: str, value: object) -> str:
    if name in ("dtype", "type"):
        return str(value)
    if name == "shape" and isinstance(value, list):
        return f"({', '.join(map(str, value))})"
    return f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}"
