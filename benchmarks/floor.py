"""What nothing in Python can go below, measured in C: two clock reads, one read of some memory."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _library() -> Any:
    """The compiled loops; None where there is no compiler."""
    source = Path(__file__).with_name("floor.c")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "floor.so"
        command = ["cc", "-O3", "-march=native", "-shared", "-fPIC", str(source), "-o", str(path)]
        try:
            subprocess.run(command, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        library = ctypes.CDLL(str(path))
    library.clock_pairs.argtypes = [ctypes.c_uint64]
    library.memory_reads.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64]
    library.clock_pairs.restype = library.memory_reads.restype = ctypes.c_uint64
    return library


def clock_ns() -> float | None:
    """CPU ns for two clock reads; None: there is no compiler."""
    library = _library()
    return None if library is None else float(library.clock_pairs(20_000)) / 20_000


def read_ns(address: int, size: int) -> float | None:
    """CPU ns for one read of `size` bytes of memory; None: there is no compiler."""
    library = _library()
    times = max(3, 20_000_000 // size)
    return None if library is None else float(library.memory_reads(address, size, times)) / times
