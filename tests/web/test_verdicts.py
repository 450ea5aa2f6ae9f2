"""Verdicts for the list of runs that nobody asked for before."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from sonde.testing import build_training
from sonde.views.outcome import OUTCOME_FILE
from sonde.web.app import make_app
from sonde.web.folder import RunsFolder

SECONDS = 60  # for a verdict, on a busy machine


def listed(folder: Path) -> dict[str, Any]:
    """What the list says once no verdict is pending."""
    client = TestClient(
        make_app(RunsFolder(folder), "secret"),
        base_url="http://127.0.0.1:8700",
        headers={"authorization": "Bearer secret"},
    )
    until = time.monotonic() + SECONDS
    with client:
        while (found := client.get("/api/runs").json())["pending"] and time.monotonic() < until:
            time.sleep(0.05)
    assert found["pending"] == 0
    return {one["id"]: one for one in found["runs"]}


def test_a_run_that_nobody_diagnosed_gets_its_verdict_in_the_list(tmp_path: Path) -> None:
    """And nothing is written into its folder."""
    build_training(tmp_path / "one", steps=20)
    build_training(tmp_path / "two", steps=30)
    found = listed(tmp_path)
    assert {id: one["steps"] for id, one in found.items()} == {"one": 20, "two": 30}
    assert all(one["verdict"] for one in found.values())
    assert not list(tmp_path.rglob(OUTCOME_FILE))


def test_a_run_that_cannot_be_read_does_not_keep_the_others_waiting(tmp_path: Path) -> None:
    """It has no verdict, and is not asked again."""
    build_training(tmp_path / "good", steps=20)
    broken = build_training(tmp_path / "bad", steps=20)
    for rings in broken.rglob("rings"):
        rings.write_bytes(b"\0" * 5000)
    found = listed(tmp_path)
    assert found["good"]["verdict"] is not None
