"""Flow: the actual values of a few items, stage by stage, from dataset to loss.

with sonde.flow.trace(items=4) as trace:      a loader gives one batch of 4 items, then ends
    train_one_epoch(model, loader)
print(trace)                                  what went in and came out of each function, by stage
trace.item(index=0)                           the path of one item
trace.findings()                              what looks wrong
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sonde.blackbox.box import blackbox
    from sonde.capture.decorate import trace_dataset_func, trace_func, trace_model_func
    from sonde.capture.definition import TraceDef
    from sonde.capture.external import Capture, capture
    from sonde.capture.result import TraceCall, TraceItem, TraceResult, TraceStage, load
    from sonde.capture.stages import DEFAULT_STAGES, declare_stage, stage_names
    from sonde.capture.tape import get_trace, last, phase, reset_trace
    from sonde.capture.trace import Tracing, trace
    from sonde.capture.verbs import TraceContext, trace_verb_data
    from sonde.nonfinite.watch import NonFiniteWatch, watch_nonfinite
    from sonde.replay import replay
    from sonde.values.registry import register

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

_HOMES = {
    "Capture": "sonde.capture.external",
    "DEFAULT_STAGES": "sonde.capture.stages",
    "NonFiniteWatch": "sonde.nonfinite.watch",
    "TraceCall": "sonde.capture.result",
    "TraceContext": "sonde.capture.verbs",
    "TraceDef": "sonde.capture.definition",
    "TraceItem": "sonde.capture.result",
    "TraceResult": "sonde.capture.result",
    "TraceStage": "sonde.capture.result",
    "Tracing": "sonde.capture.trace",
    "blackbox": "sonde.blackbox.box",
    "capture": "sonde.capture.external",
    "declare_stage": "sonde.capture.stages",
    "get_trace": "sonde.capture.tape",
    "last": "sonde.capture.tape",
    "load": "sonde.capture.result",
    "phase": "sonde.capture.tape",
    "register": "sonde.values.registry",
    "replay": "sonde.replay",
    "reset_trace": "sonde.capture.tape",
    "stage_names": "sonde.capture.stages",
    "trace": "sonde.capture.trace",
    "trace_dataset_func": "sonde.capture.decorate",
    "trace_func": "sonde.capture.decorate",
    "trace_model_func": "sonde.capture.decorate",
    "trace_verb_data": "sonde.capture.verbs",
    "watch_nonfinite": "sonde.nonfinite.watch",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sonde.flow' has no attribute {name!r}. It has: {', '.join(__all__)}")
    __import__(_HOMES[name])
    found = globals()[name] = getattr(sys.modules[_HOMES[name]], name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
