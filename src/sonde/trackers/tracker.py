"""What a tracker is to the process that feeds it, and which ones there are."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sonde.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class StepValues(NamedTuple):
    """The values of one step, or the means of several that ended at about the same time."""

    step: int
    time_ns: int  # wall clock
    values: Mapping[str, float]


class Tracker(Protocol):
    """An open run of a tracker. Any method may raise anything."""

    def log(self, points: Sequence[StepValues]) -> None:
        """Take these values."""

    def finish(self, outcome: Mapping[str, float | str], page: Path) -> None:
        """Take the outcome as a summary and the report page as an artefact, and end."""


def opened(name: str, run: str, target: Mapping[str, str]) -> Tracker:
    """The tracker of this name, for a run of Sonde of that name. Its module, its library and its extra have that name too."""
    if name == "wandb":
        from sonde.trackers import wandb

        return wandb.open(run, target)
    if name == "mlflow":
        from sonde.trackers import mlflow

        return mlflow.open(run, target)
    from sonde.trackers import tensorboard

    return tensorboard.open(run, target)


def check(name: str, purpose: str) -> None:
    """Raises MissingExtra if the library is not installed."""
    if importlib.util.find_spec(name) is None:
        raise MissingExtra.of(name, name, purpose)
