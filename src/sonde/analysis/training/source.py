"""Where the tables of the training read records from: raw recordings, or the sealed file; and which names there are."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from sonde.analysis.records.names import NameCount, count_names
from sonde.analysis.records.schema import quoted
from sonde.analysis.training.cache import CachedSteps, read_cached_steps
from sonde.analysis.training.reader import Room, Trail, Wanted, read_raw, read_sealed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import duckdb

    from sonde.analysis.records.load import ProcessSummary
    from sonde.store.reading.reader import ProcessRecording


class SealedEvents(NamedTuple):
    """Sealed processes, the query for their events, the file as SQL, what of their names is not in the file, and the folder."""

    events: str
    file: str
    processes: Sequence[str]
    prefix: str
    folder: Path

    def of(self, process: str) -> str:
        """The events of one of them, as a table and a condition."""
        return f"read_parquet({self.file}) WHERE process = {quoted(process.removeprefix(self.prefix))}"


class RecordSource:
    """The records of all processes of a run."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._sealed: list[SealedEvents] = []
        self._raw: dict[str, tuple[ProcessRecording, int, list[NameCount]]] = {}
        self._firsts: list[int] = []
        self._room = Room()

    def add_sealed(self, sealed: SealedEvents) -> None:
        """Know some sealed processes."""
        self._sealed.append(sealed)

    def add_raw(self, process: str, recording: ProcessRecording, offset: int, seen: ProcessSummary) -> None:
        """Know a raw process. `offset` is added to its times."""
        self._raw[process] = (recording, offset, seen.named)
        if seen.first is not None:
            self._firsts.append(seen.first + offset)

    @cached_property
    def name_counts(self) -> Mapping[str, list[NameCount]]:
        """The names of each process."""
        found = {process: name_counts for process, (_, _, name_counts) in self._raw.items()}
        for sealed, kept in self.cached:
            if kept is None:
                found |= {process: count_names(self._connection, sealed.of(process)) for process in sealed.processes}
            else:
                found |= kept.name_counts
        return found

    @cached_property
    def cached(self) -> list[tuple[SealedEvents, CachedSteps | None]]:
        """The sealed processes, and what is kept of their steps."""
        return [(sealed, self._cached_of(sealed)) for sealed in self._sealed]

    def _cached_of(self, sealed: SealedEvents) -> CachedSteps | None:
        kept = read_cached_steps(sealed.folder, sealed.prefix)
        return kept if kept is not None and set(kept.name_counts) == set(sealed.processes) else None

    def first_ns(self) -> int | None:
        """When the first event began."""
        found = [*self._firsts, *(self._first_of(sealed) for sealed in self._sealed)]
        return min((one for one in found if one is not None), default=None)

    def _first_of(self, sealed: SealedEvents) -> int | None:
        """The file says it in a moment; but it may hold more than the processes that are listed."""
        first = f"SELECT min(start_ns) FROM read_parquet({sealed.file})"
        right = f"SELECT start_ns FROM ({sealed.events}) WHERE start_ns = ({first}) LIMIT 1"
        found = self._connection.execute(right).fetchall()
        if not found:
            found = self._connection.execute(f"SELECT min(start_ns) FROM ({sealed.events})").fetchall()
        return None if found[0][0] is None else int(found[0][0])

    def forget(self) -> None:
        """Give back the memory of what was read last."""
        self._room = Room()

    def read(self, process: str, wanted: Wanted) -> Trail:
        """What the steps of a process are made of. What was read of another one before is gone."""
        raw = self._raw.get(process)
        if raw is None:
            source = next(sealed.of(process) for sealed in self._sealed if process in sealed.processes)
            return read_sealed(self._connection, source, wanted)
        recording, offset, name_counts = raw
        return read_raw(recording, offset, wanted, name_counts, self._room)
