"""For lightning and pytorch_lightning: a callback that says where the training is, what is evaluation, and which model it is.

    trainer = Trainer(callbacks=[SondeCallback()])

A step is an update of the optimizer, with all its micro-batches. Sanity checks, validation and tests are evaluation.
"""

# ruff: noqa: ARG002  what these methods take is the framework's business

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from sonde.errors import MissingExtra
from sonde.guard import guard
from sonde.integrations.progress import TrainerProgress

__all__ = ["SondeCallback"]

LIBRARIES = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}


def _bases() -> tuple[type, ...]:
    """The class of callbacks of each of the two libraries: of those that the program has imported, or else that there are."""
    found = [name for name in LIBRARIES if name in sys.modules] or [name for name in LIBRARIES if find_spec(name)]
    if not found:
        raise MissingExtra.of("lightning", "lightning", "sonde.integrations.lightning")
    return tuple(import_module(LIBRARIES[name]).Callback for name in found)


class _Callback:
    """What both libraries call; `SondeCallback` is this with the class that each of them wants to see."""

    def __init__(self, sonde_kwargs: Mapping[str, Any] | None = None) -> None:
        self._progress = TrainerProgress(sonde_kwargs)
        self._reached = (0, 0)  # where the last fit ended: Lightning's count, and ours

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Before the sanity check; a checkpoint was not read yet."""
        self._progress.begins(0)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """After it, and after a checkpoint was read."""
        self._progress.begins(self._steps(trainer))

    @guard("noting where a training has ended")
    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Training has ended, and another fit may go on from here."""
        self._reached = (trainer.global_step, self._progress.steps())

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """An epoch begins."""
        self._progress.epoch(trainer.current_epoch)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A micro-batch begins."""
        self._progress.model(pl_module)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Training has failed."""
        self._progress.failed(exception)
        self.on_fit_end(trainer, pl_module)

    @guard("querying a trainer for its steps", default=0)
    def _steps(self, trainer: Any) -> int:
        """How many steps lie behind. Lightning counts the updates of all optimizers together; a step has one of each."""
        updates, ours = self._reached
        if ours and trainer.global_step == updates:
            return ours
        return int(trainer.global_step) // max(1, len(trainer.optimizers))

    def _evaluates(self, trainer: Any, pl_module: Any) -> None:
        """An evaluation begins."""
        self._progress.evaluates()

    def _evaluated(self, trainer: Any, pl_module: Any) -> None:
        """It has ended."""
        self._progress.evaluated()

    on_sanity_check_start = on_validation_start = on_test_start = on_predict_start = _evaluates
    on_sanity_check_end = on_validation_end = on_test_end = on_predict_end = _evaluated


class SondeCallback(_Callback, *_bases()):  # type: ignore[misc]  # which classes there are is known when it runs
    """Starts the recording with the training, says which step and epoch it is at, and what is evaluation.

    `sonde_kwargs`: arguments of `sonde.trace_model_instance` for the model, whose layers are then recorded; None: they are
    only in deep mode.
    """
