"""`infer`: run a model over the group `infer`, in order, and write its outputs as a table of results."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.ai.tree import ai
from sonde.pipeline.data.loading import Batches, batches
from sonde.pipeline.job import Job, verb
from sonde.pipeline.results.results import ResultWriter
from sonde.pipeline.tracing import watch_forward
from sonde.pipeline.training import batchloop
from sonde.pipeline.training.build import build_model
from sonde.pipeline.training.distributed import collected, gathered
from sonde.pipeline.training.inputs import device_of
from sonde.pipeline.training.outputs import arrays
from sonde.pipeline.training.seed import seeded
from sonde.pipeline.training.weights import give_weights

if TYPE_CHECKING:
    from pathlib import Path

    from sonde.pipeline.folder import RunFolder


@verb
def infer(job: Job) -> Path | None:
    """Run over all items; the folder with the results. None in a traced run. Under torchrun the ranks share the items."""
    with ai.pipeline.test, ExitStack() as stack:
        device = device_of(job.config["infer"]["device"])
        world = stack.enter_context(job.together(device))
        stack.enter_context(seeded(job.seed))
        provider = job.provider("infer")
        model = build_model(job.config, provider, training=False)
        batchloop.method(model, "infer_batch")
        weights = give_weights(model, job, "infer")
        setting = batchloop.LoopSetting(model.to(device), device, job.progress, world)
        data = batches(job, provider, world)
        watch_forward(model)
        job.begin()
        with job.folder(world) as made:
            if made is not None:
                made.describe(weights=str(weights))
            write_outputs(setting, data, made)
        path: Path | None = gathered(None if made is None else made.path, world)[0]
    return path


def write_outputs(setting: batchloop.LoopSetting, data: Batches, made: RunFolder | None) -> None:
    """Run `infer_batch` over all batches; what it gives goes into the run folder, or, in a traced run, nowhere.

    The first rank writes what all ranks give, in the order of the items.
    """
    import torch

    name = type(setting.model).__name__
    setting.progress.start(len(data), "infer")
    with ExitStack() as stack, torch.inference_mode():
        stack.callback(setting.progress.stop)
        table = None if made is None else stack.enter_context(ResultWriter(made.path))

        def take(batch: dict[str, Any] | None, given: Any) -> None:
            part = None if batch is None else (batch["object_id"].tolist(), arrays(given, name))
            parts = collected(part, setting.world)
            if table is not None:
                with ai.other.io.write:
                    table.write(*_merged(parts))

        batchloop.infer(setting, data, take)


def _merged(parts: list[Any]) -> tuple[list[str], dict[str, Any]]:
    """The items of one batch of each rank in their own order: the ranks have taken them in turn."""
    if len(parts) == 1:
        ids, outputs = parts[0]
        return ids, outputs
    there = [(rank, *part) for rank, part in enumerate(parts) if part is not None]
    turns = np.concatenate([np.arange(len(ids)) * len(parts) + rank for rank, ids, _ in there])
    order = np.argsort(turns)
    ids = [one for _, ids, _ in there for one in ids]
    outputs = {name: np.concatenate([given[name] for _, _, given in there])[order] for name in there[0][2]}
    return [ids[place] for place in order], outputs
