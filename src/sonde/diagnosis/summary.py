"""The outcome of a run as one flat dict for experiment trackers: W&B, MLflow, TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sonde import config
from sonde.analysis.run import Run, open_run
from sonde.diagnosis.diagnose import Diagnosis, diagnose
from sonde.errors import RunNotFound
from sonde.store.folder import RUN_FILE
from sonde.store.process import is_ours, read_object

if TYPE_CHECKING:
    from sonde.diagnosis.figures import Figure

Value = float | str | None
_SPREAD = ("mean", "p50", "p95", "p99")


def summary(run: Run | str | Path | None = None) -> dict[str, Value]:
    """The verdict and key figures of a run: `sonde/verdict/kind`, `sonde/steps/p50_ms`, ... None means unknown.

    `run` is an open run or its folder. Default: the run that this process records, else the newest one.
    """
    if isinstance(run, Run):
        return _flat(diagnose(run), run)
    with open_run(run if run is not None else current_run()) as opened:
        return _flat(diagnose(opened), opened)


def current_run() -> Path:
    """The run that this process records, else the newest one. Raises RunNotFound."""
    recorded = config.peek("run")
    if recorded is not None:
        return Path(recorded)
    folder = Path(config.load().dir)
    for path in sorted(folder.glob(f"*/{RUN_FILE}"), reverse=True):  # names begin with the time
        if is_ours(read_object(path, [])):
            return path.parent
    raise RunNotFound(f"No run in {folder}, and this process is not recording. Call sonde.init() first.")


def _flat(diagnosis: Diagnosis, run: Run) -> dict[str, Value]:
    verdict = diagnosis.verdict
    return {
        "sonde/run": run.id,
        "sonde/state": run.state,
        "sonde/verdict/kind": verdict.kind,
        "sonde/verdict/severity": verdict.severity,
        "sonde/verdict/confidence": verdict.confidence,
        "sonde/verdict/why": verdict.why,
        "sonde/verdict/next": verdict.next,
        "sonde/findings": float(len(diagnosis.findings)),
        **_speed(diagnosis),
        **_memory(diagnosis),
        "sonde/drops": None if run.drops.uncounted else float(run.drops.total),
    }


def _speed(diagnosis: Diagnosis) -> dict[str, Value]:
    speed = diagnosis.facts.speed
    step = speed.step
    flat: dict[str, Value] = {
        "sonde/ranks": float(len(speed.ranks)),
        "sonde/steps/count": speed.steps.value,
        "sonde/steps/warmup": speed.warmup.value,
        **{f"sonde/steps/{what}_ms": None if step is None else _ms(getattr(step, what)) for what in _SPREAD},
    }
    for phase, spread in speed.phases.items():
        flat[f"sonde/phases/{phase}/p50_ms"] = _ms(spread.p50)
        flat[f"sonde/phases/{phase}/share"] = speed.shown(phase).value
    return flat


def _memory(diagnosis: Diagnosis) -> dict[str, Value]:
    most = [trend.most.value for trend in diagnosis.facts.health.memory if trend.what == "rss"]
    return {"sonde/memory/rss_peak_bytes": max((value for value in most if value is not None), default=None)}


def _ms(figure: Figure) -> float | None:
    return None if figure.value is None else figure.value / 1e6
