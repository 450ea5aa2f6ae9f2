"""Runs with one fault each, built byte by byte, and their diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sonde.analysis.run import open_run
from sonde.diagnosis.diagnose import Diagnosis, diagnose
from sonde.diagnosis.policy import Policy
from sonde.finding import Finding
from sonde.store import probe
from sonde.store.record import COUNTER, ERROR, MARK, OPEN
from sonde.testing import MS, START_NS, TRAINING, WALL_NS, BuiltProcess, BuiltRecord, build_run, training_processes

SECOND = 1_000_000_000
Times = Mapping[str, int] | Callable[[int, int], Mapping[str, int]]


def phases(**times: int) -> dict[str, int]:
    """The phases of a healthy step, some of them changed; in ms."""
    return {**TRAINING, **{phase: ms * MS for phase, ms in times.items()}}


def launcher(*records: BuiltRecord, last: int = 100) -> BuiltProcess:
    """The launcher of a run, which saw what is in `records`, and lived for so many seconds."""
    end = BuiltRecord("alive", "user", kind=MARK, start=START_NS + last * SECOND)
    return BuiltProcess([*records, end], pid=900, process={"role": "launcher"})


def exited(
    pid: int, code: int | None = None, signal: int | None = None, at: int = 50, by: str | None = None
) -> BuiltRecord:
    """A mark: a process ended so, after `at` seconds. `by`: who asked it to end."""
    args = {"code": code, "signal": signal, **({} if by is None else {probe.EXIT_BY: by})}
    return BuiltRecord(probe.EXIT, probe.PROCESS, kind=MARK, start=START_NS + at * SECOND, key=pid, args=args)


def gauge(name: str, value: float, pid: int = 0, cat: str = probe.SYSTEM, at: float = 1) -> BuiltRecord:
    """A sample of the host or of a process."""
    return BuiltRecord(name, cat, kind=COUNTER, start=START_NS + round(at * SECOND), key=pid, value=value)


def with_records(process: BuiltProcess, *records: BuiltRecord) -> BuiltProcess:
    """The same process, with more records, in the order of their time."""
    numbered = [one._replace(seq=number) for number, one in enumerate(process.records, 1)]
    more = [one._replace(seq=len(numbered) + number) for number, one in enumerate(records, 1)]
    return process._replace(records=[*numbered, *more])


def failed(name: str, at: int, **fields: Any) -> BuiltRecord:
    """A span that an exception went through."""
    return BuiltRecord(name, probe.PROBE, start=START_NS + at * SECOND, dur=MS, flags=ERROR, **fields)


def without_end(process: BuiltProcess) -> BuiltProcess:
    """The same process, of which no end is known."""
    return process._replace(process={**(process.process or {}), "end": None})


def replaced(process: BuiltProcess, ticks: tuple[int, int] = (7, 7)) -> list[BuiltProcess]:
    """The same process, without a word at its end, and another program that began to record under its id 40 s later.

    `ticks`: when the system started each; the same, if the second program has replaced the first.
    """
    start = {"mono_ns": START_NS + 40 * SECOND, "wall_ns": WALL_NS + 40 * SECOND}
    first, second = ({**(process.process or {}), "start_ticks": one} for one in ticks)
    return [without_end(process._replace(process=first)), process._replace(n=1, process={**second, "start": start})]


def ended(process: BuiltProcess, exception: str, at: int = 50, **more: str) -> BuiltProcess:
    """The same process, ended by an exception. `more`: its message and place."""
    end = {"mono_ns": START_NS + at * SECOND, "wall_ns": WALL_NS + at * SECOND}
    return process._replace(
        process={**(process.process or {}), "end": {**end, "reason": "exception", "exception": exception, **more}}
    )


def inside(process: BuiltProcess, name: str, at: int = 2) -> BuiltProcess:
    """The process stays in a span for ever."""
    forever = BuiltRecord(name, probe.PROBE, start=START_NS + at * SECOND, flags=OPEN, step=60)
    return without_end(with_records(process, forever))


def crowd(load: float = 99.0, own: float = 50.0, pid: int = 1000) -> BuiltProcess:
    """A launcher that saw so much load of its two cores, in % of them, and so much of this run, in % of one."""
    return launcher(gauge("cores", 2), gauge("cpu", load), gauge("cpu", own, pid))


def waiting_for(late: int, phase: str, ms: int = 40) -> Callable[[int, int], dict[str, int]]:
    """One rank spends more on a phase; the others wait in communication meanwhile."""

    def times(rank: int, step: int) -> dict[str, int]:
        return phases(**{phase: ms if rank == late else 1, "communication": 1 if rank == late else ms})

    return times


def iteration(number: int, at: int, ns: int, workers: int = 2) -> list[BuiltRecord]:
    """A loader is iterated for the n-th time, and the first batch is waited for; together they take `ns`."""
    key = probe.batch_key(0, number, 0)
    args = {"workers": workers, "batch_size": 4, "dataset": "Data", "length": 10}
    begun = BuiltRecord(probe.ITER, probe.PROBE, start=at, dur=ns // 2, key=key, args=args, step=0)
    return [
        begun,
        BuiltRecord(probe.INPUT_WAIT, probe.PROBE, start=at + ns // 2, dur=ns // 2, key=key, step=0, thread=2),
    ]


def processes(**training: Any) -> list[BuiltProcess]:
    """The processes of a training of 60 steps, unless it is said otherwise."""
    return training_processes(**{"steps": 60, **training})


def judged(folder: Path, built: list[BuiltProcess], policy: Policy | None = None) -> Diagnosis:
    """The diagnosis of a run of these processes."""
    with open_run(build_run(folder / "run", built)) as run:
        return diagnose(run, policy)


def diagnosed(folder: Path, built: list[BuiltProcess], policy: Policy | None = None) -> Diagnosis:
    """The diagnosis of a run of these processes; each query of it gives its number again."""
    found = judged(folder, built, policy)
    with open_run(folder / "run") as again:
        for finding in found.findings:
            for name, query in finding.evidence["queries"].items():
                check(
                    again.sql(query).fetchall(), finding.evidence["numbers"][name], f"{finding.kind}: {name}: {query}"
                )
    return found


def check(rows: list[tuple[Any, ...]], number: float | None, what: str) -> None:
    """One row with one column, and in it the number."""
    ((value,),) = rows
    assert value == number or abs(float(value) - float(number or 0)) <= 1e-9 * abs(float(value)), what


def kinds(found: Diagnosis) -> list[str]:
    """What was found, in order."""
    return [finding.kind for finding in found.findings]


def of_kind(found: Diagnosis, kind: str) -> Finding:
    """The finding of one kind."""
    return next(finding for finding in found.findings if finding.kind == kind)
