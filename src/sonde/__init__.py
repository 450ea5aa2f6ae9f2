"""Sonde: a probe for machine-learning pipelines. It records what a program does, and reads it back.

    import sonde

    with sonde.init("experiment"):                        records to sonde-runs/<time>-experiment-<4 hex>/
        with sonde.span("load"):                          a span: also @sonde.span("load"), or .start() / .stop()
            ...
        sonde.counter("queue", 3)                         a number at a time
        sonde.mark("warm-up done")                        a moment
        sonde.log(loss=0.3, step=7)                       numbers by name
        sonde.log_items(loss=losses)                      a value for each item of the batch

    with sonde.flow.trace(items=4) as trace:              the actual values of a few items, stage by stage
        train_one_epoch(model, loader)

    p = sonde.Pipeline("my.toml")                         data and model from a config: p.train(), p.infer(), p.train(trace=2)
    with sonde.trace_step(model):                         marks a training step, if Sonde cannot see it
        ...

    run = sonde.open_run("sonde-runs/...")                a run, even while it is being recorded
    sonde.report(run)                                     the verdict, as text or as a page in a notebook
    run.sql("select name, count(*) from events group by name")

    from sonde import ai                                  names for machine learning: ai.compute.forward, ...

ARCHITECTURE.md has the map of the code.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sonde.session import finish, init, start_from_environment
from sonde.version import __version__

if TYPE_CHECKING:
    from sonde import flow, pipeline
    from sonde.ai.tree import ai  # at run time it stands in the place of the module sonde.ai
    from sonde.analysis.run import Run, open_run
    from sonde.diagnosis.summary import summary
    from sonde.errors import SondeError
    from sonde.events import counter, mark
    from sonde.events.log import log
    from sonde.events.span import Span as span  # noqa: N813  it is used like a function
    from sonde.notebook import load_ipython_extension as load_ipython_extension, report
    from sonde.pipeline.pipeline import Pipeline
    from sonde.probes.layers.record import trace_model_instance
    from sonde.probes.learning.items import log_items
    from sonde.probes.tracestep import trace_step
    from sonde.probes.wrap import wrap_backward, wrap_dataloader, wrap_forward, wrap_h2d, wrap_optimizer
    from sonde.session import Session

__all__ = [
    "Pipeline",
    "Run",
    "Session",
    "SondeError",
    "__version__",
    "ai",
    "counter",
    "finish",
    "flow",
    "init",
    "log",
    "log_items",
    "mark",
    "open_run",
    "pipeline",
    "report",
    "should_stop",
    "span",
    "summary",
    "trace_model_instance",
    "trace_step",
    "wrap_backward",
    "wrap_dataloader",
    "wrap_forward",
    "wrap_h2d",
    "wrap_optimizer",
]

# Where each name lives. They are looked up at their first use: reading is heavy, and a recorded program does not read.
_HOMES = {
    "Pipeline": ("sonde.pipeline", "Pipeline"),
    "Run": ("sonde.analysis.run", "Run"),
    "Session": ("sonde.session", "Session"),
    "SondeError": ("sonde.errors", "SondeError"),
    "ai": ("sonde.ai", ""),
    "counter": ("sonde.events", "counter"),
    "flow": ("sonde.flow", ""),
    "log": ("sonde.events.log", "log"),
    "log_items": ("sonde.probes.learning.items", "log_items"),
    "mark": ("sonde.events", "mark"),
    "open_run": ("sonde.analysis.run", "open_run"),
    "load_ipython_extension": ("sonde.notebook", "load_ipython_extension"),  # IPython asks for it
    "pipeline": ("sonde.pipeline", ""),
    "should_stop": ("sonde.stopping", "should_stop"),
    "report": ("sonde.notebook", "report"),
    "span": ("sonde.events.span", "Span"),
    "summary": ("sonde.diagnosis.summary", "summary"),
    "trace_model_instance": ("sonde.probes.layers.record", "trace_model_instance"),
    "trace_step": ("sonde.probes.tracestep", "trace_step"),
    "wrap_backward": ("sonde.probes.wrap", "wrap_backward"),
    "wrap_dataloader": ("sonde.probes.wrap", "wrap_dataloader"),
    "wrap_forward": ("sonde.probes.wrap", "wrap_forward"),
    "wrap_h2d": ("sonde.probes.wrap", "wrap_h2d"),
    "wrap_optimizer": ("sonde.probes.wrap", "wrap_optimizer"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sonde' has no attribute {name!r}. It has: {', '.join(__all__)}")
    module, attribute = _HOMES[name]
    __import__(module)
    found = getattr(sys.modules[module], attribute) if attribute else sys.modules[module]
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


start_from_environment()
