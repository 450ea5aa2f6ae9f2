"""What nothing in Python can go below, measured in C: two clock reads, one read of some memory."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import Any


def _library() -> Any:
    """The compiled loops; None where there is no compiler."""
    source = Path(__file__).with_name("floor.c")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "floor.so"
        command = ["cc", "-O3", "-march=native", "-shared", "-fPIC", str(source), "-o", str(library)]
        try:
            subprocess.run(command, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        return ctypes.CDLL(str(library))


def clock_ns() -> float | None:
    """CPU ns for two clock reads: the median of many short loops."""
    library = _library()
    if library is None:
        return None
    pairs = library.clock_pairs
    pairs.argtypes, pairs.restype = [ctypes.c_uint64], ctypes.c_uint64
    return median(float(pairs(20_000)) / 20_000 for _ in range(25))


def read_ns(address: int, size: int) -> float | None:
    """CPU ns for one read of `size` bytes of memory."""
    library = _library()
    if library is None:
        return None
    reads = library.memory_reads
    reads.argtypes, reads.restype = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64], ctypes.c_uint64
    times = max(3, 20_000_000 // size)
    return median(float(reads(address, size, times)) / times for _ in range(15))
