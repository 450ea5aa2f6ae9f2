"""The tables of sealed parts, as queries over their files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.records.schema import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from sonde.analysis.parts.manifest import SealedPart
    from sonde.analysis.parts.summary import LaneSpans


class PartTables:
    """The parts of all folders of a run."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, list[SealedPart]]] = []
        self.processes: set[str] = set()  # as the tables call them
        self.lanes: list[LaneSpans] = []  # of the pyramids
        self.with_pyramid: set[str] = set()  # the processes of which there is one

    def add(self, parts: list[SealedPart], prefix: str) -> None:
        """Know the parts of a folder. `prefix`: what stands before the names of its processes."""
        self._parts.append((prefix, parts))
        self.processes.update(prefix + process for part in parts for process in part.summary.processes)
        for summary in (part.summary for part in parts if part.summary.lanes is not None):
            self.with_pyramid.update(prefix + process for process in summary.processes)
            self.lanes += [lane._replace(process=prefix + lane.process) for lane in summary.lanes or ()]

    def selects(
        self,
        table: str,
        columns: Iterable[str],
        of: Collection[str] | None = None,
        later: Mapping[str, str] | None = None,
    ) -> list[str]:
        """The queries that give these columns of all rows of a table. A column may be given as SQL: `expression AS name`.

        `of`: only the files of parts that have one of these processes. `later`: columns that parts of earlier versions lack, with
        their types; they are null there.
        """
        wanted = list(columns)
        found = []
        for prefix, parts in self._parts:
            files = [
                file
                for part in parts
                if (file := part.file(table)) is not None
                and (of is None or any(prefix + process in of for process in part.summary.processes))
            ]
            if files:
                listed = ", ".join(quoted(str(file)) for file in files)
                named = ", ".join(_column(one, prefix) for one in wanted)
                rows = f"read_parquet([{listed}])"
                if later:
                    none = ", ".join(f"NULL::{type} AS {name}" for name, type in later.items())
                    every = f"read_parquet([{listed}], union_by_name = true)"
                    rows = f"(SELECT * FROM {every} UNION ALL BY NAME SELECT {none} WHERE false)"
                found.append(f"SELECT {named} FROM {rows}")
        return found

    def together(self) -> list[set[str]]:
        """The processes of each part."""
        return [
            {prefix + process for process in part.summary.processes} for prefix, parts in self._parts for part in parts
        ]

    def files(self) -> list[Path]:
        """All files."""
        return [part.folder / name for _, parts in self._parts for part in parts for name in part.summary.files]


def _column(name: str, prefix: str) -> str:
    if name == "process" and prefix:
        return f"{quoted(prefix)} || process AS process"
    return name if " AS " in name else f'"{name}"'
