"""What is kept of a value: its description, and, if wanted, a bounded copy taken at the moment of the call."""

from __future__ import annotations

from typing import NamedTuple

# Kinds of notes.
NONE = "none"  # None
SCALAR = "scalar"  # a number or bool: Python's, NumPy's, or an array of no dimensions
TEXT = "text"  # str and bytes
ARRAY = "array"  # ndarrays, tensors, images: shape, dtype, statistics
SEQUENCE = "sequence"  # list, set, frozenset, deque, ...: children named "0", "1", ...
TUPLE = "tuple"
MAPPING = "mapping"  # dict, also dataclasses, named tuples and table columns: children named by key
OBJECT = "object"  # anything else: only its text
AGAIN = "again"  # a container that holds itself
HIDDEN = "hidden"  # left out by a setting


class Note(NamedTuple):
    """The description of one value. It holds no reference to it, and can be written as JSON.

    Statistics cover the whole value, also where the copy was cut; None is "not known", never zero. `mean` and `std` are
    those of the finite elements. `digest` is a 64-bit number: equal values have equal digests in every process, an array
    and the tensor made from it too.
    """

    kind: str
    type: str  # "numpy.ndarray", "torch.Tensor", "int", "dict", ...
    text: str = ""  # of leaves that are no arrays: how it prints
    value: float | int | bool | None = None  # of scalars
    length: int | None = None  # of containers and texts
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    device: str | None = None
    digest: int | None = None
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    std: float | None = None
    nonfinite: int | None = None  # how many NaN and infinite elements
    nbytes: int | None = None
    cut: bool = False  # the copy holds only a part, or nothing, of the value
    children: tuple[tuple[str, Note], ...] = ()  # of containers
    # Of arrays: a number for the object itself, unique in a trace. Two notes with the same number and different digests
    # tell that it was changed in place.
    identity: int | None = None


class Item(NamedTuple):
    """One item of a batch: its row, its index in the dataset (None where it has none), its id (None if not known)."""

    position: int
    index: int | str | None  # type: ignore[assignment]  # that tuples have an index() of their own is of no use here
    id: str | None = None


class Missing:
    """Stands for a value of which no copy was kept."""

    def __repr__(self) -> str:
        return "<not kept>"

    def __reduce__(self) -> str:
        return "MISSING"  # there is only one: copies and pickles of it are it


MISSING = Missing()


class CapturedValue(NamedTuple):
    """A captured value: its name in the call, its description, and its copy (`MISSING` where none was kept)."""

    name: str
    note: Note
    value: object = MISSING
