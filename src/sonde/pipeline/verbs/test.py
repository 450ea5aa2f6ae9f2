"""`test`: results and metrics of the model on the group `test`. Two passes: `infer_batch`, then `test_batch`."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

from sonde.ai.tree import ai
from sonde.capture.tape import phase
from sonde.pipeline.data.loading import Batches, batches
from sonde.pipeline.folder import as_json
from sonde.pipeline.job import Job, verb
from sonde.pipeline.tracing import watch_forward
from sonde.pipeline.training import batchloop, seed
from sonde.pipeline.training.build import build_model
from sonde.pipeline.training.inputs import device_of
from sonde.pipeline.training.weights import give_weights
from sonde.pipeline.verbs.infer import write_outputs

if TYPE_CHECKING:
    from sonde.pipeline.folder import RunFolder

log = logging.getLogger("sonde.pipeline")
METRICS = "metrics.json"


@verb
def test(job: Job) -> dict[str, float]:
    """Test the model; its metrics, which are also in `metrics.json` of the run folder, beside the results.

    Under torchrun the ranks share the items, and each returns the metrics of all.
    """
    with ai.pipeline.test, ExitStack() as stack:
        device = device_of(job.config["test"]["device"])
        world = stack.enter_context(job.together(device))
        stack.enter_context(seed.seeded(job.seed))
        provider = job.provider("test")
        model = build_model(job.config, provider, training=False)
        weights = give_weights(model, job, "test")
        setting = batchloop.LoopSetting(model.to(device), device, job.progress, world)
        for name in ("infer_batch", "test_batch"):
            batchloop.method(model, name)
        data = batches(job, provider, world)
        watch_forward(model)
        job.begin()
        with job.folder(world) as made:
            metrics = _passes(setting, data, made)
            if made is not None:
                (made.path / METRICS).write_text(as_json(metrics), "utf-8")
                made.describe(metrics=metrics, weights=str(weights))
    log.info(", ".join(f"{name} {value:.6g}" for name, value in metrics.items()))
    return metrics


def _passes(setting: batchloop.LoopSetting, data: Batches, made: RunFolder | None) -> dict[str, float]:
    with phase("infer"):
        write_outputs(setting, data, made)
    setting.progress.start(len(data), "test")
    try:
        with phase("test"), ai.pipeline.evaluate:
            return batchloop.evaluate(setting, data, "test_batch")
    finally:
        setting.progress.stop()
