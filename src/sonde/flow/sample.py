"""A batch at a glance: its parts, their size, and a digest of a bounded sample of their bytes, in a few microseconds.

The same look taken again later tells whether somebody has changed the batch in the meantime. Nothing is copied but the sample.
Of plain batches C does it (`_glance.c`), with the same result.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash
from xxhash import xxh3_64_intdigest

from sonde.hooks.torch import direct

native: Any = None
try:
    from sonde.flow import _glance as native
except ImportError:  # not built: Python does all of it
    pass

if TYPE_CHECKING:
    from collections.abc import Callable, Container

WHOLE = 16_384  # bytes of an array that are read whole
BLOCKS = 16  # of a longer one, evenly spaced
MOST_PARTS = 64
MOST_DEPTH = 4
HASHES = ("XXH3_64bits_withSeed_dispatch", "XXH3_64bits_withSeed")  # the first is the one for this machine
FIRST = 8  # elements that tell whether a list is taken apart

Parts = list[tuple[tuple[Any, ...], Any]]  # the way to each part (keys and places), and the part


class Look(NamedTuple):
    """What one look at the parts of a batch has found."""

    digest: int | None  # None: there is no array that could be read
    whole: bool  # the digest is over all bytes of all arrays
    versions: tuple[int, ...]  # torch's own count of changes of each tensor
    size: int  # bytes of all arrays
    elsewhere: bool  # something lies on a device


def glance(data: Any, exclude: frozenset[str] = frozenset()) -> tuple[Parts, Look]:
    """The parts of a batch, and a look at them."""
    found = quick(data, exclude)
    if found is not None:
        return found
    _prepare()
    parts = parts_of(data, exclude)
    return parts, look(parts)


def _nothing(_data: Any, _exclude: frozenset[str]) -> None:
    return None


# The same of a plain batch; None for any other.
quick: Callable[[Any, frozenset[str]], tuple[Parts, Look] | None] = _nothing if native is None else native.glance


def _prepare() -> None:
    """Let C know torch, if that is there by now."""
    torch: Any = sys.modules.get("torch")
    if native is not None and hasattr(torch, "Tensor"):
        native.prepare((torch.Tensor, direct.exchange(torch), xxh3_64_intdigest, Look, direct.sight(torch), _hash()))


@cache
def _hash() -> int:
    """The address of the C function behind the digest, which is a fifth of what it costs to come there through Python; 0: not found.

    C takes it only if it says the same.
    """
    import ctypes

    try:
        library = ctypes.CDLL(xxhash._xxhash.__file__, os.RTLD_NOLOAD | os.RTLD_NOW)  # type: ignore[attr-defined]
    except (OSError, AttributeError):  # not on every system
        return 0
    found = (getattr(library, name, None) for name in HASHES)
    return next((ctypes.cast(one, ctypes.c_void_p).value or 0 for one in found if one is not None), 0)


def parts_of(data: Any, exclude: Container[str] = ()) -> Parts:
    """The arrays and other values in a batch, without fields whose names are excluded. They stay if the batch is emptied."""
    found: Parts = []
    _collect(data, (), exclude, found)
    return found


def _collect(data: Any, way: tuple[Any, ...], exclude: Container[str], found: Parts) -> None:
    kind = type(data)
    pairs: Any = None
    if (kind is tuple or kind is list) and any(map(_nests, data[:FIRST])):
        pairs = enumerate(data)
    elif kind is dict or isinstance(data, Mapping):
        pairs = data.items()
    elif isinstance(data, tuple) and hasattr(kind, "_fields"):
        pairs = zip(kind._fields, data, strict=False)
    if pairs is None or len(way) >= MOST_DEPTH:
        found.append((way, data))
        return
    for key, part in pairs:
        if len(found) >= MOST_PARTS:
            return
        if key not in exclude:
            _collect(part, (*way, key), exclude, found)


def _nests(part: Any) -> bool:
    """Is this an array or a container? A list without any, as of texts, is one part."""
    return hasattr(type(part), "shape") or isinstance(part, list | tuple | Mapping)  # a nested tensor itself has none


def look(parts: Parts) -> Look:
    """Read the sample."""
    tensor: Any = getattr(sys.modules.get("torch"), "Tensor", None)
    array: Any = getattr(sys.modules.get("numpy"), "ndarray", None)
    digest, count, whole, size, elsewhere, versions = 0, 0, True, 0, False, []
    for _, part in parts:
        kind = type(part)
        if kind is tensor:
            try:
                versions.append(part._version)
                memory = part.numpy()
            except (TypeError, RuntimeError):  # anything but a plain tensor
                memory, bytes_held = _memory(part)
                size += bytes_held
                elsewhere = elsewhere or not part.is_cpu
            else:
                size += memory.nbytes
        elif kind is array:
            size += part.nbytes
            memory = None if part.dtype.hasobject else part
        else:
            continue
        if memory is not None and memory.flags.c_contiguous:
            short = memory.nbytes <= WHOLE
            digest = xxh3_64_intdigest(memory if short else _spread(memory), digest)
            whole = whole and short
            count += 1
    return Look(digest if count else None, whole, tuple(versions), size, elsewhere)


def _memory(part: Any) -> tuple[Any, int]:
    """The memory of a tensor that does not give it as it is, and its size; None where it has none here."""
    torch = sys.modules["torch"]
    size = part.numel() * part.element_size() if part.layout is torch.strided else 0
    if not size or not part.is_cpu or not part.dim() or not part.is_contiguous():
        return None, size
    try:
        return part.detach().view(torch.uint8).numpy(), size
    except (TypeError, RuntimeError):  # one that stands for others
        return None, size


def _spread(memory: Any) -> Any:
    """Evenly spaced blocks of a long array."""
    flat = memory.reshape(-1).view("u1")
    apart = len(flat) // BLOCKS
    return flat[: apart * BLOCKS].reshape(BLOCKS, apart)[:, : WHOLE // BLOCKS].copy()


def changed(parts: Parts, before: Look) -> bool | None:
    """Are the parts not what they were any more? None: that cannot be told."""
    now = look(parts)
    if now.versions != before.versions:
        return True
    return None if before.digest is None else now.digest != before.digest
