"""What a dump for a lack of memory adds: the batch beside the others, its largest item, and the allocator of a stand-in device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from tests.flow.boxes import folders, only

import sonde
from sonde import config
from sonde.blackbox import memory
from sonde.blackbox.batches import Ring
from sonde.blackbox.box import _box, trigger
from sonde.hooks.torch.loader import Batch
from sonde.testing import Recorded, record

LONG = 2
SIZES = [10, 12, 400, 11]


def ragged() -> list[torch.Tensor]:
    return [torch.ones(size) for size in SIZES]


def padded(*, more: tuple[int, ...] = ()) -> torch.Tensor:
    rows = torch.zeros(len(SIZES), max(SIZES), *more)
    for row, size in zip(rows, SIZES, strict=True):
        row[:size] = 1.0
    return rows


@pytest.mark.parametrize(
    ("data", "size", "middle", "unit"),
    [
        (ragged(), 1600, 46, "bytes"),
        ([{"sound": one, "label": torch.tensor(1)} for one in ragged()], 1608, 54, "bytes"),
        ((ragged(), torch.zeros(4)), 1600, 46, "bytes"),
        (padded(), 400, 11.5, "length"),
        ({"ids": padded().long() + 5, "mask": padded()}, 400, 11.5, "length"),
        ([padded(more=(8,)), torch.zeros(4)], 400, 11.5, "length"),
    ],
)
def test_the_largest_item_of_a_batch_is_found(data: Any, size: int, middle: float, unit: str) -> None:
    """By its bytes where items lie one by one, by its length where they were padded."""
    assert memory.largest_item(data, 4) == {"position": LONG, "size": size, "median": middle, "unit": unit}


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (torch.rand(4, 400), 4),
        ([torch.rand(4, 3, 16, 16), torch.zeros(4)], 4),
        ((torch.rand(2, 9), torch.zeros(2, dtype=torch.long)), 2),  # two fields of two items
        ([torch.ones(10), torch.ones(11)], 2),  # hardly larger
        (ragged(), None),
        (ragged(), 3),
        ([], 0),
        ("text", 4),
    ],
)
def test_items_that_are_alike_or_cannot_be_told_apart_have_no_largest(data: Any, count: int | None) -> None:
    """Nobody is blamed without a reason."""
    assert memory.largest_item(data, count) is None


def test_the_sizes_of_a_loader_are_compared_with_its_own() -> None:
    """Batches of another loader, as one for evaluation, are no measure."""
    ring = Ring(2, config.load())
    for number, (loader, size) in enumerate([(0, 10), (1, 999), (0, 10), (0, 500)]):
        ring.keep(Batch(loader, 0, (1,), None, number), number, [torch.ones(size)])
    assert ring.earlier() == [40, 40]


def dumped(tmp_path: Path, data: Any, **settings: Any) -> Recorded:
    """A dump for a lack of memory, at the last of four batches."""
    with record(dir=str(tmp_path), blackbox=2, **settings) as recorded:
        sonde.mark("begin")
        for number in range(3):
            _box.deliver(Batch(0, 0, (1, 2, 3, 4), None, number), number, [torch.ones(10)] * 4)
        _box.deliver(Batch(0, 0, (5, 6, 7, 8), None, 3), 3, data)
        trigger("memory")
    return recorded


@pytest.mark.usefixtures("expected")
def test_a_lack_of_memory_is_told_with_batch_and_item(tmp_path: Path) -> None:
    """In `dump.json`; on no device, there is no snapshot."""
    found = only(dumped(tmp_path, ragged()))["memory"]
    assert found["batch"] == {"bytes": 4 * sum(SIZES), "median_bytes": 160, "batches": 3}
    assert (found["item"]["position"], found["devices"], "snapshot" in found) == (LONG, [], False)


@pytest.mark.usefixtures("expected")
def test_without_values_no_item_is_looked_at(tmp_path: Path) -> None:
    """`values = "off"` leaves sizes of the batch alone."""
    assert "item" not in only(dumped(tmp_path, ragged(), values="off"))["memory"]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A device that is in use, in place of torch's public functions; the segments of its allocator."""
    blocks = [
        {"address": 1, "size": 700, "state": "active_allocated"},
        {"address": 2, "size": 324, "state": "inactive"},
    ]
    segments = [
        {
            "device": 0,
            "total_size": 512,
            "blocks": [{"address": 9, "size": 512, "state": "inactive", "frames": ["secret"]}],
        },
        {"device": 0, "total_size": 1024, "blocks": blocks},
    ]
    stats = {"reserved_bytes.all.current": 1536, "allocated_bytes.all.current": 700, "num_ooms": 1}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda number: {} if number else stats)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: (64, 2048))
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    return segments


@pytest.mark.usefixtures("expected", "device")
def test_the_blocks_of_a_device_are_kept(tmp_path: Path) -> None:
    """Of devices in use, the largest segment first, and without the stacks that torch may have."""
    recorded = dumped(tmp_path, ragged())
    found = only(recorded)["memory"]
    (one,) = found["devices"]
    assert (one["allocated"], one["reserved"], one["free"], one["total"], one["largest_free"]) == (
        700,
        1536,
        64,
        2048,
        512,
    )
    text = (folders(recorded)[0] / found["snapshot"]).read_text()
    assert [one["total_size"] for one in json.loads(text)["segments"]] == [1024, 512]
    assert "secret" not in text


@pytest.mark.usefixtures("expected")
def test_many_segments_are_cut_and_counted(tmp_path: Path, device: list[dict[str, Any]]) -> None:
    """The largest are kept."""
    device += [{"device": 0, "total_size": 1, "blocks": []}] * memory.MOST_SEGMENTS
    found = only(dumped(tmp_path, ragged()))
    assert "2 segments of the allocator: only the largest are saved." in found["left_out"]


@pytest.mark.usefixtures("device")
def test_a_device_that_fails_leaves_the_rest_of_the_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: set[str]
) -> None:
    """What it was is said."""
    expected.add("writing a part of the black box")

    def broken(number: int) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "mem_get_info", broken)
    found = only(dumped(tmp_path, ragged()))
    assert found["memory"]["item"]["position"] == LONG
    assert any(one.startswith("The memory of devices: writing failed") for one in found["left_out"])
