"""Data that is read by workers: the same items, and errors that are as clear as without workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.pipeline.stars import made, source
from torch.utils.data import DataLoader

from sonde.errors import DataError
from sonde.pipeline.config import Config
from sonde.pipeline.data.loading import batches
from sonde.pipeline.job import Job
from sonde.pipeline.progress import SILENT


def job(kind: str, method: str) -> Job:
    """A run of a verb with two workers."""
    config = Config({"data_request": {"train": {"data": source(kind)}}})
    config["data_loader"].update(num_workers=2, batch_size=5, start_method=method)
    return Job("train", config, SILENT)


def test_getter_that_raises_in_a_worker_is_one_clear_message() -> None:
    """Dataset, field, index and id, and not the traceback that torch makes of it."""
    one = job("Broken", "fork")
    with pytest.raises(DataError) as caught:
        list(batches(one, one.provider("train")))
    assert str(caught.value) == "get_image of 'data' (Broken) failed on item 17 (id 's17'): OSError: the disk is gone"


def test_spawned_worker_gives_what_the_main_process_gives() -> None:
    """In order, augmented alike: the provider has travelled in a pickle."""
    provider = made("Turned", augment=True)
    provider.epoch = 2
    loader: Any = DataLoader(
        provider,  # type: ignore[arg-type]
        batch_size=5,
        num_workers=1,
        multiprocessing_context="spawn",
        collate_fn=provider.collate,
    )
    found = list(loader)
    assert [name for batch in found for name in batch["object_id"]] == provider.ids()
    expected = provider.collate([provider[index] for index in range(5)])
    np.testing.assert_array_equal(found[0]["data"]["image"], expected["data"]["image"])
