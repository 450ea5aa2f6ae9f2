"""Which weights a verb uses: those that the config names, or of the newest training run. It always says which."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonde.errors import CheckpointError
from sonde.pipeline import folder as folders
from sonde.pipeline.tracing import note
from sonde.pipeline.training.checkpoint import load_weights

if TYPE_CHECKING:
    from sonde.pipeline.job import Job


def give_weights(model: Any, job: Job, table: str) -> Path | None:
    """Load the weights that `config[table]` asks for into a model; the file they are from, None if they are fresh.

    Without `weights` and `run` these are those of the newest training run of this model that was completed. A traced
    verb goes on with the weights that the model was made with if there is none.
    """
    wanted = wanted_weights(job, table)
    if wanted is None:
        job.say(f"{job.verb} uses freshly initialised weights: {missing(job)}")
        note(f"The weights are freshly initialised: {missing(job)}")
        return None
    file = load_weights(model, wanted)
    job.say(f"{job.verb} uses the weights of {file}")
    return file


def wanted_weights(job: Job, table: str) -> Path | None:
    """The file or run folder with the weights; None if there is none, which only a traced verb accepts."""
    results_dir, wanted = job.config["general"]["results_dir"], job.config[table]
    if wanted["weights"]:
        return Path(wanted["weights"])
    if wanted["run"]:
        return named_run(results_dir, wanted["run"], f"{table}.run")
    found = newest_run(results_dir, job.config["model"]["name"])
    if found is None and not job.traced:
        raise CheckpointError(
            f"{job.verb} has no weights: {missing(job)} Train first, or set {table}.run or {table}.weights."
        )
    return found


def newest_run(results_dir: str | Path, model: str) -> Path | None:
    """The training run of this model that was started last and was completed. Traced runs have no folder."""
    runs = folders.runs(results_dir, "train", (folders.COMPLETED,))
    found = [(record.get("started_ns", 0), path.name, path) for path, record in runs if record.get("model") == model]
    return max(found)[2] if found else None


def named_run(results_dir: str | Path, name: str, key: str) -> Path:
    """A run folder that the config names: by a path, or by its name in the folder of results."""
    for path in (Path(name), Path(results_dir) / name):
        if path.is_dir():
            return path
    raise CheckpointError(f"{key} is {name!r}, but there is no such folder, neither here nor in {str(results_dir)!r}.")


def missing(job: Job) -> str:
    """What was looked for and not found."""
    model, results_dir = job.config["model"]["name"], job.config["general"]["results_dir"]
    return f"there is no completed training run of {model} in {results_dir!r}."
