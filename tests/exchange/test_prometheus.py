"""A run as metrics, read by Prometheus' own parser."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sonde.analysis.run import open_run
from sonde.exchange import prometheus
from sonde.exchange.prometheus import Sample
from sonde.store import record
from sonde.testing import START_NS, BuiltProcess, BuiltRecord, build_run, build_training


def parsed(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Each value by its name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def exported(run: Path, folder: Path) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    with open_run(run) as opened:
        count = prometheus.export(opened, folder / "out.prom", verdict="INPUT_BOUND")
    found = parsed((folder / "out.prom").read_text("ascii"))
    assert len(found) == count
    return found


def test_the_values_are_those_of_the_tables(tmp_path: Path) -> None:
    """Totals for each rank and phase, and the newest values."""
    run = build_training(tmp_path / "run", ranks=2, steps=20, workers=1, batch_size=4)
    found = exported(run, tmp_path)
    who = (("process", "testhost-1001-0"), ("rank", "1"), ("run", "run"))
    with open_run(run) as opened:
        query = "SELECT count(*), sum(dur_ns) / 1e9, sum(forward_ns) / 1e9, max(step), sum(samples) FROM steps WHERE rank = 1"
        ((steps, seconds, forward, last, samples),) = opened.sql(query).fetchall()
    assert found["sonde_steps_total", who] == steps == 20
    assert found["sonde_step_seconds_total", who] == pytest.approx(seconds)
    assert found["sonde_step", who] == last
    assert found["sonde_samples_total", who] == samples
    assert found["sonde_phase_seconds_total", (("phase", "forward"), *who)] == pytest.approx(forward)
    about = (("name", "built"), ("run", "run"), ("state", "ended"), ("verdict", "INPUT_BOUND"))
    assert found["sonde_run_info", about] == 1


def test_what_is_not_known_is_not_there(tmp_path: Path) -> None:
    """A run without steps has no step time, instead of one of 0."""
    run = build_run(tmp_path / "run", [BuiltProcess([BuiltRecord("a", dur=5)])])
    assert {name for name, _ in exported(run, tmp_path)} == {
        "sonde_run_info", "sonde_run_start_time_seconds", "sonde_records_lost_total",
    }  # fmt: skip


def test_labels_and_values_of_any_kind_are_valid() -> None:
    """Quotes, line breaks and other signs in names; losses that are no numbers."""
    name = 'a"b\\c\nd ü'
    found = parsed(
        prometheus.text([Sample("sonde_loss", {"run": name}, value) for value in (float("nan"),)])
        + prometheus.text([Sample("sonde_step", {"run": name}, float("-inf"))])
    )
    assert [(key, str(value)) for key, value in found.items()] == [
        (("sonde_loss", (("run", 'a"b\\c\nd \\xfc'),)), "nan"),
        (("sonde_step", (("run", 'a"b\\c\nd \\xfc'),)), "-inf"),
    ]


def test_memory_is_the_newest(tmp_path: Path) -> None:
    """Of each process that was sampled."""
    sampled = [
        BuiltRecord("rss", "memory", kind=record.COUNTER, start=START_NS + n, value=float(100 * n), key=3)
        for n in (1, 2)
    ]
    run = build_run(
        tmp_path / "run",
        [
            BuiltProcess(sampled, pid=1, process={"role": "launcher"}),
            BuiltProcess([BuiltRecord(dur=1)], pid=3, process={"rank": 0, "role": "trainer"}),
        ],
    )
    values = {
        dict(labels)["kind"]: value
        for (name, labels), value in exported(run, tmp_path).items()
        if name == "sonde_memory_bytes"
    }
    assert values == {"rss": 200}
