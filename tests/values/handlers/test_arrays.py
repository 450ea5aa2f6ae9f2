"""Arrays: every dtype and layout is described; statistics are right; copies are bounded snapshots."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays_of

from sonde.capture.show.text import value_text
from sonde.values.handlers import arrays
from sonde.values.note import ARRAY, MISSING, SCALAR, TEXT, Note
from sonde.values.snapshot import OFF, SUMMARY, Keep, freeze

NUMBERS = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]


def note_of(value: object) -> Note:
    """The description of a value."""
    return freeze(value).note


class Tagged(numpy.ndarray):
    """An array of a user's own class."""


SOME: dict[str, Any] = {
    "empty": numpy.empty((0, 3)),
    "big-endian": numpy.arange(3, dtype=">f4"),
    "uint16": numpy.arange(3, dtype="u2"),
    "float16": numpy.arange(3, dtype="f2"),
    "complex": numpy.array([1 + 2j, 3]),
    "datetime64": numpy.array(["2020-01-01", "NaT"], "M8[D]"),
    "timedelta64": numpy.array([1, 2], "m8[s]"),
    "objects": numpy.array([1, "a", None, [1], numpy.ones(2)], dtype=object),
    "texts as objects": numpy.array(["a", "b"], dtype=object),
    "structured": numpy.array([(1, 2.0, "x")], dtype=[("a", "i4"), ("b", "f8"), ("c", "U2")]),
    "structured objects": numpy.array([(1, [2])], dtype=[("a", "i4"), ("b", "O")]),
    "nested structure": numpy.zeros(2, dtype=[("a", [("b", "f4"), ("c", "i2", (2, 2))])]),
    "texts": numpy.array(["a", "bcd"]),
    "bytes": numpy.array([b"a", b"bcd"]),
    "StringDType": numpy.array(["a", "bcd"], numpy.dtypes.StringDType()),
    "void": numpy.zeros(2, "V5"),
    "longdouble": numpy.array([1, numpy.nan], numpy.longdouble),
    "clongdouble": numpy.array([1, 2], numpy.clongdouble),
    "negative strides": numpy.arange(6).reshape(2, 3)[::-1, ::-1],
    "read-only": numpy.frombuffer(b"12345678", "f4"),
    "unaligned": numpy.frombuffer(b"x12345678", "u1")[1:].view("f4"),
    "Fortran order": numpy.asfortranarray(numpy.ones((2, 3))),
    "broadcast": numpy.broadcast_to(numpy.float32(2), (4, 5)),
    "no dimensions": numpy.array(3.5, numpy.float32),
    "no dimensions, text": numpy.array("abc"),
    "no dimensions, object": numpy.array({"a": 1}, dtype=object),
    "no dimensions, time": numpy.array("2020", "M8[Y]"),
    "many dimensions": numpy.ones((1,) * 32),
    "subclass": numpy.arange(3).view(Tagged),
    "records": numpy.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    "masked": numpy.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False]),
    "masked texts": numpy.ma.masked_array(["a", "b"], mask=[False, True]),
}


@pytest.mark.parametrize("keep", [Keep(), SUMMARY, OFF, Keep(limit=0)], ids=["full", "summary", "off", "no room"])
@pytest.mark.parametrize("value", SOME.values(), ids=SOME)
def test_any_array_freezes_and_prints(value: Any, keep: Keep, recwarn: pytest.WarningsRecorder) -> None:
    """Shape and dtype are always there, and printing does not fail."""
    note = freeze(value, keep).note
    assert note.kind in (ARRAY, SCALAR, TEXT)
    assert note.shape == value.shape
    assert note.dtype
    assert value_text(note)
    assert not recwarn.list


@pytest.mark.parametrize(
    "name", [name for name in SOME if name not in ("structured objects", "no dimensions, object", "objects")]
)
def test_copy_equals_the_array_and_shares_nothing_with_it(name: str) -> None:
    """A copy is whole, of the same dtype, and its own."""
    value = SOME[name]
    kept = freeze(value)
    assert isinstance(kept.value, numpy.ndarray)
    assert kept.value.dtype == value.dtype
    numpy.testing.assert_array_equal(kept.value, value)
    assert not numpy.shares_memory(kept.value, value)
    assert not kept.note.cut


