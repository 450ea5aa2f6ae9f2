"""Small models and a small dataset for the tests of infer, to_onnx and engine, given by import path."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from sonde.pipeline import Dataset, Pipeline

HERE = "tests.pipeline.nets"


class Numbers(Dataset):
    """Item n is [n, n + 0.5]; its id is "n7" for 7. One item may fail."""

    defaults: ClassVar = {"size": 10, "fails": -1}

    def __len__(self) -> int:
        return int(self.config["size"])

    def get_pair(self, index: int) -> Any:
        if index == self.config["fails"]:
            raise OSError("the file is damaged")
        return np.array([index, index + 0.5], np.float32)

    def get_label(self, index: int) -> int:
        return index % 2

    def get_name(self, index: int) -> str:
        return f"n{index}"


class Net(nn.Module):
    """A linear layer; the weight is what training changes."""

    def __init__(self, config: Any, sample: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 3)

    @staticmethod
    def prepare_inputs(batch_dict: dict[str, Any]) -> Any:
        return batch_dict["data"]["pair"]

    def forward(self, batch: Any) -> Any:
        return self.linear(batch)

    def train_batch(self, batch: Any) -> Any:
        return {"loss": self(batch).square().mean()}

    def infer_batch(self, batch: Any) -> Any:
        return self(batch)

    def test_batch(self, batch: Any) -> Any:
        return self.train_batch(batch)


class Several(Net):
    """Labels go in, and several outputs of other types come out."""

    @staticmethod
    def prepare_inputs(batch_dict: dict[str, Any]) -> Any:
        return batch_dict["data"]["pair"], np.asarray(batch_dict["data"]["label"])

    def train_batch(self, batch: Any) -> Any:
        return {"loss": self(batch[0]).square().mean()}

    def infer_batch(self, batch: Any) -> Any:
        made = self(batch[0])
        return {"made": made, "best": made.argmax(1), "cube": made.reshape(-1, 3, 1, 1)}


class Echo(Net):
    """Gives back what it was given, with numbers that are not finite."""

    def infer_batch(self, batch: Any) -> Any:
        first = batch[:, :1]
        return {"out": torch.cat([first, first * torch.nan, first / 0, -first / 0], 1), "half": batch.bfloat16()}


class OnResults(Net):
    """Gives back what an earlier run gave."""

    @staticmethod
    def prepare_inputs(batch_dict: dict[str, Any]) -> Any:
        return batch_dict["data"]["half"]

    def infer_batch(self, batch: Any) -> Any:
        return batch


class Wrong(Net):
    """Gives no tensor."""

    def infer_batch(self, batch: Any) -> Any:
        return [1, 2, 3]


class Mute(nn.Module):
    """Has no infer_batch."""

    def __init__(self, config: Any, sample: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 3)

    @staticmethod
    def prepare_inputs(batch_dict: dict[str, Any]) -> Any:
        return batch_dict["data"]["pair"]


class Random(Net):
    """Not the same twice: no export can be equal to it."""

    def infer_batch(self, batch: Any) -> Any:
        return self(batch) + torch.rand(batch.shape[0], 1) + 1


class Stiff(Net):
    """Depends on how many items there are."""

    def infer_batch(self, batch: Any) -> Any:
        return self(batch) if int(batch.sum().item()) % 2 else self(batch) * 2


class Torchy(Net):
    """Prepares its inputs with torch."""

    @staticmethod
    def prepare_inputs(batch_dict: dict[str, Any]) -> Any:
        return torch.as_tensor(batch_dict["data"]["pair"]).numpy()


def request(*groups: str, **config: Any) -> dict[str, Any]:
    """The data_request for these groups."""
    source = {"dataset_class": f"{HERE}.Numbers", "primary_id_field": "name", "dataset_config": config}
    return {group: {"data": {**source, "fields": ["pair", "label"]}} for group in groups}


def pipeline(folder: Path, model: str = "Net", **config: Any) -> Pipeline:
    """A pipeline on Numbers that trains in no time."""
    made = Pipeline()
    made.config["general"]["results_dir"] = str(folder / "results")
    made.config["model"]["name"] = f"{HERE}.{model}"
    made.config["train"]["epochs"] = 1
    made.config["data_loader"]["batch_size"] = 4
    made.set_config("data_request", request("train", "infer", "test", **config))
    return made
