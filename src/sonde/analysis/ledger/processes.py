"""The ledgers of all processes of a run, read on first use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonde.analysis.ledger.ledger import Ledger
from sonde.analysis.ledger.raw import read_ledger
from sonde.analysis.ledger.sealed import read_sealed
from sonde.errors import RunUnreadable
from sonde.lazy import numpy as np
from sonde.store.folder import LEDGER_FILE

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

FUNCTION = "sonde_indices"
CONFIG: dict[str, Any] = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}


class Ledgers:
    """The ledgers of all processes of a run."""

    def __init__(self) -> None:
        self._raw: dict[str, tuple[Path, list[str]]] = {}
        self._sealed: dict[str, tuple[str, str, list[str]]] = {}
        self._read_already: dict[str, Ledger | None] = {}

    def add_raw(self, process: str, folder: Path, notes: list[str]) -> None:
        """A process whose files are there; what is wrong with its ledger becomes a note."""
        self._raw[process] = (folder / LEDGER_FILE, notes)

    def add_sealed(self, process: str, file: Path, name: str, notes: list[str]) -> None:
        """A process that is in the sealed table, under this name."""
        self._sealed[process] = (str(file), name, notes)

    def of(self, process: str) -> Ledger | None:
        """The ledger of a process; None if it has none."""
        if process not in self._read_already:
            self._read_already[process] = self._read(process)
        return self._read_already[process]

    def all(self) -> list[tuple[str, Ledger]]:
        """All there are, by the names of their processes."""
        found = [(process, self.of(process)) for process in sorted({*self._raw, *self._sealed})]
        return [(process, one) for process, one in found if one is not None]

    def register(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Make the function `sonde_indices(process, key)`."""
        connection.create_function(FUNCTION, self._answer, ["VARCHAR", "BIGINT"], "BIGINT[]")

    def _answer(self, process: str, key: int) -> list[int]:
        found = self.of(process)
        return (found.indices(key) if found is not None else None) or []  # DuckDB takes no None from a function

    def _read(self, process: str) -> Ledger | None:
        import duckdb

        if process in self._raw:
            path, notes = self._raw[process]
            return read_ledger(path, notes)
        if process not in self._sealed:
            return None
        file, name, notes = self._sealed[process]
        try:
            # A database of its own: that of the run may be in the middle of a query that asks for this.
            with duckdb.connect(config=CONFIG) as aside:
                return read_sealed(aside, file, name, notes)
        except (duckdb.Error, UnicodeDecodeError, RunUnreadable) as error:
            notes.append(f"Cannot read the ledger of {process}: {error}")
            return None
