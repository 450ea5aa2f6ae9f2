"""All facts about learning, from one process: the first rank that trained. Ranks of one training learn the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sonde.diagnosis.figures import Asker, Figures, literal
from sonde.diagnosis.learning.batches import SampledBatches, gather_batches
from sonde.diagnosis.learning.curve import LossCurve, gather_curve
from sonde.diagnosis.learning.evaluation import Evaluation, gather_evaluations
from sonde.diagnosis.learning.layers import Layers, gather_layers
from sonde.diagnosis.learning.modes import Modes, gather_modes
from sonde.diagnosis.learning.rates import LearningRates, gather_rates

if TYPE_CHECKING:
    from sonde.diagnosis.policy import Policy


@dataclass(frozen=True)
class LearningFacts:
    """All of it. What was not recorded is not known: layers, modes and fields need `--learning`."""

    steps: int = 0
    acting: Figures = field(default_factory=lambda: Figures({}, {}))  # forward and backward calls, batches
    curve: LossCurve = field(default_factory=LossCurve)
    rates: LearningRates = field(default_factory=LearningRates)
    layers: Layers = field(default_factory=Layers)
    modes: Modes = field(default_factory=Modes)
    batches: SampledBatches = field(default_factory=SampledBatches)
    evaluations: list[Evaluation] = field(default_factory=list)

    def explores(self, most: float) -> bool:
        """Whether the model acts much more often than it learns, on no given data: then its loss says little."""
        calls = self.acting
        if calls["batches"].or_zero() or not calls["backward"].or_zero():
            return False
        return calls["forward"].or_zero() + calls["evaluation"].or_zero() > most * calls["backward"].or_zero()


def gather_learning(ask: Asker, policy: Policy, trained: bool) -> LearningFacts:
    """Ask about learning. `trained`: there are steps."""
    if not trained:
        return LearningFacts()
    found = ask.rows(
        "SELECT process, count(*) FROM steps GROUP BY process ORDER BY min(rank) NULLS FIRST, 2 DESC LIMIT 1"
    )
    if not found:
        return LearningFacts()
    process, steps = found[0]
    here = f"process = {literal(process)}"
    calls = {name: f"sum(calls) FILTER (phase = '{name}')" for name in ("forward", "backward", "evaluation")}
    acting = ask.one(f"phases WHERE {here}", calls)
    acting["batches"] = ask.one(f"steps WHERE {here}", {"batches": "sum(batches)"})["batches"]
    return LearningFacts(
        steps,
        acting,
        gather_curve(ask, policy, process),
        gather_rates(ask, policy, process),
        gather_layers(ask, process),
        gather_modes(ask, process),
        gather_batches(ask, process),
        gather_evaluations(ask, process),
    )
