"""A trace as HTML: for a notebook, and as a page of its own. It needs no network and no script.

Everything that comes from the traced program (names, texts, values) goes through `_safe`; the rest is ours.
"""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from sonde.capture.definition import dotted_name
from sonde.capture.file import replacing
from sonde.capture.show.fields import (
    MAX_DEPTH,
    FindingTarget,
    captured_of,
    count_bad,
    field_of,
    item_name,
    part_field,
    parts_of,
    scales_of,
    targets_of,
)
from sonde.capture.show.style import STYLE
from sonde.capture.show.text import clean, duration, number, shown_children, value_text
from sonde.capture.show.thumbnail import thumbnails
from sonde.values import note as kinds
from sonde.values.note import MISSING

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet

    from sonde.capture.call import About, TraceCall
    from sonde.capture.show.fields import Scale
    from sonde.finding import Finding
    from sonde.values.note import CapturedValue, Item, Note

    Stages = Mapping[str, Iterable[TraceCall]]

PICTURE_BYTES = 700_000  # of all pictures on a page; further ones are left out, and that is said
TEXT_BYTES = 4_000_000  # of all values on a page
MAX_CHILDREN = 50
MAX_ITEMS = 8  # that a call lists
OPEN_CALLS = 3  # of a stage, that are open at first, beside those that a finding is about
MAX_LINKS = 6  # of a finding, to the items that it is about
OPEN_PARTS = 2  # of a container, likewise
MAX_INDENT = 3  # levels of calls in calls that are distinguished
MAX_FLAT = 12  # single values in one line

_LISTS = ("dataset_getter", "collate")  # stages in which a value may be a list of items
_CONTAINERS = (kinds.SEQUENCE, kinds.TUPLE, kinds.MAPPING)


class Content(NamedTuple):
    """What is to be shown."""

    stages: Stages
    notes: Sequence[str]
    findings: Sequence[Finding]


def write(path: str | os.PathLike[str], content: Content) -> None:
    """Write a whole page."""
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" '
        'content="light dark">\n<title>Sonde trace</title>\n</head>\n<body class="sonde-page">\n'
        f"{fragment(content)}\n</body>\n</html>\n"
    )
    with replacing(path) as stream:
        stream.write(page.encode("utf-8"))


def fragment(content: Content) -> str:
    """The part of a page that a notebook shows."""
    stages = {name: list(calls) for name, calls in content.stages.items()}
    drawing = _Drawing(stages, [targets_of(finding, stages) for finding in content.findings])
    drawn = "".join(drawing.stage(number, name, calls) for number, (name, calls) in enumerate(stages.items(), 1))
    notes = [*content.notes, *drawing.left_out()]
    return f'<div class="sonde"><style>{STYLE}</style>{_head(stages)}{drawing.findings(content.findings)}{_notes(notes)}{drawn}</div>'


def _safe(words: object) -> str:
    return html.escape(clean(words), quote=True)


# ── above the stages ──


def _head(stages: Mapping[str, list[TraceCall]]) -> str:
    calls = [call for stage in stages.values() for call in stage]
    processes = {call.about.pid for call in calls}
    words = f"{_count(len(calls), 'call')} in {_count(len(stages), 'stage')}"
    words += f", {len(processes)} processes" if len(processes) > 1 else ""
    steps = "".join(_step(name, calls) for name, calls in stages.items())
    return f'<div class="sonde-head"><b>Trace</b> <span>{words}</span></div><div class="sonde-steps">{steps}</div>'


def _step(name: str, calls: list[TraceCall]) -> str:
    empty = "" if calls else " sonde-empty"
    return (
        f'<div class="sonde-step{empty}"><b>{_safe(name)}</b><span>{_count(len(calls), "call")}</span>'
        f"<span>{_total(calls)}</span></div>"
    )


def _count(many: int, what: str) -> str:
    return f"{many} {what}" if many == 1 else f"{many} {what}s"


def _total(calls: list[TraceCall]) -> str:
    """The time of the calls of a stage; one inside another of them is not counted twice."""
    inside = {call.about.seq for call in calls}
    outer = [call.about.duration_ns for call in calls if call.about.parent not in inside]
    known = [taken for taken in outer if taken is not None]
    return duration(sum(known)) if known else "&ndash;"


def _depths(calls: list[TraceCall]) -> list[int]:
    """How many calls of the same stage each call ran in, as far as it is shown."""
    found: dict[int, int] = {}
    for call in calls:
        parent = call.about.parent
        found[call.about.seq] = 0 if parent is None else min(found.get(parent, -1) + 1, MAX_INDENT)
    return [found[call.about.seq] for call in calls]


def _notes(notes: Sequence[str]) -> str:
    lines = "".join(f"<li>{_safe(note)}</li>" for note in notes)
    return f'<div class="sonde-notes"><b>Notes</b><ul>{lines}</ul></div>' if notes else ""


# ── stages, calls, values ──


class _Marks(NamedTuple):
    """The rows of items that findings are about, in a batch or in a list of items."""

    rows: AbstractSet[int] = frozenset()
    listed: bool = False


