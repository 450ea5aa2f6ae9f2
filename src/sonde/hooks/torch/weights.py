"""The weights of a sampler: a number that tells them apart, and the bytes as which the ledger keeps them.

Weights of classes are few values that come again and again: each is written once, and for each item its place among them. That
is done with NumPy, which is there when torch is; without it there are no weights.
"""

from __future__ import annotations

import sys
import zlib
from typing import Any

from sonde.store.ledger import DISTINCT, MOST_WEIGHTS, WEIGHT_BYTES, code_bytes

ROW = 1024
SAMPLE = 1 << 16  # weights that are looked at first
MOST_DISTINCT = 1 << 13  # values; of more of them the sample has not seen enough
FEW = 16  # less than one in so many
CHUNK = 1 << 14  # weights at a time: new memory is dear
_SLOT_BITS = 20
_SPREAD = 0x9E3779B97F4A7C15  # the golden ratio: multiplied with it, neighbours go far apart


def digest(weights: Any) -> int | None:
    """A number that tells them from others; None: of such weights nobody could make the draws again.

    It is made of the sums of rows and columns: a checksum of all bytes takes several times as long. Where others have the same
    number after all, what they gave cannot be made again, and stays as it is.
    """
    bits = _bits(weights)
    if bits is None:
        return None
    whole = len(bits) - len(bits) % ROW
    rows = bits[:whole].reshape(-1, ROW)
    sums = (rows.sum(0), rows.sum(1), bits[whole:])
    return zlib.crc32(b"".join(one.tobytes() for one in sums))


def packed(weights: Any, most: int) -> bytes | None:
    """As the ledger keeps them; None as above, or if that takes more bytes."""
    bits = _bits(weights)
    if bits is None:
        return None
    values, codes = _coded(bits)
    if _size(values, bits) > _size(bits[:0], bits):
        values, codes = bits[:0], bits
    if _size(values, bits) > most:
        return None
    return b"".join((DISTINCT.pack(len(values)), values.tobytes(), _planes(codes, code_bytes(len(values)))))


def _size(values: Any, bits: Any) -> int:
    return DISTINCT.size + WEIGHT_BYTES * len(values) + code_bytes(len(values)) * len(bits)


def _bits(weights: Any) -> Any:
    """An array of the bits of each weight."""
    numpy, torch = sys.modules.get("numpy"), sys.modules["torch"]
    if numpy is None or sys.byteorder != "little" or type(weights) is not torch.Tensor:
        return None
    if weights.dtype != torch.float64 or weights.device.type != "cpu" or weights.dim() != 1:
        return None
    if not 0 < len(weights) <= MOST_WEIGHTS:
        return None
    return numpy.ascontiguousarray(weights.detach().numpy()).view(numpy.uint64)


def _coded(bits: Any) -> tuple[Any, Any]:
    """The distinct values, sorted, and for each weight its place among them; no values: there are too many."""
    numpy = sys.modules["numpy"]
    sample = bits[:: max(1, len(bits) // SAMPLE)]
    values = _distinct(sample)
    for _ in range(2):
        if len(values) > MOST_DISTINCT:
            break
        codes, wrong = _look_up(bits, values)
        if not len(wrong):
            return values, codes
        if FEW * len(wrong) > len(bits):
            break
        values = _distinct(numpy.concatenate((values, bits[wrong])))
    return bits[:0], bits


def _distinct(bits: Any) -> Any:
    numpy = sys.modules["numpy"]
    values = numpy.sort(bits)
    return values[numpy.append(True, values[1:] != values[:-1])]


def _look_up(bits: Any, values: Any) -> tuple[Any, Any]:
    """For each weight its place among these values, and where there is one that is none of them.

    A table of slots, to which the values are spread, is several times quicker than to search for each. Where two values share
    a slot, one of them is searched for, if these are few.
    """
    numpy = sys.modules["numpy"]
    slots = numpy.zeros(1 << _SLOT_BITS, numpy.uint16)
    slots[_slots(values)] = numpy.arange(len(values), dtype=numpy.uint16)
    codes = numpy.empty(len(bits), numpy.uint16)
    missed = []
    for begin in range(0, len(bits), CHUNK):
        part = bits[begin : begin + CHUNK]
        codes[begin : begin + CHUNK] = found = slots[_slots(part)]
        missed.append(numpy.flatnonzero(values[found] != part) + begin)
    wrong = numpy.concatenate(missed)
    if FEW * len(wrong) > len(bits):
        return codes, wrong
    places = numpy.minimum(numpy.searchsorted(values, bits[wrong]), len(values) - 1)
    codes[wrong] = places
    return codes, wrong[values[places] != bits[wrong]]


def _slots(bits: Any) -> Any:
    numpy = sys.modules["numpy"]
    return (bits * numpy.uint64(_SPREAD)) >> numpy.uint64(64 - _SLOT_BITS)


def _planes(codes: Any, width: int) -> bytes:
    """The lowest bytes of all, then the next ones, as far as they are used."""
    numpy = sys.modules["numpy"]
    return bytes(codes.view(numpy.uint8).reshape(len(codes), -1)[:, :width].T.tobytes())
