"""What an item costs on its way into a batch: DataProvider beside the bare getters and np.stack; memory by dataset size."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.reading import PEAK_MB

ITEMS = 10_000
BATCH = 100
SIZES = (10_000, 200_000)

VISIT = f"""
import json, sys
from benchmarks import provider
made = provider.make(int(sys.argv[1]))
provider.visit(made)()
print(json.dumps({PEAK_MB}))
"""


class Bank:
    """Images of [1, 32, 32] that lie in memory: a getter costs next to nothing, so that what is around it shows."""

    def __init__(self, config: Any) -> None:
        import numpy as np

        self.size = config["size"]
        self.images = list(np.random.default_rng(1).random((512, 1, 32, 32), dtype=np.float32))

    def __len__(self) -> int:
        return int(self.size)

    def get_image(self, index: int) -> Any:
        """One of them."""
        return self.images[index % 512]

    def get_object_id(self, index: int) -> str:
        """The index as a text."""
        return str(index)


def make(size: int) -> Any:
    """A provider of so many items."""
    from sonde.pipeline.config import Config
    from sonde.pipeline.data.provider import DataProvider

    source = {
        "dataset_class": "benchmarks.provider.Bank",
        "fields": ["image"],
        "primary_id_field": "object_id",
        "dataset_config": {"size": size},
    }
    return DataProvider(Config({"data_request": {"train": {"data": source}}}), "train")


def visit(provider: Any) -> Callable[[], None]:
    """All items, in batches, as a loader asks for them."""
    count = len(provider)

    def run() -> None:
        for start in range(0, count, BATCH):
            provider.collate(provider.__getitems__(range(start, start + BATCH)))

    return run


def bare(dataset: Any) -> Callable[[], None]:
    """The same by hand, without a check of anything."""
    import numpy as np

    count = len(dataset)
    image, name = dataset.get_image, dataset.get_object_id

    def run() -> None:
        for start in range(0, count, BATCH):
            images = [image(index) for index in range(start, start + BATCH)]
            names = [name(index) for index in range(start, start + BATCH)]
            {"object_id": np.array(names), "data": {"image": np.stack(images)}}

    return run


def _us(function: Callable[[], None]) -> float:
    start = time.thread_time_ns()
    function()
    return (time.thread_time_ns() - start) / ITEMS / 1000


def measure(rounds: int) -> dict[str, Any]:
    """CPU µs for each item, both ways in turn; peak memory of a process that visits all items, by how many there are."""
    provider = make(ITEMS)
    ours, hand = visit(provider), bare(provider.datasets["data"])
    found = [(_us(ours), _us(hand)) for _ in range(rounds + 1)][1:]
    return {
        "provider_us": median(one[0] for one in found),
        "bare_us": median(one[1] for one in found),
        "ratio": median(one[0] / one[1] for one in found),
        "peak_mb": {str(size): _peak_mb(size) for size in SIZES},
    }


def _peak_mb(size: int) -> float:
    done = subprocess.run([sys.executable, "-c", VISIT, str(size)], check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout))


if __name__ == "__main__":
    print(json.dumps(measure(15), indent=2))
