"""Traces in and runs out: import beside `json.loads`, export of many events, and what a tracker costs the training process.

CPU time and peak memory of fresh processes. A collector on loopback takes what is exported to OTLP and does not look at it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import traces
from benchmarks.reading import RECORD, run_apart
from benchmarks.subjects import scratch

MEGABYTE = 1_000_000
LOADS = {
    "torch.profiler": "import json, sys; print(len(json.loads(open(sys.argv[1], 'rb').read())['traceEvents']))",
    "DFTracer": "import json, sys\nfor line in open(sys.argv[1], 'rb'): json.loads(line)\nprint(0)",
}
IMPORT = """
import sys
from pathlib import Path
from sonde.exchange.imports.run import import_traces
print(import_traces([Path(sys.argv[1])], Path(sys.argv[2])).events)
"""
PERFETTO = """
import sys
from pathlib import Path
from sonde.analysis.run import open_run
from sonde.exchange import perfetto
with open_run(sys.argv[1]) as run:
    print(perfetto.export(run, Path(sys.argv[2])))
"""
OTLP = """
import sys
from sonde.analysis.run import open_run
from sonde.exchange import otlp
from sonde.exchange.collector import Collector
with open_run(sys.argv[1]) as run, Collector(sys.argv[2]) as collector:
    sent = otlp.export(run, collector)
print(sent.spans + sent.values)
"""
SINK = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
    def log_message(self, *words): pass
server = HTTPServer(("127.0.0.1", 0), Sink)
print(server.server_address[1], flush=True)
server.serve_forever()
"""
TRAIN = """
import importlib, json, sys, time
import torch
import sonde
from benchmarks.step import MODELS
torch.set_num_threads(1)
name, folder = sys.argv[1:]
sonde.init(dir=folder)
if name != "none":
    module = importlib.import_module(f"sonde.trackers.{name}")
    assert module.attach(folder + "/board") if name == "tensorboard" else module.attach()
step = MODELS["MLP"](torch)
for _ in range(500):
    step()
parts = []
for _ in range(60):
    begun = time.thread_time_ns()
    for _ in range(50):
        step()
    parts.append((time.thread_time_ns() - begun) / 50_000)
print(sorted(parts)[6])
"""
TRACKERS = ("tensorboard", "wandb", "mlflow")


def measure(size: int, events: int, rounds: int) -> dict[str, Any]:
    """Files of `size` bytes, a run of `events`, and `rounds` trainings with and without each tracker."""
    return {"imports": _imports(size), "exports": _exports(events), "trackers": _trackers(rounds)}


def _imports(size: int) -> list[dict[str, Any]]:
    found = []
    for name, write in traces.FORMATS.items():
        with scratch() as folder:
            file = Path(folder, "trace.pfw" if name == "DFTracer" else "trace.json")
            write(file, size)
            loaded, _ = run_apart(LOADS[name], str(file))
            imported, count = run_apart(IMPORT, str(file), f"{folder}/runs")
            megabytes = file.stat().st_size / MEGABYTE
        found.append(
            {
                "format": name,
                "megabytes": megabytes,
                "events": int(count),
                "mb_per_s": megabytes / imported["cpu_s"],
                "json_mb_per_s": megabytes / loaded["cpu_s"],
                "speed": loaded["cpu_s"] / imported["cpu_s"],
                "peak_mb": imported["peak_mb"],
                "json_peak_mb": loaded["peak_mb"],
            }
        )
    return found


def _exports(events: int) -> list[dict[str, Any]]:
    found = []
    for count in (events // 4, events):
        with scratch() as folder, _sink() as url:
            _, run = run_apart(RECORD, folder, str(count))
            for name, code, target in (("perfetto", PERFETTO, f"{folder}/out.pftrace"), ("otlp", OTLP, url)):
                used, written = run_apart(code, run, target)
                rate = int(written) / used["cpu_s"]
                found.append({"format": name, "events": int(written), "events_per_s": rate, **used})
    return found


def _trackers(rounds: int) -> list[dict[str, Any]]:
    found = []
    for name in TRACKERS:
        added = []
        for turn in range(2 * rounds):
            order = (name, "none") if turn % 2 else ("none", name)
            times = {one: _step_us(one) for one in order}
            added.append(times[name] - times["none"])
        found.append({"tracker": name, "added_us": median(added), "lowest_us": min(added), "highest_us": max(added)})
    return found


def _step_us(tracker: str) -> float:
    """CPU time of a step of the thread that trains: the first tenth of sixty parts."""
    with scratch() as folder:
        env = {
            **os.environ,
            "WANDB_MODE": "offline",
            "WANDB_DIR": folder,
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/m.db",
        }
        line = [sys.executable, "-c", TRAIN, tracker, folder]
        done = subprocess.run(line, env=env, check=True, capture_output=True, text=True)
        return float(done.stdout.strip())


@contextmanager
def _sink() -> Iterator[str]:
    with subprocess.Popen([sys.executable, "-c", SINK], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        finally:
            server.terminate()
