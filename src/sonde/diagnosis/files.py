"""File reads recorded by `--io`: how much is read for an item, and which files are unusual."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.figures import Asker, Figures, literal
from sonde.store import probe

if TYPE_CHECKING:
    from sonde.diagnosis.loading import Loading
    from sonde.diagnosis.policy import Policy

MOST_FILES = 10  # that are listed
COLD, CACHED = 0.5, 0.05  # shares of an item's bytes that came from a disk: at least, and at most


@dataclass(frozen=True)
class SlowFile:
    """A file that takes many times as long to read as others do. `bytes`: in one load."""

    path: str
    loads: int
    bytes: int
    median_ns: float
    total_ns: int
    query: str  # the median


@dataclass(frozen=True)
class FileFacts:
    """All of it. Nothing is known where files were not watched, or training does not wait for data."""

    reads: Figures = field(default_factory=lambda: Figures({}, {}))  # of all items of the main loader
    items: Figures = field(default_factory=lambda: Figures({}, {}))
    again: Figures = field(default_factory=lambda: Figures({}, {}))  # of the file that was opened most often
    usual: Figures = field(default_factory=lambda: Figures({}, {}))  # of a file in one load: time and rate
    cold: Figures = field(default_factory=lambda: Figures({}, {}))  # loads from the disk, and from the page cache
    slow: list[SlowFile] = field(default_factory=list)
    ranks: dict[int | None, tuple[str, int]] = field(
        default_factory=dict
    )  # the file that a rank waits for, and its bytes


def gather_files(ask: Asker, policy: Policy, loading: Loading) -> FileFacts:
    """Ask about files, if they were watched and training waits for data."""
    if loading.main is None or not ask.seen(probe.IO, [probe.READ]):
        return FileFacts()
    loader = f"loader IN ({', '.join(map(str, loading.main.numbers))})"
    source = f"reads WHERE {loader} AND position IS NOT NULL"
    items = ask.one(
        f"items WHERE {loader} AND bytes IS NOT NULL AND dur_ns IS NOT NULL",
        {"count": "count(*)", "total": "sum(dur_ns)", "bytes": "median(bytes)"},
    )
    reads = ask.one(source, {"calls": "sum(calls)", "bytes": "sum(bytes)", "total": "sum(dur_ns)"})
    usual = ask.one(
        f"{source} AND dur_ns IS NOT NULL", {"p50": "median(dur_ns)", "rate": "median(bytes / greatest(dur_ns, 1))"}
    )
    found = ask.rows(f"SELECT file FROM {source} AND file IS NOT NULL GROUP BY 1 ORDER BY sum(opens) DESC, 1 LIMIT 1")
    again = Figures({}, {})
    if found:
        again = ask.one(
            f"{source} AND file = {literal(found[0][0])}",
            {"opens": "sum(opens)", "bytes": "sum(bytes)", "total": "sum(dur_ns)", "size": "max(size)"},
        )
        again.which["file"] = found[0][0]
    slow = _slow(ask, policy, source, usual)
    return FileFacts(reads, items, again, usual, _cold(ask, source), slow, _by_rank(ask, loader))


def _cold(ask: Asker, source: str) -> Figures:
    """Loads whose bytes came from the disk, and loads from the page cache. In between is what reading ahead has brought."""
    place = "process, loader, round, batch, position"
    epoch = "dense_rank() OVER (PARTITION BY process ORDER BY loader, round)"  # some programs make a loader for each
    each = (
        f"(SELECT {place}, sum(bytes) AS size, sum(disk_bytes) AS disk, {epoch} AS pass FROM {source} GROUP BY {place} "
        "HAVING size > 0 AND disk IS NOT NULL)"
    )
    cold, cached = f"disk >= {COLD} * size", f"disk <= {CACHED} * size"
    return ask.one(
        f"{each} JOIN items USING ({place}) WHERE dur_ns IS NOT NULL",
        {
            "bytes": "sum(size)",
            "disk": "sum(least(disk, size))",
            "cold": f"count(*) FILTER ({cold})",
            "cold_p50": f"median(dur_ns) FILTER ({cold})",
            "cold_total": f"sum(dur_ns) FILTER ({cold})",
            "cached": f"count(*) FILTER ({cached})",
            "cached_p50": f"median(dur_ns) FILTER ({cached})",
            "later": f"count(*) FILTER ({cold} AND pass > 1)",
            "epochs": "count(DISTINCT pass)",
        },
    )


def _slow(ask: Asker, policy: Policy, source: str, usual: Figures) -> list[SlowFile]:
    """Files that take long, and whose bytes come more slowly than those of others: not those that are only large."""
    middle, rate = usual["p50"].or_zero(), usual["rate"].or_zero()
    least = max(middle * policy["slow_file.times"], 1e6 * policy["slow_file.least_ms"])
    each = (
        "(SELECT file, count(*) AS loads, max(bytes) AS bytes, quantile_disc(dur_ns, 0.5) AS median_ns, sum(dur_ns) AS total_ns "
        f"FROM {source} AND dur_ns IS NOT NULL AND file IS NOT NULL GROUP BY file) "
        f"WHERE median_ns >= {least!r} AND bytes / median_ns * {policy['slow_file.rate_times']!r} <= {rate!r}"
    )
    found = ask.rows(
        f"SELECT file, loads, bytes, median_ns, total_ns::BIGINT FROM {each} ORDER BY total_ns DESC, file LIMIT {MOST_FILES}"
    )
    return [
        SlowFile(path, loads, size, median, total, f"SELECT median_ns FROM {each} AND file = {literal(path)}")
        for path, loads, size, median, total in found
    ]


def _by_rank(ask: Asker, loader: str) -> dict[int | None, tuple[str, int]]:
    """For each rank the file that its items took the longest for."""
    found = ask.rows(
        "SELECT rank, arg_max(file, total), arg_max(bytes, total) FROM (SELECT rank, file, sum(dur_ns) AS total, max(bytes) AS bytes "
        f"FROM items WHERE {loader} AND file IS NOT NULL AND dur_ns IS NOT NULL GROUP BY ALL) GROUP BY rank"
    )
    return {rank: (file, size) for rank, file, size in found}


def named(path: str, size: float | None, usual: float | None) -> str:
    """A file with its size: `8412.tar (1.2 GB, 40 times the median item)`."""
    short = os.sep.join(path.split(os.sep)[-2:])
    if size is None:
        return short
    times = "" if not usual or size < 2 * usual else f", {size / usual:.0f} times the median item"
    return f"{short} ({units.size(size)}{times})"
