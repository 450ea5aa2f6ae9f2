"""Keeps the process of the screen small: what it has freed goes back to the system instead of waiting for the next use."""

from __future__ import annotations

import ctypes

MMAP_THRESHOLD, ARENA_MAX = -3, -8  # as malloc.h of glibc has them
LARGE = 1 << 20  # bytes: arrays of records are larger, and live for one look


def keep_small() -> None:
    """Ask the C library for it, before there are threads. Only glibc can be asked."""
    ask = getattr(ctypes.CDLL(None), "mallopt", None)
    if ask is not None:
        ask(ARENA_MAX, 1)  # one heap for all threads
        ask(MMAP_THRESHOLD, LARGE)  # fixed: by itself it grows, and large arrays leave holes in the heap
