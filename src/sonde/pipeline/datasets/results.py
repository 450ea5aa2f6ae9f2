"""ResultDataset: the results of an earlier run as data: each output is a field, the ids are `object_id`."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import Any

from sonde.errors import ConfigError
from sonde.pipeline.datasets.dataset import Dataset
from sonde.pipeline.results.columns import ID, ResultColumn
from sonde.pipeline.results.results import Results, open_results

BLOCK_BYTES = 1 << 20
BLOCK_ROWS = 1 << 12
KEPT_BLOCKS = 32  # of all columns together: an epoch in order reads each block once


class ResultDataset(Dataset):
    """`data_location` is the folder of a run that has results, or a Lance table with a column `object_id`."""

    fork_safe = False  # Lance has threads, which a fork does not copy

    def __init__(self, config: Mapping[str, Any], data_location: str | None = None) -> None:
        """Opens the table; each column becomes a getter."""
        super().__init__(config, data_location)
        if data_location is None:
            raise ConfigError("ResultDataset needs data_location: the folder of a run with results, or a Lance table.")
        self._place = data_location
        self._open()
        for name in (ID, *self._results.columns):
            setattr(self, f"get_{name}", partial(self._get, name))

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._results)

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which opens the table itself."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_results", "_blocks")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def _open(self) -> None:
        self._results: Results = open_results(self._place)
        self._blocks: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self._pid = os.getpid()

    def _get(self, name: str, index: int) -> Any:
        """One value: an array, or a number or text where an item has only one."""
        if self._pid != os.getpid():  # a forked worker must not share what the parent has open
            self._open()
        if not 0 <= index < len(self):
            raise IndexError(f"No row {index} in {self._place}: it has {len(self)}.")
        rows = self._rows(name)
        value = self._block(name, index // rows, rows)[index % rows]
        return str(value) if name == ID else value

    def _rows(self, name: str) -> int:
        column = self._results.columns.get(name, ResultColumn(name, (), "str"))
        return max(1, min(BLOCK_ROWS, BLOCK_BYTES // column.nbytes))

    def _block(self, name: str, number: int, rows: int) -> Any:
        """Neighbouring rows, which cost one read: to read a single row takes as long."""
        found = self._blocks.get((name, number))
        if found is None:
            found = self._results.part(name, number * rows, min(len(self), (number + 1) * rows))
            self._blocks[name, number] = found
            if len(self._blocks) > KEPT_BLOCKS:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end((name, number))
        return found
