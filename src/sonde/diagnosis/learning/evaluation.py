"""Losses of evaluations, as the program or its framework logs them, beside the loss of training."""

from __future__ import annotations

from dataclasses import dataclass

from sonde.diagnosis.figures import Asker, Figures, literal
from sonde.store import probe

PART = 20  # losses of training around an evaluation, at least


@dataclass(frozen=True)
class Evaluation:
    """One loss of an evaluation."""

    name: str
    values: list[tuple[int, float]]  # by step
    figures: Figures  # best, best_step, last, last_step, and the loss of training around both


def gather_evaluations(ask: Asker, process: str) -> list[Evaluation]:
    """Ask about the losses of evaluations of a process."""
    if not ask.has(probe.LOG) and not ask.has(probe.METRIC):
        return []
    here = f"process = {literal(process)}"
    losses = f"metrics WHERE {here} AND evaluation AND isfinite(value) AND step IS NOT NULL"
    named = f"{losses} AND regexp_matches(lower(name), 'loss|nll|cross.?entropy|perplexity')"
    found = []
    for (name,) in ask.rows(f"SELECT DISTINCT name FROM {named} ORDER BY 1"):
        own = f"{losses} AND name = {literal(name)}"
        values = ask.rows(f"SELECT step, arg_max(value, time_ns) FROM {own} GROUP BY step ORDER BY step")
        figures = ask.one(
            own,
            {
                "best": "min(value)",
                "best_step": "arg_min(step, value)",
                "last": "arg_max(value, time_ns)",
                "last_step": "max(step)",
            },
        )
        between = values[1][0] - values[0][0] if len(values) > 1 else PART
        width = max(PART, between)
        trained = f"steps WHERE {here} AND loss IS NOT NULL AND isfinite(loss)"
        for what in ("best", "last"):
            step = int(figures[f"{what}_step"].or_zero())
            figures[f"trained_{what}"] = ask.one(
                f"{trained} AND step > {step - width} AND step <= {step}", {"loss": "avg(loss)"}
            )["loss"]
        found.append(Evaluation(name, values, figures))
    return found
