"""The rows of steps of a sealed run, kept beside the tables that they were made of: to make them again takes most of a report.

`steps.parquet` has the columns of which the steps have more than one value, each as the distance to its smallest value; where
some have none, 0 stands for that, and the distances begin at 1. `steps.json` has all the rest: which values the other columns
have, what came after the last step of each process, which names the events have, and digests of the table and of the sealed
tables. What does not fit them is not used, and made again of the events.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.analysis.records.builder import LEAST_PART
from sonde.analysis.records.columns import LEAST, PackedRows, distance, number_text
from sonde.analysis.records.locate import EVENTS_FILE, PROCESSES_FILE, STEPS_FILE, STEPS_TABLE
from sonde.analysis.records.names import NameCount
from sonde.analysis.records.schema import quoted
from sonde.analysis.training.reader import arrays
from sonde.lazy import numpy as np
from sonde.store.file import RegularFile, read_small

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import duckdb
    from numpy.typing import NDArray

    Columns = Mapping[str, str]  # name -> type in DuckDB

VERSION = 5  # also to be raised when the same events would give other steps
MOST_NAMES = 100_000  # in the name_counts of a run: with more of them it is not kept
MAX_BYTES = 64 << 20  # of steps.json
_TABLES = (EVENTS_FILE, PROCESSES_FILE, STEPS_TABLE)
_TYPES = ((2**8, "UTINYINT"), (2**16, "USMALLINT"), (2**32, "UINTEGER"), (2**63, "BIGINT"))


class CachedProcess(NamedTuple):
    """A process that trained: its number in the file, how many steps it has there, and what came after them."""

    name: str
    number: int
    steps: int
    after: list[Any]


class CachedSteps(NamedTuple):
    """What is kept of one run folder. `known`: the SQL of columns that are not in the table; `least`: of the others the smallest
    value, and whether some steps have none.
    """

    file: str
    columns: list[str]
    processes: list[CachedProcess]
    known: dict[str, str]
    least: dict[str, tuple[int, bool]]
    name_counts: dict[str, list[NameCount]]

    def parts(
        self, connection: duckdb.DuckDBPyConnection, columns: Columns, numbers: Mapping[str, int]
    ) -> Iterator[PackedRows]:
        """The steps, some processes at a time. `numbers`: what is the number of each process now."""
        plain = [name for name in columns if name != "number" and name not in self.known and name not in self.least]
        some: list[CachedProcess] = []
        for one in self.processes:
            some.append(one)
            if sum(process.steps for process in some) >= LEAST_PART:
                yield self._part(connection, plain, some, numbers)
                some = []
        if any(process.steps for process in some):
            yield self._part(connection, plain, some, numbers)

    def _part(
        self,
        connection: duckdb.DuckDBPyConnection,
        plain: Sequence[str],
        some: Sequence[CachedProcess],
        numbers: Mapping[str, int],
    ) -> PackedRows:
        names = ["number", *self.least, *plain]
        where = f"number BETWEEN {some[0].number} AND {some[-1].number}"
        found = arrays(connection, f"SELECT {', '.join(names)} FROM read_parquet({self.file}) WHERE {where}")
        part = PackedRows(found, dict(self.known))
        part.expressions.update({name: distance(name, low, gaps=gaps) for name, (low, gaps) in self.least.items()})
        part.expressions.update({name: name for name in plain})
        if len(some) == 1:
            if len(found) > 1:
                found.pop("number")  # else it says how many rows there are
            part.expressions["number"] = number_text(numbers[some[0].name])
            return part
        table = np.zeros(some[-1].number + 1, np.int64)
        for one in some:
            table[one.number] = numbers[one.name]
        found["number"] = table[found["number"]]
        part.expressions["number"] = "number"
        return part

    def ends(self, columns: Columns, numbers: Mapping[str, int]) -> Iterator[dict[str, NDArray[Any]]]:
        """What came after the last step of each process: rows of the same columns, each alone."""
        dtypes = {"BIGINT": np.int64, "BOOLEAN": np.bool_, "DOUBLE": np.float64}
        none = {"BIGINT": LEAST, "BOOLEAN": False, "DOUBLE": np.nan}
        for one in self.processes:
            values = dict(zip((name for name in columns if name != "number"), one.after, strict=True))
            values["number"] = numbers[one.name]
            yield {
                name: np.array([none[type] if values[name] is None else values[name]], dtypes[type])
                for name, type in columns.items()
            }


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def describe(
    connection: duckdb.DuckDBPyConnection, rows: str, columns: Columns, name_counts: Mapping[str, Sequence[NameCount]]
) -> tuple[str, dict[str, Any]] | None:
    """The query for the table, and what is to stand beside it; None: it cannot be kept. `rows`: the name of the view."""
    if sum(map(len, name_counts.values())) > MOST_NAMES:
        return None
    names = [name for name in columns if name != "number"]
    ranges = ", ".join(f"min({name}), max({name}), count({name})" for name in names)
    ((count, *found),) = connection.execute(f"SELECT count(*), {ranges} FROM {rows} WHERE whole").fetchall()
    selected, known, least = ["number::UINTEGER AS number"], {}, {}
    for name, low, high, some in zip(names, found[::3], found[1::3], found[2::3], strict=True):
        if low == high and some in (0, count) and not isinstance(low, float):
            known[name] = low
        elif columns[name] == "BIGINT":
            least[name] = (low, some < count)
            selected.append(_away(name, low, high, gaps=some < count))
        else:
            selected.append(_plain(name, columns[name]))
    if "" in selected:
        return None  # damage: no times lie so far apart
    about = {
        "columns": [*columns],
        "known": known,
        "least": least,
        "processes": _processes(connection, rows, columns),
        "census": {process: sorted(named) for process, named in name_counts.items()},
    }
    return f"SELECT {', '.join(selected)} FROM {rows} WHERE whole", about


def _away(name: str, low: int, high: int, *, gaps: bool) -> str:
    """The distances of a column as SQL; empty if they are too large for any type."""
    away = f"{name} - {number_text(low)}"
    type = next((type for limit, type in _TYPES if high - low + gaps < limit), None)
    if type is None:
        return ""
    return f"coalesce({away} + 1, 0)::{type} AS {name}" if gaps else f"({away})::{type} AS {name}"


def _plain(name: str, type: str) -> str:
    """A column that is written as it is. DuckDB takes NaN in an array for "none"."""
    return f"coalesce({name}, 'NaN'::DOUBLE)::DOUBLE AS {name}" if type == "DOUBLE" else name


def _processes(connection: duckdb.DuckDBPyConnection, rows: str, columns: Columns) -> list[tuple[Any, ...]]:
    """For each process its name, number, how many steps it has, and the row that is none, as it stands in DuckDB."""
    counts = connection.execute(
        f"SELECT process, number, count(*) FILTER (whole) FROM {rows} GROUP BY ALL ORDER BY number"
    ).fetchall()
    names = [name for name in columns if name != "number"]
    after = connection.execute(f"SELECT number, {', '.join(names)} FROM {rows} WHERE NOT whole").fetchall()
    ends = {number: list(values) for number, *values in after}
    return [(process, number, count, ends[number]) for process, number, count in counts]


def text_of(about: dict[str, Any], folder: Path, table: Path) -> str:
    """What is to stand in steps.json: `about`, and digests of the sealed tables in a folder and of the table, which lies elsewhere."""
    digests = {name: _digest(folder / name) for name in (EVENTS_FILE, PROCESSES_FILE)}
    content = {"version": VERSION, "tables": {**digests, STEPS_TABLE: _digest(table)}, **about}
    return json.dumps({"digest": _digest_of(content), **content})


def _digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with RegularFile(path) as file, open(file.fd, "rb", closefd=False) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _digest_of(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_cached_steps(folder: Path, prefix: str = "") -> CachedSteps | None:
    """What is kept of a run folder; None: nothing, or what was made of other tables or by another version.

    `prefix`: what stands before the names of its processes.
    """
    try:
        found = json.loads(read_small(folder / STEPS_FILE, MAX_BYTES))
        if found.pop("version") != VERSION:
            return None
        digest = found.pop("digest")
        right = digest == _digest_of({"version": VERSION, **found})
        if not right or found["tables"] != {name: _digest(folder / name) for name in _TABLES}:
            return None
        return _cached_steps(folder, found, prefix)
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None  # it is missing or damaged; all of it can be made again


def _literal(value: object) -> str:
    """One of the values that a column has in all steps, as SQL."""
    if value is None:
        return "NULL::BIGINT"
    if isinstance(value, bool):
        return "true" if value else "false"
    return number_text(int(str(value)))


def _cached_steps(folder: Path, found: dict[str, Any], prefix: str) -> CachedSteps:
    known = {name: _literal(value) for name, value in found["known"].items()}
    least = {name: (int(low), bool(gaps)) for name, (low, gaps) in found["least"].items()}
    if not {*known, *least} <= {*found["columns"]}:
        raise ValueError
    return CachedSteps(
        quoted(str(folder.resolve() / STEPS_TABLE)),
        found["columns"],
        [
            CachedProcess(prefix + name, int(number), int(steps), after)
            for name, number, steps, after in found["processes"]
        ],
        known,
        least,
        {prefix + process: [NameCount(*one) for one in named] for process, named in found["census"].items()},
    )
