"""Describes NumPy arrays and scalars; tensors, tables and images go through here too.

An array is read in blocks that fit a processor's cache: each block gives its share of the statistics and of the digest
while it is there. Only what is not native, aligned and C-ordered is copied for that, one block at a time.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from sonde.native import stats as native
from sonde.values import digest as digests
from sonde.values.handlers.builtin import written
from sonde.values.identity import number
from sonde.values.note import ARRAY, MISSING, SCALAR, TEXT, Note
from sonde.values.walk import NAME, NOT_KEPT, Frozen, shorten, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sonde.values.walk import Handler, Walk

    Array = numpy.ndarray[Any, Any]

BLOCK = 1 << 18  # elements: about what the cache of one core holds
MAX_REPEATED = 1 << 28  # logical bytes of an array that repeats its memory (broadcast): beyond, it has no digest
_NAT = numpy.iinfo(numpy.int64).min
# What the C extension can read, with its letter.
_CODES = {
    numpy.dtype(numpy.float32): "f",
    numpy.dtype(numpy.float64): "d",
    numpy.dtype(numpy.bool_): "?",
    numpy.dtype(numpy.int8): "b",
    numpy.dtype(numpy.uint8): "B",
    numpy.dtype(numpy.int16): "h",
    numpy.dtype(numpy.uint16): "H",
    numpy.dtype(numpy.int32): "i",
    numpy.dtype(numpy.uint32): "I",
    numpy.dtype(numpy.int64): "q",
    numpy.dtype(numpy.uint64): "Q",
}
if native is None:
    _CODES.clear()
_PLAIN = {str, int, float, bool, bytes, type(None)}


class Stats(NamedTuple):
    """Statistics of what is finite; None where nothing is. `nonfinite` counts the rest, where elements can be that."""

    low: float | None = None
    high: float | None = None
    mean: float | None = None
    std: float | None = None
    nonfinite: int | None = None


class ElementKind(NamedTuple):
    """How the elements of an array are to be understood, where its own dtype does not say it."""

    name: str  # canonical, for the digest
    widen: Callable[[Array], Array] | None = None  # makes numbers of the elements of a block; None: no statistics


# ── statistics ──


def measure(block: Array) -> Stats:
    """Statistics of native, aligned, contiguous numbers."""
    code = _CODES.get(block.dtype)
    return measure_plain(block) if code is None else Stats(*native.stats(block, code))


def measure_plain(block: Array) -> Stats:
    """The same without the C extension."""
    count = block.size
    if count == 0:
        return Stats(nonfinite=0)
    with numpy.errstate(all="ignore"):
        low, high = block.min(), block.max()  # a NaN or an infinity among the elements shows in one of them
        if not (numpy.isfinite(low) and numpy.isfinite(high)):
            block = block[numpy.isfinite(block)]
            if block.size == 0:
                return Stats(nonfinite=count)
            low, high = block.min(), block.max()
        wide = block.astype(numpy.float64)
        mean = float(wide.mean())
        wide -= mean
        std = math.sqrt(float(numpy.einsum("i,i->", wide, wide)) / block.size)
    known = math.isfinite(mean) and math.isfinite(std)
    return Stats(_number(low), _number(high), mean if known else None, std if known else None, count - block.size)


def _number(value: Any) -> float:
    """A Python number: whole where the elements are."""
    found = value.item()
    return found + 0 if isinstance(found, int) else float(found)


class Total:
    """Statistics of several blocks together."""

    __slots__ = ("count", "high", "known", "low", "mean", "nonfinite", "squares")

    def __init__(self) -> None:
        self.count = 0  # of finite elements
        self.low: float | None = None
        self.high: float | None = None
        self.mean = 0.0
        self.squares = 0.0  # of the distances from the mean
        self.nonfinite = 0
        self.known = True

    def add(self, stats: Stats, size: int) -> None:
        bad = stats.nonfinite or 0
        self.nonfinite += bad
        count = size - bad
        if count == 0 or stats.low is None or stats.high is None:
            return
        self.low = stats.low if self.low is None else min(self.low, stats.low)
        self.high = stats.high if self.high is None else max(self.high, stats.high)
        if stats.mean is None or stats.std is None:
            self.known = False
            return
        away, together = stats.mean - self.mean, self.count + count
        self.squares += stats.std * stats.std * count + away * away * (self.count * count / together)
        self.mean += away * (count / together)
        self.count = together

    def stats(self) -> Stats:
        if self.low is None or not self.count:
            return Stats(self.low, self.high, None, None, self.nonfinite)
        std = math.sqrt(self.squares / self.count) if self.squares < math.inf else math.inf
        if not (self.known and math.isfinite(self.mean) and math.isfinite(std)):
            return Stats(self.low, self.high, None, None, self.nonfinite)
        return Stats(self.low, self.high, self.mean, std, self.nonfinite)


# ── reading ──


def blocks(array: Array, limit: int = BLOCK) -> Iterator[Array]:
    """The elements in C order, as native, aligned, contiguous pieces of one dimension."""
    if array.size == 0:
        return
    if array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative:
        flat = array.reshape(-1)
        for start in range(0, flat.size, limit):
            yield flat[start : start + limit]
    elif array.size <= limit or array.ndim == 0:
        yield array.astype(array.dtype.newbyteorder("="), order="C", copy=True).reshape(-1)
    elif array.size // len(array) > limit:
        for row in array:
            yield from blocks(row, limit)
    else:
        rows = max(limit // (array.size // len(array)), 1)
        for start in range(0, len(array), rows):
            yield from blocks(array[start : start + rows], limit)


def examine(array: Array, look: ElementKind) -> tuple[Stats, int]:
    """Statistics and digest, in one go through the memory."""
    flags = array.flags
    if array.size <= BLOCK and flags.c_contiguous and flags.aligned and array.dtype.isnative and array.size:
        digest = digests.of_memory(look.name, array.shape, array)
        return Stats() if look.widen is None else measure(look.widen(array.reshape(-1))), digest
    state = digests.start(look.name, array.shape)
    widen, total = look.widen, Total()
    for block in blocks(array):
        state.update(block.view(numpy.uint8).data)
        if widen is not None and block.size == array.size:
            return measure(widen(block)), state.intdigest()
        if widen is not None:
            total.add(measure(widen(block)), block.size)
    return Stats() if widen is None else total.stats(), state.intdigest()


@lru_cache(256)
def look_of(dtype: numpy.dtype[Any]) -> ElementKind:
    """How arrays of a dtype are read; it is none of texts, of objects, or structured."""
    native = dtype.newbyteorder("=")
    if dtype.kind in "biuf" and dtype.itemsize <= 8:
        return ElementKind(native.name, _single if dtype.char == "e" else _same)
    if dtype.kind in "Mmc" or dtype.type is numpy.void:
        return ElementKind(native.name)
    return ElementKind(native.name, _single)  # the dtypes that other packages add: bfloat16, float8, ...


def _same(block: Array) -> Array:
    return block


def _single(block: Array) -> Array:
    return block.astype(numpy.float32)


def facts(array: Array) -> tuple[Stats, int | None]:
    """Statistics and digest of an array of any dtype but object."""
    kind = array.dtype.kind
    if _repeats(array):
        return _repeated(array)
    if kind in "UST":
        return Stats(), _texts(array)
    if array.dtype.names is not None:
        return Stats(), _structured(array)
    if kind in "fc" and array.dtype.itemsize > (8 if kind == "f" else 16):
        return _extended(array)
    stats, digest = examine(array, look_of(array.dtype))
    if kind in "cMm":
        bad = _not_finite if kind == "c" else _not_a_time
        stats = Stats(nonfinite=sum(bad(block) for block in blocks(array)))
    return stats, digest


def _not_finite(block: Array) -> int:
    return int(numpy.count_nonzero(~numpy.isfinite(block)))


def _not_a_time(block: Array) -> int:
    return int(numpy.count_nonzero(block.view(numpy.int64) == _NAT))


def _repeats(array: Array) -> bool:
    return array.nbytes > MAX_REPEATED and 0 in array.strides


def _repeated(array: Array) -> tuple[Stats, None]:
    """An array that shows the same memory many times may be far larger than the machine: read it once."""
    once = array[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in array.strides)]
    stats = facts(once)[0]
    if stats.nonfinite:
        stats = stats._replace(nonfinite=stats.nonfinite * (array.size // once.size))
    return stats, None


def _texts(array: Array) -> int:
    """Arrays of texts go by their texts, whatever their width or dtype."""
    return _text_digest(array.shape, array.reshape(-1).tolist(), "bytes" if array.dtype.kind == "S" else "str")


def _text_digest(shape: tuple[int, ...], elements: list[Any], kind: str) -> int:
    texts = elements if kind == "bytes" else [str(text).encode("utf-8", "surrogatepass") for text in elements]
    return digests.of_texts(kind, shape, texts)


def _structured(array: Array) -> int | None:
    """Field by field: the bytes between fields mean nothing. Fields of objects have no digest."""
    names = array.dtype.names or ()
    if array.dtype.hasobject:
        return None
    found = [facts(numpy.asarray(array[name]))[1] for name in names]
    known = [digest for digest in found if digest is not None]
    return digests.combine(f"struct|{','.join(names)}|{array.shape}", known) if len(known) == len(names) else None


def _extended(array: Array) -> tuple[Stats, int]:
    """Long doubles: the digest goes by their text, since part of their memory is padding."""
    total = Total()
    state = digests.start(array.dtype.newbyteorder("=").name, array.shape)
    for block in blocks(array):
        state.update("|".join(map(repr, block)).encode())
        if block.dtype.kind == "f":
            total.add(measure_plain(block), block.size)
        else:
            total.nonfinite += int((~numpy.isfinite(block)).sum())
    return total.stats(), state.intdigest()


# ── copies ──


def take(array: Array, walk: Walk) -> tuple[object, bool]:
    """A copy, or of its leading rows as many as there is room for; and whether that is less than all."""
    if not walk.copies:
        return MISSING, False
    size = _size(array)
    if array.dtype.names is not None and array.dtype.hasobject:
        return MISSING, True
    part = array
    if size > walk.room:
        rows = max(walk.room, 0) * len(array) // size if array.ndim else 0
        if rows == 0 or array.dtype.hasobject:
            return MISSING, True
        part, size = array[:rows], array[:rows].nbytes
    walk.room -= size
    return part.copy(order="C"), part.size < array.size


def _size(array: Array) -> int:
    """Bytes that a copy needs; texts of any length stand outside the array."""
    outside = sum(map(len, array.reshape(-1).tolist())) if array.dtype.kind == "T" else 0
    return array.nbytes + outside


def objects(array: Array, walk: Walk, around: object) -> tuple[object, bool, int | None]:
    """Copy, cut and digest of an array of objects. The copy holds an object only if nothing can change it."""
    elements = array.reshape(-1).tolist()
    kinds = set(map(type, elements))
    if kinds == {str}:
        return *_take_plain(array, elements, walk), _text_digest(array.shape, elements, "str")
    name = f"object|{array.shape}"
    if kinds <= _PLAIN and len(elements) <= walk.elements:
        walk.elements -= len(elements)
        marks = [digests.scalar(element) or 0 for element in elements]
        return *_take_plain(array, elements, walk), digests.combine(name, marks)
    found = walk.children((("", element) for element in elements), around, named=False)
    digest = None if found.digests is None else digests.combine(name, found.digests)
    if not walk.copies or len(found.values) < array.size:
        return MISSING, walk.copies, digest
    copy = numpy.empty(array.shape, dtype=object)
    flat = copy.reshape(-1)
    for place, value in enumerate(found.values):
        flat[place] = value
    return copy, found.cut, digest


def _take_plain(array: Array, elements: list[Any], walk: Walk) -> tuple[object, bool]:
    size = array.nbytes + sum(len(element) for element in elements if isinstance(element, str | bytes))
    if not walk.copies or size > walk.room:
        return MISSING, walk.copies
    walk.room -= size
    return array.copy(order="C"), False


# ── handlers ──


def describe(
    array: Array,
    walk: Walk,
    *,
    type: str = "numpy.ndarray",
    dtype: str | None = None,
    device: str | None = "cpu",
    look: ElementKind | None = None,
    of: object = None,
) -> Frozen:
    """The description and the copy of an array; the words say what it stands for, and `of` is the object itself."""
    word = dtype or _word(array.dtype)
    identity = None if of is None else number(of)
    if not walk.shows:
        note = Note(ARRAY, type, shape=array.shape, dtype=word, device=device, nbytes=array.nbytes, identity=identity)
        return Frozen(note)
    if array.dtype.kind == "O":
        copy, cut, digest = objects(array, walk, array if of is None else of)
        stats = Stats()
    else:
        copy, cut = take(array, walk)
        # The copy, if it is whole, is in C order, and nobody else changes it.
        source = copy if isinstance(copy, numpy.ndarray) and not cut else array
        stats, digest = facts(source) if look is None else examine(source, look)
    note = Note(
        ARRAY, type, "", None, None, array.shape, word, device, digest, *stats, array.nbytes, cut, identity=identity
    )
    return Frozen(_single_value(note, array, look, walk) if array.ndim == 0 else note, copy)


@lru_cache(256)
def _word(dtype: numpy.dtype[Any]) -> str:
    return shorten(str(dtype), NAME)


def _single_value(note: Note, array: Array, look: ElementKind | None, walk: Walk) -> Note:
    """An array of no dimensions is shown by its value."""
    element: Any = array[()]
    if look is not None and look.widen is not None:
        element = look.widen(array.reshape(1))[0]
    value = element.item() if isinstance(element, numpy.bool_ | numpy.integer | numpy.floating) else None
    if isinstance(element, str):
        return note._replace(kind=TEXT, text=written(element, note.digest, note.type, walk), length=len(element))
    text = str(element) if isinstance(element, numpy.generic) else repr(element)
    if not walk.texts and not isinstance(element, numpy.number | numpy.bool_ | numpy.datetime64):
        text = f"<{note.type}>"
    return note._replace(kind=SCALAR, text=shorten(text), value=value if isinstance(value, int | float) else None)


def array(value: Array, walk: Walk) -> Frozen:
    """An ndarray, also of a subclass."""
    if type(value) is numpy.ndarray:
        code = _CODES.get(value.dtype)
        flags = value.flags
        if code and walk.shows and value.ndim and 0 < value.size <= BLOCK and flags.c_contiguous and flags.aligned:
            return _numbers(value, code, walk)
        return describe(value, walk, of=value)
    if isinstance(value, numpy.ma.MaskedArray):
        return _masked(value, walk)
    return describe(numpy.asarray(value), walk, type=type_name(value), of=value)


def _numbers(value: Array, code: str, walk: Walk) -> Frozen:
    """The same as `describe` for the usual case, plain numbers in one piece: no step more than it needs."""
    copy, cut = take(value, walk)
    source = value if copy is MISSING or cut else copy
    word, shape = _word(value.dtype), value.shape
    digest = digests.of_memory(word, shape, source)
    stats = native.stats(source, code)
    facts = (ARRAY, "numpy.ndarray", "", None, None, shape, word, "cpu", digest, *stats, value.nbytes, cut)
    return Frozen(Note._make((*facts, (), number(value))), copy)


def scalar(value: numpy.generic, walk: Walk) -> Frozen:
    """One of NumPy's single values."""
    if not walk.shows:
        return Frozen(Note(SCALAR, type_name(value), text=NOT_KEPT, dtype=str(value.dtype)))
    note, copy = describe(numpy.asarray(value), walk, type=type_name(value), device=None)
    return Frozen(note, copy[()] if isinstance(copy, numpy.ndarray) else copy)


def _masked(value: Any, walk: Walk) -> Frozen:
    """A masked array: statistics of what is not masked, the copy of it with its mask."""
    filled, mask = (
        value.filled(0) if value.dtype.kind in "biufc" else numpy.asarray(value),
        numpy.ma.getmaskarray(value),
    )
    note, copy = describe(numpy.asarray(filled), walk, type=type_name(value), dtype=str(value.dtype), of=value)
    if not walk.shows:
        return Frozen(note)
    stats, _ = facts(value.compressed())
    both = [digests.unknown(note) if note.digest is None else note.digest, examine(mask, look_of(mask.dtype))[1]]
    if isinstance(copy, numpy.ndarray):
        copy = numpy.ma.masked_array(copy, mask[: len(copy)].copy() if copy.ndim else mask.copy())
    return Frozen(note._replace(**stats._asdict(), digest=digests.combine("masked", both)), copy)


HANDLERS: dict[type, Handler] = {numpy.ndarray: array, numpy.generic: scalar}
