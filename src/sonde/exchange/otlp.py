"""Export to OpenTelemetry: run, processes, steps, batches and every span as spans with links, counters and totals as metrics.

Each step of each rank is a trace of its own, with everything that its rank and the workers of it did meanwhile: a trace of a
whole run would be too large for any backend. Ids are made of the run's names, so a second export sends the same spans.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from sonde.analysis.records import label
from sonde.analysis.records.schema import PHASES, RESIDUAL
from sonde.errors import MissingExtra
from sonde.exchange import flows, jsonvalues, prometheus, rows
from sonde.exchange.output import Progress, ignore
from sonde.exchange.protobuf import INT64, put_scalar, text
from sonde.exchange.rows import EventRow, ExportedProcess
from sonde.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sonde.analysis.run import Run
    from sonde.exchange.collector import Collector

TRACES, METRICS = "/v1/traces", "/v1/metrics"
MOST = 2_000  # spans or values of one request
MOST_TEXT = 2 << 20  # characters of their arguments
MOST_OPEN = 10_000  # spans of a thread whose traces are remembered at once
PARTS = (*PHASES, RESIDUAL)


class CollectorReply(NamedTuple):
    """What a collector was given. `rejected`: what it says that it did not keep, and `why`."""

    spans: int
    values: int
    rejected: int
    why: str


def export(
    run: Run, collector: Collector, progress: Progress | None = None, verdict: str | None = None
) -> CollectorReply:
    """Send a run to a collector, a few thousand spans at a time. Raises RemoteError if it does not take them."""
    sender = _Sender(collector, run.id, run.name)
    traces = _Traces(run)
    processes = {one.id: one for one in rows.processes(run)}
    _send_run(run, sender, traces, processes, verdict)
    total, done = rows.counted(run), 0
    events = _Events(sender, traces, processes)
    for batch in rows.batches(run):
        for row in batch:
            events.add(row)
        done += len(batch)
        (progress or ignore)(done, total)
    _send_batches(run, sender, traces, processes)
    _send_steps(run, sender, traces, processes)
    _send_totals(run, sender, processes, verdict)
    sender.flush()
    return CollectorReply(sender.spans, sender.values, sender.rejected, sender.why)


class _Traces:
    """The ids of spans, and the trace that a moment of a process belongs to: that of the step its rank was in."""

    def __init__(self, run: Run) -> None:
        self.run = run.id
        self.whole = self._trace()  # of the run and its processes
        self._starts: dict[str, array[int]] = {}
        self._ends: dict[str, array[int]] = {}
        query = "SELECT process, list(start_ns ORDER BY start_ns), list(start_ns + dur_ns ORDER BY start_ns) FROM steps GROUP BY 1"
        for process, starts, ends in run.sql(query).fetchall():
            self._starts[process], self._ends[process] = array("q", starts), array("q", ends)
        owned = "SELECT n.process, o.process FROM process_numbers n JOIN process_numbers o ON o.number = n.owner"
        self._owners: dict[str, str] = dict(run.sql(owned).fetchall())

    def span(self, *parts: object) -> bytes:
        """The id of a span."""
        return xxhash.xxh3_64_digest(_joined(self.run, *parts))

    def process(self, process: str) -> bytes:
        """The id of the span of a process."""
        return self.span("process", process)

    def step(self, process: str, start: int) -> tuple[bytes, bytes]:
        """Trace and span of a step."""
        return self._trace(process, start), self.span("step", process, start)

    def at(self, process: str, moment: int) -> tuple[bytes, bytes]:
        """The trace of a moment, and the span that everything without a parent lies in then."""
        owner = self._owners.get(process, process)
        starts = self._starts.get(owner)
        if starts:
            place = bisect_right(starts, moment) - 1
            if place >= 0 and moment < self._ends[owner][place]:
                return self.step(owner, starts[place])
        return self.whole, self.process(process)

    def _trace(self, *parts: object) -> bytes:
        return xxhash.xxh3_128_digest(_joined(self.run, "trace", *parts))


class _Sender:
    """Puts spans and values into messages, process by process, and sends each message when it is full."""

    def __init__(self, collector: Collector, run: str, name: str) -> None:
        try:
            from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
            from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
        except ImportError:
            raise MissingExtra.of("opentelemetry-proto", "otlp", "The export to OTLP") from None
        self.spans = self.values = self.rejected = 0
        self.why = ""
        self._collector = collector
        self._about = {"service.name": name, "sonde.run": run}
        self._traces: Any = traces
        self._metrics: Any = metrics
        self._request: Any = traces.ExportTraceServiceRequest()
        self._values: Any = metrics.ExportMetricsServiceRequest()
        self._scope: tuple[str | None, Any] = (None, None)
        self._gauges: tuple[str | None, Any, dict[str, Any]] = (None, None, {})
        self._waiting = self._waiting_values = self._text = 0

    def span(
        self,
        process: ExportedProcess | None,
        trace: bytes,
        id: bytes,
        parent: bytes | None,
        name: str,
        start: int,
        end: int,
        about: dict[str, object],
        *,
        error: bool = False,
        links: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """One span of a process, or of the run."""
        if self._waiting >= MOST or self._text > MOST_TEXT:
            self._flush_spans()
        known = process.id if process else ""
        if self._scope[0] != known:
            found = self._request.resource_spans.add()
            self._describe(found.resource, process)
            scope = found.scope_spans.add()
            scope.scope.name, scope.scope.version = "sonde", __version__
            self._scope = (known, scope.spans)
        span = self._scope[1].add()
        span.trace_id, span.span_id, span.name = trace, id, text(name)
        span.kind = 1  # internal
        if parent is not None:
            span.parent_span_id = parent
        span.start_time_unix_nano = _time(start)
        span.end_time_unix_nano = max(_time(end), _time(start))
        _attribute(span.attributes, about)
        if error:
            span.status.code = 2
        for to_trace, to_span in links:
            span.links.add(trace_id=to_trace, span_id=to_span)
        self._waiting += 1
        self.spans += 1

    def grew(self, characters: int) -> None:
        """The spans of the next message have so much more text."""
        self._text += characters

    def gauge(
        self, process: ExportedProcess | None, name: str, at: int, value: float, about: dict[str, object]
    ) -> None:
        """The value of a counter."""
        point = self._metric(process, name).gauge.data_points.add(time_unix_nano=_time(at), as_double=value)
        _attribute(point.attributes, about)

    def total(
        self, process: ExportedProcess | None, name: str, since: int, at: int, value: float, about: dict[str, object]
    ) -> None:
        """A total that grows."""
        metric = self._metric(process, name)
        metric.sum.is_monotonic = True
        metric.sum.aggregation_temporality = 2  # cumulative
        point = metric.sum.data_points.add(start_time_unix_nano=_time(since), time_unix_nano=_time(at), as_double=value)
        _attribute(point.attributes, about)

    def flush(self) -> None:
        """Send what is left."""
        self._flush_spans()
        self._flush_values()

    def _metric(self, process: ExportedProcess | None, name: str) -> Any:
        if self._waiting_values >= MOST:
            self._flush_values()
        known = process.id if process else ""
        if self._gauges[0] != known:
            found = self._values.resource_metrics.add()
            self._describe(found.resource, process)
            scope = found.scope_metrics.add()
            scope.scope.name, scope.scope.version = "sonde", __version__
            self._gauges = (known, scope.metrics, {})
        self._waiting_values += 1
        self.values += 1
        _, metrics, named = self._gauges
        if name not in named:
            named[name] = metrics.add(name=text(name))
        return named[name]

    def _describe(self, resource: Any, process: ExportedProcess | None) -> None:
        about: dict[str, object] = dict(self._about)
        if process is not None:
            about |= {"service.instance.id": process.id, "host.name": process.host, "process.pid": process.pid}
            about["sonde.process"] = process.label
        _attribute(resource.attributes, about)

    def _flush_spans(self) -> None:
        if self._waiting:
            found = self._traces.ExportTraceServiceResponse()
            self._put(TRACES, self._request, found, "rejected_spans")
            self._request = self._traces.ExportTraceServiceRequest()
            self._scope, self._waiting, self._text = (None, None), 0, 0

    def _flush_values(self) -> None:
        if self._waiting_values:
            found = self._metrics.ExportMetricsServiceResponse()
            self._put(METRICS, self._values, found, "rejected_data_points")
            self._values = self._metrics.ExportMetricsServiceRequest()
            self._gauges, self._waiting_values = (None, None, {}), 0

    def _put(self, path: str, request: Any, response: Any, rejected: str) -> None:
        from google.protobuf.message import DecodeError

        answer = self._collector.send(path, request.SerializeToString())
        try:
            response.ParseFromString(answer)
        except DecodeError:
            return  # it said that all is well, in another form
        self.rejected += getattr(response.partial_success, rejected)
        self.why = self.why or response.partial_success.error_message


class _Events:
    """The events of the threads: spans and marks as spans, counters as values."""

    def __init__(self, sender: _Sender, traces: _Traces, processes: dict[str, ExportedProcess]) -> None:
        self._sender = sender
        self._traces = traces
        self._processes = processes
        self._thread: tuple[str, int] | None = None
        self._open: dict[int, tuple[int, bytes]] = {}  # by number: the end and the trace of spans of this thread

    def add(self, row: EventRow) -> None:
        """One event; they come thread by thread, in the order of their starts."""
        process, name = self._processes[row.process], label.event(row.cat, row.name)
        if row.kind == "counter" and row.value is not None:
            about: dict[str, object] = {} if row.key is None else {"key": jsonvalues.plain(row.key)}
            self._sender.gauge(process, name, row.start, row.value, about)
            return
        trace, above = self._traces.at(row.process, row.start)
        parent, links = above, []
        outer = self._outer(row)
        if outer is not None and row.parent is not None:
            id = self._traces.span(row.process, row.parent)
            if outer == trace:
                parent = id
            else:  # it began in an earlier step
                links.append((outer, id))
        if row.kind == "span":
            self._open[row.seq] = row.end, trace
        about = rows.arguments(row) | {"thread.id": row.tid, "thread.name": row.thread}
        self._sender.grew(len(row.args or ""))
        own = self._traces.span(row.process, row.seq)
        self._sender.span(process, trace, own, parent, name, row.start, row.end, about, error=row.error, links=links)

    def _outer(self, row: EventRow) -> bytes | None:
        """The trace of the span that a row lies in, as far as that is open."""
        if (row.process, row.lane) != self._thread:
            self._thread = row.process, row.lane
            self._open.clear()
        elif len(self._open) > MOST_OPEN:
            self._open = {seq: one for seq, one in self._open.items() if one[0] >= row.start}
        found = None if row.parent is None else self._open.get(row.parent)
        return None if found is None else found[1]


def _send_run(
    run: Run, sender: _Sender, traces: _Traces, processes: dict[str, ExportedProcess], verdict: str | None
) -> None:
    """A span for the run, and one for each process."""
    starts = [one.start for one in processes.values() if one.start]
    begin = run.started or min(starts, default=0)
    end = max((one.end for one in processes.values()), default=begin)
    about: dict[str, object] = {"sonde.state": run.state, "sonde.ending": run.ending.word, "sonde.verdict": verdict}
    root = traces.span("run")
    sender.span(None, traces.whole, root, None, run.name, begin, end, {key: one for key, one in about.items() if one})
    for id, one in processes.items():
        sender.span(one, traces.whole, traces.process(id), root, one.label, one.start or begin, one.end or begin, {})


def _send_batches(run: Run, sender: _Sender, traces: _Traces, processes: dict[str, ExportedProcess]) -> None:
    """A span for each batch, from the moment that somebody waits for it until it is there; it links to its items."""
    found = itertools.chain.from_iterable(run.batches(flows.BATCHES_WITH_ITEMS))
    for (process, key, ready, batch, step), members in itertools.groupby(found, key=lambda row: row[:5]):
        several = list(members)
        items = [(traces.at(row[5], row[7])[0], traces.span(row[5], row[6])) for row in several if row[5] is not None]
        trace, above = traces.at(process, ready)
        about = _known({"batch": batch, "step": step})
        id = traces.span("batch", process, key)
        begin = several[0][8]
        sender.span(processes[process], trace, id, above, f"batch {batch}", begin, ready, about, links=items)


def _send_steps(run: Run, sender: _Sender, traces: _Traces, processes: dict[str, ExportedProcess]) -> None:
    """A span for each step, which links to the run and to its batches; its phases are among its attributes."""
    for row, batches in _steps(run):
        process, start, dur, step, epoch, loss, *phases = row
        links = [(traces.whole, traces.process(process))]
        links += [(traces.at(process, ready)[0], traces.span("batch", process, key)) for key, ready in batches]
        spent = {f"sonde.{name}_ns": ns for name, ns in zip(PARTS, phases, strict=True)}
        about = _known({"step": step, "epoch": epoch, "loss": loss, **spent})
        trace, id = traces.step(process, start)
        sender.span(processes[process], trace, id, None, f"step {step}", start, start + dur, about, links=links)


def _steps(run: Run) -> Iterator[tuple[tuple[Any, ...], list[tuple[int, int]]]]:
    """Each step with its phases, and the key and time of its batches."""
    phases = ", ".join(f"s.{name}_ns" for name in PARTS)
    query = f"""
        SELECT b.process, b.start_ns, b.dur_ns, b.step, b.epoch, b.loss, {phases}, b.key, b.ready
        FROM ({flows.STEPS_WITH_BATCHES}) b JOIN steps s ON s.process = b.process AND s.start_ns = b.start_ns ORDER BY 1, 2
    """
    width = 6 + len(PARTS)
    found = itertools.chain.from_iterable(run.batches(query))
    for _, members in itertools.groupby(found, key=lambda row: row[:2]):
        several = list(members)
        yield several[0][:width], [row[width:] for row in several if row[width] is not None]


def _send_totals(run: Run, sender: _Sender, processes: dict[str, ExportedProcess], verdict: str | None) -> None:
    """The values of the Prometheus export, under the same names."""
    end = max((one.end for one in processes.values()), default=0)
    kinds = {name: kind for name, kind, _ in prometheus.METRICS}
    for metric, labels, value in prometheus.samples(run, verdict):
        process = processes.get(labels.get("process", ""))
        about: dict[str, object] = {key: text for key, text in labels.items() if key not in ("run", "process") and text}
        if kinds[metric] == "counter":
            sender.total(process, metric, run.started or 0, end, value, about)
        else:
            sender.gauge(process, metric, end, value, about)


def _attribute(into: Any, about: dict[str, object]) -> None:
    """Put attributes into a list of them."""
    for key, value in about.items():
        _fill(into.add(key=text(str(key))).value, value)


def _fill(into: Any, value: object) -> None:
    if isinstance(value, dict):
        into.kvlist_value.SetInParent()
        _attribute(into.kvlist_value.values, value)
    elif isinstance(value, list):
        into.array_value.SetInParent()
        for one in value:
            _fill(into.array_value.values.add(), one)
    else:
        put_scalar(into, value)


def _known(about: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in about.items() if value is not None}


def _time(ns: int) -> int:
    return min(max(int(ns), 0), INT64 - 1)  # a damaged file may hold any number


def _joined(*parts: object) -> bytes:
    return "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")
