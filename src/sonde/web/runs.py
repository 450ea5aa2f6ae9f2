"""`/api/runs`: the runs of the folder, from small files alone, so that thousands list at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.store.folder import RUN_FILE
from sonde.store.process import read_object
from sonde.views.outcome import read_outcome
from sonde.views.report import utc
from sonde.views.runs import RunEntry, list_runs
from sonde.web.head import commit, tags

if TYPE_CHECKING:
    from sonde.web.folder import RunsFolder


def runs(folder: RunsFolder) -> object:
    """All runs, the newest first."""
    found = [_row(folder, one) for one in list_runs(folder.path).runs]
    return {"folder": str(folder.path), "runs": found, "pending": 0}


def _row(folder: RunsFolder, one: RunEntry) -> dict[str, object]:
    path = folder.path / one.id
    kept = read_outcome(path)
    meta = read_object(path / RUN_FILE, [])
    return {
        "id": one.id,
        "name": one.name,
        "state": one.state,
        "ended": one.ended,
        "verdict": kept.verdict if kept else None,
        "severity": kept.severity if kept else None,
        "steps": kept.steps if kept else None,
        "median_step_ns": kept.p50_ns if kept else None,
        "steps_per_s": 1e9 / kept.p50_ns if kept and kept.p50_ns else None,
        "last_loss": kept.loss if kept else None,
        "started": utc(one.started_ns),
        "duration_ns": one.dur_ns,
        "commit": commit(meta),
        "tags": tags(meta),
        "size": one.size,
        "processes": one.processes,
        "sealed": one.sealed,
        "problem": one.problem,
    }
