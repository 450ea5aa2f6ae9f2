"""Pieces of HTML. Whatever comes from a recording goes through `safe`; the rest is ours."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from sonde.views.safe import printable


def safe(text: object) -> str:
    """Any text, such that a browser shows it and never obeys it."""
    return html.escape(printable(str(text)), quote=True)


def tag(name: str, content: str, css: str = "") -> str:
    """An element around content that is HTML already. `css`: its classes."""
    classes = f' class="{css}"' if css else ""
    return f"<{name}{classes}>{content}</{name}>"


def section(title: str, caption: str, content: str) -> str:
    """A part of the page: its title, a sentence beside it, and what is in it."""
    if not content:
        return ""
    beside = tag("p", caption, "about") if caption else ""
    return tag("section", tag("h2", safe(title)) + beside + content)


def bullets(texts: Iterable[str]) -> str:
    """A list of texts; nothing without any."""
    rows = "".join(tag("li", safe(text)) for text in texts)
    return tag("ul", rows) if rows else ""


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose cells are HTML; a column without any content is left out.

    A title that begins with `<` names a column of texts; the others are numbers.
    """
    kept = [place for place in range(len(titles)) if any(row[place] for row in rows)]
    classes = ["text" if title.startswith("<") else "" for title in titles]
    head = "".join(tag("th", safe(titles[place].lstrip("<")), classes[place]) for place in kept)
    body = "".join(tag("tr", "".join(tag("td", row[place], classes[place]) for place in kept)) for row in rows)
    return tag("div", tag("table", tag("thead", tag("tr", head)) + tag("tbody", body)), "scroll")
