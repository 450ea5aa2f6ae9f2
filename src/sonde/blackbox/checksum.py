"""A batch at a glance: its parts, their size, and a digest of a bounded sample of their bytes, in a few microseconds.

The same look taken again later tells whether somebody has changed the batch in the meantime. Nothing is copied but the sample.
Of plain batches C does it (`native/checksum.c`), with the same result.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from struct import Struct, pack
from typing import Any, NamedTuple

from xxhash import xxh3_64_intdigest

from sonde.hooks.torch import dlpack, private
from sonde.native import checksum
from sonde.values.nested import MOST_PARTS, Parts, collect

native: Any = checksum  # None: C was not built
WHOLE = 16_384  # bytes of an array that are read whole
BLOCKS = 16  # of a longer one, evenly spaced
MOST_ROW = 1024  # texts and numbers of a list that are read


class Checksum(NamedTuple):
    """What one look at the parts of a batch has found."""

    digest: int | None  # None: there is nothing that could be read
    whole: bool  # the digest is over all bytes of all parts; else some were not read, or not reached
    versions: tuple[int, ...]  # torch's own count of changes of each tensor
    size: int  # bytes of all arrays
    elsewhere: bool  # something lies on a device


def glance(data: Any, exclude: frozenset[str] = frozenset()) -> tuple[Parts, Checksum]:
    """The parts of a batch, and a look at them."""
    found = quick(data, exclude)
    if found is not None:
        return found
    _prepare()
    parts: Parts = []
    complete = collect(data, (), exclude, parts, MOST_PARTS)
    return parts, look(parts, complete)


def _nothing(_data: Any, _exclude: frozenset[str]) -> None:
    return None


# The same of a plain batch; None for any other.
quick: Callable[[Any, frozenset[str]], tuple[Parts, Checksum] | None] = _nothing if native is None else native.glance


def _prepare() -> None:
    """Let C know torch, if that is there by now."""
    torch: Any = sys.modules.get("torch")
    if native is not None and hasattr(torch, "Tensor"):
        native.prepare(
            tensor=torch.Tensor,
            exchange=private.exchange(),
            copied_late=private.copy_on_write(),
            digest=xxh3_64_intdigest,
            look=Checksum,
        )


def look(parts: Parts, complete: bool = True) -> Checksum:
    """Read the sample; `complete`: these are all parts of the batch."""
    tensor: Any = getattr(sys.modules.get("torch"), "Tensor", None)
    array: Any = getattr(sys.modules.get("numpy"), "ndarray", None)
    reader, size, elsewhere, versions = _SampleReader(complete), 0, False, []
    for _, part in parts:
        kind = type(part)
        if kind is tensor:
            with suppress(RuntimeError):  # one that is never changed counts no changes
                versions.append(private.version(part))
            size += _size(part)
            elsewhere = elsewhere or not part.is_cpu
            reader.read_tensor(part)
        elif kind is array:
            size += part.nbytes
            reader.read_array(part)
        elif part is not None:
            reader.read_other(part)
    return Checksum(reader.digest if reader.count else None, reader.whole, tuple(versions), size, elsewhere)


class _SampleReader:
    """Makes one digest of all that it is given."""

    def __init__(self, whole: bool) -> None:
        self.digest = 0
        self.count = 0  # of what was read
        self.whole = whole

    def read_array(self, array: Any) -> None:
        """An array of NumPy; one that lies in another order than its own is read as it lies, after its strides."""
        strides = [stride // max(array.itemsize, 1) for stride in array.strides]
        turned = array if array.flags.c_contiguous else array.transpose(_order(array.shape, strides))
        if array.dtype.hasobject or not turned.flags.c_contiguous:
            self.whole = self.whole and not array.size
            return
        if turned is not array:
            self._add_strides(array.shape, strides)
        self._add(_flat(turned))

    def read_tensor(self, tensor: Any) -> None:
        """A tensor; as an array, but for the numbers that NumPy does not have."""
        found = _bytes_of(tensor)
        if found is None:
            self.whole = self.whole and not tensor.numel()
            return
        if not tensor.is_contiguous():
            self._add_strides(tensor.shape, tensor.stride())
        self._add(found)

    def read_other(self, part: Any) -> None:
        """A text or a number, or a list of them. Of anything else nothing is known."""
        if type(part) is not list and type(part) is not tuple:
            self._read_single(part)
            return
        self.whole = self.whole and len(part) <= MOST_ROW
        for one in part[:MOST_ROW]:
            self._read_single(one)

    def _read_single(self, part: Any) -> None:
        make = _BYTES.get(type(part))
        if make is None or (type(part) is int and not -(2**63) <= part < 2**63):
            self.whole = self.whole and type(part) in _CONTAINERS and not part
            return
        self._add(make(part))

    def _add_strides(self, shape: Iterable[int], strides: Iterable[int]) -> None:
        steps = [0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True)]
        self.digest = xxh3_64_intdigest(pack(f"{len(steps)}q", *steps), self.digest)

    def _add(self, memory: Any) -> None:
        short = len(memory) <= WHOLE
        self.digest = xxh3_64_intdigest(memory if short else _spread(memory), self.digest)
        self.whole = self.whole and short
        self.count += 1


_CONTAINERS = (dict, list, tuple)
# Texts and numbers as bytes.
_BYTES: dict[type, Callable[[Any], bytes]] = {
    str: lambda text: text.encode("utf-8", "surrogatepass"),
    bytes: bytes,
    int: Struct("q").pack,
    bool: Struct("q").pack,
    float: Struct("d").pack,
    type(None): lambda _: b"",
}


def _size(tensor: Any) -> int:
    """Its bytes, as far as it has memory of its own."""
    strided = tensor.layout is sys.modules["torch"].strided
    return int(tensor.numel() * tensor.element_size()) if strided else 0


def _bytes_of(tensor: Any) -> Any:
    """The bytes of a tensor in the order in which they lie in memory; None: they are not here, or not side by side."""
    if not tensor.is_cpu or tensor.layout is not sys.modules["torch"].strided:
        return None
    if not tensor.numel():
        return b""
    try:
        turned = tensor.detach().permute(_order(tensor.shape, tensor.stride()))
        if not turned.is_contiguous() or not dlpack.is_there(tensor):
            return None
        flat = turned.as_strided((turned.numel(),), (1,))  # one element may have any stride, which view() refuses
        return dlpack.array_of(flat.view(sys.modules["torch"].uint8))
    except (TypeError, RuntimeError, BufferError):  # one that stands for others
        return None


def _order(shape: Any, strides: Any) -> list[int]:
    """Its dimensions as they lie in memory, the outermost first."""
    return sorted(range(len(shape)), key=lambda one: (shape[one] != 1, -strides[one]))


def _flat(array: Any) -> Any:
    """The bytes of an array that lies in order."""
    return array.reshape(-1).view("u1") if array.itemsize else b""


def _spread(memory: Any) -> bytes:
    """Evenly spaced blocks of what is long."""
    apart = len(memory) // BLOCKS
    return b"".join(memory[one * apart :][: WHOLE // BLOCKS] for one in range(BLOCKS))


def changed(parts: Parts, before: Checksum) -> bool | None:
    """Are the parts not what they were any more? None: that cannot be determined."""
    now = look(parts)
    if now.versions != before.versions:
        return True
    return None if before.digest is None else now.digest != before.digest
