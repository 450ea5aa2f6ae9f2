"""ImageFolderDataset: image files in a folder; the folder that a file is in is its class."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from sonde.errors import ConfigError, DataError, MissingExtra
from sonde.pipeline.datasets.dataset import Dataset


class ImageFolderDataset(Dataset):
    """`data_location/<class>/<file>`, at any depth. Files that lie in `data_location` itself have the class "".

    The id of an item is its path below `data_location`. Images have the shape [channels, height, width].
    """

    def __init__(self, config: Mapping[str, Any], data_location: str | None = None) -> None:
        """See [data_set.ImageFolderDataset] of the configuration."""
        super().__init__(config, data_location)
        if data_location is None or not os.path.isdir(data_location):
            raise ConfigError(f"ImageFolderDataset needs a folder as data_location; {data_location} is not a folder.")
        self.root = data_location
        self.mode = config["mode"]
        self.size = _size(config["size"])
        self.scale = config["scale"]
        self.files = _files(self.root, tuple(ending.lower() for ending in config["extensions"]))
        self.classes = sorted({_class(file) for file in self.files})
        self._numbers = {name: number for number, name in enumerate(self.classes)}

    def __len__(self) -> int:
        """How many image files there are."""
        return len(self.files)

    def get_image(self, index: int) -> Any:
        """The image as an array: float32 from 0 to 1, or uint8."""
        pixels = _pixels(os.path.join(self.root, self.files[index]), self.mode, self.size)
        pixels = pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))
        return pixels.astype(np.float32) / 255 if self.scale and pixels.dtype == np.uint8 else pixels

    def get_label(self, index: int) -> int:
        """The number of the class: classes are counted by name."""
        return self._numbers[_class(self.files[index])]

    def get_label_name(self, index: int) -> str:
        """The name of the class."""
        return _class(self.files[index])

    def get_object_id(self, index: int) -> str:
        """The path below the folder, with / on every system."""
        return self.files[index]


def _size(given: list[Any]) -> tuple[int, int] | None:
    if not given:
        return None
    if len(given) != 2 or not all(isinstance(length, int) and length > 0 for length in given):
        raise ConfigError(f"size is {given}. Give [height, width], or [] to keep the original sizes.")
    return given[1], given[0]  # Pillow says the width first


def _files(root: str, endings: tuple[str, ...]) -> list[str]:
    found = []
    for folder, _, names in os.walk(root):
        place = os.path.relpath(folder, root)
        found += [os.path.normpath(os.path.join(place, name)) for name in names if name.lower().endswith(endings)]
    return sorted(path.replace(os.sep, "/") for path in found)


def _class(file: str) -> str:
    return file.rpartition("/")[0]


def _pixels(path: str, mode: str, size: tuple[int, int] | None) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra.of("pillow", "pipeline", "ImageFolderDataset") from None
    try:
        with Image.open(path) as image:
            converted = image.convert(mode)
            return np.asarray(converted if size is None else converted.resize(size))
    except (OSError, ValueError) as error:  # a broken file, an unknown mode
        raise DataError(f"Cannot read {path} as an image: {error}") from None
