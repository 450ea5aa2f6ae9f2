"""The list of steps, and the median step that they are measured by."""

from __future__ import annotations

from pathlib import Path

import pytest

from sonde.analysis.questions import steps
from sonde.analysis.run import open_run
from sonde.testing import build_training


def test_the_median_of_very_many_steps_is_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exact one holds every step in memory."""
    with open_run(build_training(tmp_path / "run", steps=30)) as run:
        exact = steps.median_step(run)
        monkeypatch.setattr(steps, "MOST_EXACT", 10)
        assert exact is not None
        assert steps.median_step(run) == pytest.approx(exact, rel=0.05)
