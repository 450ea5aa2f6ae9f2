"""What is measured: one function per recorder, which sets it up and returns its loops.

A loop's base says what is subtracted from it: an empty call or an empty loop. A recorder that is not installed raises
ImportError, and the table goes without it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from benchmarks import loops

CALL = "call"  # the base of decorators
LOOP = "loop"  # the base of everything else


class Case(NamedTuple):
    """One loop of a subject."""

    label: str
    base: str
    loop: loops.Loop
    times: int = 20_000


class Subject(NamedTuple):
    """A recorder in one state."""

    name: str
    state: str
    make: Callable[[str], list[Case]]
    environment: Mapping[str, str] = MappingProxyType({})


def _sonde_cases() -> list[Case]:
    import sonde
    from sonde import ai

    return [
        Case("decorator", CALL, loops.calling(ai.compute.forward(loops.empty))),
        Case("with", LOOP, loops.entering(ai.compute.forward)),
        Case("with span(name)", LOOP, loops.making(lambda: sonde.span("forward"))),
        Case("ai.update(step)", LOOP, loops.stepping(ai.update)),
    ]


def sonde_on(folder: str) -> list[Case]:
    """Sonde, recording."""
    import sonde

    sonde.init(dir=folder, cap="100GB")
    return _sonde_cases()


def sonde_off(folder: str) -> list[Case]:
    """Sonde, imported and not recording."""
    return _sonde_cases()


def _dftracer_cases() -> list[Case]:
    from dftracer.python import ai, dft_fn  # type: ignore[import-not-found]

    def both() -> Callable[..., object]:
        return ai.update  # type: ignore[no-any-return]

    return [
        Case("decorator", CALL, loops.calling(dft_fn("bench").log(loops.empty)), 4_000),
        Case("with", LOOP, loops.entering(ai.compute.forward), 4_000),
        Case("ai.update(step)", LOOP, loops.stepping(both()), 400),
    ]


def dftracer_on(folder: str) -> list[Case]:
    """DFTracer, with its arguments written."""
    from dftracer.python import dftracer

    dftracer.initialize_log(str(Path(folder) / "trace.pfw"), folder, -1)
    return _dftracer_cases()


def dftracer_off(folder: str) -> list[Case]:
    """DFTracer with DFTRACER_ENABLE=0."""
    os.chdir(folder)  # it leaves a file in the working folder even when it is off
    return _dftracer_cases()


def viztracer_on(folder: str) -> list[Case]:
    """VizTracer's custom events, tracer running."""
    from viztracer import VizTracer  # type: ignore[import-not-found]

    tracer = VizTracer(log_sparse=True, verbose=0, tracer_entries=1_000_000)
    tracer.start()
    return [Case("with", LOOP, loops.making(lambda: tracer.log_event("forward")), 4_000)]


def viztracer_off(folder: str) -> list[Case]:
    """VizTracer's custom events, tracer not started."""
    from viztracer import VizTracer

    tracer = VizTracer(log_sparse=True, verbose=0)
    return [Case("with", LOOP, loops.making(lambda: tracer.log_event("forward")), 4_000)]


def record_function_on(folder: str) -> list[Case]:
    """torch's record_function under an active profiler."""
    import torch

    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    profiler.start()
    return [Case("with", LOOP, loops.making(lambda: torch.profiler.record_function("forward")), 4_000)]


def record_function_off(folder: str) -> list[Case]:
    """torch's record_function without a profiler."""
    import torch

    return [Case("with", LOOP, loops.making(lambda: torch.profiler.record_function("forward")), 4_000)]


def opentelemetry_on(folder: str) -> list[Case]:
    """OpenTelemetry's SDK, batches to an exporter that drops them."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    tracer = provider.get_tracer("bench")
    return [Case("with", LOOP, loops.making(lambda: tracer.start_as_current_span("forward")), 2_000)]


def opentelemetry_off(folder: str) -> list[Case]:
    """OpenTelemetry's API with no SDK set up."""
    from opentelemetry import trace

    tracer = trace.get_tracer("bench")
    return [Case("with", LOOP, loops.making(lambda: tracer.start_as_current_span("forward")), 4_000)]


def traceml_on(folder: str) -> list[Case]:
    """TraceML's timer for functions."""
    from traceml_ai.sdk.instrumentation import trace_time  # type: ignore[import-not-found]

    return [Case("decorator", CALL, loops.calling(trace_time("forward", record_gpu_events=False)(loops.empty)), 4_000)]


SUBJECTS = [
    Subject("sonde (C core)", "on", sonde_on, {"SONDE_CORE": "c"}),
    Subject("sonde (Python twin)", "on", sonde_on, {"SONDE_CORE": "python"}),
    Subject(
        "dftracer",
        "on",
        dftracer_on,
        {"DFTRACER_ENABLE": "1", "DFTRACER_INC_METADATA": "1", "DFTRACER_DISABLE_IO": "1"},
    ),
    Subject("viztracer", "on", viztracer_on),
    Subject("torch record_function", "on", record_function_on),
    Subject("opentelemetry", "on", opentelemetry_on),
    Subject("traceml", "on", traceml_on),
    Subject("sonde (C core)", "off", sonde_off, {"SONDE_CORE": "c"}),
    Subject("sonde (Python twin)", "off", sonde_off, {"SONDE_CORE": "python"}),
    Subject("dftracer", "off", dftracer_off, {"DFTRACER_ENABLE": "0"}),
    Subject("viztracer", "off", viztracer_off),
    Subject("torch record_function", "off", record_function_off),
    Subject("opentelemetry", "off", opentelemetry_off),
]


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder on the disk that the benchmark is started from: a recorder writes to disks, not to memory."""
    return tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd(), ignore_cleanup_errors=True)
