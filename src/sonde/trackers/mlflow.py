"""MLflow: steps as metrics, the verdict as tags, the report page as artefact of the program's own run.

    mlflow.start_run()
    sonde.trackers.mlflow.attach()

Without an active run it is the run that `MLFLOW_RUN_ID` names, or a new one of the experiment that `MLFLOW_EXPERIMENT_NAME` names.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sonde import environment
from sonde.trackers.attach import attach as _attach

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from sonde.trackers.tracker import StepValues

MOST = 1_000  # metrics of one request
LONGEST_TAG = 5_000  # characters
FOLDER = "sonde"


def attach(run_id: str | None = None) -> bool:
    """Send what this program records to MLflow; True if that has begun. Never raises.

    `run_id`: default, the active run, else a new one.
    """
    return _attach("mlflow", {**_active(), **({"run_id": run_id} if run_id else {})})


def open(run: str, target: Mapping[str, str]) -> Mlflow:
    """The target's run, or a new one."""
    return Mlflow(run, target)


class Mlflow:
    """One run of MLflow."""

    def __init__(self, run: str, target: Mapping[str, str]) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric

        self._metric: Any = Metric
        self._client: Any = MlflowClient(tracking_uri=target.get("tracking_uri"))
        known = target.get("run_id") or environment.variable("MLFLOW_RUN_ID")
        self._own = not known
        self._id: str = known or self._new(run)
        self._client.set_tag(self._id, "sonde.run", run)

    def log(self, points: Sequence[StepValues]) -> None:
        """As metrics, with step and time."""
        metrics = [
            self._metric(name, value, point.time_ns // 1_000_000, point.step)
            for point in points
            for name, value in point.values.items()
        ]
        for first in range(0, len(metrics), MOST):
            self._client.log_batch(self._id, metrics=metrics[first : first + MOST])

    def finish(self, outcome: Mapping[str, float | str], page: Path) -> None:
        """Numbers as metrics, texts as tags, the page as artefact."""
        for name, value in outcome.items():
            if isinstance(value, str):
                self._client.set_tag(self._id, name.replace("/", "."), value[:LONGEST_TAG])
            else:
                self._client.log_metric(self._id, name, value)
        self._client.log_artifact(self._id, str(page), FOLDER)
        if self._own:
            self._client.set_terminated(self._id)

    def _new(self, run: str) -> str:
        name = environment.variable("MLFLOW_EXPERIMENT_NAME") or "Default"
        experiment = self._client.get_experiment_by_name(name)
        id = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        made: str = self._client.create_run(id, run_name=run).info.run_id
        return made


def _active() -> dict[str, str]:
    """Where the program's own run is, if it has one."""
    library = sys.modules.get("mlflow")
    if library is None:
        return {}
    active = library.active_run()
    found = {"tracking_uri": library.get_tracking_uri()}
    return found if active is None else found | {"run_id": active.info.run_id}
