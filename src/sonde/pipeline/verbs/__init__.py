"""The verbs of a pipeline. Each takes a config, and `trace=N`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.pipeline.verbs.engine import engine
from sonde.pipeline.verbs.infer import infer
from sonde.pipeline.verbs.onnx import to_onnx
from sonde.pipeline.verbs.test import test
from sonde.pipeline.verbs.train import train

if TYPE_CHECKING:
    from sonde.pipeline.job import Verb

VERBS: dict[str, Verb] = {"train": train, "infer": infer, "test": test, "to-onnx": to_onnx, "engine": engine}
