"""WEIGHTS_CHANGED: something other than the optimizer changes weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def weights_changed(facts: Facts, policy: Policy) -> Finding | None:
    """Weights change between two updates: something else than the optimizer writes to them. Needs `--learning`."""
    modes = facts.learning.modes
    compared, times = modes.compared.or_zero(), modes.changed_steps.or_zero()
    share = times / compared if compared else 0.0
    if times < policy["weights_changed.least"] or share < policy["weights_changed.warn_share"] or not modes.changed:
        return None
    worst = modes.changed[0]
    much = "" if worst.change is None else f", by up to {units.brief(worst.change)} of their norm"
    return finding(
        "WEIGHTS_CHANGED",
        WARN,
        0.85,
        f"Weights of layer {worst.layer.partition('/')[2]} change outside the optimizer after {units.share(min(1.0, share))} of the sampled updates{much}.",
        "Look for code that writes to parameters (.data, copy_, load_state_dict) after optimizer.step().",
        score=min(1.0, share),
        figures={"sampled updates": modes.compared, "followed by a change": modes.changed_steps},
        layers=[one.layer for one in modes.changed],
    )
