"""TraceML's `TraceMLCallback` for lightning and pytorch_lightning."""

from __future__ import annotations

from typing import Any

from sonde import environment
from sonde.integrations.lightning import SondeCallback

__all__ = ["TraceMLCallback"]


class TraceMLCallback(SondeCallback):
    """`Trainer(callbacks=[TraceMLCallback()])` starts the recording with the training, unless TRACEML_DISABLED=1."""

    def __init__(self) -> None:
        super().__init__()

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Before the sanity check."""
        if not environment.traceml_disabled():
            super().on_fit_start(trainer, pl_module)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """After it, and after a checkpoint was read."""
        if not environment.traceml_disabled():
            super().on_train_start(trainer, pl_module)
