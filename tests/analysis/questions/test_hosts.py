"""Moving times to the clock of the host of rank 0."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest

from sonde.analysis.questions.hosts import to_reference
from sonde.analysis.run import open_run
from sonde.exchange import chrome
from sonde.testing import MS, build_run, synthetic_run, training_processes

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def skewed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hosts") / "run"
    return synthetic_run(path, ranks=4, hosts=2, steps=60, skew_ns=(0, 250 * MS), drift_ppm=(0.0, 50.0))


def test_an_export_has_all_hosts_on_one_timeline(skewed: Path) -> None:
    """All ranks leave a collective within 2 ms of each other, and it says by how much each clock was moved."""
    file = io.BytesIO()
    with open_run(skewed) as run:
        chrome.export(run, file)
    trace = json.loads(file.getvalue())
    ends: dict[int, list[float]] = {}
    for event in trace["traceEvents"]:
        if event["name"] == "communication.all_reduce":
            ends.setdefault(event["args"]["step"], []).append(event["ts"] + event["dur"])
    assert len(ends) == 60
    assert max(max(some) - min(some) for some in ends.values()) < 2000  # µs
    assert min(event["ts"] for event in trace["traceEvents"] if "ts" in event) == 0
    clock = trace["otherData"]["clocks"]["node-001"]
    assert abs(clock["offset_ns"] - 250 * MS) <= clock["error_ns"]


def test_a_run_of_one_host_needs_no_moving(tmp_path: Path) -> None:
    with open_run(build_run(tmp_path / "run", training_processes(ranks=2))) as run:
        assert to_reference(run) is None
