"""`/head`: what the first paint of a run needs, without the diagnosis."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from sonde.analysis.postmortem.dumps import dump_folders
from sonde.analysis.run import RECORDING
from sonde.store import probe
from sonde.views.outcome import read_outcome
from sonde.views.report import kinds, utc
from sonde.views.runs import entry
from sonde.web.endpoints.traces import trace_files

if TYPE_CHECKING:
    from sonde.analysis.run import Run
    from sonde.web.asking import Ask


_LEARNING = (probe.METRIC, probe.GRADIENT, probe.ACTIVATION, probe.FIELD)  # how their categories begin


def head(run: Run, ask: Ask) -> object:
    """What is known at once."""
    ranks = [
        dict(
            zip(
                ("rank", "process", "host", "pid", "steps", "first_step", "last_step", "begun", "ended"),
                row,
                strict=True,
            )
        )
        for row in run.sql(
            "SELECT any_value(rank), process, any_value(host), any_value(pid), count(*), min(step), max(step), min(start_ns), "
            "max(start_ns + dur_ns) FROM steps GROUP BY process ORDER BY 1 NULLS LAST, 2"
        ).fetchall()
    ]
    numbers = [row["first_step"] for row in ranks if row["first_step"] is not None]
    last = max((row["last_step"] for row in ranks if row["last_step"] is not None), default=None)
    about = entry(run.path)
    kept = read_outcome(run.path)
    command = run.meta.get("command")
    return {
        "id": run.id,
        "name": run.name,
        "state": run.state,
        "ended": str(run.ending),
        "live": run.state == RECORDING,
        "started": utc(run.started),
        "start_ns": 0,
        "duration_ns": about.dur_ns,
        "command": shlex.join(map(str, command)) if isinstance(command, list) else "",
        "commit": commit(run.meta),
        "tags": tags(run.meta),
        "hosts": sorted({str(row["host"]) for row in run.rows}),
        "ranks": [{key: value for key, value in row.items() if key not in ("begun", "ended")} for row in ranks],
        "as_of_step": last,
        "axis": {"unit": "step", "first": min(numbers), "last": last} if numbers else None,
        "verdict": None
        if kept is None
        else {
            "kind": kept.verdict,
            "severity": kept.severity,
            "steps": kept.steps,
            "median_step_ns": kept.p50_ns,
            "last_loss": kept.loss,
        },
        "has": has(run),
    }


def has(run: Run) -> dict[str, bool]:
    """Which pages of a run have anything to show."""
    words = kinds(run)
    return {
        "steps": bool(words & {probe.UPDATE, probe.STEP}) or bool(run.sql("SELECT 1 FROM steps LIMIT 1").fetchall()),
        "layers": "layer" in words,
        "traces": bool(trace_files(run.path)),
        "blackbox": probe.NONFINITE in words or bool(dump_folders(run.path, [])),
        "items": bool(words & {probe.ITEM, probe.FETCH}),
        "learning": probe.LOG in words or any(word.startswith(_LEARNING) for word in words),
        "files": probe.IO in words,
        "samples": probe.SAMPLE in words,
        "hosts": len({row["host"] for row in run.rows}) > 1 or len({row["attempt"] for row in run.rows} - {None}) > 1,
    }


def commit(meta: dict[str, Any]) -> str | None:
    """The commit that ran."""
    git = meta.get("git")
    found = git.get("commit") if isinstance(git, dict) else git
    return found if isinstance(found, str) else None


def tags(meta: dict[str, Any]) -> list[str]:
    """What the user called the run by."""
    found = meta.get("tags")
    if isinstance(found, dict):
        return [f"{key}={value}" for key, value in found.items()]
    return [str(one) for one in found] if isinstance(found, list) else []