def test_later_changes_do_not_show() -> None:
    """What is shown is what there was at the call."""
    value = numpy.arange(4.0)
    kept = freeze(value)
    value *= 0
    assert isinstance(kept.value, numpy.ndarray)
    assert (kept.value.tolist(), kept.note.high) == ([0.0, 1.0, 2.0, 3.0], 3.0)


def test_summary_of_an_array() -> None:
    """Type, shape, dtype, device, size, statistics and digest."""
    note = note_of(numpy.array([[1, 2], [3, numpy.nan]], numpy.float32))
    assert (note.type, note.shape, note.dtype, note.device) == ("numpy.ndarray", (2, 2), "float32", "cpu")
    assert (note.low, note.high, note.mean, note.nonfinite, note.nbytes) == (1, 3, 2, 1, 16)
    assert note.std == pytest.approx(math.sqrt(2 / 3))
    assert note.digest


def test_byte_order_shows_in_the_dtype() -> None:
    """FITS files are big-endian, and that matters to who looks for a fault."""
    assert note_of(numpy.ones(1, ">f4")).dtype == ">f4"


@pytest.mark.parametrize(
    ("value", "nonfinite"),
    [
        (numpy.array([numpy.nan, numpy.inf, -numpy.inf, 1]), 3),
        (numpy.array([numpy.nan, 1], "f2"), 1),
        (numpy.array([complex("nan"), complex("inf"), 1]), 2),
        (numpy.array(["NaT", "2020"], "M8[D]"), 1),
        (numpy.array(["NaT"], ">m8[s]"), 1),
        (numpy.array([numpy.nan, 1], numpy.longdouble), 1),
        (numpy.array([1, 2]), 0),
        (numpy.array([True]), 0),
        (numpy.empty(0), 0),
        (numpy.array(["a"]), None),
        (numpy.float32("inf"), 1),
        (numpy.array(numpy.nan), 1),
    ],
)
def test_what_is_not_finite_is_counted(value: Any, nonfinite: int | None) -> None:
    """Where elements cannot be that, nothing is said."""
    assert note_of(value).nonfinite == nonfinite


def test_no_finite_element_gives_no_statistics() -> None:
    """None is not zero."""
    note = note_of(numpy.array([numpy.nan, numpy.inf]))
    assert (note.low, note.high, note.mean, note.std) == (None, None, None, None)
    assert arrays.measure_plain(numpy.array([numpy.nan, numpy.inf])) == arrays.Stats(nonfinite=2)


@pytest.mark.parametrize(
    ("value", "text", "number"),
    [
        (numpy.float32(0.1), "0.1", pytest.approx(0.1)),
        (numpy.int8(-3), "-3", -3),
        (numpy.bool_(True), "True", True),
        (numpy.array(2.5), "2.5", 2.5),
        (numpy.array(2.5, ">f8"), "2.5", 2.5),
        (numpy.datetime64("2020-01-02"), "2020-01-02", None),
        (numpy.complex64(1j), "1j", None),
        (numpy.longdouble(2), "2.0", None),
    ],
)
def test_single_number_shows_its_value(value: Any, text: str, number: object) -> None:
    """Scalars and arrays of no dimensions print as numbers."""
    note = note_of(value)
    assert (note.kind, note.text, note.value) == (SCALAR, text, number)


def test_scalar_is_kept_as_it_is() -> None:
    """Also a structured one, which could be changed."""
    record = numpy.zeros(1, [("a", "i4")])[0]
    kept = freeze(record)
    record["a"] = 5
    assert kept.value == numpy.zeros(1, [("a", "i4")])[0]
    assert freeze(numpy.float32(1.5)).value == numpy.float32(1.5)
    assert freeze(numpy.str_("a")).value == "a"


def test_array_beyond_the_limit_keeps_its_leading_rows() -> None:
    """The copy is cut, the description is not."""
    value = numpy.arange(100, dtype=numpy.float64).reshape(10, 10)
    kept = freeze(value, Keep(limit=250))
    assert isinstance(kept.value, numpy.ndarray)
    assert kept.value.tolist() == value[:3].tolist()
    assert (kept.note.cut, kept.note.high, kept.note.digest) == (True, 99, note_of(value).digest)


def test_array_of_which_no_row_fits_is_not_kept() -> None:
    """Nothing is kept, and the note says so."""
    kept = freeze(numpy.ones((1, 1000)), Keep(limit=100))
    assert kept.value is MISSING
    assert kept.note.cut


