"""The track of each event in a trace viewer: processes with pids, threads and their strands with tids."""

from __future__ import annotations

from sonde.analysis.records import label
from sonde.exchange.rows import EventRow, ExportedProcess
from sonde.exchange.strands import Strands
from sonde.store import probe

STEPS, BATCHES = 9_999_998, 9_999_999  # tids of the tracks of steps and of batches
INVENTED = 10_000_000  # larger than any pid of Linux: numbers for tracks that are no process or thread of their own


class Tracks:
    """Gives each process a pid and each strand of each thread a tid, so that no two share one.

    Loader workers of one number that follow each other, as those of one epoch after another, share the pid of the first.
    """

    def __init__(self, processes: list[ExportedProcess]) -> None:
        self.processes = processes
        self.pids: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.tids: dict[tuple[int, int, int], int] = {}
        self.strands: dict[tuple[str, int], Strands] = {}
        self.taken: set[tuple[int, int]] = set()
        self.aside: dict[
            tuple[str, int], int
        ] = {}  # the tids of items that are not on the first strand of their thread
        ends: dict[int, int] = {}
        alike: dict[tuple[str, str], list[int]] = {}  # the pids of what has one label on one host
        for index, process in enumerate(processes):
            others = alike.setdefault((process.host, process.label), [])
            before = [pid for pid in others if process.worker is not None and ends[pid] <= process.start]
            taken = process.pid in ends  # on several hosts, or after an exec
            pid = before[0] if before else INVENTED + index if taken else process.pid
            self.pids[process.id] = pid
            ends[pid] = process.end
            others += [] if before else [pid]
        self._name(alike)

    def _name(self, alike: dict[tuple[str, str], list[int]]) -> None:
        hosts = len({host for host, _ in alike})
        for (host, called), pids in alike.items():
            where = f" on {host}" if hosts > 1 else ""
            for pid in pids:
                self.names[pid] = f"{called}{where} (pid {pid})" if len(pids) > 1 else f"{called}{where}"

    def is_new(self, pid: int, tid: int) -> bool:
        """Is this the first time that something is drawn on this track?"""
        new = (pid, tid) not in self.taken
        self.taken.add((pid, tid))
        return new

    def counter_name(self, row: EventRow) -> str:
        """What the track of a counter is called: each category, name and key has its own, and a process its name."""
        name = label.event(row.cat, row.name)
        if row.key is None or (row.cat == probe.PROBE and row.name != probe.DEVICE_PEAK):  # the key is that of a batch
            return name
        host = next(process.host for process in self.processes if process.id == row.process)
        named = [self.names[self.pids[one.id]] for one in self.processes if (one.host, one.pid) == (host, row.key)]
        return f"{name}, {named[0]}" if row.cat == probe.SYSTEM and named else f"{name} [{row.key}]"

    def strand(self, row: EventRow) -> int:
        """On which strand of its thread an event lies."""
        thread = (row.process, row.lane)
        strands = self.strands.get(thread)
        if strands is None:
            self.strands.clear()  # events come thread by thread: the one before is complete
            strands = self.strands[thread] = Strands()
        return strands.place(row.seq, row.parent, row.start, row.end)

    def tid(self, row: EventRow, strand: int) -> tuple[int, str | None]:
        """The tid of a strand, and, the first time, its name."""
        pid = self.pids[row.process]
        key = (pid, row.lane, strand)
        tid = self.tids.get(key)
        if tid is not None:
            return tid, None
        free = strand == 0 and (pid, row.tid) not in self.taken
        tid = row.tid if free else INVENTED + len(self.taken)
        self.tids[key] = tid
        self.taken.add((pid, tid))
        return tid, row.thread if strand == 0 else f"{row.thread} (task {strand + 1})"
