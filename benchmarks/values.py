"""What it costs to describe a value: statistics and digest, beside one read of its memory and other ways."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks import floor, loops

SIZES = {"4 KB": 4 << 10, "1 MB": 1 << 20, "16 MB": 16 << 20}
SLOW = 1 << 20  # the peer's way is not tried on more


def _us(function: Callable[[], object], times: int) -> float:
    """CPU µs of one call, in a loop."""
    start = time.thread_time_ns()
    for _ in range(times):
        function()
    return (time.thread_time_ns() - start) / times / 1000


def _as_the_peer(array: Any) -> int:
    """A Python type test for each element, and an XOR of the elements' bits: blind to order, and slow."""
    import numpy as np

    np.vectorize(lambda value: isinstance(value, str), otypes=[bool])(array).any()
    return int(np.bitwise_xor.reduce(array.astype(np.float64).view(np.uint64)))


def measure(rounds: int) -> dict[str, Any]:
    """All sizes and ways; the print of a batch; a decorated function with no trace."""
    return {
        "sizes": [_size(label, size, rounds) for label, size in SIZES.items()],
        **_printing(rounds),
        **_idle(rounds),
    }


def _size(label: str, size: int, rounds: int) -> dict[str, Any]:
    import numpy as np
    import xxhash

    from sonde.values.snapshot import Keep, freeze

    array: Any = np.random.default_rng(1).standard_normal(size // 4).astype(np.float32)
    keep = Keep(values="summary")
    ways: dict[str, Callable[[], object]] = {
        "sonde": lambda: freeze(array, keep),
        "xxh3": lambda: xxhash.xxh3_64_intdigest(array),
        "numpy": lambda: (array.min(), array.max(), array.mean(), array.std(), np.isfinite(array).sum()),
    }
    times = max(3, min(1_000, 100_000_000 // size))
    found: list[dict[str, float | None]] = []
    for _ in range(rounds):  # all ways in each round: the machine is not equally fast at all times
        read = floor.read_ns(array.ctypes.data, size)
        found.append(
            {"read": None if read is None else read / 1000, **{name: _us(way, times) for name, way in ways.items()}}
        )
    return {
        "size": label,
        **{f"{name}_us": _median([one[name] for one in found]) for name in ("read", *ways)},
        "peer_us": _us(lambda: _as_the_peer(array), 3) if size <= SLOW else None,
    }


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _printing(rounds: int) -> dict[str, float]:
    import numpy as np

    from sonde.capture.show.text import value_text
    from sonde.values.snapshot import Keep, freeze

    batch = np.random.default_rng(1).standard_normal((32, 3, 224, 224)).astype(np.float32)
    keep = Keep(values="summary")
    return {"print_ms": median(_us(lambda: value_text(freeze(batch, keep).note), 3) for _ in range(rounds)) / 1000}


def _idle(rounds: int) -> dict[str, float]:
    """A decorated function while no trace is active, over the same function undecorated."""
    from sonde.flow import trace_dataset_func

    plain, traced = loops.calling(loops.empty), loops.calling(trace_dataset_func(loops.empty))
    nothing = loops.nothing()
    found = [(plain(20_000), traced(20_000), nothing(20_000)) for _ in range(rounds)]
    return {
        "call_ns": median(one[0] - one[2] for one in found),
        "idle_ns": median(one[1] - one[0] for one in found),
    }