def test_limit_holds_for_all_parts_together() -> None:
    """The room that one array takes is gone for the next."""
    kept = freeze([numpy.ones(8), numpy.ones(8)], Keep(limit=100))
    notes = [note for _, note in kept.note.children]
    assert [note.cut for note in notes] == [False, True]
    assert kept.note.cut


def test_objects_in_an_array_are_copied_too() -> None:
    """The copy holds no object that somebody may change."""
    inner = numpy.ones(2)
    value = numpy.array([inner, [1], None, "x"], dtype=object)
    kept = freeze(value)
    inner *= 0
    value[1].append(2)
    assert isinstance(kept.value, numpy.ndarray)
    assert (kept.value[0].tolist(), kept.value[1:].tolist()) == ([1.0, 1.0], [[1], None, "x"])


def test_object_array_that_holds_itself() -> None:
    """A circle through an array ends, also through one of a subclass."""
    plain = numpy.empty(1, dtype=object)
    plain[0] = plain
    own = numpy.empty(1, dtype=object).view(Tagged)
    own[0] = [own]
    assert value_text(note_of(plain))
    assert value_text(note_of(own))


def test_many_objects_are_bounded() -> None:
    """An array of a million lists is described without reading them all."""
    value = numpy.empty(150_000, dtype=object)
    value.fill([1])
    kept = freeze(value)
    assert (kept.value, kept.note.cut, kept.note.digest) == (MISSING, True, None)


def test_masked_elements_do_not_count_for_statistics() -> None:
    """What is masked is not there; that it is masked counts for the digest."""
    one = numpy.ma.masked_array([1.0, 100.0, 3.0], mask=[False, True, False])
    two = numpy.ma.masked_array([1.0, 7.0, 3.0], mask=[False, True, False])
    assert (note_of(one).high, note_of(one).mean) == (3, 2)
    assert note_of(one).digest == note_of(two).digest != note_of(numpy.ma.masked_array([1.0, 0.0, 3.0])).digest


def test_broadcast_array_larger_than_any_memory_has_statistics() -> None:
    """It is read once, and counted as often as it is repeated."""
    value = numpy.broadcast_to(numpy.array([2, numpy.nan], numpy.float32), (10**6, 10**4, 2))
    note = freeze(value, SUMMARY).note
    assert (note.low, note.high, note.nonfinite) == (2, 2, 10**10)


def test_same_array_has_the_same_number() -> None:
    """The object itself can be told from a copy with the same content."""
    value = numpy.ones(2)
    assert note_of(value).identity == note_of(value).identity != note_of(value.copy()).identity


def test_off_reads_nothing() -> None:
    """Shapes and dtypes only."""
    note = freeze(numpy.ones(3), OFF).note
    assert (note.shape, note.dtype, note.digest, note.low) == ((3,), "float64", None, None)
    assert "7" not in value_text(freeze(numpy.float32(7), OFF).note)


# ── statistics ──

finite = st.floats(-1e6, 1e6, width=32)


def close(found: arrays.Stats, wanted: arrays.Stats) -> bool:
    """The same statistics, up to rounding."""
    size = max(abs(wanted.low or 0), abs(wanted.high or 0), 1e-300)
    exact = (found.low, found.high, found.nonfinite) == (wanted.low, wanted.high, wanted.nonfinite)
    return exact and all(
        (one is None) == (two is None) and (one is None or two is None or abs(one - two) <= 1e-6 * size)
        for one, two in ((found.mean, wanted.mean), (found.std, wanted.std))
    )


@given(st.sampled_from(NUMBERS).flatmap(lambda dtype: arrays_of.arrays(dtype, st.integers(0, 300))))
def test_extension_and_numpy_agree(block: Any) -> None:
    """Whoever makes the statistics, they are the same."""
    if block.dtype.kind == "f":
        block = numpy.clip(block, -6e4, 6e4)
    assert close(arrays.measure(block), arrays.measure_plain(block))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1"])
@pytest.mark.parametrize("size", [4095, 4096, 4097, 8192, 100_001])
@pytest.mark.parametrize("bad", [(), (0,), (4096,), (3, 4000, 4094)], ids=str)
def test_extension_and_numpy_agree_on_long_arrays(dtype: str, size: int, bad: tuple[int, ...]) -> None:
    """Also far from zero, and where a few elements of a block are not finite."""
    block = (numpy.random.default_rng(size).standard_normal(size) * 20 + 100).astype(dtype)
    if block.dtype.kind == "f":
        block[[place for place in bad if place < size]] = numpy.nan
    assert close(arrays.measure(block), arrays.measure_plain(block))


