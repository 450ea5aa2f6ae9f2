"""Pipeline: from `get_<field>` of a dataset to results on disk, in a few lines. Needs the extra `sonde-ml[pipeline]`.

config, registry, request     what is declared: settings, classes by name, the data
provider, datasets/           items and batches of the declared data, without torch
build, inputs, models/        the model, and what it is given
loading, loop, ranks          batches, steps, several processes
job, folder, checkpoint       one run of a verb: its folder, its weights
verbs/                        train, infer, test, to_onnx, engine
tracing                       trace=N: the values of N items, stage by stage
"""

from __future__ import annotations

from sonde.pipeline.config import Config
from sonde.pipeline.data.provider import DataProvider
from sonde.pipeline.datasets.dataset import Dataset
from sonde.pipeline.job import Job, verb
from sonde.pipeline.pipeline import Pipeline
from sonde.pipeline.registry import register_dataset, register_model

__all__ = ["Config", "DataProvider", "Dataset", "Job", "Pipeline", "register_dataset", "register_model", "verb"]
