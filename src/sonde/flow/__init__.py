"""Flow: the actual values of a few items, stage by stage, from dataset to loss.

with sonde.flow.trace(items=4) as trace:      a loader gives one batch of 4 items, then ends
    train_one_epoch(model, loader)
print(trace)                                  what went in and came out of each function, by stage
trace.item(index=0)                           the path of one item
trace.findings()                              what looks wrong

tracing     trace(): the block, its start and its end
decorate    trace_dataset_func, trace_model_func, trace_func: functions that appear in traces
attach      capture(): the same for functions that cannot be edited
verbs       trace_verb_data, TraceContext: trace=N for a program's own verbs
active      the trace that runs, and how a call gets into it; `place` knows the batch, the items, the step
training    what is captured of torch without asking; `loaders`, `limit`, `workers` do their part of it
blackbox    blackbox(): the last batches, written when training fails
rebuild     replay(): the batches of a step of a recorded run, made again
nonfinite   watch_nonfinite(): where the first NaN or infinity was born; `finite` looks, `birth` is the certificate
freeze      what is kept of a value; result, text, page, file: what a trace shows, and how it is kept
"""

from __future__ import annotations

from sonde.flow.active import get_trace, last, phase, reset_trace
from sonde.flow.attach import Capture, capture
from sonde.flow.blackbox import blackbox
from sonde.flow.decorate import trace_dataset_func, trace_func, trace_model_func
from sonde.flow.define import TraceDef
from sonde.flow.nonfinite import NonFiniteWatch, watch_nonfinite
from sonde.flow.rebuild import replay
from sonde.flow.registry import register
from sonde.flow.result import TraceCall, TraceItem, TraceResult, TraceStage, load
from sonde.flow.stages import DEFAULT_STAGES, declare_stage, stage_names
from sonde.flow.tracing import Tracing, trace
from sonde.flow.verbs import TraceContext, trace_verb_data

__all__ = [
    "DEFAULT_STAGES",
    "Capture",
    "NonFiniteWatch",
    "TraceCall",
    "TraceContext",
    "TraceDef",
    "TraceItem",
    "TraceResult",
    "TraceStage",
    "Tracing",
    "blackbox",
    "capture",
    "declare_stage",
    "get_trace",
    "last",
    "load",
    "phase",
    "register",
    "replay",
    "reset_trace",
    "stage_names",
    "trace",
    "trace_dataset_func",
    "trace_func",
    "trace_model_func",
    "trace_verb_data",
    "watch_nonfinite",
]
