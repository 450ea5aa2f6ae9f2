"""The source of records for the training tables: raw recordings or sealed files; and the names in them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from sonde.analysis.records.names import NameCount, count_names
from sonde.analysis.records.schema import quoted
from sonde.analysis.training.reader import Room, Trail, Wanted, read_raw, read_sealed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb

    from sonde.analysis.parts.summary import PartSummary
    from sonde.analysis.records.load import ProcessSummary
    from sonde.store.reading.reader import ProcessRecording


class SealedEvents(NamedTuple):
    """Processes in one sealed file: the query for their events, the file as SQL, and what of their names is not in the file."""

    events: str
    file: str
    processes: Sequence[str]
    prefix: str

    def of(self, process: str) -> str:
        """The events of one of them, as a table and a condition."""
        return f"read_parquet({self.file}) WHERE process = {quoted(process.removeprefix(self.prefix))}"


class RecordSource:
    """The records of all processes of a run."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._sealed: list[SealedEvents] = []
        self._raw: dict[str, tuple[ProcessRecording, int, list[NameCount]]] = {}
        self._parts: dict[str, list[NameCount]] = {}
        self._firsts: list[int] = []
        self._room = Room()

    def add_sealed(self, sealed: SealedEvents) -> None:
        """Know some sealed processes."""
        self._sealed.append(sealed)

    def add_part(self, summary: PartSummary, prefix: str) -> None:
        """Know the processes of a sealed part, whose steps are made already."""
        self._parts |= {prefix + process: names for process, names in summary.names.items()}
        if summary.first_ns is not None:
            self._firsts.append(summary.first_ns)

    def add_raw(self, process: str, recording: ProcessRecording, offset: int, seen: ProcessSummary) -> None:
        """Know a raw process. `offset` is added to its times."""
        self._raw[process] = (recording, offset, seen.named)
        if seen.first is not None:
            self._firsts.append(seen.first + offset)

    @cached_property
    def name_counts(self) -> Mapping[str, list[NameCount]]:
        """The names of each process."""
        found = {process: name_counts for process, (_, _, name_counts) in self._raw.items()} | self._parts
        for sealed in self._sealed:
            found |= {process: [] for process in sealed.processes}
            found |= count_names(self._connection, sealed.events)
        return found

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
