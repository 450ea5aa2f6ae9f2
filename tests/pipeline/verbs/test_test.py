"""test: metrics over all items, and what the model made of each, in two passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.pipeline import models
from tests.pipeline.models import pipeline, weights

from sonde.errors import CheckpointError, ModelError
from sonde.pipeline import register_model
from sonde.pipeline.results.results import open_results


def trained(folder: Path) -> models.Line:
    """The model of a training run."""
    model = models.Line(None, None).eval()
    model.load_state_dict({name: value for name, value in weights(folder).items() if not name.startswith("criterion")})
    return model


def test_metrics_are_means_over_all_items(tmp_path: Path) -> None:
    """Each item counts the same, in small batches too; computed with the weights of the newest training run."""
    made = pipeline(tmp_path)
    made.train()
    folder = made.train()
    metrics = made.test()
    scores = trained(folder)((torch.stack([torch.from_numpy(models.point(n)) for n in range(10)]),))
    sides = torch.tensor([int(models.point(n).sum() > 0) for n in range(10)])
    wanted = torch.nn.functional.cross_entropy(scores, sides)
    assert metrics == {"loss": pytest.approx(wanted.item(), rel=1e-5)}


def test_a_run_leaves_metrics_and_results(tmp_path: Path) -> None:
    """With the ids, in order."""
    made = pipeline(tmp_path)
    folder = made.train()
    metrics = made.test()
    (path,) = [one for one in tmp_path.iterdir() if "-test-" in one.name]
    assert json.loads((path / "metrics.json").read_text()) == metrics
    record = json.loads((path / "run.json").read_text())
    assert (record["status"], record["weights"]) == ("completed", str(folder / "weights.pt"))
    results = open_results(path)
    assert list(results.ids) == [f"p{number}" for number in range(10)]
    with torch.no_grad():
        wanted = trained(folder)((torch.stack([torch.from_numpy(models.point(n)) for n in range(10)]),)).numpy()
    assert np.allclose(results["data"], wanted, atol=1e-6)


def test_without_a_training_run_it_says_so(tmp_path: Path) -> None:
    """And makes no folder."""
    with pytest.raises(CheckpointError, match="Train first"):
        pipeline(tmp_path).test()
    assert not list(tmp_path.iterdir())


def test_the_model_is_in_evaluation_mode_without_gradients(tmp_path: Path) -> None:
    """In both passes; dropout does nothing."""
    found: list[Any] = []

    @register_model
    class Watching(models.Line):
        def forward(self, batch: Any) -> torch.Tensor:
            found.append((self.training, torch.is_grad_enabled()))
            return super().forward(batch)

    made = pipeline(tmp_path)
    made.config["model"]["name"] = "Watching"
    made.train()
    found.clear()
    made.test()
    assert set(found) == {(False, False)}


def test_wrong_loss_is_told_with_the_method(tmp_path: Path) -> None:
    """A run that failed is not taken for a complete one."""

    @register_model
    class Lossless(models.Line):
        def test_batch(self, batch: Any) -> dict[str, Any]:
            return {"accuracy": 1.0}

    made = pipeline(tmp_path)
    made.config["model"]["name"] = "Lossless"
    made.train()
    with pytest.raises(ModelError, match=r'Lossless\.test_batch returned a dict without "loss": it has accuracy'):
        made.test()
    (path,) = [one for one in tmp_path.iterdir() if "-test-" in one.name]
    assert json.loads((path / "run.json").read_text())["status"] == "failed"
