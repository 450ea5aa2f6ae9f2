"""RandomDataset: random images with labels and ids, made when they are asked for; always the same for the same seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sonde.errors import ConfigError
from sonde.pipeline.datasets.dataset import Dataset


class RandomDataset(Dataset):
    """Needs no files. An item depends on the seed and its index only, so that nothing is held in memory."""

    def __init__(self, config: Mapping[str, Any], data_location: str | None = None) -> None:
        """See [data_set.RandomDataset] of the configuration."""
        super().__init__(config, data_location)
        self.shape = tuple(config["shape"])
        self.size = config["size"]
        self.seed = config["seed"] % 2**64
        self.classes = config["classes"]
        self.nan_items = config["nan_items"]
        self.first_id = config["first_id"]
        if any(length < 1 for length in self.shape):
            raise ConfigError(f"shape is {list(self.shape)}. Its numbers must be at least 1.")
        if self.size < 0 or self.classes < 1:
            raise ConfigError(f"size is {self.size} and classes is {self.classes}. Give at least 0 and 1.")

    def __len__(self) -> int:
        """The size that was asked for."""
        return int(self.size)

    def _numbers(self, index: int, stream: int) -> Any:
        return np.random.Generator(np.random.Philox(key=self.seed, counter=[0, 0, stream, index]))

    def get_image(self, index: int) -> Any:
        """Random numbers of float32 from 0 to 1."""
        image = self._numbers(index, 0).random(self.shape, dtype=np.float32)
        if index < self.nan_items:
            image.flat[index % image.size] = np.nan
        return image

    def get_label(self, index: int) -> int:
        """A random class."""
        return int(self._numbers(index, 1).integers(self.classes))

    def get_object_id(self, index: int) -> str:
        """The ids count up."""
        return str(self.first_id + index)
