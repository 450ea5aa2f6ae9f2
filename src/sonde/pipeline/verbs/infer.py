"""`infer`: run a model over the group `infer`, in order, and write what it gives as a table of results."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from sonde.ai.tree import ai
from sonde.pipeline import loop
from sonde.pipeline.build import build_model
from sonde.pipeline.chance import seeded
from sonde.pipeline.inputs import device_of
from sonde.pipeline.job import Job, verb
from sonde.pipeline.loading import Batches, batches
from sonde.pipeline.outputs import arrays
from sonde.pipeline.results import ResultWriter
from sonde.pipeline.tracing import watch_forward
from sonde.pipeline.weights import give_weights

if TYPE_CHECKING:
    from pathlib import Path

    from sonde.pipeline.folder import RunFolder


@verb
def infer(job: Job) -> Path | None:
    """Run over all items; the folder with the results. None in a traced run."""
    with ai.pipeline.test, seeded(job.seed):
        device = device_of(job.config["infer"]["device"])
        provider = job.provider("infer")
        model = build_model(job.config, provider, training=False)
        loop.method(model, "infer_batch")
        weights = give_weights(model, job, "infer")
        setting = loop.Setting(model.to(device), device, job.progress)
        data = batches(job, provider)
        watch_forward(model)
        job.begin()
        with job.folder() as made:
            if made is not None:
                made.tell(weights=str(weights))
            write_outputs(setting, data, made)
    return None if made is None else made.path


def write_outputs(setting: loop.Setting, data: Batches, made: RunFolder | None) -> None:
    """Run `infer_batch` over all batches; what it gives goes into the run folder, or, in a traced run, nowhere."""
    import torch

    name = type(setting.model).__name__
    setting.progress.start(len(data), "infer")
    with ExitStack() as stack, torch.inference_mode():
        stack.callback(setting.progress.stop)
        table = None if made is None else stack.enter_context(ResultWriter(made.path))

        def take(batch: dict[str, Any], given: Any) -> None:
            found = arrays(given, name)
            if table is not None:
                with ai.other.io.write:
                    table.write(batch["object_id"].tolist(), found)

        loop.infer(setting, data, take)
