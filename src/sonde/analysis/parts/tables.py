"""The tables of sealed parts, as queries over their files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.records.schema import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from sonde.analysis.parts.manifest import SealedPart


class PartTables:
    """The parts of all folders of a run."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, list[SealedPart]]] = []
        self.processes: set[str] = set()  # as the tables call them

    def add(self, parts: list[SealedPart], prefix: str) -> None:
        """Know the parts of a folder. `prefix`: what stands before the names of its processes."""
        self._parts.append((prefix, parts))
        self.processes.update(prefix + process for part in parts for process in part.summary.processes)

    def selects(self, table: str, columns: Iterable[str]) -> list[str]:
        """The queries that give these columns of all rows of a table. A column may be given as SQL: `expression AS name`."""
        wanted = list(columns)
        found = []
        for prefix, parts in self._parts:
            files = [file for part in parts if (file := part.file(table)) is not None]
            if files:
                listed = ", ".join(quoted(str(file)) for file in files)
                named = ", ".join(_column(one, prefix) for one in wanted)
                found.append(f"SELECT {named} FROM read_parquet([{listed}])")
        return found

    def files(self) -> list[Path]:
        """All files."""
        return [part.folder / name for _, parts in self._parts for part in parts for name in part.summary.files]


def _column(name: str, prefix: str) -> str:
    if name == "process" and prefix:
        return f"{quoted(prefix)} || process AS process"
    return name if " AS " in name else f'"{name}"'
