"""Micro-batches of training frameworks, each a call of a public method: their trainers know the epoch, and how losses are scaled."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from sonde.hooks.points import Point


def _trainer(module: ModuleType) -> list[tuple[Any, str]]:
    return [(module.Trainer, "training_step")]


def _strategy(module: ModuleType) -> list[tuple[Any, str]]:
    return [(module.Strategy, "training_step")]


_WHY = "to know the epoch"
# `Trainer.training_step(trainer, model, inputs, ...)`
huggingface_step = Point("transformers.Trainer.training_step", _WHY, library="transformers.trainer", find=_trainer)
# `Strategy.training_step(strategy, ...)`, of both names of the library
lightning_steps = tuple(
    Point(f"{name}.Strategy.training_step", _WHY, library=f"{name}.strategies.strategy", find=_strategy)
    for name in ("lightning.pytorch", "pytorch_lightning")
)