_UNMARKED = _Marks()


class _Drawing:
    """Draws findings and stages, and keeps the page within its size."""

    def __init__(self, stages: Mapping[str, list[TraceCall]], targets: list[list[FindingTarget]]) -> None:
        self.room = PICTURE_BYTES
        self.text = TEXT_BYTES
        self.no_picture = 0
        self.no_value = 0
        self.scales = scales_of(stages)
        self.targets = targets  # of each finding
        self.marked = {target.seq for several in targets for target in several}  # calls that findings are about
        self.items = {target.item for several in targets for target in several}
        first = next((call.about for calls in stages.values() for call in calls), None)
        # In a notebook there may be several traces: their links must not meet.
        self.mark = f"sonde-{crc32(f'{first.pid} {first.start_ns}'.encode()):x}" if first else "sonde"

    def findings(self, findings: Sequence[Finding]) -> str:
        """What is wrong, each with links to what it is about."""
        lines = "".join(
            f'<li><span class="sonde-{_safe(one.severity)}">{_safe(one.severity)}</span> '
            f"<span>{_safe(one.why)} <i>{_safe(one.next)}</i>{self.links(targets)}</span></li>"
            for one, targets in zip(findings, self.targets, strict=True)
        )
        return (
            f'<div class="sonde-findings"><b>{_count(len(findings), "finding")}</b><ul>{lines}</ul></div>'
            if findings
            else ""
        )

    def links(self, targets: list[FindingTarget]) -> str:
        """To the first few items."""
        return "".join(
            f' <a href="#{self.mark}-{target.seq}">{_safe(target.words)}</a>' for target in targets[:MAX_LINKS]
        )

    def left_out(self) -> list[str]:
        """What the page does not show, in words."""
        pictures = f"{_count(self.no_picture, 'picture')} left out to limit the size of the page."
        values = f"{_count(self.no_value, 'value')} left out to limit the size of the page. print() shows them."
        return ([pictures] if self.no_picture else []) + ([values] if self.no_value else [])

    def stage(self, place: int, name: str, calls: list[TraceCall]) -> str:
        slowest = max((call.about.duration_ns or 0 for call in calls), default=0)
        depths = _depths(calls)
        drawn = "".join(
            self.call(call.about, slowest, number < OPEN_CALLS or call.about.seq in self.marked, depth)
            for number, (call, depth) in enumerate(zip(calls, depths, strict=True))
        )
        return (
            f'<details class="sonde-stage"{" open" if calls else ""}><summary><span class="sonde-number">{place}</span>'
            f"<b>{_safe(name)}</b><span>{_count(len(calls), 'call')}</span>"
            f'<span class="sonde-time">{_total(calls)}</span></summary>{drawn}</details>'
        )

    def call(self, call: About, slowest: int, is_open: bool, depth: int) -> str:
        names = ", ".join(_safe(kept.name) for kept in call.inputs)
        share = 100 * (call.duration_ns or 0) / slowest if slowest else 0
        raised = f'<span class="sonde-critical">raised {_safe(call.error)}</span>' if call.error else ""
        rows = "".join(self.row(call, way, kept) for way, kept in captured_of(call))
        marked = " sonde-marked" if call.seq in self.marked else ""
        return (
            f'<details class="sonde-call sonde-deep{depth}{marked}"{" open" if is_open else ""}><summary><span class="sonde-sign">'
            f"<b>{_safe(dotted_name(call.disp_name, call.func_name))}</b>({names}) &rarr; {_safe(call.result_name)}</span>{raised}"
            f'<span class="sonde-time">{duration(call.duration_ns)}<i><s style="width:{share:.0f}%"></s></i></span>'
            f'</summary><div id="{self.mark}-{call.seq}">{_place(call)}{rows}</div></details>'
        )

    def row(self, call: About, way: str, kept: CapturedValue) -> str:
        """An input of a call, one that it left changed, or its output."""
        rows = {item.position for item in call.items if item_name(item) in self.items} if len(call.items) > 1 else set()
        listed = call.stage_name in _LISTS and kept.note.length == len(call.items)
        drawn = self.value(kept.note, kept.value, field_of(call, way, kept.name), marks=_Marks(rows, listed))
        return (
            f'<div class="sonde-row"><span class="sonde-{way}">{way}</span><span class="sonde-name">{_safe(kept.name)}</span>'
            f'<div class="sonde-value">{drawn}</div></div>'
        )

    def value(
        self,
        note: Note,
        value: object,
        path: str,
        depth: int = 0,
        is_open: bool = True,
        marks: _Marks = _UNMARKED,
    ) -> str:
        """One value, with everything in it."""
        if self.text <= 0:
            self.no_value += 1
            return "&hellip;"
        if note.kind in _CONTAINERS and depth < MAX_DEPTH and not _is_flat(note):
            return self.container(note, value, path, depth, is_open, marks)
        drawn = _array(note) if note.kind == kinds.ARRAY else f"<code>{_flat(note) or _safe(value_text(note))}</code>"
        self.text -= len(drawn)
        return drawn + (self.pictures(value, self.scales.get(path), marks.rows) if note.kind == kinds.ARRAY else "")

    def container(self, note: Note, value: object, path: str, depth: int, is_open: bool, marks: _Marks) -> str:
        """A container that can be folded; what is not finite inside is shown on the fold."""
        length = "" if note.length is None else f" of {note.length}"
        bad = count_bad(note)
        head = (
            f'<summary><span class="sonde-type">{_safe(note.type)}{length}{" (cut)" if note.cut else ""}</span>'
            f"{_not_finite(bad)}</summary>"
        )
        self.text -= len(head)
        children = shown_children(note)
        marked = marks.rows if marks.listed else frozenset()
        below = _UNMARKED if marks.listed else marks
        parts = [
            (place, name, child, part)
            for place, ((name, child), part) in enumerate(zip(children, parts_of(value, len(children)), strict=False))
            if place < MAX_CHILDREN or place in marked
        ]
        drawn = [
            f'<li{" class=sonde-marked" if place in marked else ""}><span class="sonde-name">{_safe(name)}</span><div>'
            f"{self.value(child, part, part_field(path, note, name), depth + 1, place < OPEN_PARTS or place in marked, below)}</div></li>"
            for place, name, child, part in parts
        ]
        left = max(note.length or 0, len(children)) - len(drawn)
        more = f"<li>&hellip; {left} more</li>" if left > 0 else ""
        fold = f'<details class="sonde-fold"{" open" if is_open else ""}>'
        return f'{fold}{head}<ul class="sonde-tree">{"".join(drawn)}{more}</ul></details>'

    def pictures(self, value: object, scale: Scale | None, rows: AbstractSet[int]) -> str:
        """The small pictures of an array, as long as there is room for them; a click enlarges them."""
        if value is MISSING:
            return ""
        drawn = ""
        for name, picture in thumbnails(value, scale, sorted(rows)):
            written = base64.b64encode(picture).decode("ascii")
            if len(written) > self.room:
                self.no_picture += 1
                continue
            self.room -= len(written)
            drawn += (
                f'<details class="sonde-zoom"><summary><img alt="{name}" title="{name}" src="data:image/png;base64,{written}">'
                "</summary></details>"
            )
        range_ = "" if scale is None else f"<i>black to white: {number(scale[0], 3)} to {number(scale[1], 3)}</i>"
        return f'<div class="sonde-pictures">{drawn}{range_}</div>' if drawn else ""


