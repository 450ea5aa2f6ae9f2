"""The summary of a part: small, and enough to open a run without reading any of its tables.

Summaries merge: lists are joined, counts and sums added, histograms added bucket by bucket.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.analysis.records import schema
from sonde.analysis.records.names import NameCount
from sonde.store.file import read_small

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VERSION = 1  # to be raised when the same events would give other tables
# The files of a part. `beside` has the events that `events` lacks: all but those that only steps, batches and items are made of.
TABLES = ("events", "beside", "steps", "losses", "batches", "items", "layers", "ledger", "pyramid")
MAX_BYTES = 256 << 20

# What is kept of each process: more than the tables show, so that ends can be determined again when all processes are known.
COLUMNS = (*schema.PROCESSES, *schema.MORE, ("program_exit", "BIGINT"))

Row = dict[str, Any]


class TableFile(NamedTuple):
    """A file of a part: its rows, its size, and its SHA-256."""

    rows: int
    bytes: int
    digest: str


class LaneSpans(NamedTuple):
    """The spans of a thread: how many, how deep, and the levels that it has in the pyramid. No `lowest`: each is there by itself."""

    process: str
    lane: int | None
    thread: str | None
    spans: int
    depth: int
    lowest: int | None
    highest: int


class PartSummary(NamedTuple):
    """What is known of the processes of a part. Everything that is listed by process has its name as in the run folder.

    `rows`: all facts about each process, as it recorded them itself. `names`: the kinds of its events. `exits`: what it saw of the
    ends of others. `gaps`: medians of the time between two records with only Sonde's own code between them. `named`: time in the
    program's own spans outside of phases. `files`: by table. `lanes`: what the pyramid holds; None: the part has none.
    """

    run: str
    rows: list[Row]
    names: dict[str, list[NameCount]]
    first_ns: int | None
    exits: list[tuple[Any, ...]]
    gaps: dict[str, list[tuple[float, int]]]
    named: dict[str, list[tuple[str, str, int]]]
    files: dict[str, TableFile]
    lanes: list[LaneSpans] | None

    @property
    def processes(self) -> list[str]:
        """The names of its processes."""
        return [row["process"] for row in self.rows]

    @property
    def events(self) -> int:
        """How many events it has."""
        return sum(row["events"] for row in self.rows)


class SummaryFault(ValueError):
    """What is wrong with a summary, as the end of a sentence."""


def text_of(summary: PartSummary) -> str:
    """A summary as it is written."""
    return json.dumps({"version": VERSION, **summary._asdict()}, separators=(",", ":"))


def read_summary(path: Path) -> tuple[PartSummary, str]:
    """A summary and its digest. Raises OSError, or SummaryFault."""
    content = read_small(path, MAX_BYTES)
    try:
        found = json.loads(content)
        version = found["version"]
        summary = _summary(found) if version == VERSION else None
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise SummaryFault("is damaged") from None
    if summary is None:
        raise SummaryFault(f"has version {version!r}; this version of Sonde reads version {VERSION}")
    return summary, hashlib.sha256(content).hexdigest()


def _summary(found: Mapping[str, Any]) -> PartSummary:
    first = found["first_ns"]
    return PartSummary(
        run=str(found["run"]),
        rows=[_row(one) for one in found["rows"]],
        names={str(process): [_name(*one) for one in names] for process, names in found["names"].items()},
        first_ns=None if first is None else int(first),
        exits=[tuple(one) for one in found["exits"]],
        gaps={str(one): [(float(ns), int(count)) for ns, count in gaps] for one, gaps in found["gaps"].items()},
        named={
            str(one): [(str(cat), str(name), int(ns)) for cat, name, ns in some] for one, some in found["named"].items()
        },
        files={
            _file(name): TableFile(int(rows), int(size), str(digest))
            for name, (rows, size, digest) in found["files"].items()
        },
        lanes=None
        if found.get("lanes") is None
        else [_lane(*one) for one in found["lanes"]],  # earlier parts have none
    )


def _file(name: str) -> str:
    if name.removesuffix(".parquet") not in TABLES:
        raise ValueError(name)
    return name


def _row(found: Mapping[str, Any]) -> Row:
    row: Row = {}
    for name, type in COLUMNS:
        value: Any = found.get(name) if name == "attempt" else found[name]  # earlier parts have none
        right = isinstance(value, int) if type == "BIGINT" else isinstance(value, str)
        if name == "notes":
            value, right = [str(one) for one in value], True
        if not right and value is not None:
            raise TypeError(name)
        row[name] = value
    return row


def _lane(
    process: str, lane: int | None, thread: str | None, spans: int, depth: int, lowest: int | None, highest: int
) -> LaneSpans:
    number = None if lane is None else int(lane)
    name = None if thread is None else str(thread)
    return LaneSpans(
        str(process), number, name, int(spans), int(depth), None if lowest is None else int(lowest), int(highest)
    )


def _name(kind: str, cat: str, name: str, lane: int, open: bool, count: int) -> NameCount:
    return NameCount(str(kind), str(cat), str(name), int(lane), bool(open), int(count))
