"""`/steps`: the steps of a run as a table, and one of them with its phases, lanes and batches."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from sonde.analysis.questions.steps import MOST_RANKS, SHOWN_RANKS, steps_listed, whole_step
from sonde.web.asking import Ask

if TYPE_CHECKING:
    from sonde.analysis.run import Run

WHERE = ("all", "slow", "nan", "skipped", "warmup")


def steps(run: Run, ask: Ask) -> object:
    """Some steps, sorted."""
    return asdict(
        steps_listed(
            run,
            where=ask.choices("where", WHERE),
            over=ask.number("over", 3.0),
            rank=ask.optional("rank"),
            epoch=ask.optional("epoch"),
            between=(ask.optional("from"), ask.optional("to")),
            sort=ask.query.get("sort") or "step",
            descending=ask.choice("order", ("asc", "desc")) == "desc",
            offset=ask.integer("offset", 0, 0, 10**12),
            limit=ask.integer("limit", 100, 1, 10_000),
        )
    )


def step(run: Run, ask: Ask) -> object:
    """One step of one rank."""
    ranks = ask.integer("ranks", SHOWN_RANKS, 1, MOST_RANKS)
    found = asdict(whole_step(run, ask.rank(), ask.place("step"), ask.query.get("process"), ranks))
    return found | {"from": found.pop("first_ns"), "to": found.pop("last_ns")}
