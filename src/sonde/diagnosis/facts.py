"""What the rules are given: plain numbers and small tables, made once from a run by a few queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sonde.analysis.blackbox import BlackBox, black_box
from sonde.diagnosis.ends import Ends, gather_ends
from sonde.diagnosis.figures import Ask
from sonde.diagnosis.health import Health, gather_health
from sonde.diagnosis.loading import Loading, gather_loaders, gather_loading
from sonde.diagnosis.speed import Speed, gather_speed

if TYPE_CHECKING:
    from sonde.analysis.run import Run
    from sonde.diagnosis.policy import Policy


@dataclass(frozen=True)
class Facts:
    """All that is known of a run. Each number is a Figure, which keeps its query."""

    state: str  # of the run: recording, ended, died, unknown
    speed: Speed
    loading: Loading
    health: Health
    ends: Ends
    box: BlackBox
    run: str  # what it is called in commands


def gather(run: Run, policy: Policy) -> Facts:
    """Ask a run for everything that the rules may want to know."""
    ask = Ask(run)
    loaders = gather_loaders(ask)
    speed = gather_speed(ask, policy, max((one.workers or 0 for one in loaders), default=0))
    return Facts(
        run.state,
        speed,
        gather_loading(ask, policy, speed, loaders),
        gather_health(ask, policy, bool(speed.trained)),
        gather_ends(run, ask, speed.trained),
        black_box(run),
        run.id,
    )
