"""64-bit digests: what exactly is hashed for a number, a text, an array and a container.

The same in every process and on every machine: nothing here depends on Python's own `hash`, on addresses, on the order
of a set or of the keys of a dict.
"""

from __future__ import annotations

import struct
from array import array
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from xxhash import xxh3_64, xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sonde.values.note import Note


def start(dtype: str, shape: Iterable[int]) -> xxh3_64:
    """The beginning of an array's digest: `update` it with the C-ordered, little-endian bytes.

    What comes first is the seed, so that the bytes of the array stay as aligned as they are in memory.
    """
    return xxh3_64(seed=seed(dtype, tuple(shape)))


def of_memory(dtype: str, shape: tuple[int, ...], memory: Any) -> int:
    """The same for an array that lies in memory as it is hashed."""
    return xxh3_64_intdigest(memory, seed=seed(dtype, shape))


@lru_cache(1024)
def seed(dtype: str, shape: tuple[int, ...]) -> int:
    """What an array's digest begins with."""
    return xxh3_64_intdigest(f"{dtype}|{','.join(map(str, shape))}".encode())


def of_bytes(kind: str, data: bytes) -> int:
    """The digest of a leaf: what kind of thing it is, and its content."""
    return xxh3_64_intdigest(kind.encode("utf-8", "backslashreplace") + b":" + data)


def of_text(kind: str, text: str) -> int:
    """The digest of something that is known by its text."""
    return of_bytes(kind, text.encode("utf-8", "surrogatepass"))


def of_texts(kind: str, shape: Iterable[int], texts: list[bytes]) -> int:
    """The digest of an array of texts; the lengths keep ["ab", "c"] and ["a", "bc"] apart."""
    state = start(kind, shape)
    state.update(array("q", map(len, texts)).tobytes())
    state.update(b"".join(texts))
    return state.intdigest()


def combine(kind: str, digests: Iterable[int]) -> int:
    """The digest of a container, from those of its parts in their order."""
    return of_bytes(kind, array("Q", digests).tobytes())


def unordered(kind: str, digests: Iterable[int]) -> int:
    """The digest of a container whose parts have no order."""
    return combine(kind, sorted(digests))


def unknown(note: Note) -> int:
    """Stands in a container's digest for a part that has none: an object known by its type only."""
    return of_text("unknown", f"{note.kind}|{note.type}|{note.shape}|{note.dtype}")


def scalar(value: object) -> int | None:
    """The digest of Python's own numbers, texts and None; None for every other type, subclasses too."""
    kind = type(value)
    if kind is str:
        return xxh3_64_intdigest(b"str:" + cast("str", value).encode("utf-8", "surrogatepass"))
    if kind is int:
        whole: int = value  # type: ignore[assignment]
        return xxh3_64_intdigest(b"int:" + whole.to_bytes((whole.bit_length() >> 3) + 1, "little", signed=True))
    if kind is float:
        return xxh3_64_intdigest(b"float:" + struct.pack("<d", value))
    if kind is bool or value is None:
        return xxh3_64_intdigest(b"const:" + repr(value).encode())
    if kind is bytes:
        return xxh3_64_intdigest(b"bytes:" + cast("bytes", value))
    return None
