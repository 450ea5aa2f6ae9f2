"""Public methods of training frameworks: their micro-batches, by which the epoch is known and how losses are scaled, and what they log."""

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


def _logs(module: ModuleType) -> list[tuple[Any, str]]:
    return [(module.Trainer, "log")]


def _evaluations(module: ModuleType) -> list[tuple[Any, str]]:
    return [(module.Strategy, "on_validation_end"), (module.Strategy, "on_test_end")]


def _epochs(module: ModuleType) -> list[tuple[Any, str]]:
    return [(module.callbacks.CallbackList, "on_epoch_end")]


def _runs(module: ModuleType) -> list[tuple[Any, str]]:
    return [(module.Engine, "run")]


_LOGGED = "to record its losses and metrics"
# `Trainer.log(trainer, logs)`
huggingface_log = Point("transformers.Trainer.log", _LOGGED, library="transformers.trainer", find=_logs)
# `Strategy.on_validation_end(strategy)`: the trainer has its metrics by then
lightning_evaluated = tuple(
    Point(f"{name}.Strategy.on_validation_end", _LOGGED, library=f"{name}.strategies.strategy", find=_evaluations)
    for name in ("lightning.pytorch", "pytorch_lightning")
)
# `CallbackList.on_epoch_end(callbacks, epoch, logs)`
keras_epoch = Point("keras.callbacks.CallbackList.on_epoch_end", _LOGGED, library="keras", find=_epochs)
# `Engine.run(engine, ...)` returns its state
ignite_run = Point("ignite.engine.Engine.run", _LOGGED, library="ignite.engine", find=_runs)
