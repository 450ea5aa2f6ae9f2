"""ParquetDataset: the rows of Parquet files, each column a field; a column is loaded when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sonde.errors import ConfigError, DataError, MissingExtra
from sonde.pipeline.datasets.dataset import Dataset

NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "halffloat", "float", "double")


class ParquetDataset(Dataset):
    """`data_location` is a .parquet file or a folder of them, read in the order of their names.

    Numbers, truths and texts come as they are, lists as arrays. A missing number of a column of floats is NaN; elsewhere
    it is None, which collation refuses. Without a column `object_id` the ids are the row numbers.
    """

    def __init__(self, config: Mapping[str, Any], data_location: str | None = None) -> None:
        """It has no keys of its own."""
        super().__init__(config, data_location)
        if data_location is None:
            raise ConfigError("ParquetDataset needs data_location: a .parquet file, or a folder of them.")
        self.files = _files(Path(data_location))
        parts = [_opened(file) for file in self.files]
        self.names = list(parts[0].schema_arrow.names)
        for file, part in zip(self.files, parts, strict=True):
            if list(part.schema_arrow.names) != self.names:
                raise DataError(f"{file} has different columns from {self.files[0]}.")
        self.size = sum(part.metadata.num_rows for part in parts)
        self.columns: dict[str, Any] = {}
        self._give()

    def _give(self) -> None:
        for name in self.names:
            setattr(self, f"get_{name}", partial(self._get, name))

    def __len__(self) -> int:
        """The rows of all files."""
        return int(self.size)

    def _get(self, name: str, index: int) -> Any:
        column = self.columns.get(name)
        if column is None:
            column = self.columns[name] = _column(self.files, name)
        value = column[index]
        return value if isinstance(column, np.ndarray) else _value(value)

    def get_object_id(self, index: int) -> str:
        """The row number; a column of this name goes before it."""
        return str(index)

    def __getstate__(self) -> dict[str, Any]:
        """Without the columns: a worker loads those that it needs."""
        kept = ("config", "data_location", "files", "names", "size")
        return {name: vars(self)[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Load columns again when they are asked for."""
        vars(self).update(state, columns={})
        self._give()


def _parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra.of("pyarrow", "pipeline", "ParquetDataset") from None
    return parquet


def _files(path: Path) -> list[str]:
    found = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not found:
        raise DataError(f"No .parquet file in {path}.")
    return [str(file) for file in found]


def _opened(file: str) -> Any:
    parquet = _parquet()
    try:
        return parquet.ParquetFile(file)
    except (OSError, ValueError) as error:  # what pyarrow raises is one of these
        raise DataError(f"Cannot read {file} as Parquet: {error}") from None


def _column(files: list[str], name: str) -> Any:
    """One column of all files: a NumPy array if it holds plain numbers, else an array of Arrow."""
    import pyarrow

    chunks = [chunk for file in files for chunk in _opened(file).read([name]).column(name).chunks]
    column = pyarrow.concat_arrays(chunks)
    plain = str(column.type) in NUMBERS
    if plain and (not column.null_count or pyarrow.types.is_floating(column.type)):
        return column.to_numpy(zero_copy_only=False)
    return column


def _value(scalar: Any) -> Any:
    """One value of an Arrow array: lists, also lists of lists, as arrays."""
    value = scalar.as_py()
    return np.array(value) if isinstance(value, list) else value
