"""How a run ended, in one word, and how its processes ended according to the processes that started them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from signal import SIGINT, SIGKILL, SIGTERM
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.analysis.records import schema
from sonde.store import probe
from sonde.store.alive import DIED, ENDED, LAUNCHER, TERMINATED, UNKNOWN, roots, running

if TYPE_CHECKING:
    from sonde.store.process import Info

FINISHED, CRASHED, INTERRUPTED, KILLED, RUNNING = "finished", "crashed", "interrupted", "killed", "running"
SHELL = 128  # a shell that saw death by signal n ends with 128 + n

UNWRITTEN = "its end could not be written: the disk was full, or a file size limit was reached"
MARKS = f"""
    SELECT host, key, start_ns, try_cast(args->>'$.code' AS BIGINT), try_cast(args->>'$.signal' AS BIGINT),
           args->>'$.{probe.EXIT_BY}', process
    FROM {schema.LOOSE} WHERE kind = 'mark' AND cat = '{probe.PROCESS}' AND name = '{probe.EXIT}' AND key IS NOT NULL
    ORDER BY start_ns, process, seq
"""
MOMENT, TELLER = 2, 6  # the columns of these that say when, and who saw it

Row = dict[str, Any]


class Ending(NamedTuple):
    """How a run ended: finished, crashed, interrupted, killed, running or unknown. `how`: "ValueError", "exit code 3", "signal 9"."""

    word: str
    how: str = ""

    def __str__(self) -> str:
        return f"{self.word} ({self.how})" if self.how else self.word


def ending(found: Iterable[tuple[Info, str]]) -> Ending:
    """How a run ended, by what its processes say, each with its state; those count that no other process of the run started.

    An exception says more than a death, and a death more than the exit code that a launcher saw.
    """
    known = list(found)
    if any(running(info) is not None for info, _ in known):
        return Ending(RUNNING)
    top = [(info, state) for info, state in roots(known) if info.role != LAUNCHER or info.program_exit is not None]
    return min((_ending(info, state) for info, state in top), key=_weight, default=Ending(UNKNOWN))


def _ending(info: Info, state: str) -> Ending:
    if info.exception:
        return Ending(INTERRUPTED if info.exception == KeyboardInterrupt.__name__ else CRASHED, info.exception)
    code = info.exit_code if info.program_exit is None else info.program_exit
    signal = code - SHELL if code is not None and SHELL < code <= SHELL + 64 else info.signal
    if signal is not None:
        return Ending(INTERRUPTED if signal == SIGINT else KILLED, f"signal {signal}")
    if code:
        return Ending(CRASHED, f"exit code {code}")
    return Ending({DIED: KILLED, ENDED: FINISHED}.get(state, UNKNOWN))


def _weight(end: Ending) -> tuple[int, bool]:
    by_code = end.word == CRASHED and end.how.startswith("exit code")
    order = (INTERRUPTED, CRASHED, KILLED, "", UNKNOWN, FINISHED)
    return order.index("" if by_code else end.word), not end.how


def add_ends(rows: Sequence[Row], marks: Sequence[tuple[Any, ...]]) -> None:
    """Put into the rows how processes ended, as those saw it that had started them."""
    asked = []
    alike: dict[tuple[object, object], list[Row]] = {}
    for row in rows:
        alike.setdefault((row["host"], row["pid"]), []).append(row)
    for host, pid, moment, code, signal, by, teller in marks:
        known = [row for row in alike.get((host, pid), ()) if began(row) <= moment]
        row = max(known, key=began, default={"exit_code": 0})
        if row["exit_code"] is None and row["signal"] is None:
            row["exit_code"], row["signal"] = code, signal
            if code == 0 and row["state"] == DIED:
                # It could not say so itself: torch ends persistent workers in the middle of what they do.
                row["state"] = ENDED
            if by == probe.PARENT:
                asked.append((row, teller))
    _mark_terminated(rows, asked)


def mark_unwritten(rows: Sequence[Row]) -> None:
    """Of a process whose end nobody could write for want of space, it is not known that it died."""
    full = {row["host"] for row in rows if row["role"] == LAUNCHER and _found_no_room(row)}
    for row in rows:
        explicit = any(row[name] is not None for name in ("exit_code", "signal", "exception"))
        if row["state"] == DIED and not explicit and (_found_no_room(row) or row["host"] in full):
            row["state"] = UNKNOWN
            row["notes"].append(UNWRITTEN)


def mark_finished(rows: Sequence[Row], busy: Collection[str]) -> None:
    """Processes that were ended after the program that they belong to had finished were not killed: their work was done.

    `busy`: those that ended in the middle of something. One that was started again was killed, too.
    """
    done = {row["host"] for row in rows if row["role"] == LAUNCHER and row.get("program_exit") == 0}
    latest: dict[int, int] = {}  # when a process of each rank last began
    for row in rows:
        if row["rank"] is not None:
            latest[row["rank"]] = max(latest.get(row["rank"], 0), began(row))
    for row in rows:
        again = row["rank"] is not None and latest[row["rank"]] > (row["last_ns"] or 0)
        left = row["host"] in done and row["process"] not in busy and row["role"] != LAUNCHER
        if left and not again and row["exception"] is None and was_ended(row["state"], row["exit_code"], row["signal"]):
            row["reason"], row["state"] = TERMINATED, ENDED


def was_ended(state: str, code: int | None, signal: int | None) -> bool:
    """Whether a process ended as one does that somebody ended: by SIGTERM or SIGKILL, or without a word."""
    if code is not None:
        return code in (SIGTERM, SHELL + SIGTERM, SHELL + SIGKILL)
    return signal in (SIGTERM, SIGKILL) or (signal is None and state == DIED)


def began(row: Row) -> int:
    """When a process began to record; 0: that is not known."""
    return row["start_ns"] if isinstance(row["start_ns"], int) else 0


def _mark_terminated(rows: Sequence[Row], asked: Sequence[tuple[Row, str]]) -> None:
    """Processes were ended by their parents. That is a good end, if the parent had one: else it is a part of that failure."""
    known = {row["process"]: row for row in rows}
    for row, teller in reversed(asked):  # a parent ends after its children: what became of it is shown first
        if teller in known and _well(known[teller]):
            row["reason"], row["state"] = TERMINATED, ENDED


def _well(row: Row) -> bool:
    """Did a process end without a failure, or not yet, as far as is known?"""
    if row["reason"] == TERMINATED:
        return True
    return row["state"] != DIED and row["signal"] is None and not row["exit_code"] and row["exception"] is None


def _found_no_room(row: Row) -> bool:
    """Whether a process could not write; without a single ring, it could write nothing at all."""
    return bool(row["lost_space"] or (row["lost_ring"] and not row["events"]))
