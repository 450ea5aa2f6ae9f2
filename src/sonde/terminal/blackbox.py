"""Draws the page of the black box in a terminal: at most 100 columns wide, or narrow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich.text import Text

from sonde import units
from sonde.analysis.postmortem.stacks import ThreadStack
from sonde.store.certificate import FIRST_WORDS
from sonde.terminal.layout import INDENT, MARGIN, block, heading, items, note
from sonde.terminal.table import TextColumn, lines
from sonde.views.blackbox import BatchLine, BirthLine, Page, RaisedLine, item_names
from sonde.views.safe import printable
from sonde.views.words import extent, later

if TYPE_CHECKING:
    from rich.console import Console

WIDEST = 100
NARROW = 60
LABEL = 7  # cells of "what", "next" and the like
MOST_BIRTHS = 8
MOST_OPEN = 12
MOST_THREADS = 8
ENDS = 2  # frames at each end of a stack
MOST_TRACEBACK = 6
MOST_DUMPS = 12
MOST_LEFT_OUT = 12
MOST_NAMES = 40  # items of a batch that are named in its line
LOUD = "bold white on red"


def draw_page(view: Page, console: Console, *, narrow: bool = False) -> None:
    """The whole page."""
    console.width = min(console.width, NARROW if narrow else WIDEST)
    _head(view, console)
    if view.headline is not None:
        console.print()
        block(console, Text(printable(view.headline[:1].upper() + view.headline[1:]), "bold"), hang=LABEL)
    if view.births:
        _certificate(view, console)
    if view.raised is not None:
        _raised(view.raised, console)
    for place, text in enumerate(view.memory):
        _labelled(console, "" if place else "memory", text, "bold" if not place else "")
    _batches(view.batches, console)
    _open(view, console)
    _threads(view.threads, console)
    _dumps(view, console)
    _rest(view, console)


def _head(view: Page, console: Console) -> None:
    title = Text(printable(view.name), "bold")
    title.append(f"  {printable(view.id)}", "dim")
    title.truncate(console.width, overflow="ellipsis")
    console.print(title, no_wrap=True)
    for line in Text(printable(f"{view.ended} · {view.made_of}"), "dim").wrap(console, console.width):
        line.rstrip()
        console.print(line)


def _labelled(console: Console, label: str, text: str, style: str = "") -> None:
    line = Text.assemble((f"{label:{LABEL}}", "dim"), (printable(text), style))
    block(console, line, hang=LABEL)


def _banner(console: Console, word: str) -> None:
    console.print()
    line = Text(MARGIN)
    line.append(f" {printable(word)} ", LOUD)
    line.truncate(console.width, overflow="ellipsis")
    console.print(line, no_wrap=True)


def _certificate(view: Page, console: Console) -> None:
    first, others = view.births[0], view.births[1:]
    _banner(console, "FIRST NAN")
    block(console, Text(f"{FIRST_WORDS[first.certificate['kind']]}: {printable(first.sentence)}", "bold"), hang=LABEL)
    _labelled(console, "what", first.amount)
    _inputs(first, console)
    if first.code and first.code not in first.sentence:
        _labelled(console, "code", first.code)
    _labelled(console, "next", f"{first.next}.", "bold")
    if view.dump is not None and any(one.kept == "full" for one in view.batches):
        _labelled(console, "", f"With pictures of the items: sonde blackbox {view.id} --html page.html", "dim")
    for one in others[:MOST_BIRTHS]:
        _labelled(console, "then", _later(one, first))
    if len(others) > MOST_BIRTHS:
        _labelled(
            console, "", f"and {units.plural(len(others) - MOST_BIRTHS, 'more process', 'more processes')}", "dim"
        )
    if view.later:
        _labelled(console, "then", later(view.later))


def _later(one: BirthLine, first: BirthLine) -> str:
    if one.when_ns is None or first.when_ns is None:
        return one.sentence
    sign = "+" if one.when_ns >= first.when_ns else "-"
    return f"{sign}{units.duration(abs(one.when_ns - first.when_ns))}: {one.sentence}"


def _inputs(birth: BirthLine, console: Console) -> None:
    """The inputs one by one, if there are several: of one the sentence has said it all."""
    inputs = birth.certificate["inputs"]
    if len(inputs) < 2:
        return
    for one in inputs:
        shape = " x ".join(map(str, one["shape"])) if one["shape"] else "scalar"
        wording = f"{one['name']}: {shape} {one['dtype'] or ''}, {extent(one)}"
        _labelled(console, "input", wording.strip())


def described(value: dict[str, Any]) -> str:
    """`16 x 3 x 32 x 32 float32, 0 to 1, mean 0.5`; of what is no array its type."""
    if value["shape"] is None:
        return value["type"] or "n/a"
    shape = " x ".join(map(str, value["shape"])) if value["shape"] else "scalar"
    return f"{shape} {value['dtype'] or ''}, {extent(value)}"


def _raised(raised: RaisedLine, console: Console) -> None:
    _banner(console, raised.type)
    first = raised.message.strip().splitlines()
    block(console, Text(printable(first[0] if first else "(no message)"), "bold"), hang=LABEL)
    step = "" if raised.step is None else f", step {raised.step}"
    _labelled(console, "in", f"{raised.who}{step}")
    if raised.item is not None:
        _labelled(console, "item", raised.item, "bold")
    for place, frame in enumerate(raised.frames[:MOST_TRACEBACK]):
        _labelled(console, "" if place else "at", frame)
    if len(raised.frames) > MOST_TRACEBACK:
        _labelled(
            console, "", f"and {units.plural(len(raised.frames) - MOST_TRACEBACK, 'more frame')}; --json has all", "dim"
        )
    _labelled(console, "next", raised.next, "bold")


# ── what was there ───────────────────────────────────────────────────────────────────────────────────────────────────


def _batches(batches: list[BatchLine], console: Console) -> None:
    if not batches:
        return
    heading(console, "last batches, newest at the bottom")
    columns = [
        TextColumn("process", [one.who for one in batches], need=4, right=False),
        TextColumn("step", [_count(one.step) for one in batches]),
        TextColumn("epoch", [_count(one.epoch) for one in batches], need=5),
        TextColumn("batch", [_count(one.batch) for one in batches]),
        TextColumn("size", [_count(one.size) for one in batches], need=6),
        TextColumn(
            "loss", [_loss(one.loss) for one in batches], need=1, styles=[_loss_style(one.loss) for one in batches]
        ),
        TextColumn("digest", [_digest(one) for one in batches], need=3, right=False),
        TextColumn(
            "since delivery",
            [_changed(one) for one in batches],
            need=2,
            right=False,
            styles=[_changed_style(one) for one in batches],
        ),
        TextColumn("items", [_names(one) for one in batches], right=False, least=16),
    ]
    kept = [column for column in columns if set(column.cells) - {"", "n/a"} or column.title in ("step", "items")]
    for line in lines(kept, console.width - INDENT):
        console.print(Text(MARGIN) + line, no_wrap=True, overflow="crop")
    if any(one.sampled and one.digest is not None for one in batches):
        note(console, "~ the digest covers a sample of the bytes", "dim")
    for one in batches:
        _guilty(one, console)
    _saved_values(batches, console)


def _count(number: int | None) -> str:
    return "n/a" if number is None else units.count(number)


def _loss(loss: float | None) -> str:
    return "n/a" if loss is None else units.brief(loss)


def _loss_style(loss: float | None) -> str:
    return "bold red" if loss is not None and not math.isfinite(loss) else ""


def _digest(one: BatchLine) -> str:
    return "" if one.digest is None else one.digest[:8] + ("~" if one.sampled else "")


def _changed(one: BatchLine) -> str:
    if one.changed is None:
        return ""
    return "CHANGED" if one.changed else "unchanged" + ("~" if one.sampled else "")


def _changed_style(one: BatchLine) -> str:
    return "bold yellow" if one.changed else ""


def _names(one: BatchLine) -> str:
    names = item_names(one)
    guilty = [place for place in one.culprits if place < len(names)]
    wording = [f"{names[place]} (at {place})" for place in guilty]
    wording += [name for place, name in enumerate(names) if place not in set(guilty)]
    more = f", ... ({units.count(one.size)})" if len(wording) > MOST_NAMES and one.size else ""
    return ", ".join(wording[:MOST_NAMES]) + more or "n/a"


def _guilty(one: BatchLine, console: Console) -> None:
    names = item_names(one)
    named = [
        f"item {names[place]} at position {place}" if place < len(names) else f"position {place}"
        for place in one.culprits
    ]
    if named:
        wording = ", ".join(named[:4]) + (f" and {len(named) - 4} more" if len(named) > 4 else "")
        block(console, Text(printable(f"batch {_count(one.batch)}: {wording}"), "red"), hang=INDENT)


def _saved_values(batches: list[BatchLine], console: Console) -> None:
    """What of their values is there: of the newest batch, and whether the others differ."""
    newest = batches[-1]
    if not newest.values and newest.kept in (None, "full"):
        return
    words = {
        "full": "values",
        "summary": "summaries only (setting `values`)",
        "off": "no values (setting `values`)",
        "too large": "summaries only: larger than the limit",
        "gone": "summaries only: the program had already freed it",
    }
    _labelled(console, "kept", f"{words.get(newest.kept or '', 'n/a')}, newest batch:", "dim")
    for value in newest.values[:8]:
        bad = f", {units.count(value['nonfinite'])} non-finite" if value["nonfinite"] else ""
        line = Text(f"{'':{LABEL}}")
        line.append(printable(f"{value['path']}: {described(value)}"))
        line.append(bad, "bold red")
        block(console, line, hang=LABEL + INDENT)


def _open(view: Page, console: Console) -> None:
    if not view.open:
        return
    heading(console, "open spans")
    for one in view.open[:MOST_OPEN]:
        who = f"{one.who}: " if one.who else ""
        thread = f", thread {one.thread}" if one.thread and one.thread != "MainThread" else ""
        note(console, f"{who}{one.label} for {units.duration(one.for_ns)}{thread}")
    if len(view.open) > MOST_OPEN:
        note(console, f"and {units.count(len(view.open) - MOST_OPEN)} more; --json has all", "dim")


def _threads(threads: list[ThreadStack], console: Console) -> None:
    if not threads:
        return
    heading(console, units.plural(len(threads), "thread"))
    shown = sorted(threads, key=lambda one: not one.current)[:MOST_THREADS]
    for one in shown:
        frames = " < ".join(_ends(one.frames)) or ("has left Python" if one.current else "no Python frame")
        line = Text(printable(one.name) + (" (current)" if one.current else ""), "bold" if one.current else "")
        line.append(f"  {printable(frames)}", "not bold")
        block(console, line, hang=INDENT)
    if len(threads) > len(shown):
        note(console, f"and {units.count(len(threads) - len(shown))} more; --json has all", "dim")


def _ends(frames: list[str]) -> list[str]:
    """The innermost frames and the outermost ones: between them are those of libraries, as a rule."""
    left_out = len(frames) - 2 * ENDS
    return frames if left_out < 2 else [*frames[:ENDS], f"{left_out} more", *frames[-ENDS:]]


def _dumps(view: Page, console: Console) -> None:
    if len(view.dumps) < 2:
        return
    heading(console, f"{len(view.dumps)} dumps")
    for one in view.dumps[:MOST_DUMPS]:
        step = "" if one.step is None else f", step {one.step}"
        here = "  (this page)" if one.shown else ""
        note(
            console,
            f"{one.number}  {units.when(one.when_ns)}  {one.who}{step}: {one.why}{here}",
            "bold" if one.shown else "",
        )
    if len(view.dumps) > MOST_DUMPS:
        note(console, f"and {units.count(len(view.dumps) - MOST_DUMPS)} more; --json has all", "dim")
    note(console, "show another with --dump N", "dim")


def _rest(view: Page, console: Console) -> None:
    if view.left_out:
        heading(console, "left out")
        items(console, view.left_out[:MOST_LEFT_OUT])
        if len(view.left_out) > MOST_LEFT_OUT:
            note(console, f"and {units.count(len(view.left_out) - MOST_LEFT_OUT)} more; --json has all", "dim")
    if view.dump is not None:
        console.print()
        note(console, f"Files: {view.path}/blackbox/{view.dump}", "dim")
    for text in view.notes:
        note(console, f"Note: {text}.", "yellow")
