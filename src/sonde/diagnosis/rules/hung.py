"""HUNG: a process makes no progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding, rank_word
from sonde.diagnosis.exits import Stuck
from sonde.diagnosis.rules.killed import signal_of
from sonde.finding import CRITICAL, WARN, Finding
from sonde.store import probe

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


WAITS = (probe.COMMUNICATION, probe.BACKWARD)


def hung(facts: Facts, policy: Policy) -> Finding | None:
    """A training process has recorded nothing for much longer than its longest step. Names the rank and the phase."""
    limit = 1e9 * policy["hung.least_s"]
    if facts.speed.step is not None:
        limit = max(limit, facts.speed.step.most.or_zero() * policy["hung.times"])
    found = [one for one in facts.ends.stuck if one.idle_ns >= limit and not _left_alone(facts, one, limit)]
    if not found:
        return None
    # Ranks that wait for another are in communication, or in the backward that hides it: the one that is not holds them up.
    first = min(found, key=lambda one: (waits(one), one.step if one.step is not None else -1))
    known = bool(first.open or first.frames)
    return finding(
        "HUNG",
        CRITICAL if known else WARN,
        0.9 if known else 0.5,
        f"{_who(first)} has recorded nothing for {units.duration(first.idle_ns)}{_place(first)}.{_others(found, first)}",
        f"Read {first.stacks} in the run folder: it has the stack of each thread."
        if first.stacks
        else "To see where it hangs, run `sonde stacks` on its host: it shows the stack of each thread.",
        failure=True,
        figures=first.figures | ({} if facts.speed.step is None else {"longest step ns": facts.speed.step.most}),
        ranks=[] if first.rank is None else [first.rank],
        processes=[first.process],
        open=[span.name for span in first.open],
        stacks=first.stacks,
        frames=first.frames[:10],
    )


def _left_alone(facts: Facts, stuck: Stuck, limit: float) -> bool:
    """Another process had ended badly before: who waits for a dead one does not hang by itself."""
    return any(
        end.process != stuck.process and (signal_of(end) is not None or end.exception is not None)
        and end.role != "launcher" and end.when_ns is not None and end.when_ns <= stuck.last_ns + limit
        for end in facts.ends.processes
    )  # fmt: skip


def waits(stuck: Stuck) -> bool:
    """Whether a process is waiting for other ranks, as far as can be seen."""
    inner = [span.name or "" for span in stuck.open if span.innermost]
    return bool(inner) and all(name.startswith(WAITS) for name in inner)


def _who(stuck: Stuck) -> str:
    return f"Process {stuck.pid}" if stuck.rank is None else f"Rank {stuck.rank} (process {stuck.pid})"


def _place(stuck: Stuck) -> str:
    inner = [span for span in stuck.open if span.innermost]
    place = f", in {inner[0].name}" if inner else ""
    if inner and inner[0].step is not None:
        place += f" of step {inner[0].step}"
    elif stuck.step is not None:
        place += f", after step {stuck.step}"
    return place + (f", at {stuck.frames[0]}" if stuck.frames else "")


def _others(found: list[Stuck], first: Stuck) -> str:
    waiting = [rank_word(one.rank) for one in found if one is not first and waits(one)]
    return f" {', '.join(waiting).capitalize()} {'waits' if len(waiting) == 1 else 'wait'} for it." if waiting else ""
