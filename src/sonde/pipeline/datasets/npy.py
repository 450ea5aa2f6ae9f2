"""NpyDataset: arrays in .npy files whose first axis counts the items; mapped, not read into memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sonde.errors import ConfigError, DataError
from sonde.pipeline.datasets.dataset import Dataset


class NpyDataset(Dataset):
    """`data_location` is a .npy file (one field), or a folder or .npz file with one array for each field.

    Without an array `object_id` the ids are the row numbers.
    """

    def __init__(self, config: Mapping[str, Any], data_location: str | None = None) -> None:
        """See [data_set.NpyDataset] of the configuration."""
        super().__init__(config, data_location)
        if data_location is None:
            raise ConfigError("NpyDataset needs data_location: a .npy file, a .npz file, or a folder of .npy files.")
        self._open()

    def _open(self) -> None:
        self.arrays = _arrays(Path(str(self.data_location)), self.config["field"])
        lengths = {name: len(array) for name, array in self.arrays.items()}
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise DataError(f"The arrays in {self.data_location} differ in length ({said}).")
        self.size = next(iter(lengths.values()))
        for name in self.arrays:
            setattr(self, f"get_{name}", partial(self._get, name))

    def __len__(self) -> int:
        """The length of the first axis."""
        return self.size

    def _get(self, name: str, index: int) -> Any:
        return self.arrays[name][index]

    def get_object_id(self, index: int) -> str:
        """The row number; an array of this name goes before it."""
        return str(index)

    def __getstate__(self) -> dict[str, Any]:
        """Without the arrays: a mapped file would be copied whole to each worker."""
        return {"config": self.config, "data_location": self.data_location}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Map the files again."""
        vars(self).update(state)
        self._open()


def _arrays(path: Path, field: str) -> dict[str, Any]:
    if path.is_dir():
        files = sorted(path.glob("*.npy"))
        if not files:
            raise DataError(f"No .npy file in {path}.")
        return {file.stem: _mapped(file) for file in files}
    loaded = _loaded(path, None) if path.suffix == ".npz" else None
    if loaded is None:
        return {field: _mapped(path)}
    with loaded:
        return {name: _rows(path, loaded[name]) for name in loaded}


def _mapped(file: Path) -> Any:
    # As a plain array: slices of a memmap object are slow to make.
    return _rows(file, np.asarray(_loaded(file, "r")))


def _loaded(file: Path, mode: Any) -> Any:
    try:
        return np.load(file, mmap_mode=mode, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"Cannot read {file} as an array: {error}") from None


def _rows(file: Path, array: Any) -> Any:
    if array.ndim == 0:
        raise DataError(f"{file} holds a single value. The first axis of an array must count the items.")
    return array
