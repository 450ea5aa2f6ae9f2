"""`engine`: run an exported model over the group `infer` with onnxruntime alone, and write the results. No torch."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonde.ai.tree import ai
from sonde.errors import ExportError
from sonde.pipeline import folder as folders
from sonde.pipeline.export.exported import MODEL, Exported
from sonde.pipeline.job import Job, verb
from sonde.pipeline.results.results import ResultWriter
from sonde.pipeline.tracing import NotedFunction, fetched, of_inputs
from sonde.pipeline.training.weights import named_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sonde.pipeline.data.provider import DataProvider

EXPORT = "Export one first: to_onnx, or `sonde pipeline to-onnx`."


@verb
def engine(job: Job) -> Path | None:
    """Run over all items, in order; the folder with the results."""
    exported = Exported(model_file(job))
    job.say(f"The engine runs {exported.model} of {exported.path}")
    provider = job.provider("infer")
    step = _EngineStep(exported)
    job.begin()
    with job.folder() as made, ai.pipeline.test:
        if made is None:
            for batch in _batches(job, provider):
                step.run(batch)
            return None
        made.describe(exported=str(exported.path))
        _run(job, provider, step, made.path)
        return made.path


class _EngineStep:
    """What happens to a batch, each part of it noted in a trace."""

    def __init__(self, exported: Exported) -> None:
        self.prepare = of_inputs(exported.prepared(), exported.model)
        create, run = exported.create_ort_inputs, exported.run_onnx_batch
        self.create = NotedFunction(create, "Engine", "create_ort_inputs", "prepared_batch", "ort_inputs", "evaluation")
        self.evaluate = NotedFunction(run, "Engine", "run_onnx_batch", "ort_inputs", "onnx_results", "evaluation")

    def run(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The outputs for a batch, by name."""
        with ai.data.preprocess:
            inputs = self.create(self.prepare(batch))
        with ai.compute.forward:
            outputs: dict[str, Any] = self.evaluate(inputs)
        return outputs


def _run(job: Job, provider: DataProvider, step: _EngineStep, folder: Path) -> None:
    job.progress.start(-(-len(provider) // job.config["data_loader"]["batch_size"]), job.verb)
    try:
        with ResultWriter(folder) as writer:
            for batch in _batches(job, provider):
                ids = batch["object_id"].tolist()
                outputs = step.run(batch)
                with ai.other.io.write:
                    writer.write(ids, outputs)
                job.progress.advance(1)
    finally:
        job.progress.stop()


def _batches(job: Job, provider: DataProvider) -> Iterator[dict[str, Any]]:
    indices, size = job.indices(provider), job.config["data_loader"]["batch_size"]
    for number, start in enumerate(range(0, len(indices), size)):
        wanted = indices[start : start + size]
        with ai.dataloader.fetch:
            batch = fetched(number, wanted, partial(_batch, provider, wanted))
        yield batch


def _batch(provider: DataProvider, indices: Sequence[int]) -> dict[str, Any]:
    return provider.collate([provider[index] for index in indices])


def model_file(job: Job) -> Path:
    """The exported model that the config names, or the newest one."""
    table, results_dir = job.config["engine"], job.config["general"]["results_dir"]
    if table["model"]:
        return _there(Path(table["model"]), "engine.model")
    if table["run"]:
        return _there(named_run(results_dir, table["run"], "engine.run") / MODEL, "engine.run")
    newest = folders.newest(results_dir, "to-onnx")
    if newest is None:
        raise ExportError(f"No exported model in {results_dir!r}. {EXPORT}")
    return _there(newest / MODEL, "the newest export")


def _there(path: Path, why: str) -> Path:
    if not path.is_file():
        raise ExportError(f"No such file: {str(path)!r} ({why}). {EXPORT}")
    return path
