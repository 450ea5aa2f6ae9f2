"""`/api/runs`: the runs of the folder, from small files alone, so that thousands list at once; verdicts follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.store.folder import RUN_FILE
from sonde.store.process import read_object
from sonde.views.report import utc
from sonde.views.runs import RunEntry, list_runs
from sonde.web.endpoints.head import commit, tags
from sonde.web.verdicts import MOST

if TYPE_CHECKING:
    from pathlib import Path

    from sonde.web.folder import RunsFolder
    from sonde.web.verdicts import Verdicts


def runs(folder: RunsFolder, verdicts: Verdicts) -> object:
    """All runs, the newest first. The newest without a verdict are diagnosed meanwhile: whoever asks again has it."""
    listed = list_runs(folder.path).runs
    lacking = [folder.path / one.id for one in listed[:MOST] if verdicts.lacking(folder.path / one.id, one)]
    verdicts.make(lacking)
    return {
        "folder": str(folder.path),
        "runs": [_row(folder.path / one.id, one, verdicts) for one in listed],
        "pending": len(lacking),
    }


def _row(path: Path, one: RunEntry, verdicts: Verdicts) -> dict[str, object]:
    kept = verdicts.known(path)
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
