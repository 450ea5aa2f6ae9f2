"""The page of the black box: the first NaN or the exception, then the last batches with pictures of their items."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sonde import units
from sonde.html.document import document
from sonde.html.items import gallery
from sonde.html.markup import bullets, safe, section, table, tag
from sonde.html.style import BLACKBOX_STYLE
from sonde.store.certificate import FIRST_WORDS
from sonde.views.blackbox import item_names
from sonde.views.words import extent, later

if TYPE_CHECKING:
    from sonde.analysis.postmortem.stacks import ThreadStack
    from sonde.views.blackbox import BatchLine, BirthLine, DumpLine, Page, RaisedLine
    from sonde.views.items import Case

KIND = "black box"
MOST_BIRTHS = 64
MOST_DUMPS = 200
MOST_THREADS = 64
MOST_FRAMES = 40
MOST_OPEN = 100
MOST_NAMES = 512  # items of a batch that are named


def box_page(view: Page, cases: list[Case]) -> str:
    """The whole file, in ASCII."""
    parts = [
        _head(view),
        tag("h2", safe(view.headline[:1].upper() + view.headline[1:])) if view.headline is not None else "",
        _certificate(view),
        _raised(view.raised),
        section("Memory", "", bullets(view.memory)) if view.memory else "",
        _cases(cases),
        _open(view),
        _threads(view.threads),
        _dumps(view.dumps),
        _foot(view),
    ]
    title = "First NaN" if view.births else view.raised.type if view.raised else "Black box"
    content = "\n".join(part for part in parts if part)
    return document(f"{title}: {view.name}", KIND, BLACKBOX_STYLE, content, pictures=True)


def _head(view: Page) -> str:
    return tag(
        "header",
        tag("h1", safe(view.name))
        + tag("p", safe(f"{view.id} · {view.ended}"), "id")
        + tag("p", safe(view.made_of), "made"),
    )


# ── what went wrong ──────────────────────────────────────────────────────────────────────────────────────────────────


def _certificate(view: Page) -> str:
    if not view.births:
        return ""
    first = view.births[0]
    rows = _rows(first) | {"what": safe(first.amount)} | _inputs(first.certificate["inputs"])
    facts = "".join(tag("dt", safe(name)) + tag("dd", value) for name, value in rows.items() if value)
    then = "".join(tag("li", safe(one.sentence)) for one in view.births[1 : MOST_BIRTHS + 1])
    others = tag("p", "In other processes, later:", "caps") + tag("ul", then, "then") if then else ""
    others += tag("p", safe(f"{later(view.later)}."), "note") if view.later else ""
    wording, _, tail = first.sentence.partition("; ")
    inner = tag("p", "Black box", "caps") + tag("h2", f"{FIRST_WORDS[first.certificate['kind']]}: {_marked(wording)}")
    inner += tag("p", safe(tail), "tail") if tail else ""
    return tag("div", tag("div", inner + tag("dl", facts) + _next(f"{first.next}.") + others), "deed")


def _marked(sentence: str) -> str:
    """The sentence, with the names between backticks in colour."""
    pieces = sentence.split("`")
    return "".join(tag("em", safe(piece)) if place % 2 else safe(piece) for place, piece in enumerate(pieces))


def _rows(birth: BirthLine) -> dict[str, str]:
    one = birth.certificate
    step = "n/a" if one["step"] is None else units.count(one["step"])
    epoch = "" if one["epoch"] is None else f", epoch {one['epoch']}"
    purpose = ", evaluation" if one["evaluation"] else ""
    process = "" if birth.pid is None else f"process {birth.pid}"
    rank = "" if birth.rank is None else f"rank {birth.rank}, "
    worker = "" if birth.worker is None else f"worker {birth.worker}, "
    return {
        "step": tag("b", safe(step)) + safe(epoch + purpose),
        "process": safe(f"{rank}{worker}{process}" + (f" on {birth.host}" if birth.host else "")),
        "layer": _named(one["layer"], one["type"]),
        "code": safe(", ".join(word for word in (one["op"], birth.code) if word)),
        "items": _carriers(one),
    }


def _named(layer: str | None, type: str | None) -> str:
    name = "" if layer is None else tag("b", safe(layer or "(the model)"))
    return name + safe(f" {type}" if type else "")


def _carriers(one: dict[str, Any]) -> str:
    named = []
    for item in one["items"]:
        name = item["index"] if item["index"] is not None else item["id"]
        id = f" (id {item['id']})" if item["index"] is not None and item["id"] not in (None, str(item["index"])) else ""
        at = "" if item["position"] is None else f" at position {item['position']}"
        named.append(tag("b", safe("" if name is None else name)) + safe(id + at))
    more = one["items_total"] - len(named)
    return ", ".join(named) + (safe(f" and {more} more") if more > 0 else "") if named else ""


def _inputs(inputs: list[dict[str, Any]]) -> dict[str, str]:
    wording = {}
    for one in inputs:
        shape = " x ".join(map(str, one["shape"])) if one["shape"] else "scalar"
        wording[f"input {one['name']}"] = safe(f"{shape} {one['dtype'] or ''}: {extent(one)}")
    return wording


def _next(text: str) -> str:
    return tag("p", tag("span", "Next") + safe(text), "next")


def _raised(raised: RaisedLine | None) -> str:
    if raised is None:
        return ""
    facts = {"in": raised.who, "step": "" if raised.step is None else str(raised.step), "item": raised.item or ""}
    listed = "".join(tag("dt", safe(name)) + tag("dd", tag("b", safe(value))) for name, value in facts.items() if value)
    frames = "\n".join(safe(frame) for frame in raised.frames[:MOST_FRAMES])
    message = raised.message if len(raised.message) <= 400 else raised.message[:400] + " ..."
    inner = tag("p", "Exception", "caps") + tag("h2", tag("em", safe(raised.type)) + f": {safe(message)}")
    inner += tag("dl", listed) + (tag("pre", frames) if frames else "") + _next(raised.next)
    return tag("div", tag("div", inner), "deed")


# ── the last batches ─────────────────────────────────────────────────────────────────────────────────────────────────


def _cases(cases: list[Case]) -> str:
    drawn = "".join(map(_case, cases))
    shown = any(case.exhibits for case in cases)
    wording = "Newest first."
    if shown:
        wording += ' Affected items come first; <i class="dot swatch"></i>marks non-finite values.'
    return section("Last batches", wording, drawn) if drawn else ""


def _case(case: Case) -> str:
    line = case.batch
    more = (
        tag("p", safe(f"{units.plural(case.more, 'more item')} of this batch not shown."), "note") if case.more else ""
    )
    if case.rest:
        opened = tag("summary", safe(units.plural(len(case.rest), "more item"))) + gallery(case.rest)
        more = tag("details", opened) + more
    notes = "".join(tag("p", safe(note), "note") for note in case.notes)
    return tag("div", _title(line) + gallery(case.exhibits) + more + notes + _values(line) + _names(line), "batch")


def _title(line: BatchLine) -> str:
    number = "n/a" if line.batch is None else units.count(line.batch)
    facts = [
        line.who,
        "" if line.step is None else f"step {line.step}",
        "" if line.epoch is None else f"epoch {line.epoch}",
        "" if line.size is None else units.plural(line.size, "item"),
        "" if line.worker is None else f"worker {line.worker}",
    ]
    spans = "".join(tag("span", safe(fact)) for fact in facts if fact) + _loss(line.loss)
    if line.digest is not None:
        spans += tag("span", safe(f"digest {line.digest}" + (" (of a sample)" if line.sampled else "")))
    if line.changed is not None:
        wording = "changed since delivery" if line.changed else "unchanged since delivery"
        spans += tag("span", wording, "turned" if line.changed else "")
    return tag("h3", safe(f"Batch {number}") + spans)


def _loss(loss: float | None) -> str:
    if loss is None:
        return ""
    return tag("span", safe(f"loss {units.brief(loss)}"), "" if math.isfinite(loss) else "bad")


def _values(line: BatchLine) -> str:
    if not line.values:
        return tag("p", safe(f"Values: {line.kept}."), "note") if line.kept not in (None, "full") else ""
    rows = [
        [
            safe(one["path"]),
            safe(one["type"] or ""),
            safe(" x ".join(map(str, one["shape"])) if one["shape"] else ""),
            safe(one["dtype"] or ""),
            *(("" if one[name] is None else units.brief(one[name])) for name in ("min", "max", "mean", "std")),
            tag("span", units.count(one["nonfinite"]), "bad") if one["nonfinite"] else "",
            safe("" if one["file"] is None else one["file"] + (" (cut)" if one["cut"] else "")),
        ]
        for one in line.values
    ]
    titles = ["<value", "<type", "<shape", "<dtype", "min", "max", "mean", "std", "non-finite", "<file"]
    return tag("details", tag("summary", units.plural(len(rows), "value")) + table(titles, rows))


def _names(line: BatchLine) -> str:
    names = item_names(line)
    if not names:
        return ""
    more = f" ... ({units.plural(len(names) - MOST_NAMES, 'more')})" if len(names) > MOST_NAMES else ""
    listed = ", ".join(names[:MOST_NAMES]) + more
    return tag("details", tag("summary", "Items, in order") + tag("pre", safe(listed)))


# ── the rest ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _open(view: Page) -> str:
    rows = [
        [safe(one.who), safe(one.label), units.duration(one.for_ns), safe(one.thread or "")]
        for one in view.open[:MOST_OPEN]
    ]
    return section(
        "Open spans", "Spans that had not ended.", table(["<process", "<span", "for", "<thread"], rows) if rows else ""
    )


def _threads(threads: list[ThreadStack]) -> str:
    drawn = "".join(_thread(one) for one in sorted(threads, key=lambda one: not one.current)[:MOST_THREADS])
    return section("Threads", "Stack of each thread, innermost call first.", drawn)


def _thread(one: ThreadStack) -> str:
    frames = "".join(tag("li", safe(frame)) for frame in one.frames[:MOST_FRAMES])
    name = tag("b", safe(one.name)) + (tag("span", " (current)", "soft") if one.current else "")
    if len(one.frames) <= 3:
        return tag("div", name + tag("ul", frames, "frames"), "thread")
    inner = safe(f" {one.frames[0]}")
    return tag("details", tag("summary", name + tag("span", inner, "soft")) + tag("ul", frames, "frames"), "thread")


def _dumps(dumps: list[DumpLine]) -> str:
    if len(dumps) < 2:
        return ""
    rows = [
        [
            str(one.number),
            units.when(one.when_ns),
            safe(one.who),
            "" if one.step is None else units.count(one.step),
            safe(one.why),
            "this page" if one.shown else "",
        ]
        for one in dumps[:MOST_DUMPS]
    ]
    titles = ["number", "<written", "<by", "step", "<because", "<"]
    return section(
        "All dumps of the run",
        safe("Show another with `sonde blackbox RUN --dump N --html FILE`."),
        table(titles, rows),
    )


def _foot(view: Page) -> str:
    left = tag("h3", "Left out") + bullets(view.left_out) if view.left_out else ""
    notes = tag("h3", "Notes") + bullets(view.notes) if view.notes else ""
    files = tag("p", safe(f"{view.path}/blackbox/{view.dump}"), "id") if view.dump is not None else ""
    return tag("footer", left + notes + files)
