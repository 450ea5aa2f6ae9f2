"""TraceML's two markers for a training loop: `trace_step` and `trace_model_instance`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from sonde import environment
from sonde.guard import guard
from sonde.probes import tracestep
from sonde.probes.layers import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

__all__ = ["trace_model_instance", "trace_step"]


def trace_step(model: nn.Module) -> AbstractContextManager[object]:
    """One training step: `with trace_step(model):`. Records nothing if TRACEML_DISABLED=1."""
    return nullcontext() if environment.traceml_disabled() else tracestep.trace_step(model)


@guard("recording the layers of a model with TraceML's names")
def trace_model_instance(
    model: nn.Module,
    sample_layer_memory: bool = True,
    trace_layer_forward_memory: bool = True,
    trace_layer_backward_memory: bool = True,
    trace_layer_forward_time: bool = True,
    trace_layer_backward_time: bool = True,
    trace_execution: bool = True,
    include_names: Sequence[str] | None = None,
    exclude_names: Sequence[str] | None = None,
    leaf_only: bool = True,
) -> None:
    """Choose what is recorded of the layers of this model in deep mode. Does nothing in any other mode, and never raises."""
    if environment.traceml_disabled() or not record.is_deep():
        return
    record.trace_model_instance(
        model,
        sample_layer_memory=sample_layer_memory,
        trace_layer_forward_memory=trace_layer_forward_memory,
        trace_layer_backward_memory=trace_layer_backward_memory,
        trace_layer_forward_time=trace_layer_forward_time,
        trace_layer_backward_time=trace_layer_backward_time,
        trace_execution=trace_execution,
        include_names=include_names,
        exclude_names=exclude_names,
        leaf_only=leaf_only,
    )
