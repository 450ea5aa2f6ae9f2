"""The export to an OpenTelemetry collector: a real receiver decodes what arrives."""

from __future__ import annotations

import io
import math
import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from tests.exchange.receiver import Receiver, about, receiving
from tests.exchange.spans import interleaved
from tests.exchange.test_chrome import NAMES
from tests.exchange.test_prometheus import parsed

from sonde.analysis.run import open_run
from sonde.errors import RemoteError
from sonde.exchange import otlp, prometheus
from sonde.exchange.collector import Collector
from sonde.exchange.otlp import CollectorReply
from sonde.store import record
from sonde.testing import START_NS, WALL_NS, BuiltProcess, BuiltRecord, build_run, build_training


def sent(run: Path, receiver: Receiver) -> CollectorReply:
    with open_run(run) as opened, Collector(receiver.url, sleep=lambda _: None) as collector:
        return otlp.export(opened, collector)


def ids(spans: list[tuple[dict[str, Any], Any]]) -> dict[tuple[bytes, bytes], Any]:
    """Each span by trace and id."""
    return {(span.trace_id, span.span_id): span for _, span in spans}


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of two ranks with workers."""
    return build_training(
        tmp_path_factory.mktemp("runs") / "run",
        ranks=2,
        steps=6,
        workers=2,
        batch_size=3,
        item_ns=lambda rank, index: 1000,
    )


@pytest.fixture(scope="module")
def received(training: Path) -> Receiver:
    """What a collector got of it."""
    with receiving() as receiver:
        found = sent(training, receiver)
    assert (found.spans, found.rejected) == (len(receiver.spans), 0)
    return receiver


def test_every_span_arrives_once_with_its_time(training: Path, received: Receiver) -> None:
    """Events, steps, batches, processes and the run."""
    with open_run(training) as run:
        query = "SELECT (SELECT count(*) FROM events WHERE kind <> 'counter'), (SELECT count(*) FROM batches), count(*), sum(dur_ns) FROM steps"
        ((events, batches, steps, lasted),) = run.sql(query).fetchall()
        ((forward,),) = run.sql("SELECT sum(dur_ns) FROM events WHERE name = 'forward'").fetchall()
    assert len(received.spans) == len(ids(received.spans)) == events + batches + steps + 6 + 1
    took = [(span.name, span.end_time_unix_nano - span.start_time_unix_nano) for _, span in received.spans]
    assert sum(ns for name, ns in took if name.startswith("step ")) == lasted
    assert sum(ns for name, ns in took if name == "probe.forward") == forward


def test_parents_and_links_lead_to_spans(received: Receiver) -> None:
    """No backend has to draw a span without its parent, and each span lies in the trace of its parent."""
    found = ids(received.spans)
    roots = {span.name.split()[0] for span in found.values() if not span.parent_span_id}
    assert roots == {"step", "built"}
    for span in found.values():
        assert not span.parent_span_id or (span.trace_id, span.parent_span_id) in found
        assert all((link.trace_id, link.span_id) in found for link in span.links)


def test_a_step_leads_to_its_batch_and_that_to_its_items(received: Receiver) -> None:
    """By links, from the step of a rank to what its workers loaded."""
    found = ids(received.spans)
    steps = [span for _, span in received.spans if span.name == "step 3"]
    assert len(steps) == 2
    for step in steps:
        to = [found[link.trace_id, link.span_id] for link in step.links]
        (batch,) = [one for one in to if one.name.startswith("batch ")]
        assert [found[link.trace_id, link.span_id].name for link in batch.links] == ["probe.item"] * 3


def test_a_step_has_its_phases_and_its_forward(training: Path, received: Receiver) -> None:
    """As attributes, with the numbers of the table; and its spans lie in its trace."""
    with open_run(training) as run:
        query = "SELECT step, forward_ns, residual_ns FROM steps WHERE rank = 0"
        expected = {step: (forward, rest) for step, forward, rest in run.sql(query).fetchall()}
    mine = [
        span for of, span in received.spans if of.get("sonde.process") == "rank 0" and span.name.startswith("step ")
    ]
    facts = [about(span) for span in mine]
    assert {one["step"]: (one["sonde.forward_ns"], one["sonde.residual_ns"]) for one in facts} == expected
    for step in mine:
        inside = [span.name for _, span in received.spans if span.parent_span_id == step.span_id]
        assert "probe.forward" in inside


def test_counters_and_totals_arrive(training: Path, received: Receiver, tmp_path: Path) -> None:
    """Totals under the names of Prometheus, with the same values."""
    text = io.BytesIO()
    with open_run(training) as run:
        prometheus.export(run, text)
    steps = {
        dict(labels)["process"]: value
        for (name, labels), value in parsed(text.getvalue().decode()).items()
        if name == "sonde_step_seconds_total"
    }
    totals = [(of, metric.sum) for of, metric in received.metrics if metric.name == "sonde_step_seconds_total"]
    assert {of["service.instance.id"]: total.data_points[0].as_double for of, total in totals} == pytest.approx(steps)
    assert all(total.is_monotonic and total.aggregation_temporality == 2 for _, total in totals)


def test_counters_keep_their_values_and_times(tmp_path: Path) -> None:
    """NaN too; marks are spans of no duration, errors have their status, arguments their types."""
    args = {"path": "ä.npy", "on": True, "x": 1.5, "none": None, "size": {"w": 2, "l": [1, "b"]}, "big": 2**70}
    records = [
        *(BuiltRecord("queue", kind=record.COUNTER, start=START_NS + n, value=n / 4, key=7) for n in range(5)),
        BuiltRecord("queue", kind=record.COUNTER, start=START_NS + 9, value=math.nan),
        BuiltRecord("here", kind=record.MARK, start=START_NS + 7),
        BuiltRecord("item", dur=5, step=3, epoch=1, flags=record.ERROR, args=args),
    ]
    with receiving() as receiver:
        sent(build_run(tmp_path / "run", [BuiltProcess(records)]), receiver)
    (queue,) = [metric for _, metric in receiver.metrics if metric.name == "queue"]
    points = [(point.time_unix_nano - WALL_NS, point.as_double) for point in queue.gauge.data_points]
    assert points[:5] == [(n, n / 4) for n in range(5)]
    assert math.isnan(points[5][1])
    spans = {span.name: span for _, span in receiver.spans}
    assert spans["here"].start_time_unix_nano == spans["here"].end_time_unix_nano == WALL_NS + 7
    assert spans["item"].status.code == 2
    facts = about(spans["item"])
    assert facts["size"] == {"w": 2, "l": [1, "b"]}
    assert (facts["path"], facts["on"], facts["x"], facts["big"], facts["step"]) == ("ä.npy", True, 1.5, str(2**70), 3)


def test_interleaving_tasks_keep_their_parents(tmp_path: Path) -> None:
    """Spans of tasks that take turns on one thread."""
    records = interleaved(6, 200, 2)
    with receiving() as receiver:
        sent(build_run(tmp_path / "run", [BuiltProcess(records)]), receiver)
    names = {one.seq: one.name for one in records}
    found = ids(receiver.spans)
    by_name = {span.name: span for span in found.values()}
    for one in records:
        span = by_name[one.name]
        assert found[span.trace_id, span.parent_span_id].name == names.get(one.parent, "main")


def test_it_is_sent_in_bounded_messages_and_twice_the_same(
    training: Path, monkeypatch: pytest.MonkeyPatch, received: Receiver
) -> None:
    """A backend that gets a run a second time finds the spans that it has."""
    monkeypatch.setattr(otlp, "MOST", 50)
    with receiving() as receiver:
        sent(training, receiver)
    assert max(receiver.sizes) == 50
    assert ids(receiver.spans).keys() == ids(received.spans).keys()


def test_a_busy_collector_is_asked_again(training: Path) -> None:
    """After 503 and 429, until it takes the message; nothing is lost or sent twice."""
    with receiving([503, 429, 200, 502]) as receiver:
        found = sent(training, receiver)
    assert found.spans == len(ids(receiver.spans)) == len(receiver.spans)


@pytest.mark.parametrize(("status", "hint"), [(500, "no room"), (404, "base URL"), (401, "no room"), (302, "base URL")])
def test_a_collector_that_refuses_is_not_asked_again(training: Path, status: int, hint: str) -> None:
    """As the protocol demands; the message has the code and what the collector says."""
    with receiving([status] * 9) as receiver, pytest.raises(RemoteError, match=f"answers {status}.*{hint}"):
        sent(training, receiver)
    assert receiver.requests == 1


@pytest.mark.parametrize("how", ["silent", "trickling"])
def test_a_collector_that_hangs_is_given_up(training: Path, how: str) -> None:
    """In bounded time, also if it sends a little again and again."""
    with receiving() as receiver, open_run(training) as run:
        if how == "silent":
            receiver.hang.set()
        receiver.trickle = how == "trickling"
        begun = time.monotonic()
        collector = Collector(receiver.url, seconds=0.3, first_patience=0.5)
        with pytest.raises(RemoteError, match="does not answer"), collector:
            otlp.export(run, collector)
        assert time.monotonic() - begun < 10


def test_what_the_collector_rejects_is_counted(training: Path) -> None:
    """With its reason."""
    answer = traces.ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 7
    answer.partial_success.error_message = "too old"
    with receiving() as receiver:
        receiver.reply = answer.SerializeToString()
        found = sent(training, receiver)
    assert found.rejected >= 7
    assert found.why == "too old"


@pytest.mark.parametrize("url", ["localhost:4318", "ftp://host", "http://", "http://host:port", "file:///etc"])
def test_what_is_no_url_is_refused(url: str) -> None:
    """With an example."""
    with pytest.raises(RemoteError, match="Example: http://localhost:4318"):
        Collector(url)


def test_whatever_a_run_holds_can_be_sent(tmp_path: Path) -> None:
    """Names, values and times of any kind."""
    records = [
        BuiltRecord(name, name, start=start, dur=dur, key=dur, args={name: 2**70}, kind=kind, flags=flags, value=value)
        for name in NAMES
        for start, dur in ((0, -(2**63)), (2**62, 2**63 - 1), (START_NS, 0))
        for kind, value in ((record.SPAN, 0.0), (record.COUNTER, math.inf), (record.MARK, 0.0))
        for flags in (0, record.OPEN | record.ERROR)
    ]
    with receiving() as receiver:
        found = sent(build_run(tmp_path / "run", [BuiltProcess(records)]), receiver)
    spans = sum(one.kind != record.COUNTER for one in records)
    assert found.spans == len(receiver.spans) == spans + 2
