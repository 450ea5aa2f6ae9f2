"""How a trace prints: values, calls, stages, the path of one item, and the whole result, as plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sonde.errors import nearest
from sonde.guard import guard
from sonde.values import note as kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sonde.finding import Finding
    from sonde.values.note import CapturedValue, Note

MAX_CHILDREN = 200  # of one container; what is left out is counted
MAX_DEPTH = 50
MAX_FINDINGS = 10  # all of them: result.findings()
NS_PER_MS = 1e6


class ShownCall(Protocol):
    """What `call_text` needs to know about a call; `call.About` has it."""

    disp_name: str
    inputs: Sequence[CapturedValue]
    changed: Sequence[CapturedValue]
    output: CapturedValue | None
    result_name: str
    duration_ns: int | None
    error: str | None
    phase: str | None


def clean(words: object) -> str:
    """A text without control characters and lone surrogates, so that any terminal and any file can take it."""
    written = str(words)
    if written.isprintable():
        return written
    return "".join(mark if mark.isprintable() else _escaped(mark) for mark in written)


def _escaped(mark: str) -> str:
    return mark.encode("unicode_escape").decode("ascii")


def indented(words: str) -> str:
    """Every line one level deeper; empty lines stay empty."""
    return "\n".join(f"\t{line}" if line else "" for line in words.split("\n"))


def number(value: float | None, digits: int = 6) -> str:
    """A statistic: whole numbers whole, others with six digits."""
    if value is None:
        return "?"
    whole = value == int(value) if abs(value) < 1e15 else False
    return str(int(value)) if whole else f"{value:.{digits}g}"


def duration(nanoseconds: int | None) -> str:
    """A duration in ms with three digits."""
    if nanoseconds is None:
        return "? (not finished)"
    ms = nanoseconds / NS_PER_MS
    return f"{ms:.0f} ms" if ms >= 1000 else f"{ms:.3g} ms"


def known(word: str, names: list[str]) -> str:
    """The end of a message about a name that is not there: those that are."""
    return nearest(word, [clean(name) for name in names]) if names else "There are none."


# ── values ──


@guard("printing a captured value", default="<unprintable>")
def value_text(note: Note, depth: int = 0) -> str:
    """The text of one value; of a container, with everything in it."""
    write = _CONTAINERS.get(note.kind)
    if write is not None:
        return "<too deep>" if depth >= MAX_DEPTH else write(note, depth)
    if note.kind == kinds.ARRAY:
        return array_text(note)
    return _leaf(note)


def array_text(note: Note) -> str:
    """An array by shape, type, digest and statistics, in pointed brackets."""
    parts = [clean(note.type), f"shape={clean(note.shape)}"]
    known = {"dtype": note.dtype, "hash": note.digest, "device": note.device}
    parts += [f"{name}={clean(value)}" for name, value in known.items() if value is not None]
    measured = {"min": note.low, "max": note.high, "mean": note.mean}
    parts += [f"{name}={number(value)}" for name, value in measured.items() if value is not None]
    parts += [f"nonfinite={note.nonfinite}"] if note.nonfinite else []
    return f"<{' '.join([*parts, *_marks(note)])}>"


def _leaf(note: Note) -> str:
    words = clean(note.text or (note.kind if note.value is None else note.value))
    return f"{words} <cut, length={note.length}>" if note.cut and note.kind == kinds.TEXT else words


def _marks(note: Note) -> list[str]:
    return ["cut"] if note.cut else []


def _header(note: Note) -> str:
    length = [f"shape={clean(note.shape)}"] if note.shape else [] if note.length is None else [f"len={note.length}"]
    return f"<{' '.join([clean(note.type), *length, *_marks(note)])}> "


def _sequence(note: Note, depth: int) -> str:
    return _header(note) + _block("[", [value_text(child, depth + 1) for _, child in _shown(note)], _left(note), "]")


def _tuple(note: Note, depth: int) -> str:
    lines = [f"{value_text(child, depth + 1)}," for _, child in _shown(note)]
    return ("" if note.type == "tuple" and not note.cut else _header(note)) + _block("(", lines, _left(note), ")")


def _mapping(note: Note, depth: int) -> str:
    lines = [f"{clean(name)}: {value_text(child, depth + 1)}" for name, child in _shown(note)]
    return ("" if note.type == "dict" and not note.cut else _header(note)) + _block("{", lines, _left(note), "}")


def shown_children(note: Note) -> list[tuple[str, Note]]:
    """The described parts of a container, without the mark that stands for those that are not described."""
    return [(name, child) for name, child in note.children if not (name == "..." and child.text.startswith("..."))]


def _shown(note: Note) -> list[tuple[str, Note]]:
    return shown_children(note)[:MAX_CHILDREN]


def _left(note: Note) -> int:
    return max(note.length or 0, len(shown_children(note))) - len(_shown(note))


def _block(opening: str, lines: list[str], left: int, closing: str) -> str:
    more = [f"... {left} more"] if left > 0 else []
    if not lines and not more:
        return opening + closing
    return "\n".join([opening, *(indented(line) for line in [*lines, *more]), closing])


_CONTAINERS: dict[str, Callable[[Note, int], str]] = {
    kinds.SEQUENCE: _sequence,
    kinds.TUPLE: _tuple,
    kinds.MAPPING: _mapping,
}


# ── calls ──


def call_text(call: ShownCall) -> str:
    """One call: its head, its inputs, its output; it ends with a new line."""
    return "\n".join([call_head(call), *_values(call)]) + "\n"


def call_head(call: ShownCall) -> str:
    """One line: function, names of inputs and output, duration, then phase and exception if there is one."""
    names = ", ".join(clean(kept.name) for kept in call.inputs)
    raised = f" raised {clean(call.error)}" if call.error else ""
    phase = f" phase={clean(call.phase)}" if call.phase else ""
    head = f"{clean(call.disp_name)}({names}) -> {clean(call.result_name)}"
    return f"{head} duration={duration(call.duration_ns)}{phase}{raised}"


def _values(call: ShownCall) -> list[str]:
    outputs = [] if call.output is None else [call.output]
    changed = ["inputs changed in place:", *map(_captured, call.changed)] if call.changed else []
    return ["inputs:", *map(_captured, call.inputs), *changed, "outputs:", *map(_captured, outputs)]


def _captured(kept: CapturedValue) -> str:
    return indented(f"{clean(kept.name)} = {value_text(kept.note)}")


def stage_text(calls: Iterable[str]) -> str:
    """The texts of calls between square brackets, an empty line after each."""
    written = [indented(call) + "\n" for call in calls]
    return f"[\n{''.join(written)}]" if written else "[]"


# ── one item ──


def item_words(index: int | str | None, id: str | None) -> str:
    """How an item is named in a sentence."""
    parts = [] if index is None else [f"index {clean(repr(index))}"]
    parts += [] if id is None else [f"id {clean(repr(id))}"]
    return f"item {' '.join(parts)}" if parts else "an item without index and id"


def step_text(call: ShownCall, place: str) -> str:
    """One call on the path of an item: as `call_text`, with a line that says where the item stood."""
    return "\n".join([call_head(call), *([place] if place else []), *_values(call)]) + "\n"


def item_text(index: int | str | None, id: str | None, stages: Mapping[str, Sequence[str]]) -> str:
    """The path of one item: the texts of its calls by stage."""
    lines = [indented(f"{clean(name)}: {stage_text(calls)}") for name, calls in stages.items()]
    return "\n".join([f"Path of {item_words(index, id)} {{", *lines, "}"]) + "\n"


# ── the whole ──


def result_text(stages: Mapping[str, str], notes: Sequence[str], findings: Sequence[Finding]) -> str:
    """All stages; then what was cut or not seen, and what looks wrong, if there is anything."""
    lines = ["Trace Stages {", *(indented(f"{clean(name)}: {stage}") for name, stage in stages.items()), "}"]
    if notes:
        lines += ["notes:", *(f"\t{clean(note)}" for note in notes)]
    if findings:
        lines += [f"findings: {len(findings)}", *(f"\t{clean(finding)}" for finding in findings[:MAX_FINDINGS])]
    if len(findings) > MAX_FINDINGS:
        lines.append(f"\t... {len(findings) - MAX_FINDINGS} more in .findings()")
    return "\n".join(lines) + "\n"
