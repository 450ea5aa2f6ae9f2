"""Goodput of a restarted job: steps that counted, repeated steps, and time between attempts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from sonde.analysis.records.schema import BESIDE, quoted
from sonde.store import probe

if TYPE_CHECKING:
    from sonde.analysis.run import Run

ROLES = ("worker", "launcher")


@dataclass(frozen=True)
class Attempt:
    """One attempt. Steps are those of its rank with the most. `repeated`: those that a later attempt made again; None: not known."""

    number: int
    started_ns: int | None
    ran_ns: int | None
    waited_ns: int | None  # from the end of the one before
    ranks: int
    first_step: int | None
    last_step: int | None
    steps: int
    repeated: int | None
    steps_ns: int
    repeated_ns: int | None


@dataclass(frozen=True)
class Goodput:
    """All attempts together. `share`: of the time from the first to the last moment, what went into steps that counted.

    The time is that of these steps, of repeated ones, between attempts, and of the rest: starting up, saving, the step that was
    interrupted. None: not known, because each attempt numbers its steps from the beginning, though it read a checkpoint.
    """

    share: float | None
    steps: int | None  # that counted
    repeated: int | None
    whole_ns: int
    steps_ns: int | None
    repeated_ns: int | None
    between_ns: int
    other_ns: int
    attempts: list[Attempt]


class _Trained(NamedTuple):
    """The steps of the process that has the most of them in an attempt."""

    process: str
    first: int
    last: int
    begun: int


def goodput(run: Run) -> Goodput | None:
    """What the attempts of a run achieved; None: there is only one."""
    times = _times(run)
    if len(times) < 2:
        return None
    trained = _trained(run)
    known = not _numbered_anew(run, [trained[one] for one in times if one in trained])
    attempts = [_attempt(run, number, times, trained, known) for number in times]
    begin, end = min(begin for begin, _, _ in times.values()), max(end for _, end, _ in times.values())
    whole, between = end - begin, sum(one.waited_ns or 0 for one in attempts)
    spent = sum(one.steps_ns for one in attempts)
    if not known or whole <= 0:
        return Goodput(None, None, None, whole, None, None, between, max(0, whole - between - spent), attempts)
    repeated, again = sum(one.repeated or 0 for one in attempts), sum(one.repeated_ns or 0 for one in attempts)
    good = spent - again
    steps = sum(one.steps for one in attempts) - repeated
    return Goodput(
        good / whole, steps, repeated, whole, good, again, between, max(0, whole - between - spent), attempts
    )


def _times(run: Run) -> dict[int, tuple[int, int, int]]:
    """Of each attempt when it began and ended, and how many ranks it had; on one host, because clocks differ."""
    hosts: dict[str, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    ranks: dict[int, set[int | None]] = defaultdict(set)
    programs = [row for row in run.rows if row["role"] not in ROLES and None not in (row["attempt"], row["start_ns"])]
    ranked = [row for row in programs if row["rank"] is not None]  # beside them there is what has started them
    for row in ranked or programs:
        ends = [one for one in (row["end_ns"], row["last_ns"]) if one is not None]
        hosts[row["host"]][row["attempt"]].append((row["start_ns"], max(ends, default=row["start_ns"])))
        ranks[row["attempt"]].add(row["rank"])
    if not ranks:
        return {}
    most = max(hosts, key=lambda host: len(hosts[host]))
    found = {}
    for attempt in sorted(ranks):
        spans = hosts[most].get(attempt) or [span for some in hosts.values() for span in some.get(attempt, ())]
        found[attempt] = (min(begin for begin, _ in spans), max(end for _, end in spans), len(ranks[attempt]))
    return found


def _trained(run: Run) -> dict[int, _Trained]:
    rows = run.sql(
        """
        SELECT attempt, arg_max(process, (steps, -coalesce(rank, 0))), arg_max(first, (steps, -coalesce(rank, 0))),
               arg_max(last, (steps, -coalesce(rank, 0))), arg_max(begun, (steps, -coalesce(rank, 0)))
        FROM (
            SELECT p.attempt, process, p.rank, count(*) AS steps, min(s.step) AS first, max(s.step) AS last, min(s.start_ns) AS begun
            FROM steps s JOIN processes p USING (process) WHERE p.attempt IS NOT NULL AND s.step IS NOT NULL GROUP BY ALL
        ) GROUP BY attempt
        """
    ).fetchall()
    return {attempt: _Trained(*found) for attempt, *found in rows}


def _numbered_anew(run: Run, trained: list[_Trained]) -> bool:
    """Whether an attempt that read a checkpoint numbers its steps as the one before did: then numbers do not say what was repeated."""
    again = [later for one, later in pairwise(trained) if later.first <= one.first]
    if not again:
        return False
    listed = ", ".join(f"({quoted(one.process)}, {one.begun})" for one in again)
    rows = run.sql(
        f"""
        WITH again(process, begun) AS (VALUES {listed})
        SELECT 1 FROM {BESIDE} JOIN again USING (process)
        WHERE kind = 'mark' AND cat = '{probe.PROBE}' AND name = '{probe.LOADED}' LIMIT 1
        """
    ).fetchall()
    return bool(rows)


def _attempt(
    run: Run, number: int, times: dict[int, tuple[int, int, int]], trained: dict[int, _Trained], known: bool
) -> Attempt:
    begin, end, ranks = times[number]
    before = [other for one, (_, other, _) in times.items() if one < number]
    waited = max(0, begin - max(before)) if before else None
    found = trained.get(number)
    if found is None:
        return Attempt(number, begin, end - begin, waited, ranks, None, None, 0, 0, 0, 0)
    later = min((one.first for other, one in trained.items() if other > number), default=None)
    again = "false" if later is None else f"step >= {later}"
    ((steps, spent, repeated, wasted),) = run.sql(
        f"""
        SELECT count(*), coalesce(sum(dur_ns), 0), count(*) FILTER ({again}), coalesce(sum(dur_ns) FILTER ({again}), 0)
        FROM steps WHERE process = {quoted(found.process)}
        """
    ).fetchall()
    return Attempt(
        number, begin, end - begin, waited, ranks, found.first, found.last, steps, repeated if known else None, int(spent),
        int(wasted) if known else None,
    )  # fmt: skip
