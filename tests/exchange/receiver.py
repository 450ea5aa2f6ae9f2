"""A collector on loopback that takes OTLP over HTTP, decodes every message, and answers as it is told."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces


class Receiver(ThreadingHTTPServer):
    """What came: spans and metrics with their resources. `answers` are the status codes of the next requests, then 200."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, answers: list[int] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = answers or []
        self.spans: list[tuple[dict[str, Any], Any]] = []
        self.metrics: list[tuple[dict[str, Any], Any]] = []
        self.requests = 0
        self.sizes: list[int] = []
        self.headers: dict[str, str] = {}
        self.hang = threading.Event()  # set: no answer
        self.trickle = False
        self.reply = b""

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def take(self, path: str, body: bytes) -> None:
        """A message."""
        if path.endswith("/v1/traces"):
            request = traces.ExportTraceServiceRequest.FromString(body)
            found = [
                (about(one.resource), span)
                for one in request.resource_spans
                for scope in one.scope_spans
                for span in scope.spans
            ]
            self.sizes.append(len(found))
            self.spans += found
        elif path.endswith("/v1/metrics"):
            several = metrics.ExportMetricsServiceRequest.FromString(body)
            self.metrics += [
                (about(one.resource), metric)
                for one in several.resource_metrics
                for scope in one.scope_metrics
                for metric in scope.metrics
            ]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests += 1
        self.server.headers = dict(self.headers)
        if self.server.hang.is_set():
            time.sleep(5)
            return
        if self.server.trickle:
            self._drip()
            return
        status = self.server.answers.pop(0) if self.server.answers else 200
        if status == 200:
            self.server.take(self.path, gzip.decompress(body))
        reply = self.server.reply if status == 200 else b"no room"
        self.send_response(status)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def _drip(self) -> None:
        """Headers that never end."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for _ in range(200):
            try:
                self.wfile.write(b"X: y\r\n")
                self.wfile.flush()
            except OSError:
                return
            time.sleep(0.1)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def about(holder: Any) -> dict[str, Any]:
    """Attributes as a dict."""
    return {one.key: _value(one.value) for one in holder.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    if kind == "kvlist_value":
        return {one.key: _value(one.value) for one in value.kvlist_value.values}
    return getattr(value, kind)


@contextmanager
def receiving(answers: list[int] | None = None) -> Iterator[Receiver]:
    """A receiver that listens during the block."""
    server = Receiver(answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
