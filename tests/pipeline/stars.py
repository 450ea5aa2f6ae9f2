"""Small datasets of stars for the tests of data: in memory, each with one thing that is special."""

from __future__ import annotations

from typing import Any

import numpy as np

from sonde.pipeline.config import Config
from sonde.pipeline.data.provider import DataProvider
from sonde.pipeline.datasets.dataset import Dataset

PATH = "tests.pipeline.stars"


class Stars(Dataset):
    """Twenty images of 2 x 3 pixels, with names for ids."""

    def __len__(self) -> int:
        return int(self.config.get("size", 20))

    def get_image(self, index: int) -> Any:
        return np.full((2, 3), index, dtype=np.float32)

    def get_label(self, index: int) -> Any:
        return index % 3

    def get_name(self, index: int) -> str:
        return f"s{index}"


class Known(Stars):
    """A dataset that says which keys it knows."""

    defaults = {"size": 20, "scale": 1.0}  # noqa: RUF012  as in the documentation


class Broken(Stars):
    """The image of item 17 cannot be read."""

    def get_image(self, index: int) -> Any:
        if index == 17:
            raise OSError("the disk is gone")
        return super().get_image(index)


class Nameless(Broken):
    """And neither can its name."""

    def get_name(self, index: int) -> str:
        if index == 17:
            raise KeyError("name")
        return super().get_name(index)


class Ragged(Stars):
    """The image of item 3 is larger than the others."""

    def get_image(self, index: int) -> Any:
        return np.zeros((2, 4 if index == 3 else 3), dtype=np.float32)


class Gaps(Stars):
    """The label of item 2 is not known."""

    def get_label(self, index: int) -> Any:
        return None if index == 2 else index


class Twins(Stars):
    """Items 4 and 9 have the same name."""

    def get_name(self, index: int) -> str:
        return "s4" if index == 9 else super().get_name(index)


class Cloudy(Stars):
    """Item 1 has one NaN, item 2 nothing else; their labels are numbers with and without one."""

    def __init__(self, config: Any, data_location: str | None = None) -> None:
        super().__init__(config, data_location)
        self.images = np.arange(20 * 6, dtype=np.float32).reshape(20, 2, 3)
        self.images[1, 0, 0] = np.nan
        if config.get("all", True):
            self.images[2] = np.nan

    def get_image(self, index: int) -> Any:
        return self.images[index]

    def get_label(self, index: int) -> float:
        return float("nan") if index == 1 else float(index)


class Spectra(Dataset):
    """What belongs to every second star, in another order."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.stars = [f"s{number}" for number in range(18, -1, -2)]

    def __len__(self) -> int:
        return len(self.stars)

    def get_star(self, index: int) -> str:
        return self.stars[index]

    def get_flux(self, index: int) -> Any:
        return np.full(4, int(self.stars[index][1:]), dtype=np.float32)

    def get_class(self, index: int) -> str:
        return f"class {self.stars[index]}"

    def get_count(self, index: int) -> int:
        return index + 1


class Padded(Spectra):
    """Spectra of unequal length, and a function that fills them up."""

    def get_flux(self, index: int) -> Any:
        return np.ones(index + 1)

    def collate_flux(self, samples: list[Any]) -> dict[str, Any]:
        length = max(len(sample) for sample in samples)
        flux = np.stack([np.pad(sample, (0, length - len(sample))) for sample in samples])
        return {"flux": flux, "flux_length": [len(sample) for sample in samples]}


class Whole(Stars):
    """A function for all fields at once."""

    def collate(self, samples: list[dict[str, Any]]) -> Any:
        return {"sum": np.array([sample["image"].sum() + sample["label"] for sample in samples])}


class Both(Whole):
    """Which is one too many."""

    def collate_image(self, samples: list[Any]) -> Any:
        return np.stack(samples)


class Turned(Stars):
    """Images that are turned, by chance."""

    def augment_image(self, value: Any, index: int, seed: int) -> Any:
        assert not value.flags.writeable
        return value + np.float32(seed % 1000 + 1)


class Twice(Stars):
    """Two fields that can be augmented."""

    def augment_image(self, value: Any, index: int, seed: int) -> Any:
        return value + 1

    def augment_label(self, value: Any, index: int, seed: int) -> Any:
        return 100


def source(kind: str, **more: Any) -> dict[str, Any]:
    """One source of a group."""
    return {"dataset_class": f"{PATH}.{kind}", "primary_id_field": "name", **more}


def made(kind: str, config: dict[str, Any] | None = None, *, augment: bool = True, **more: Any) -> DataProvider:
    """A provider of one dataset."""
    return DataProvider(_config({"train": {"data": source(kind, **more)}}, config), "train", augment=augment)


def joined(kind: str = "Spectra", config: dict[str, Any] | None = None, **more: Any) -> DataProvider:
    """A provider of stars and what belongs to them."""
    other = {"dataset_class": f"{PATH}.{kind}", "join_field": "star", **more}
    return DataProvider(_config({"train": {"data": source("Stars"), "spec": other}}, config), "train")


def _config(request: dict[str, Any], values: dict[str, Any] | None) -> Config:
    config = Config({"data_request": request})
    for key, value in (values or {}).items():
        config.set(key, value)
    return config


def batch(provider: DataProvider, *indices: int) -> dict[str, Any]:
    """These items as a batch."""
    return provider.collate([provider[index] for index in indices or range(len(provider))])