def _is_flat(note: Note) -> bool:
    """Is it a short sequence of single values, which one line can show?"""
    single = not any(child.children or child.kind in (*_CONTAINERS, kinds.ARRAY) for _, child in note.children)
    return note.kind in (kinds.SEQUENCE, kinds.TUPLE) and len(note.children) <= MAX_FLAT and single


def _flat(note: Note) -> str:
    if not _is_flat(note):
        return ""
    return f"{_safe(note.type)} [{', '.join(_safe(value_text(child)) for _, child in note.children)}]"


def _not_finite(many: int | None) -> str:
    return f'<span class="sonde-critical">{many} not finite</span>' if many else ""


def _array(note: Note) -> str:
    """An array without its pictures."""
    shape = " &times; ".join(str(size) for size in note.shape or ()) or "no dimensions"
    device = f" on {_safe(note.device)}" if note.device not in (None, "cpu") else ""
    head = f'<span class="sonde-type">{_safe(note.type)}</span><span class="sonde-shape">{shape}</span>'
    measured = {"min": note.low, "max": note.high, "mean": note.mean, "std": note.std}
    facts = "".join(
        f"<span><i>{name}</i> {number(value, 4)}</span>" for name, value in measured.items() if value is not None
    )
    cut = '<span class="sonde-warn">copy cut</span>' if note.cut else ""
    digest = "" if note.digest is None else f'<span class="sonde-hash"><i>hash</i> {note.digest}</span>'
    return f'<div class="sonde-array">{head}<span>{_safe(note.dtype or "")}{device}</span>{facts}{_not_finite(note.nonfinite)}{cut}{digest}</div>'


def _place(call: About) -> str:
    """Where the call belongs: a line of what is known."""
    known = {
        "phase": None if call.phase is None else _safe(call.phase),
        "epoch": call.epoch,
        "step": call.step,
        "batch": call.batch,
        "worker": call.worker,
        "pid": call.pid or None,
    }
    words = [f"{name} {value}" for name, value in known.items() if value is not None]
    items = ", ".join(_item(item) for item in call.items[:MAX_ITEMS])
    more = f" and {len(call.items) - MAX_ITEMS} more" if len(call.items) > MAX_ITEMS else ""
    words += [f"{'item' if len(call.items) == 1 else 'items'} {items}{more}"] if items else []
    return f'<div class="sonde-place">{" &middot; ".join(words)}</div>' if words else ""


def _item(item: Item) -> str:
    index = _safe(item.position if item.index is None else item.index)
    return index if item.id is None else f"{index} ({_safe(item.id)})"
