"""Times of trace files, mostly microseconds, as nanoseconds: exact, and many at once."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from sonde.lazy import numpy as np

US = 1000  # ns
LATEST = 2**62  # ns; a time outside of this is damage
BAD = -1  # stands for a time that is missing or damaged
FINE = 2**42  # us; below it a float64 has nanoseconds
_WHOLE = re.compile(rb"(?:[0-8]?\d{1,15},)*+[0-8]?\d{1,15}")
_THOUSANDTHS = re.compile(rb"(?:[0-8]?\d{1,15}\.\d{3},)*+[0-8]?\d{1,15}\.\d{3}")
_PARTS = re.compile(rb"(?:[0-8]?\d{1,15}(?:\.\d+)?,)*+[0-8]?\d{1,15}(?:\.\d+)?")
_ONE = re.compile(rb"(-?\d{1,19})(?:\.(\d+))?")


def many(raws: Sequence[msgspec.Raw], unit: int = US) -> Any:
    """Each of these times, in an array; `unit` is that of the file, in ns."""
    text = b",".join(raws)
    if unit != US:
        return np.array([one(raw, unit) for raw in raws], dtype=np.int64)
    if _WHOLE.fullmatch(text):
        return np.fromstring(text, dtype=np.int64, sep=",") * 1000
    if _THOUSANDTHS.fullmatch(text):
        return np.fromstring(text.replace(b".", b""), dtype=np.int64, sep=",")
    if _PARTS.fullmatch(text):
        found = np.fromstring(text, dtype=np.float64, sep=",")
        if found.max() < FINE:
            return np.rint(found * 1000).astype(np.int64)
    return np.array([one(raw) for raw in raws], dtype=np.int64)


def one(raw: msgspec.Raw | bytes, unit: int = US) -> int:
    """A time; digits as a text count too."""
    text = bytes(raw).strip(b'" ')
    if found := _ONE.fullmatch(text):
        digits = (found[2] or b"0")[:9]
        whole, part = int(found[1]) * unit, int(digits) * unit // 10 ** len(digits)
        ns = whole - part if text[:1] == b"-" else whole + part
    else:
        try:
            value = float(text)
        except ValueError:
            return BAD
        ns = round(value * unit) if math.isfinite(value) else BAD
    return ns if 0 <= ns < LATEST else BAD