@given(arrays_of.arrays("f4", st.integers(1, 500), elements=finite), st.integers(1, 100))
def test_statistics_of_pieces_are_those_of_the_whole(array: Any, size: int) -> None:
    """Blocks of any size give the same answer."""
    total = arrays.Total()
    for block in arrays.blocks(array, size):
        total.add(arrays.measure(block), block.size)
    wide = array.astype("f8")
    wanted = arrays.Stats(float(wide.min()), float(wide.max()), float(wide.mean()), float(wide.std()), 0)
    assert close(total.stats(), wanted)


@pytest.mark.parametrize("size", [32, 5000])
@pytest.mark.parametrize("measure", [arrays.measure, arrays.measure_plain])
def test_spread_of_tiny_values_does_not_vanish(measure: Any, size: int) -> None:
    """Distances whose squares are no float32 any more still count."""
    value = numpy.zeros(size, "f4")
    value[7] = 4.5e-26
    assert measure(value).std == pytest.approx(value.astype("f8").std(), rel=1e-4)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_statistics_are_those_of_numpy(dtype: str) -> None:
    """For every dtype of numbers."""
    value = numpy.random.default_rng(0).integers(0, 2 if dtype == "?" else 100, 5000).astype(dtype)
    note, wide = note_of(value), value.astype("f8")
    assert (note.low, note.high) == (wide.min(), wide.max())
    assert note.mean == pytest.approx(wide.mean())
    assert note.std == pytest.approx(wide.std())


@pytest.mark.parametrize("measure", [arrays.measure, arrays.measure_plain])
def test_spread_far_from_zero_keeps_its_digits(measure: Any) -> None:
    """A small spread of large values is not lost."""
    value = 1e9 + numpy.random.default_rng(0).normal(size=100_000)
    assert measure(value).std == pytest.approx(value.std(), rel=1e-6)


@pytest.mark.parametrize("measure", [arrays.measure, arrays.measure_plain])
def test_whole_numbers_are_exact(measure: Any) -> None:
    """Also beyond what a float can hold."""
    found = measure(numpy.array([2**63 - 1, -(2**63)]))
    assert (found.low, found.high) == (-(2**63), 2**63 - 1)
    assert measure(numpy.array([2**64 - 1], numpy.uint64)).high == 2**64 - 1


@pytest.mark.parametrize("measure", [arrays.measure, arrays.measure_plain])
def test_sum_beyond_all_floats_is_not_known(measure: Any) -> None:
    """No infinite mean of finite elements, and no warning."""
    found = measure(numpy.array([1.7e308, -1.7e308, 1.7e308]))
    assert (found.low, found.high, found.std, found.nonfinite) == (-1.7e308, 1.7e308, None, 0)


def test_one_piece_that_is_not_known_makes_the_whole_unknown() -> None:
    """No mean of a part is shown as that of all."""
    total = arrays.Total()
    for block in (numpy.array([1.0]), numpy.array([1.7e308, -1.7e308, 1.7e308])):
        total.add(arrays.measure(block), block.size)
    assert total.stats() == arrays.Stats(-1.7e308, 1.7e308, None, None, 0)


def test_pieces_without_a_finite_element_do_not_count() -> None:
    """The rest decides."""
    total = arrays.Total()
    for block in (numpy.array([numpy.nan]), numpy.array([1.0, 3.0]), numpy.array([numpy.inf, 5.0])):
        total.add(arrays.measure(block), block.size)
    assert close(total.stats(), arrays.Stats(1, 5, 3, math.sqrt(8 / 3), 2))


@given(
    st.sampled_from(["f4", ">f4", "i2", ">i8"]).flatmap(
        lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(max_dims=4, max_side=6, min_side=0))
    ),
    st.permutations(range(4)),
    st.integers(1, 50),
)
def test_blocks_are_the_elements_in_order(array: Any, order: list[int], size: int) -> None:
    """Every layout is read in C order, in native and contiguous pieces."""
    array = array.transpose([axis for axis in order if axis < array.ndim])[::-1]
    pieces = list(arrays.blocks(array, size))
    assert all(piece.flags.c_contiguous and piece.dtype.isnative and piece.size <= size for piece in pieces)
    joined = numpy.concatenate(pieces) if pieces else numpy.empty(0)
    assert joined.astype("f8").tobytes() == array.astype("f8").tobytes()
