"""The verdict and the other findings on the page of a report, each with its evidence and the queries behind it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sonde import units
from sonde.html.markup import safe, table, tag

if TYPE_CHECKING:
    from sonde.views.report import Report, Verdict

MOST_EVIDENCE = 60  # numbers of a finding
MOST_QUERY = 2000  # characters
MOST_ROWS = 20  # of what a finding names, such as items


def verdict_box(view: Report) -> str:
    """The verdict, and in the same box what it is the cause of."""
    one = view.verdict
    sure = f"{one.severity}, {units.share(one.confidence)} sure"
    content = tag("span", safe(one.kind), "kind") + tag("span", safe(sure), "sure")
    content += tag("p", safe(one.why), "why") + tag("p", safe(one.next), "next")
    effects = [other for other in view.findings[1:] if other.because == one.kind]
    listed = "".join(
        tag("li", tag("b", safe(other.kind)) + f" {safe(other.why)}" + _evidence(other.evidence)) for other in effects
    )
    caused = tag("div", tag("p", "It explains", "soft") + tag("ul", listed), "caused") if listed else ""
    return tag("div", content + _evidence(one.evidence) + caused, f"verdict {_severity(one)}")


def finding_box(one: Verdict) -> str:
    """Another finding, smaller."""
    text = tag("p", tag("span", safe(one.kind), "kind") + safe(one.why)) + tag("p", safe(one.next), "soft")
    return tag("div", text + _evidence(one.evidence), f"finding {_severity(one)}")


def _severity(one: Verdict) -> str:
    return one.severity if one.severity in ("info", "warn", "critical") else "info"


def _evidence(evidence: dict[str, Any]) -> str:
    """The numbers, and the queries that they come from, to be unfolded."""
    numbers, queries = (part if isinstance(part, dict) else {} for part in map(evidence.get, ("numbers", "queries")))
    others = {name: value for name, value in evidence.items() if name not in ("numbers", "queries", "score", "failure")}
    shown = list((numbers | others).items())[:MOST_EVIDENCE]
    if not shown:
        return ""
    rows = [[safe(_plain(name)), tag("div", _shown(name, value), "long")] for name, value in shown]
    asked = "".join(
        tag("p", safe(_plain(name))) + tag("pre", safe(str(queries[name])[:MOST_QUERY]))
        for name, _ in shown
        if name in queries
    )
    asked = tag("details", tag("summary", "The queries behind these numbers") + asked) if asked else ""
    return tag("details", tag("summary", "Evidence") + table(["<", "<"], rows) + asked, "evidence")


def _plain(name: str) -> str:
    return name.replace("_", " ").removesuffix(" ns").removesuffix(" bytes")


def _shown(name: str, value: Any) -> str:
    """A number, or a small table of what has several."""
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        return safe(_measured(name, value))
    titles = [title for title in value[0] if title not in ("query", "queries")]
    rows = [[safe(_measured(title, one.get(title))) for title in titles] for one in value[:MOST_ROWS]]
    return table([f"<{_plain(title)}" for title in titles], rows)


def _measured(name: str, value: Any) -> str:
    """A value as its name says what it is; nothing where there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        empty = value is None or value in ([], {}, "")
        return "" if empty else value if isinstance(value, str) else json.dumps(value, default=str)[:MOST_QUERY]
    if name.endswith((" ns", "_ns")):
        return units.duration(value)
    if name.endswith((" bytes", "_bytes")):
        return units.size(round(value))
    return units.share(value) if "share" in name else units.number(value)
