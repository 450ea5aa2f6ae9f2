"""The input of the rules: plain numbers and small tables, computed once from a run by a few queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sonde.analysis.postmortem.blackbox import BlackBox, black_box
from sonde.diagnosis.devices import Devices, gather_devices
from sonde.diagnosis.exits import Ends, gather_ends
from sonde.diagnosis.figures import Asker
from sonde.diagnosis.files import FileFacts, gather_files
from sonde.diagnosis.health import Health, gather_health
from sonde.diagnosis.learning.facts import LearningFacts, gather_learning
from sonde.diagnosis.loading import Loading, gather_loaders, gather_loading, gather_pipeline
from sonde.diagnosis.recompiles import Recompiles, gather_recompiles
from sonde.diagnosis.samples import UntrackedLines, gather_gap_lines, gather_lines
from sonde.diagnosis.speed import Speed, gather_speed
from sonde.diagnosis.waits import Waits, gather_waits

if TYPE_CHECKING:
    from sonde.analysis.questions.loader import LoaderPipeline
    from sonde.analysis.run import Run
    from sonde.diagnosis.policy import Policy


@dataclass(frozen=True)
class Facts:
    """All that is known of a run. Each number is a Figure, which keeps its query."""

    state: str  # of the run: recording, ended, died, unknown
    speed: Speed
    waits: Waits
    loading: Loading
    files: FileFacts
    health: Health
    learning: LearningFacts
    recompiles: Recompiles
    ends: Ends
    box: BlackBox
    run: str  # what it is called in commands
    chosen: tuple[str, ...]  # the options by which steps or ranks were left out, as they are given
    imported: bool = False  # it is the trace of another tool
    lines: UntrackedLines = field(default_factory=UntrackedLines)
    gap: UntrackedLines = field(default_factory=UntrackedLines)  # of input waits that are inferred
    devices: Devices = field(default_factory=Devices)
    pipeline: LoaderPipeline | None = None  # only where training waits for data


def gather(run: Run, policy: Policy) -> Facts:
    """Ask a run for everything that the rules may want to know."""
    ask = Asker(run)
    loaders = gather_loaders(ask)
    speed = gather_speed(ask, policy, max((one.workers or 0 for one in loaders), default=0))
    loading = gather_loading(ask, policy, speed, loaders)
    health = gather_health(ask, policy, bool(speed.trained))
    return Facts(
        run.state,
        speed,
        gather_waits(run, ask, policy, speed),
        loading,
        gather_files(ask, policy, loading),
        health,
        gather_learning(ask, policy, bool(speed.trained)),
        gather_recompiles(ask, speed),
        gather_ends(run, ask, speed.trained),
        black_box(run),
        run.id,
        _chosen(run.meta.get("settings")),
        bool(run.meta.get("imported")),
        gather_lines(ask, speed),
        gather_gap_lines(ask, speed),
        gather_devices(ask, bool(speed.trained)),
        gather_pipeline(run, policy, loading, health),
    )


def _chosen(settings: object) -> tuple[str, ...]:
    known = settings if isinstance(settings, dict) else {}
    return tuple(
        f"--{name} {_given(known[name], between)}"
        for name, (everything, between) in _CHOICES.items()
        if known.get(name) not in (everything, None)
    )


def _given(value: object, between: str) -> str:
    """A setting as it is given on the command line."""
    parts = value if isinstance(value, list) else [value]
    return between.join("" if one is None else str(one) for one in parts)


# For each of these settings, which value chooses everything, and what stands between several numbers.
_CHOICES: dict[str, tuple[object, str]] = {"steps": (None, ":"), "every": (1, ""), "ranks": (None, ",")}
