"""Numbers with their source: each keeps the query that reproduces it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sonde.analysis.run import Run


@dataclass(frozen=True)
class Figure:
    """A number of a run, and the query whose only answer it is. None: it is not known."""

    value: float | None
    query: str

    def at_least(self, limit: float) -> bool:
        """Whether it is known and reaches a limit."""
        return self.value is not None and self.value >= limit

    def or_zero(self) -> float:
        """The number, 0 where nothing of the kind was recorded."""
        return self.value or 0.0


NOTHING = Figure(None, "SELECT NULL")


class Figures(dict[str, Figure]):
    """Figures of one group of rows, by name; `which` says what group it is. What was not asked for is not known."""

    def __init__(self, which: Mapping[str, Any], figures: Mapping[str, Figure]) -> None:
        super().__init__(figures)
        self.which = dict(which)

    def __missing__(self, name: str) -> Figure:
        return NOTHING

    def number(self, name: str) -> float | None:
        """The value of a figure."""
        return self[name].value


class Asker:
    """Asks a run. Many figures over the same rows cost one query; each gets a query of its own to be asked again with.

    Of the events it is given those beside the steps, which it may ask the tables for: so those of a long run need not be loaded.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._kept: dict[str, str] = {}

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The answer to a query."""
        for source, table in self._kept.items():
            query = query.replace(source, f"{table} WHERE true")
        return self._run.database.beside(query)

    def seen(self, cat: str, names: Sequence[str]) -> bool:
        """Whether there is an event of one of these names."""
        name_counts = self._run.database.source.name_counts.values()
        return any(one.cat == cat and one.name in names for named in name_counts for one in named)

    def has(self, cat: str) -> bool:
        """Whether there is an event of this category, or of one that begins so."""
        name_counts = self._run.database.source.name_counts.values()
        return any(one.cat.startswith(cat) for named in name_counts for one in named)

    def loaded(self, source: str, columns: Mapping[str, str]) -> Figures:
        """Figures over all rows of `source`, for which all events are loaded: only where they are not too many."""
        self._run.table("events")
        connection = self._run.database.connection
        self._run.database.prepare(f"SELECT 1 FROM {source}")
        found = connection.execute(f"SELECT {', '.join(columns.values())} FROM {source}").fetchone() or ()
        made = {
            name: Figure(_number(value), f"SELECT {what} FROM {source}")
            for (name, what), value in zip(columns.items(), found, strict=False)
        }
        return Figures({}, made)

    def names(self, kind: str) -> set[tuple[str, str]]:
        """The category and name of all events of a kind."""
        name_counts = self._run.database.source.name_counts.values()
        return {(one.cat, one.name) for named in name_counts for one in named if one.kind == kind}

    def named_time(self, process: str) -> list[tuple[str, str, int]]:
        """The program's own spans of a process outside of phases: category, name, and time in all."""
        return self._run.database.named_time(process)

    def keep(self, source: str, table: str, columns: Sequence[str], of: str = "steps") -> None:
        """Put rows of the table `of` that are asked for again and again into one of their own. Queries that name `source` get them there."""
        self._run.table(of)
        kept = f"SELECT {', '.join(columns)} FROM {source}"
        self._run.database.connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS {kept}")
        self._kept[source] = table

    def one(self, source: str, columns: Mapping[str, str]) -> Figures:
        """Figures over all rows of `source`: a table, with its condition."""
        asked = [what for what in columns.values() if not _is_mean(what, columns.values())]
        (found,) = self.rows(f"SELECT {', '.join(asked)} FROM {source}")
        values = dict(zip(asked, found, strict=True))
        figures = {}
        for name, what in columns.items():
            value = values[what] if what in values else _mean(values[f"sum{what[3:]}"], values[f"count{what[3:]}"])
            figures[name] = Figure(_number(value), f"SELECT {what} FROM {source}")
        return Figures({}, figures)

    def points(self, source: str, columns: Mapping[str, str], places: Mapping[str, float]) -> Figures:
        """Quantiles of columns over all rows of `source`, named "column.place"; each column is sorted once."""
        listed = ", ".join(f"quantile_cont({column}, {[*places.values()]})" for column in columns.values())
        (found,) = self.rows(f"SELECT {listed} FROM {source}")
        figures = {}
        for (name, column), values in zip(columns.items(), found, strict=True):
            for (what, place), value in zip(places.items(), values or [None] * len(places), strict=True):
                query = f"SELECT quantile_cont({column}, {place}) FROM {source}"
                figures[f"{name}.{what}"] = Figure(_number(value), query)
        return Figures({}, figures)

    def by(self, keys: Sequence[str], source: str, columns: Mapping[str, str], where: str = "true") -> list[Figures]:
        """Figures for each group of rows that have the same `keys`, in the order of these."""
        named = ", ".join(keys)
        found = self.rows(
            f"SELECT {named}, {', '.join(columns.values())} FROM {source} WHERE {where} GROUP BY {named} ORDER BY {named}"
        )
        rows = []
        for values in found:
            group = dict(zip(keys, values, strict=False))
            which = " AND ".join([where, *(f"{key} IS NOT DISTINCT FROM {literal(group[key])}" for key in keys)])
            rows.append(
                Figures(
                    group,
                    {
                        name: Figure(_number(value), f"SELECT {expression} FROM {source} WHERE {which}")
                        for (name, expression), value in zip(columns.items(), values[len(keys) :], strict=True)
                    },
                )
            )
        return rows


def _is_mean(what: str, asked: Collection[str]) -> bool:
    """Whether this is a mean whose sum and count are asked for too: then it need not be."""
    return what.startswith("avg(") and f"sum{what[3:]}" in asked and f"count{what[3:]}" in asked


def _mean(total: float | None, count: int) -> float | None:
    return None if total is None else total / count


def literal(value: object) -> str:
    """A value as SQL writes it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool | int | float):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"


def _number(value: Any) -> float | None:
    if value is None or isinstance(value, int):  # whole numbers stay what they are
        return value
    return float(value)
