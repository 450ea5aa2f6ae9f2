"""What the screen has freed goes back to the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# The first array makes glibc believe that such sizes belong into the heap; the last one lies above the freed ones.
PROGRAM = """
import os
from sonde.tui.trim import keep_small

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

keep_small()
size = 2 << 20
del (first := [bytearray(b"x") * size])[:]
before = resident()
arrays = [bytearray(b"x") * size for _ in range(30)]
del arrays[:-1]
print((resident() - before) // size)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked")
def test_what_is_freed_is_given_back() -> None:
    """Also where something that is still used lies behind it: of 30 arrays the last one is left."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) <= 3
