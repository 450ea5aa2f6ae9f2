"""Digests: equal for equal values, in every process; different for different ones."""

from __future__ import annotations

import datetime
import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal

import numpy
import pytest
import torch
from hypothesis import given, strategies as st
from xxhash import xxh3_64_intdigest

from sonde.values.snapshot import digest


def test_digest_has_64_bits() -> None:
    """It is a number that fits."""
    found = digest(numpy.arange(3))
    assert found is not None
    assert 0 < found < 2**64


VALUES = """
import numpy, decimal
from sonde.values.snapshot import digest
values = [
    1, -1, 2**70, 1.5, True, None, "text", b"bytes", 1j, decimal.Decimal("1.5"), range(3),
    [1, "a"], (1, 2), {"a": 1, "b": 2}, {"x", "y", "z"}, frozenset({("a", 1), "b", 3, None}),
    numpy.array(["a", "bc"]), numpy.array(["a", None, 1.5, ("x", {"y"})], dtype=object), numpy.array([b"a", b"bc"]),
    numpy.arange(6).reshape(2, 3), numpy.float32(1.5), numpy.array(["2020-01-01", "NaT"], "M8[s]"),
    numpy.array([(1, "x")], dtype=[("a", "i4"), ("b", "U3")]), numpy.array([1, 2], numpy.longdouble),
]
print([digest(value) for value in values])
"""


def test_digest_is_the_same_in_every_process() -> None:
    """Python's own hash, which differs in each process, plays no part."""
    seen = {
        subprocess.run(
            [sys.executable, "-c", VALUES],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1
    assert "None" not in seen.pop()


def test_digest_of_known_values_never_changes() -> None:
    """Digests are stored and compared with later ones: the way they are made is part of the format."""
    array = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    assert digest(array) == xxh3_64_intdigest(array.tobytes(), seed=xxh3_64_intdigest(b"float32|2,3"))
    assert digest("text") == xxh3_64_intdigest(b"str:text")
    assert digest([7]) == xxh3_64_intdigest(b"list:" + xxh3_64_intdigest(b"int:\x07").to_bytes(8, "little"))


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
     "complex64", "complex128"],
)  # fmt: skip
def test_array_and_tensor_made_from_it_have_the_same(dtype: str) -> None:
    """The library does not count."""
    array = numpy.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    assert digest(array) == digest(torch.from_numpy(array))
    assert digest(array[0, 1]) == digest(torch.from_numpy(array)[0, 1])


def test_order_counts() -> None:
    """Flipped, transposed and shuffled content is other content."""
    array = numpy.arange(9.0).reshape(3, 3)
    assert len({digest(one) for one in (array, array[::-1], array.T, array[:, ::-1], array[[1, 0, 2]])}) == 5


def test_dtype_and_shape_count() -> None:
    """The same numbers in another form are another value."""
    array = numpy.ones(4, numpy.float32)
    forms = [array, array.astype("f8"), array.astype("i4"), array.reshape(2, 2), array.reshape(4, 1), array.view("i4")]
    assert len({digest(form) for form in forms}) == len(forms)


def test_repetition_counts() -> None:
    """An item twice is not nothing."""
    item = numpy.random.default_rng(0).normal(size=(3, 3))
    assert len({digest(numpy.stack([item] * count)) for count in (1, 2, 3, 4)}) == 4


def test_memory_layout_does_not_count() -> None:
    """Byte order, strides and alignment are no content."""
    array = numpy.random.default_rng(0).normal(size=(4, 5, 6)).astype(numpy.float32)
    unaligned = numpy.frombuffer(b"x" + array.tobytes(), numpy.uint8)[1:].view(numpy.float32).reshape(array.shape)
    padded = numpy.zeros((8, 10, 12), numpy.float32)
    padded[::2, ::2, ::2] = array
    forms = [
        array.astype(">f4"),
        numpy.asfortranarray(array),
        array[::-1].copy()[::-1],
        unaligned,
        padded[::2, ::2, ::2],
        torch.from_numpy(array).permute(2, 0, 1).contiguous().permute(1, 2, 0),
    ]
    assert {digest(form) for form in forms} == {digest(array)}


def test_large_array_in_pieces_has_the_digest_of_the_whole() -> None:
    """How an array is read does not count."""
    array = numpy.random.default_rng(0).normal(size=(700, 1001))
    assert digest(array.astype(">f8")) == digest(array) == digest(numpy.asfortranarray(array))
    assert digest(array[:, ::2]) == digest(array[:, ::2].copy())


def test_texts_count_and_not_their_width() -> None:
    """An array of texts goes by its texts, whatever its dtype."""
    texts = ["a", "bcd", "é"]
    forms = [numpy.array(texts), numpy.array(texts, "U9"), numpy.array(texts, object)]
    forms += [numpy.array(texts, ">U3"), numpy.array(texts, numpy.dtypes.StringDType())]
    assert len({digest(form) for form in forms}) == 1
    assert digest(numpy.array(["ab", "c"])) != digest(numpy.array(["a", "bc"]))


def test_padding_of_a_structure_does_not_count() -> None:
    """Only the fields are content."""
    dtype = numpy.dtype([("a", "i1"), ("b", "f8")], align=True)
    one, two = numpy.zeros(2, dtype), numpy.frombuffer(b"\xff" * 32, dtype).copy()
    two["a"], two["b"] = 0, 0
    assert digest(one) == digest(two)


def test_order_of_keys_and_of_a_set_does_not_count() -> None:
    """Equal dicts and sets have equal digests."""
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({"a", 1, (2,)}) == digest({(2,), 1, "a"})


@dataclass
class Pair:
    """A class with two fields."""

    a: int
    b: int


def test_kinds_of_containers_differ() -> None:
    """What is not equal in Python has not the same digest."""
    values = [[1, 2], (1, 2), {1, 2}, {"a": 1, "b": 2}, Pair(1, 2), [[1, 2]], [1, [2]], [1, 2, None], "[1, 2]", {1: 2}]
    assert len({digest(value) for value in values}) == len(values)


class Model:
    """Prints the same whatever it has learned."""

    def __repr__(self) -> str:
        return "Model()"


def test_object_whose_text_does_not_tell_its_content_has_none() -> None:
    """Where nothing is known about the content, nothing is claimed."""
    assert [digest(value) for value in (object(), Model(), torch.nn.Linear(1, 1), lambda: 1)] == [None] * 4


def test_objects_that_compare_by_value_go_by_their_text() -> None:
    """Dates, decimals, paths, devices, classes."""
    day = datetime.date(2020, 1, 1)
    assert digest(day) == digest(datetime.date(2020, 1, 1)) != digest(datetime.date(2020, 1, 2))
    assert None not in [digest(value) for value in (Decimal(1), pathlib.Path("a"), torch.device("cpu"), int)]


def test_container_with_an_unknown_part_still_has_one() -> None:
    """The rest counts."""
    assert digest([Model(), 1]) == digest([Model(), 1]) != digest([Model(), 2])


def test_broadcast_array_larger_than_any_memory() -> None:
    """An array that repeats its memory is not read a trillion times."""
    assert digest(numpy.broadcast_to(numpy.float32(2), (10**6, 10**6))) is None


@given(st.lists(st.integers() | st.text() | st.floats(allow_nan=False)), st.lists(st.integers() | st.text()))
def test_digests_tell_lists_apart(one: list[object], two: list[object]) -> None:
    """Equal digests mean equal content of equal types."""
    assert (digest(one) == digest(two)) == (repr(one) == repr(two))
