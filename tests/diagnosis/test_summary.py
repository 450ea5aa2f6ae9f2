"""The flat summary: keys that trackers take, for any run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.diagnosis.building import phases

from sonde.analysis.run import open_run
from sonde.diagnosis.summary import summary
from sonde.errors import RunNotFound
from sonde.testing import MS, build_training
from sonde.views.report import report


def test_summary_has_the_verdict_and_the_main_numbers(tmp_path: Path) -> None:
    """Flat keys, plain values."""
    path = build_training(tmp_path / "run", steps=60, phases=phases(input_wait=40))
    flat = summary(path)
    assert flat["sonde/verdict/kind"] == "INPUT_BOUND"
    assert flat["sonde/steps/p50_ms"] == pytest.approx(50)
    assert flat["sonde/phases/input_wait/share"] == pytest.approx(0.8)
    assert all(isinstance(value, float | int | str | None) for value in flat.values())


def checkpoints(_rank: int, step: int) -> dict[str, int]:
    """Tiny steps, of which each fifth writes a checkpoint."""
    return {"forward": MS, "backward": MS, "optimizer": MS, **({} if step % 5 else {"checkpoint": 300 * MS})}


def test_shares_are_those_of_the_report(tmp_path: Path) -> None:
    """Parts of the time of all steps, also where most of it is a checkpoint of a few of them."""
    path = build_training(tmp_path / "run", steps=40, phases=checkpoints)
    flat = summary(path)
    with open_run(path) as run:
        told = {f"sonde/phases/{one.phase}/share": one.share for one in report(run).phases}
    found = {key: value for key, value in flat.items() if key.endswith("/share")}
    assert found == told
    assert all(0 <= value <= 1 for value in told.values() if value is not None)
    assert flat["sonde/phases/checkpoint/share"] > 0.9  # type: ignore[operator]


def test_what_is_not_known_is_none(tmp_path: Path) -> None:
    """A run without a step."""
    with open_run(build_training(tmp_path / "run", steps=0)) as run:
        flat = summary(run)
    assert flat["sonde/steps/p50_ms"] is None
    assert flat["sonde/memory/rss_peak_bytes"] is None


def test_without_a_run_the_newest_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder that the settings name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SONDE_RUN", raising=False)
    build_training(tmp_path / "sonde-runs" / "20250101-000000-a-0000", steps=0)
    build_training(tmp_path / "sonde-runs" / "20250102-000000-b-0000", steps=0)
    assert summary()["sonde/run"] == "20250102-000000-b-0000"


def test_without_any_run_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to do."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SONDE_RUN", raising=False)
    with pytest.raises(RunNotFound, match=r"sonde\.init"):
        summary()
