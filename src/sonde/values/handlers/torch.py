"""Describes tensors: on any device, of any layout and dtype, without a trace in the autograd graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
import torch

from sonde.guard import guard
from sonde.hooks.torch import dlpack, private
from sonde.values import digest as digests
from sonde.values.handlers import arrays
from sonde.values.identity import number
from sonde.values.note import ARRAY, MISSING, Note
from sonde.values.walk import Frozen, type_name

if TYPE_CHECKING:
    from sonde.values.walk import Handler, Walk

# dtypes that NumPy does not have are read as integers of their size.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
_tables: dict[torch.dtype, Any] = {}


def tensor(value: torch.Tensor, walk: Walk) -> Frozen:
    """A tensor, also of a subclass."""
    # Nothing here may be seen by autograd, by modes around us, or by a subclass's own functions.
    with private.without_functions(), torch.inference_mode(mode=False), torch.no_grad(), private.without_modes():
        if torch.nn.parameter.is_lazy(value):
            return walk.text(value)
        if value.is_nested:
            return _nested(value, walk)
        note = Note(
            ARRAY,
            type_name(value),
            shape=tuple(value.shape),
            dtype=_word(value.dtype),
            device=str(value.device),
            identity=number(value),
        )
        if not walk.shows or _has_no_data(value):
            return Frozen(note)
        with guard("reading a tensor"):
            return _sparse(value, note, walk) if value.layout is not torch.strided else _dense(value, note, walk)
        return Frozen(note)


def _has_no_data(value: torch.Tensor) -> bool:
    """Tensors that are only shapes, stand for others inside a transformation or a compiler, or whose memory was freed."""
    if value.device.type == "meta" or type(value).__name__ in ("FakeTensor", "FunctionalTensor"):
        return True
    return private.is_wrapped(value) or not dlpack.is_there(value)


def _dense(value: torch.Tensor, note: Note, walk: Walk) -> Frozen:
    host = value.detach().cpu().resolve_conj().resolve_neg()
    if host.is_quantized:
        return _quantized(host, note, walk)
    dtype = host.dtype
    bits, look = _as_numpy(host, note.dtype or "")
    found, copy = arrays.describe(bits, walk, type=note.type, dtype=note.dtype, device=note.device, look=look)
    if isinstance(copy, numpy.ndarray):
        copy = torch.from_numpy(copy).view(dtype) if copy.shape else torch.from_numpy(copy.reshape(1)).view(dtype)[0]
    return Frozen(found._replace(identity=note.identity), copy)


def _quantized(host: torch.Tensor, note: Note, walk: Walk) -> Frozen:
    """A quantized tensor by the numbers it stands for."""
    found, copy = _dense(host.dequantize(), note._replace(dtype="float32"), walk)
    digest = None if found.digest is None else digests.combine(note.dtype or "", [found.digest])
    return Frozen(found._replace(dtype=note.dtype, digest=digest), copy)


def _as_numpy(host: torch.Tensor, word: str) -> tuple[Any, arrays.ElementKind | None]:
    """The same memory as an array, and how to read it where NumPy does not have the dtype."""
    try:
        return dlpack.array_of(host), None
    except (TypeError, RuntimeError, BufferError):  # "Got unsupported ScalarType"
        bits = dlpack.array_of(host.view(_BITS[host.dtype.itemsize]))
    if host.dtype is torch.bfloat16:
        return bits, arrays.ElementKind(word, _brain)
    if word.startswith("float8"):
        return bits, arrays.ElementKind(word, _table(host.dtype).__getitem__)
    return bits, arrays.ElementKind(word)


def _brain(block: Any) -> Any:
    """bfloat16 is the upper half of float32."""
    return (block.view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)


def _table(dtype: torch.dtype) -> Any:
    """The number that each byte of an 8-bit dtype stands for."""
    if dtype not in _tables:
        _tables[dtype] = torch.arange(256, dtype=torch.uint8).view(dtype).float().numpy()
    return _tables[dtype]


def _sparse(value: torch.Tensor, note: Note, walk: Walk) -> Frozen:
    """A sparse tensor: the elements that are not stored are zero, and count."""
    plain = value.detach().cpu()
    if plain.layout is torch.sparse_coo:
        plain = plain.coalesce()
        stored, where = plain.values(), [plain.indices()]
    elif plain.layout in (torch.sparse_csr, torch.sparse_bsr):
        stored, where = plain.values(), [plain.crow_indices(), plain.col_indices()]
    elif plain.layout in (torch.sparse_csc, torch.sparse_bsc):
        stored, where = plain.values(), [plain.ccol_indices(), plain.row_indices()]
    else:
        return _dense(plain.to_dense(), note, walk)
    word = str(plain.layout).removeprefix("torch.")
    stats, parts = _stored(stored, where)
    size = sum(part.nbytes for part in (stored, *where))
    note = note._replace(
        text=f"{word} nnz={stored.numel()}", nbytes=size, digest=digests.combine(f"{word}{note.shape}", parts)
    )
    total = arrays.Total()
    total.add(stats, stored.numel())
    if value.numel() > stored.numel() and stats.nonfinite is not None:
        total.add(arrays.Stats(0.0, 0.0, 0.0, 0.0, 0), value.numel() - stored.numel())
    note = note._replace(**total.stats()._asdict())
    if not walk.copies:
        return Frozen(note)
    if size > walk.room:
        return Frozen(note._replace(cut=True), MISSING)
    walk.room -= size
    return Frozen(note, plain.clone())


def _stored(stored: torch.Tensor, where: list[torch.Tensor]) -> tuple[arrays.Stats, list[int]]:
    bits, look = _as_numpy(stored, _word(stored.dtype))
    stats, digest = arrays.facts(bits) if look is None else arrays.examine(bits, look)
    places = [arrays.facts(part.long().numpy())[1] for part in where]
    return stats, [mark for mark in (digest, *places) if mark is not None]


def _nested(value: torch.Tensor, walk: Walk) -> Frozen:
    """A nested tensor as the list of its parts."""
    note, copy = walk.value(list(value.detach().unbind()))
    return Frozen(note._replace(type=type_name(value), dtype=_word(value.dtype), device=str(value.device)), copy)


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


HANDLERS: dict[type, Handler] = {torch.Tensor: tensor}
