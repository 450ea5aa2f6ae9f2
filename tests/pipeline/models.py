"""Small models and datasets for the tests of training, found by their import path also in processes of their own."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sonde.flow import trace_dataset_func, trace_model_func
from sonde.pipeline import Dataset, Pipeline

PATH = "tests.pipeline.models"


def point(idx: int) -> np.ndarray[Any, Any]:
    """A point that follows from its number."""
    return np.random.default_rng(idx).normal(size=2).astype(np.float32)


class Points(Dataset):
    """Ten points in a plane, and which side of a line they are on."""

    def __len__(self) -> int:
        return 10

    def get_x(self, idx: int) -> np.ndarray[Any, Any]:
        return point(idx)

    def get_side(self, idx: int) -> int:
        return int(point(idx).sum() > 0)

    def get_object_id(self, idx: int) -> str:
        return f"p{idx}"


class Rare(Points):
    """Points of which one alone is on its side."""

    def get_side(self, idx: int) -> int:
        return int(idx == 0)


class Augmented(Points):
    """Points that move a little."""

    def augment_x(self, value: Any, idx: int, seed: int) -> Any:
        return value + np.random.default_rng(seed).normal(size=2).astype(np.float32)


class Noted(Points):
    """Points whose getter its author has decorated."""

    @trace_dataset_func
    def get_x(self, idx: int) -> np.ndarray[Any, Any]:
        return super().get_x(idx)


class Failing(Points):
    """Points of which one cannot be read."""

    def get_x(self, idx: int) -> np.ndarray[Any, Any]:
        if idx == 7:
            raise OSError("the disk is gone")
        return super().get_x(idx)


class Slow(Points):
    """Points of which the last takes its time, in the second epoch: long enough to be interrupted."""

    def get_x(self, idx: int) -> np.ndarray[Any, Any]:
        started = Path(os.getcwd()) / "go"
        if idx == 9 and started.exists():
            (Path(os.getcwd()) / "waiting").touch()
            time.sleep(60)
        return super().get_x(idx)


class Line(nn.Module):
    """A model with dropout, so that random numbers count."""

    criterion: nn.Module

    def __init__(self, config: Any, sample: Any) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.3), nn.Linear(8, 2))

    @staticmethod
    def prepare_inputs(batch_dict: dict[str, Any]) -> Any:
        return batch_dict["data"]["x"], batch_dict["data"]["side"]

    def forward(self, batch: Any) -> torch.Tensor:
        scores: torch.Tensor = self.layers(batch[0])
        return scores

    def train_batch(self, batch: Any) -> dict[str, Any]:
        return {"loss": self.criterion(self(batch), batch[1])}

    def validate_batch(self, batch: Any) -> dict[str, Any]:
        return self.train_batch(batch)

    def test_batch(self, batch: Any) -> dict[str, Any]:
        return self.train_batch(batch)

    def infer_batch(self, batch: Any) -> Any:
        return self.forward(batch=batch)


class Plain(Line):
    """Without dropout: what it learns follows from the items alone."""

    def __init__(self, config: Any, sample: Any) -> None:
        super().__init__(config, sample)
        self.layers = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))


class Heir(Line):
    """Has nothing of its own."""


class Marked(Line):
    """A model whose method its author has decorated, beside one that the pipeline does not know."""

    @trace_model_func
    def train_batch(self, batch: Any) -> dict[str, Any]:
        self.look(batch[0])
        return super().train_batch(batch)

    @trace_model_func
    def look(self, x: Any) -> Any:
        return x.mean()


class Old(nn.Module):
    """A model of the old kind, with to_tensor."""

    def __init__(self, config: Any, sample: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)

    @staticmethod
    def to_tensor(batch_dict: dict[str, Any]) -> Any:
        return torch.as_tensor(batch_dict["data"]["x"])

    def train_batch(self, batch: Any) -> dict[str, Any]:
        return {"loss": self.layer(batch).pow(2).mean()}


class Crashing(Line):
    """Fails in the third batch of the second epoch."""

    def train_batch(self, batch: Any) -> dict[str, Any]:
        self.calls = getattr(self, "calls", 0) + self.training
        if self.calls == 6:
            raise ZeroDivisionError("in the model")
        return super().train_batch(batch)


class Interrupted(Line):
    """Is stopped by the user in the middle of the second epoch."""

    def train_batch(self, batch: Any) -> dict[str, Any]:
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == 5:
            raise KeyboardInterrupt
        return super().train_batch(batch)


def request(dataset: str = "Points", **more: Any) -> dict[str, Any]:
    """What a group asks for."""
    fields = {"dataset_class": f"{PATH}.{dataset}", "fields": ["x", "side"], "primary_id_field": "object_id"}
    return {"data": {**fields, **more}}


def pipeline(results: Path | str, model: str = "Line", dataset: str = "Points", **groups: Any) -> Pipeline:
    """A pipeline of a model and a dataset of this module; batches of 4, so 3 in an epoch."""
    made = Pipeline()
    made.config["general"]["results_dir"] = str(results)
    made.config["model"]["name"] = f"{PATH}.{model}" if model in globals() else model
    one = request(dataset)
    made.set_config("data_request", {"train": one, "infer": one, "test": one, **groups})
    made.config["data_loader"]["batch_size"] = 4
    made.config["train"]["epochs"] = 2
    return made


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of a training run."""
    found: dict[str, torch.Tensor] = torch.load(folder / "weights.pt", weights_only=True)
    return found


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Are all weights the same, bit for bit?"""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
