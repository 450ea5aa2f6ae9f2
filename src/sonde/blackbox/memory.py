"""What a dump adds when memory ran out: batch size compared with the median, its largest item, and the state of torch's allocator.

Of torch only public functions are asked (`torch.cuda.memory_stats`, `memory_snapshot`, `mem_get_info`), and only where the program has
begun to use a device itself. There was no device where this was written: it was tried with a stand-in only.
"""

from __future__ import annotations

import sys
from statistics import median
from typing import TYPE_CHECKING, Any

from sonde.lazy import numpy
from sonde.values.nested import parts_of
from sonde.values.npy import as_array

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sonde.values.nested import Parts

ALLOCATOR = "allocator.json"  # the file of the snapshot
MOST_PARTS = 10_000  # of the batch
MOST_READ = 64 << 20  # bytes of an array whose padding is looked for
MOST_SEGMENTS = 2000
MOST_BLOCKS = 50_000
LONGER = 1.5  # times the median: else no item is called the largest
BYTES, LENGTH = "bytes", "length"
_SEGMENT = (
    "device",
    "address",
    "total_size",
    "allocated_size",
    "active_size",
    "requested_size",
    "stream",
    "segment_type",
)
_BLOCK = ("address", "size", "requested_size", "state")


def batch_facts(size: int, earlier: Sequence[int]) -> dict[str, Any]:
    """The bytes of the batch, and the median of those before it."""
    return {"bytes": size, "median_bytes": median(earlier) if earlier else None, "batches": len(earlier)}


def largest_item(data: Any, count: int | None, exclude: Collection[str] = ()) -> dict[str, Any] | None:
    """The place of the item that is much larger than the others, its size and the median one; None: they are alike, or not apart.

    `unit`: `bytes` where the items lie in the batch one by one, `length` where they are rows that were padded at their ends.
    """
    if not count or count < 2:
        return None
    parts = parts_of(data, exclude, MOST_PARTS)
    sizes, unit = _bytes_of(parts, count), BYTES
    if sizes is None:
        sizes, unit = _lengths_of(parts, count), LENGTH
    if sizes is None:
        return None
    place, middle = max(range(count), key=sizes.__getitem__), median(sizes)
    if sizes[place] < LONGER * middle or not sizes[place]:
        return None
    return {"position": place, "size": sizes[place], "median": middle, "unit": unit}


def _bytes_of(parts: Parts, count: int) -> list[int] | None:
    """The bytes of each item of a batch that is, or has, a list of them."""
    lists: dict[tuple[Any, ...], dict[int, int]] = {}
    fields = set()  # lists whose entries are of all items, such as a pair of inputs and labels
    for path, part in parts:
        size, shape = getattr(part, "nbytes", None), getattr(part, "shape", None)
        if not isinstance(size, int):
            continue
        if shape and shape[0] == count:
            fields.add(path[:-1])
        for at, key in enumerate(path):
            if type(key) is int:
                sizes = lists.setdefault(path[:at], {})
                sizes[key] = sizes.get(key, 0) + size
    known = [one for one, sizes in lists.items() if one not in fields and set(sizes) == set(range(count))]
    outermost = [one for one in known if len(one) == min(map(len, known))]
    return [sum(lists[one][place] for one in outermost) for place in range(count)] if outermost else None


def _lengths_of(parts: Parts, count: int) -> list[int] | None:
    """How far the rows of the first array that was padded reach."""
    for _, part in parts:
        shape = getattr(part, "shape", None)
        if not shape or len(shape) not in (2, 3) or shape[0] != count or shape[1] < 2 or part.nbytes > MOST_READ:
            continue
        array = as_array(part)
        lengths = None if array is None else _filled(array if array.ndim == 2 else array[:, :, 0])
        if lengths is not None:
            return lengths
    return None


def _filled(rows: Any) -> list[int] | None:
    """The length of each row without the value that most rows end with; None: it was not padded."""
    ends, times = numpy.unique(rows[:, -1], return_counts=True)
    if times.max() < 2:
        return None
    filled = rows != ends[times.argmax()]
    lengths = numpy.where(filled.any(1), rows.shape[1] - filled[:, ::-1].argmax(1), 0)
    return None if lengths.min() == lengths.max() else [int(length) for length in lengths]


# ── the allocator of a device ────────────────────────────────────────────────────────────────────────────────────────


def devices() -> list[dict[str, Any]]:
    """The state of the allocator of each device that is in use."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return []
    found = []
    for number in range(cuda.device_count()):
        stats = cuda.memory_stats(number)
        if not stats.get("reserved_bytes.all.current"):
            continue
        free, total = cuda.mem_get_info(number)
        found.append(
            {
                "device": number,
                "total": total,
                "free": free,
                "allocated": stats.get("allocated_bytes.all.current"),
                "allocated_peak": stats.get("allocated_bytes.all.peak"),
                "reserved": stats.get("reserved_bytes.all.current"),
                "retries": stats.get("num_alloc_retries"),
                "out_of_memory": stats.get("num_ooms"),
            }
        )
    return found


def snapshot() -> dict[str, Any]:
    """The segments of all devices and their blocks, the largest first; `left_out`: segments that are not there."""
    cuda: Any = sys.modules["torch"].cuda
    every = sorted(cuda.memory_snapshot(), key=lambda one: -one.get("total_size", 0))
    segments: list[dict[str, Any]] = []
    blocks = 0
    for one in every[:MOST_SEGMENTS]:
        inside = one.get("blocks", [])
        blocks += len(inside)
        if blocks > MOST_BLOCKS:
            break
        few = [{name: block[name] for name in _BLOCK if name in block} for block in inside]
        segments.append({**{name: one[name] for name in _SEGMENT if name in one}, "blocks": few})
    return {"segments": segments, "left_out": len(every) - len(segments)}


def largest_free(segments: Sequence[dict[str, Any]]) -> dict[int, int]:
    """The largest block of each device that is reserved and holds nothing."""
    found: dict[int, int] = {}
    for one in segments:
        free = [block.get("size", 0) for block in one["blocks"] if block.get("state") == "inactive"]
        device = one.get("device", 0)
        found[device] = max(found.get(device, 0), *free, 0)
    return found
