"""A program that loads data of one kind: `python kinds.py KIND WORKERS`, in a folder of its own."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

KIND, WORKERS, CONTEXT = sys.argv[1], int(sys.argv[2]), sys.argv[3]
COUNT, WIDTH = 12, 20_000
made = np.random.default_rng(1)


def make() -> None:
    """Write the data."""
    if KIND == "npy":
        for index in range(COUNT):
            np.save(f"{index}.npy", made.random(WIDTH))
    elif KIND == "pillow":
        from PIL import Image

        for index in range(COUNT):
            Image.fromarray(made.integers(0, 255, (100, 100, 3), dtype=np.uint8)).save(f"{index}.png")
    elif KIND == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"a": made.random(COUNT * WIDTH)}), "all.parquet", row_group_size=WIDTH)
    elif KIND == "hdf5":
        import h5py  # type: ignore[import-untyped]

        with h5py.File("all.h5", "w") as file:
            file["x"] = made.random((COUNT, WIDTH))
    elif KIND == "tar":
        with tarfile.open("all.tar", "w") as file:
            for index in range(COUNT):
                about = tarfile.TarInfo(f"{index}.bin")
                about.size = WIDTH
                file.addfile(about, io.BytesIO(made.bytes(WIDTH)))
    elif KIND == "lance":
        import lance
        import pyarrow as pa

        lance.write_dataset(pa.table({"a": made.random(COUNT * WIDTH)}), "all.lance")


class Data(Dataset[torch.Tensor]):
    """One item for each index, from files that stay open where the format allows it."""

    def __init__(self) -> None:
        self.file: Any = None

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(float(np.asarray(self.load(index), dtype=np.float64).ravel()[0]))

    def load(self, index: int) -> Any:
        """The values of an item."""
        if KIND == "npy":
            return np.load(f"{index}.npy")
        if KIND == "pillow":
            from PIL import Image

            return np.asarray(Image.open(f"{index}.png"))
        if KIND == "parquet":
            import pyarrow.parquet as pq

            self.file = self.file or pq.ParquetFile("all.parquet")
            return self.file.read_row_group(index)["a"].to_numpy()
        if KIND == "hdf5":
            import h5py

            self.file = self.file or h5py.File("all.h5", "r")
            return self.file["x"][index]
        if KIND == "tar":
            self.file = self.file or tarfile.open("all.tar")  # noqa: SIM115  it stays open
            return np.frombuffer(self.file.extractfile(f"{index}.bin").read(), dtype=np.uint8)
        import lance

        self.file = self.file or lance.dataset("all.lance")
        return self.file.take([index * 100])["a"].to_numpy()


if __name__ == "__main__":
    os.makedirs("data", exist_ok=True)
    os.chdir("data")
    make()
    options: dict[str, Any] = {"multiprocessing_context": CONTEXT} if WORKERS else {}
    for _ in DataLoader(Data(), batch_size=4, num_workers=WORKERS, **options):
        pass
