"""A run with something of everything, for the tests of this folder."""

from __future__ import annotations

import os
from pathlib import Path

from sonde.analysis.run import Run
from sonde.store import record
from sonde.store.folder import boot_id, host
from sonde.testing import START_NS, WALL_NS, BuiltProcess, BuiltRecord, build_run

MS = 1_000_000


def records(count: int = 20) -> list[BuiltRecord]:
    """A root, spans in it on two threads, counters, a mark, a span completed late, a cancelled one and an open one."""
    made = [BuiltRecord(name="root", cat="pipeline", dur=count * MS, epoch=0)]
    for number in range(count):
        made.append(
            BuiltRecord(
                name="item",
                cat="data",
                start=START_NS + number * MS,
                dur=number * 1000,
                parent=1,
                depth=1,
                key=number if number % 2 else None,
                args={"i": number, "text": 'a"b\n'} if number % 3 == 0 else None,
                step=number,
                epoch=0,
                thread=1 + number % 2,
                flags=record.ERROR if number == 5 else 0,
            )
        )
        made.append(
            BuiltRecord(name="loss", cat="log", kind=record.COUNTER, start=START_NS + number * MS, value=number / 2)
        )
    made += [
        BuiltRecord(name="loss", cat="log", kind=record.COUNTER, value=float("nan")),
        BuiltRecord(name="item.start", cat="data", kind=record.MARK, flags=record.META),
        BuiltRecord(kind=record.VOID),
        BuiltRecord(name="hang", cat="data", start=START_NS + MS, parent=1, depth=1, flags=record.OPEN | record.CUT),
    ]
    made.append(
        BuiltRecord(name="item", cat="data", seq=2, dur=77, start=START_NS, parent=1, depth=1, flags=record.AGAIN)
    )
    return made


def sample(path: Path) -> Path:
    """Three processes: one ended, one died, one lost records."""
    died = {"end": None, "host": host(), "boot_id": boot_id(), "start_ticks": 1, "role": "worker", "worker": 3}
    processes = [
        BuiltProcess(records(), pid=10, spilled=12),
        BuiltProcess(records(7), pid=11, host=host(), process=died | {"parent_pid": 10}),
        BuiltProcess([BuiltRecord(name="x", dur=2**40)], pid=12, next_seq=6, header={"lost_space": 3, "lost_args": 1}),
    ]
    return build_run(path, processes)


def running(pid: int = 0) -> dict[str, object]:
    """Fields of process.json of a process that runs here: this one, or another."""
    content = Path(f"/proc/{pid or os.getpid()}/stat").read_bytes()
    ticks = int(content.rpartition(b")")[2].split()[19])
    fields: dict[str, object] = {"end": None, "host": host(), "boot_id": boot_id(), "start_ticks": ticks}
    return fields | {"pid": pid or os.getpid()}


def everything(run: Run) -> tuple[object, ...]:
    """All that a run tells, with NaN as a text so that it equals itself."""
    events = run.sql("SELECT * REPLACE (value::VARCHAR AS value) FROM events ORDER BY process, seq").fetchall()
    processes = run.sql("SELECT * FROM processes ORDER BY process").fetchall()
    types = [run.table(name).types for name in ("events", "processes")]
    return events, processes, [str(one) for one in types], run.drops, run.notes, run.state, run.name, run.started


__all__ = ["MS", "START_NS", "WALL_NS", "everything", "records", "running", "sample"]
