"""Evaluations of two runs, side by side."""

from __future__ import annotations

from pathlib import Path

from tests.diagnosis.lessons import RUNS

from sonde.analysis.run import open_run
from sonde.compare.evaluation import MetricPair, compare_metrics
from sonde.testing import build_run


def test_metrics_of_both_runs_stand_side_by_side(tmp_path: Path) -> None:
    """What a run did not log is missing, and not zero."""
    with (
        open_run(build_run(tmp_path / "a", RUNS["OVERFITTING"]())) as a,
        open_run(build_run(tmp_path / "b", RUNS["LOSS_SPIKE"]())) as b,
    ):
        found = compare_metrics(a, b)
        same = compare_metrics(a, a)
    assert found == [MetricPair("val_loss", 2.2, None, 1.5, None, 2.2, None)]
    assert same == [MetricPair("val_loss", 2.2, 2.2, 1.5, 1.5, 2.2, 2.2)]
