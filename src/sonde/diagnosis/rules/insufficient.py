"""INSUFFICIENT_DATA: there is too little to judge by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.drops import UNCOUNTED, Drops
from sonde.analysis.run import RECORDING
from sonde.diagnosis.evidence import enough_steps, finding
from sonde.diagnosis.figures import Figure
from sonde.diagnosis.wording import ms, several
from sonde.finding import INFO, Finding
from sonde.store.alive import LAUNCHER

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def insufficient_data(facts: Facts, policy: Policy) -> Finding | None:
    """There are too few steps after the warm-up to say anything about speed."""
    if enough_steps(facts, policy):
        return None
    speed = facts.speed
    steps, warmup = speed.steps.or_zero(), speed.warmup.or_zero()
    if not speed.trained:
        why = "No step was recorded." + _instead(facts)
    elif not steps and not speed.phases and not warmup:
        why = "Steps were counted, and nothing of what happened in them was recorded."
    else:
        why = f"There {'is' if steps == 1 else 'are'} {several(steps, 'step')} after {several(warmup, 'step')} of warm-up."
    why += f" To judge by, {policy['steps.least']:.0f} are needed."
    lost = facts.ends.lost
    figures = (
        {"steps after the warm-up": speed.steps, "steps of the warm-up": speed.warmup}
        if speed.trained
        else {
            "evaluation ns": speed.whole["evaluation"],
            "fetches and forward passes": speed.whole["evaluation_calls"],
        }
    )
    if _without_room(lost):
        figures["records lost"] = Figure(lost.total, "SELECT sum(drops)::BIGINT FROM processes")
    return finding(
        "INSUFFICIENT_DATA",
        INFO,
        1.0,
        f"{_loss(lost)}{why}",
        _next(facts),
        figures=figures,
    )


def _without_room(lost: Drops) -> dict[str, int]:
    """The records for which there was no room, by reason."""
    return {reason: count for reason, count in lost.by_reason.items() if reason in _NO_ROOM}


def _loss(lost: Drops) -> str:
    """What is missing of the run: nobody need look for the fault in the program then."""
    told = [
        f"{several(count, 'record')} {'was' if count == 1 else 'were'} lost, {_NO_ROOM[reason]}. "
        for reason, count in _without_room(lost).items()
    ]
    return "".join([*told, f"It is not known how many records {UNCOUNTED}. " if lost.uncounted else ""])


# Reasons that are none of the program's, in words.
_NO_ROOM = {
    "space": "which could not be written: the disk was full, a limit of the size of files was reached, or a file was closed",
    "cap": "which were not taken: the run neared its size cap",
    "ring": "for which no memory could be mapped in the run folder: on a full disk, or under a limit of the size of files",
}


def _instead(facts: Facts) -> str:
    if not facts.ends.processes:
        return " Nothing else was, either."
    passes = facts.speed.whole["evaluation_calls"].value
    if passes:
        lasting = ms(facts.speed.whole["evaluation"].value)
        return f" The run only evaluates: {passes:,.0f} fetches and forward passes and no backward, {lasting} in all."
    known = not _loss(facts.ends.lost) and facts.state != RECORDING
    return " The run has no training loop that was seen." if known else ""


def _next(facts: Facts) -> str:
    if _without_room(facts.ends.lost):
        return "Make room for the recording (disk, ulimit -f, the setting cap), or give it another folder with --dir."
    if facts.state == RECORDING:
        return "Wait until it has made more steps."
    if facts.ends.lost.uncounted:
        return "Restore the missing files of the run from a copy."
    if facts.chosen:
        return f"Record it without {' and '.join(facts.chosen)}, or with a wider choice: the rest was left out by that."
    if facts.speed.trained:
        return "Let it run for longer."
    if facts.speed.whole["evaluation_calls"].value:
        return "Nothing, if it was not to train; `sonde show` tells where its time went."
    if any(end.role == LAUNCHER for end in facts.ends.processes):
        return "If it trains, mark its steps with sonde.trace_step(); what could not be seen of it is listed as unseen."
    return "Start the program with `sonde run`, or mark its steps with sonde.trace_step()."
