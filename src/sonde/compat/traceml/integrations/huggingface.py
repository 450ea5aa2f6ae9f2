"""TraceML's `TraceMLTrainer` for transformers."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from sonde import environment
from sonde.compat.traceml.decorators import trace_model_instance
from sonde.guard import guard
from sonde.integrations.huggingface import SondeTrainer

__all__ = ["TraceMLTrainer"]


class TraceMLTrainer(SondeTrainer):
    """A Trainer that is recorded, unless `traceml_enabled=False` or TRACEML_DISABLED=1.

    `traceml_kwargs` are arguments of `trace_model_instance`, which is called in the first step; None: it is not called.
    """

    def __init__(
        self, *args: Any, traceml_enabled: bool = True, traceml_kwargs: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        enabled = traceml_enabled and not environment.traceml_disabled()
        super().__init__(*args, sonde_enabled=enabled, **kwargs)
        self.traceml_enabled = traceml_enabled
        self.traceml_kwargs = traceml_kwargs
        self._traced: weakref.ref[Any] | None = None

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """One micro-batch."""
        if self.sonde_enabled and self.traceml_kwargs is not None:
            self._trace(model, self.traceml_kwargs)
        return super().training_step(model, inputs, *args, **kwargs)

    @guard("recording the layers that traceml_kwargs choose")
    def _trace(self, model: Any, options: Mapping[str, Any]) -> None:
        """Once for each model: a framework may wrap it between two trainings."""
        if self._traced is None or self._traced() is not model:
            self._traced = weakref.ref(model)
            trace_model_instance(model, **options)
