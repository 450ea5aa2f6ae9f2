"""A run as metrics of Prometheus: totals that grow, so that `rate()` works, and the newest values.

The text is for node_exporter's textfile collector, and for `/metrics` of `sonde ui`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sonde.analysis.records.schema import PHASES, RESIDUAL
from sonde.analysis.run import Run
from sonde.exchange.output import Progress, output_file

RECENT = 100  # steps
PARTS = (*PHASES, RESIDUAL)

# (name, type, help) of all metrics, in the order in which they are written.
METRICS = (
    ("sonde_run_info", "gauge", "The run: its name, its state, and the verdict of its last report."),
    ("sonde_run_start_time_seconds", "gauge", "When the run began."),
    ("sonde_step", "gauge", "The number of the last step."),
    ("sonde_epoch", "gauge", "The epoch of the last step."),
    ("sonde_steps_total", "counter", "Steps that ended."),
    ("sonde_step_seconds_total", "counter", "Time of all steps that ended."),
    ("sonde_phase_seconds_total", "counter", "Time of each phase in all steps that ended."),
    ("sonde_samples_total", "counter", "Samples that were trained on."),
    ("sonde_step_recent_seconds", "gauge", f"Median and 99th percentile of the last {RECENT} steps."),
    ("sonde_loss", "gauge", "The loss of the last step that has one."),
    ("sonde_memory_bytes", "gauge", "Memory when it was last sampled: of the process, and of its device."),
    ("sonde_records_lost_total", "counter", "Records that could not be written."),
)


class Sample(NamedTuple):
    """One value of a metric."""

    metric: str
    labels: dict[str, str]
    value: float


def export(
    run: Run, path: Path | BinaryIO, gzip: bool = False, progress: Progress | None = None, verdict: str | None = None
) -> int:
    """Write the run to `path` (or an open binary file); returns how many values it holds.

    Others can read the file if the umask allows it: node_exporter runs as another user.
    """
    found = list(samples(run, verdict))
    with output_file(path, gzip, shared=True) as file:
        file.write(text(found))
    if progress is not None:
        progress(len(found), len(found))
    return len(found)


def samples(run: Run, verdict: str | None = None) -> Iterator[Sample]:
    """The values of one run. What is not known is not there."""
    about = {"name": run.name, "state": run.state, "verdict": verdict or ""}
    found = [Sample("sonde_run_info", about, 1)]
    if run.started is not None:
        found.append(Sample("sonde_run_start_time_seconds", {}, run.started / 1e9))
    found += [*_steps(run), *_recent(run), *_memory(run)]
    found.append(Sample("sonde_records_lost_total", {}, run.drops.total))
    for one in found:
        yield one._replace(labels={"run": run.id} | one.labels)


def text(found: Iterable[Sample]) -> str:
    """All values in the text format, those of one metric together."""
    by_metric: dict[str, list[Sample]] = {}
    for one in found:
        by_metric.setdefault(one.metric, []).append(one)
    lines = []
    for name, kind, about in METRICS:
        if name in by_metric:
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{{{_labels(one.labels)}}} {_number(one.value)}" for one in by_metric[name]]
    return "".join(f"{line}\n" for line in lines)


def _steps(run: Run) -> Iterator[Sample]:
    """What all steps of each process add up to, and the last of them."""
    phases = ", ".join(f"sum({phase}_ns)" for phase in PARTS)
    query = (
        f"SELECT process, any_value(rank), count(*), sum(dur_ns), max(step), arg_max(epoch, start_ns), sum(samples), "
        f"arg_max(loss, start_ns), {phases} FROM steps GROUP BY process ORDER BY 2, 1"
    )
    for process, rank, count, total, last, epoch, trained, loss, *times in run.sql(query).fetchall():
        who = _who(process, rank)
        known = {
            "sonde_step": last,
            "sonde_epoch": epoch,
            "sonde_steps_total": count,
            "sonde_step_seconds_total": total / 1e9,
            "sonde_samples_total": trained,
            "sonde_loss": loss,
        }
        yield from (Sample(metric, who, value) for metric, value in known.items() if value is not None)
        for phase, time in zip(PARTS, times, strict=True):
            if time is not None:
                yield Sample("sonde_phase_seconds_total", who | {"phase": phase}, time / 1e9)


def _recent(run: Run) -> Iterator[Sample]:
    query = f"""
        SELECT process, any_value(rank), quantile_cont(dur_ns, [0.5, 0.99]) FROM (
            SELECT process, rank, dur_ns FROM steps QUALIFY row_number() OVER (PARTITION BY process ORDER BY start_ns DESC) <= {RECENT}
        ) GROUP BY process ORDER BY 2, 1
    """
    for process, rank, times in run.sql(query).fetchall():
        for quantile, time in zip(("0.5", "0.99"), times, strict=True):
            yield Sample("sonde_step_recent_seconds", _who(process, rank) | {"quantile": quantile}, time / 1e9)


def _memory(run: Run) -> Iterator[Sample]:
    kinds = ("rss", "allocated", "reserved", "peak")
    columns = ", ".join(f"arg_max({kind}, time_ns)" for kind in kinds)
    query = (
        f"SELECT coalesce(process, pid::VARCHAR), any_value(rank), coalesce(device, ''), {columns} FROM memory "
        "GROUP BY 1, 3 ORDER BY 2, 1, 3"
    )
    for process, rank, device, *values in run.sql(query).fetchall():
        who = _who(process, rank) | {"device": device}
        for kind, value in zip(kinds, values, strict=True):
            if value is not None:
                yield Sample("sonde_memory_bytes", who | {"kind": kind}, value)


def _who(process: str, rank: int | None) -> dict[str, str]:
    return {"rank": "" if rank is None else str(rank), "process": process}


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    """A label as the format wants it; in ASCII, since names may hold anything."""
    plain = value.encode("ascii", "backslashreplace").decode()
    return plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
