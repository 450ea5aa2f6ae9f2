"""INSUFFICIENT_DATA: there is too little data for a diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.analysis.run import RECORDING
from sonde.diagnosis.drops import QUERY, REMEDY, drops_for_space, lost_for_space
from sonde.diagnosis.evidence import enough_steps, finding
from sonde.diagnosis.figures import Figure
from sonde.finding import INFO, Finding
from sonde.store.alive import LAUNCHER

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def insufficient_data(facts: Facts, policy: Policy) -> Finding | None:
    """Too few steps after warm-up for a diagnosis."""
    if enough_steps(facts, policy):
        return None
    speed = facts.speed
    steps, warmup = speed.steps.or_zero(), speed.warmup.or_zero()
    if not speed.trained:
        why = _instead(facts)
    elif not steps and not speed.phases and not warmup:
        why = "Steps were counted, but nothing inside them was recorded."
    else:
        after = f" after {units.plural(warmup, 'warm-up step')}" if warmup else ""
        why = f"Only {units.plural(steps, 'step')}{after}."
    why += f" A diagnosis needs at least {policy['steps.least']:.0f} steps."
    lost = facts.ends.lost
    figures = (
        {"steps after the warm-up": speed.steps, "steps of the warm-up": speed.warmup}
        if speed.trained
        else {
            "evaluation ns": speed.whole["evaluation"],
            "fetches and forward passes": speed.whole["evaluation_calls"],
            "backward passes": speed.whole["backward_calls"],
        }
    )
    if drops_for_space(lost):
        figures["records lost"] = Figure(lost.total, QUERY)
    return finding(
        "INSUFFICIENT_DATA",
        INFO,
        1.0,
        f"{lost_for_space(lost)}{why}",
        _next(facts),
        figures=figures,
    )


def _instead(facts: Facts) -> str:
    """What the run has instead of steps."""
    if not facts.ends.processes:
        return "Nothing was recorded."
    learned, passes = facts.speed.whole["backward_calls"].value, facts.speed.whole["evaluation_calls"].value
    if learned:
        return f"The program trains ({units.plural(learned, 'backward pass', 'backward passes')}), but no update ended a step."
    if passes:
        lasting = units.duration(facts.speed.whole["evaluation"].value)
        return f"The run only evaluates: {passes:,.0f} fetches and forward passes in {lasting}, no backward pass."
    known = not lost_for_space(facts.ends.lost) and facts.state != RECORDING
    return "No training loop was seen." if known else "No training steps were recorded."


def _next(facts: Facts) -> str:
    if drops_for_space(facts.ends.lost):
        return REMEDY
    if facts.state == RECORDING:
        return "Wait for more steps."
    if facts.ends.lost.uncounted:
        return "Restore the missing files of the run from a backup."
    if facts.chosen:
        return f"Record it without {' and '.join(facts.chosen)}, or with a wider selection."
    if facts.imported:
        shown = "" if facts.speed.trained else "`sonde show` lists where its time went. "
        return f"{shown}Import a trace of more steps. In torch.profiler, mark them with profiler.step() and give schedule(active=20)."
    if facts.speed.trained:
        return "Run it longer."
    if facts.speed.whole["backward_calls"].value:
        return "Mark its steps with sonde.trace_step()."
    if facts.speed.whole["evaluation_calls"].value:
        return "Nothing to do if it was not meant to train. `sonde show` lists where its time went."
    if any(end.role == LAUNCHER for end in facts.ends.processes):
        return "If it trains, mark its steps with sonde.trace_step()."
    return "Start the program with `sonde run`, or mark its steps with sonde.trace_step()."
