"""Weights & Biases: steps as history, the verdict as summary, the report page as artefact of a run of its own.

    wandb.init(project="mine")
    sonde.trackers.wandb.attach()

It is a run of the same project and group with the job type `sonde`: two processes cannot write to one run offline. Nothing is sent
but Sonde's numbers: no code, no git state, no packages, no console, no system metrics.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sonde.trackers.attach import attach as _attach

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from sonde.trackers.tracker import StepValues

AXIS = "sonde/step/number"


def attach(project: str | None = None) -> bool:
    """Send what this program records to Weights & Biases; True if that has begun. Never raises.

    `project`: default, that of the active run of wandb, else `WANDB_PROJECT`.
    """
    return _attach("wandb", {**_active(), **({"project": project} if project else {})})


def open(run: str, target: Mapping[str, str]) -> Wandb:
    """A new run of the target's project."""
    return Wandb(run, target)


class Wandb:
    """One run of wandb."""

    def __init__(self, run: str, target: Mapping[str, str]) -> None:
        import wandb

        self._library: Any = wandb
        settings = wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, save_code=False, disable_job_creation=True,
            x_disable_stats=True, x_disable_meta=True, x_disable_machine_info=True, x_save_requirements=False,
        )  # fmt: skip
        about: dict[str, Any] = {"name": run, "job_type": "sonde", "config": {"sonde_run": run}, **target}
        self._run: Any = wandb.init(settings=settings, **about)
        self._run.define_metric("sonde/*", step_metric=AXIS)

    def log(self, points: Sequence[StepValues]) -> None:
        """As history, by the number of the step."""
        for point in points:
            self._run.log({**point.values, AXIS: point.step})

    def finish(self, outcome: Mapping[str, float | str], page: Path) -> None:
        """Summary and artefact."""
        self._run.summary.update(dict(outcome))
        artefact = self._library.Artifact(f"sonde-{self._run.id}", type="report")
        artefact.add_file(str(page))
        self._run.log_artifact(artefact)
        self._run.finish()


def _active() -> dict[str, str]:
    """Where the program's own run is, if it has one."""
    run = getattr(sys.modules.get("wandb"), "run", None)
    if run is None:
        return {}
    settings = run.settings
    found = {
        "project": run.project,
        "entity": run.entity,
        "group": run.group,
        "mode": settings.mode,
        "dir": settings.root_dir,
    }
    return {name: str(value) for name, value in found.items() if value}
