"""The address of an item: what the program has logged for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.analysis.boxes import batch, write_dump
from tests.web.test_app import browser, get

torch = pytest.importorskip("torch")

from tests.probes.learning.test_items import Training, loader, usual  # noqa: E402

import sonde  # noqa: E402
from sonde.testing import build_training  # noqa: E402


def test_an_item_has_the_values_that_were_logged_for_it(tmp_path: Path) -> None:
    """Its loss is the mean of those in training."""
    with sonde.init(dir=tmp_path) as session:
        training = Training()
        for _ in range(3):
            usual(training, loader(8))
    assert session.path is not None
    with browser(tmp_path) as client:
        found = get(client, f"/api/runs/{session.path.name}/items/5")
    assert found["loss"] == 5.0
    assert [(one["name"], one["purpose"], one["value"]) for one in found["losses"]] == [("loss", "train", 5.0)] * 3


def test_an_item_of_which_nothing_was_logged_has_no_loss(tmp_path: Path) -> None:
    """Missing is not zero."""
    build_training(tmp_path / "one", ranks=1, steps=5, workers=1)
    with browser(tmp_path) as client:
        index = get(client, "/api/runs/one/items")["rows"][0][0]
        found = get(client, f"/api/runs/one/items/{index}")
    assert (found["loss"], found["losses"]) == (None, [])


def test_the_command_loads_the_batch_whose_values_were_kept(tmp_path: Path) -> None:
    """An item is in several batches: one looks at the values of one of them."""
    path = build_training(tmp_path / "one", steps=12, workers=1, epoch_steps=6)
    with browser(tmp_path) as client:
        index, loads = next(
            (index, found)
            for index in range(24)
            if len(found := get(client, f"/api/runs/one/items/{index}")["loads"]) > 1
        )
    last = loads[-1]
    kept = batch(last["batch"], {"image": np.zeros((1, 4), np.float32)}, indices=[index], step=last["step"])
    write_dump(path, "demand", [kept], rank=0)
    with browser(tmp_path) as client:
        command = get(client, f"/api/runs/one/items/{index}")["replay"]
    assert command == f"sonde flow replay {path.resolve()} train.py:DATASET --step {last['step']}"


def test_a_run_where_commands_look_for_runs_is_called_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command to copy is then short."""
    build_training(tmp_path / "one", steps=5, workers=1)
    monkeypatch.setenv("SONDE_DIR", str(tmp_path))
    with browser(tmp_path) as client:
        assert get(client, "/api/runs/one/items/3")["replay"].startswith("sonde flow replay one ")
