"""Freezing: any value is described and copied, within bounds, without changing it and without raising."""

from __future__ import annotations

import datetime
import enum
import logging
import pathlib
import subprocess
import sys
from collections import Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy
import pytest
from hypothesis import given, strategies as st

from sonde.capture.show.text import value_text
from sonde.values.note import AGAIN, HIDDEN, MAPPING, MISSING, NONE, OBJECT, SCALAR, SEQUENCE, TEXT, TUPLE, Note
from sonde.values.snapshot import DESCRIBED, FULL, OFF, SUMMARY, Keep, freeze
from sonde.values.walk import DEPTH, WIDTH

Point = namedtuple("Point", "x y")  # noqa: PYI024  the untyped kind must work too


@dataclass
class Sample:
    """A dataclass of a user."""

    name: str
    data: list[int] = field(default_factory=list)


class Raising:
    """Everything about it raises."""

    def __repr__(self) -> str:
        raise ValueError("no text")

    def __len__(self) -> int:
        raise ValueError("no length")

    def __iter__(self) -> Iterator[int]:
        raise ValueError("no parts")

    def __bool__(self) -> bool:
        raise ValueError("no truth")

    def __eq__(self, other: object) -> bool:
        raise ValueError("no equality")

    __hash__ = object.__hash__


class RaisingList(list[int]):
    """A list whose own methods raise."""

    def __iter__(self) -> Iterator[int]:
        raise ValueError("no parts")

    def __len__(self) -> int:
        raise ValueError("no length")


class RaisingMap(Mapping[str, int]):
    """A mapping that cannot be read."""

    def __getitem__(self, key: str) -> int:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        raise ValueError("no keys")

    def __len__(self) -> int:
        raise ValueError("no length")


class Colour(enum.Enum):
    """A plain enumeration."""

    RED = 1


def note_of(value: object) -> Note:
    """The description of a value."""
    return freeze(value).note


def child(note: Note, name: str) -> Note:
    """The description of a part."""
    return dict(note.children)[name]


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, NONE, "None"),
        (3, SCALAR, "3"),
        (True, SCALAR, "True"),
        (0.1, SCALAR, "0.1"),
        (float("nan"), SCALAR, "nan"),
        (1 + 2j, SCALAR, "(1+2j)"),
        ("23", TEXT, "'23'"),
        ("it's\n", TEXT, '"it\'s\\n"'),
        (b"abc", TEXT, "b'abc'"),
        (bytearray(b"abc"), TEXT, "b'abc'"),
        (memoryview(b"abcdef")[::2], TEXT, "b'ace'"),
        (range(3), OBJECT, "range(0, 3)"),
        (Colour.RED, OBJECT, "<Colour.RED: 1>"),
        (Decimal("1.5"), OBJECT, "Decimal('1.5')"),
        (int, OBJECT, "<class 'int'>"),
    ],
)
def test_single_value_prints(value: object, kind: str, text: str) -> None:
    """A single value has a kind and a text."""
    note = note_of(value)
    assert (note.kind, note.text) == (kind, text)


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        True,
        0.5,
        1j,
        "x",
        b"x",
        range(10**30),
        Decimal(1),
        datetime.date(2020, 1, 1),
        pathlib.PurePosixPath("a"),
    ],
)
def test_copy_of_what_never_changes_is_equal(value: object) -> None:
    """Plain and immutable values are kept."""
    assert freeze(value).value == value


def test_numbers_have_their_value() -> None:
    """A number is there as a number, and says whether it is finite."""
    assert (note_of(3).value, note_of(0.5).value, note_of(True).value) == (3, 0.5, True)
    assert (note_of(0.5).nonfinite, note_of(float("inf")).nonfinite) == (0, 1)


def test_integer_that_python_refuses_to_print() -> None:
    """A very long integer is told by its size."""
    kept = freeze(10**5000)
    assert kept.note.text == "<int of 16610 bits>"
    assert kept.note.value is None
    assert kept.value == 10**5000


def test_subclasses_of_plain_types_are_plain_in_the_copy() -> None:
    """What a subclass overrides is not called."""

    class Loud(str):
        __slots__ = ()

        def __repr__(self) -> str:
            raise ValueError

        def __len__(self) -> int:
            raise ValueError

    kept = freeze(Loud("abc"))
    assert (kept.note.text, kept.note.length) == ("'abc'", 3)
    assert type(kept.value) is str


@pytest.mark.parametrize(
    ("value", "kind", "type_name", "length", "copy"),
    [
        ([1, "a"], SEQUENCE, "list", 2, [1, "a"]),
        ((1, 2), TUPLE, "tuple", 2, (1, 2)),
        ({3, 1, 2}, SEQUENCE, "set", 3, {1, 2, 3}),
        (frozenset("ab"), SEQUENCE, "frozenset", 2, {"a", "b"}),
        (deque([1]), SEQUENCE, "collections.deque", 1, [1]),
        ({"a": 1, 2: "b"}, MAPPING, "dict", 2, {"a": 1, 2: "b"}),
        (OrderedDict(a=1), MAPPING, "collections.OrderedDict", 1, {"a": 1}),
        (Counter("aa"), MAPPING, "collections.Counter", 1, {"a": 2}),
        (UserDict(a=1), MAPPING, "collections.UserDict", 1, {"a": 1}),
        ([], SEQUENCE, "list", 0, []),
        ({}, MAPPING, "dict", 0, {}),
    ],
)
def test_container(value: object, kind: str, type_name: str, length: int, copy: object) -> None:
    """A container is described by its parts and copied into a plain one."""
    kept = freeze(value)
    assert (kept.note.kind, kept.note.type, kept.note.length) == (kind, type_name, length)
    assert kept.value == copy
    assert not kept.note.cut


def test_reading_a_defaultdict_adds_nothing() -> None:
    """A value is never changed by looking at it."""
    value: defaultdict[str, list[int]] = defaultdict(list, a=[1])
    freeze(value)
    assert dict(value) == {"a": [1]}


def test_generator_is_not_consumed() -> None:
    """What can be read only once is left to the program."""
    value = (number for number in range(3))
    assert freeze(value).value is MISSING
    assert list(value) == [0, 1, 2]


def test_dataclass_and_named_tuple_show_their_fields() -> None:
    """Fields are told by name, in their order."""
    sample, point = freeze(Sample("a", [1])), freeze(Point(1, 2))
    assert [name for name, _ in sample.note.children] == ["name", "data"]
    assert (sample.note.kind, sample.value) == (MAPPING, {"name": "a", "data": [1]})
    assert (point.note.kind, point.value) == (MAPPING, {"x": 1, "y": 2})


def test_field_that_is_not_set_is_no_failure() -> None:
    """A dataclass may be half built."""
    sample = Sample.__new__(Sample)
    sample.data = [1]
    assert child(note_of(sample), "data").length == 1


def test_copy_does_not_change_with_the_value() -> None:
    """A snapshot stays what it was."""
    value: dict[str, Any] = {"a": [1, {"b": bytearray(b"x")}], "s": {1}}
    kept = freeze(value)
    value["a"][1]["b"][0] = 0
    value["a"].append(2)
    value["s"].add(2)
    assert kept.value == {"a": [1, {"b": b"x"}], "s": {1}}


def test_container_that_holds_itself() -> None:
    """A circle is told, and walked once."""
    value: list[Any] = [1]
    value.append({"back": value})
    note = note_of(value)
    assert child(child(note, "1"), "back").kind == AGAIN


def test_same_part_twice_is_no_circle() -> None:
    """Only a container around the value counts."""
    part = [1]
    assert [note.kind for _, note in note_of([part, part]).children] == [SEQUENCE, SEQUENCE]


def test_deep_value_is_cut() -> None:
    """Levels are bounded, and the note says so."""
    value: list[Any] = []
    for _ in range(3 * DEPTH):
        value = [value]
    note = note_of(value)
    assert note.cut
    for _ in range(DEPTH):
        note = child(note, "0")
    assert (note.children, note.length) == ((), 1)


def test_wide_value_is_cut_and_its_digest_is_not() -> None:
    """Children are bounded; length and digest cover all of them."""
    value = list(range(3 * WIDTH))
    kept = freeze(value)
    assert (kept.note.length, len(kept.note.children), kept.note.cut) == (3 * WIDTH, WIDTH, True)
    assert kept.value == value[:WIDTH]
    value[-1] = 0
    assert note_of(value).digest != kept.note.digest


def test_huge_nested_value_is_bounded_in_all() -> None:
    """A million parts are neither described nor read; then nothing is claimed about the content."""
    note = note_of([[1] * 1000] * 1000)
    assert note.cut
    assert note.digest is None
    assert sum(len(part.children) for _, part in note.children) <= 20_000


@pytest.mark.parametrize("keep", [FULL, SUMMARY, OFF], ids=lambda keep: str(keep.values))
@pytest.mark.parametrize(
    "value",
    [Raising(), [Raising()], {Raising(): 1}, {Raising()}, RaisingList([1]), RaisingMap(), (Raising(), 1), object()],
    ids=lambda value: type(value).__name__,
)
def test_hostile_object_is_described(value: object, keep: Keep, caplog: pytest.LogCaptureFixture) -> None:
    """Objects whose methods raise do not reach the program."""
    caplog.set_level(logging.CRITICAL, "sonde")
    assert freeze(value, keep).note.type


def test_unprintable_object_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """The text names the type, and no digest is claimed."""
    caplog.set_level(logging.CRITICAL, "sonde")
    note = note_of(Raising())
    assert note.text.startswith("<unprintable ")
    assert note.digest is None


def test_list_subclass_is_read_as_the_list_it_is() -> None:
    """Methods that a subclass overrides are not asked."""
    assert freeze(RaisingList([1, 2])).value == [1, 2]


def test_huge_text_is_bounded() -> None:
    """A long text or repr is shown in part, and its length is told."""

    class Huge:
        def __repr__(self) -> str:
            return "x" * 1_000_000

    assert len(note_of(Huge()).text) < 1000
    note = note_of("y" * 1_000_000)
    assert (note.length, len(note.text) < 1000, note.cut) == (1_000_000, True, False)


def test_text_beyond_the_limit_is_cut() -> None:
    """Of a long text the beginning is kept."""
    kept = freeze("abcdef", Keep(limit=4))
    assert (kept.value, kept.note.cut, kept.note.length) == ("abcd", True, 6)


def test_addresses_are_not_shown() -> None:
    """The text of an object is the same in every run."""
    assert "0x" not in note_of(object()).text
    assert "0x" not in note_of(freeze).text


def test_class_of_the_script_has_one_name_in_every_process() -> None:
    """A class of the main module is told without it."""
    code = "from sonde.values.snapshot import freeze\nclass A: pass\nprint(freeze(A()).note.type)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "A\n"


def test_summary_keeps_no_copy() -> None:
    """Descriptions are whole, copies are not there, and that is no cut."""
    kept = freeze({"a": [1, 2.5], "b": numpy.ones(3)}, SUMMARY)
    assert kept.value is MISSING
    assert not kept.note.cut
    assert value_text(kept.note) == value_text(note_of({"a": [1, 2.5], "b": numpy.ones(3)}))


def test_summary_keeps_length_and_digest_of_texts_only() -> None:
    """Wherever they stand: alone, in an array, in the text of an object."""

    class Patient:
        def __repr__(self) -> str:
            return "Patient(S3CRET)"

    texts = ["S3CRET", b"S3CRET", numpy.str_("S3CRET"), numpy.array("S3CRET"), numpy.array(b"S3CRET")]
    objects = [numpy.array("S3CRET", dtype=object), numpy.array(["S3CRET"]), pathlib.Path("S3CRET"), Patient()]
    note = freeze([*texts, *objects], SUMMARY).note
    assert "S3CRET" not in repr(note)
    plain = freeze("S3CRET", SUMMARY).note
    assert (plain.length, plain.digest) == (6, note_of("S3CRET").digest)
    assert "S3CRET" in value_text(freeze("S3CRET", DESCRIBED).note)


def test_off_keeps_no_content() -> None:
    """Types, keys and lengths only."""
    kept = freeze({"secret": "abc", "n": [17], "o": object(), "i": 12345}, OFF)
    assert kept.value is MISSING
    assert child(kept.note, "secret").length == 3
    assert not {"abc", "17", "12345"} & set(_texts(kept.note))
    assert kept.note.digest is None


def _texts(note: Note) -> Iterator[str]:
    yield note.text.strip("'")
    for _, part in note.children:
        yield from _texts(part)


def test_excluded_names_are_hidden_at_every_level() -> None:
    """Arguments, keys and fields can be left out."""
    keep = Keep(exclude=("name", "password"))
    assert freeze("x", keep, "password").note.kind == HIDDEN
    kept = freeze({"a": [{"password": "x"}], "s": Sample("x")}, keep)
    assert child(child(child(kept.note, "a"), "0"), "password").kind == HIDDEN
    assert child(child(kept.note, "s"), "name").kind == HIDDEN
    assert kept.value == {"a": [{"password": MISSING}], "s": {"name": MISSING, "data": []}}


def test_hidden_values_do_not_count_for_the_digest() -> None:
    """Nothing of an excluded field can be guessed."""
    keep = Keep(exclude=("k",))
    assert freeze({"k": 1}, keep).note.digest == freeze({"k": 2}, keep).note.digest


def test_names_are_valid_text() -> None:
    """Keys that no file could take are escaped; the copy keeps them."""
    kept = freeze({"\ud800": 1, (1, 2): 2})
    assert [name for name, _ in kept.note.children] == ["\\ud800", "(1, 2)"]
    assert kept.value == {"\ud800": 1, "(1, 2)": 2}


def test_set_of_what_is_a_dict_in_the_copy() -> None:
    """A frozen dataclass can be in a set; its copy cannot."""

    @dataclass(frozen=True)
    class Key:
        name: str

    assert freeze({Key("a")}).value == [{"name": "a"}]


@pytest.mark.parametrize("value", [17, 17.5, 17j, True, "17", b"17", 17**2000, None, range(17), Colour.RED, {17}])
def test_off_shows_no_single_value(value: object) -> None:
    """Whatever its type."""
    note = freeze(value, OFF).note
    assert note.value is None
    assert not any("17" in text or "RED" in text for text in _texts(note))


def test_neither_numpy_nor_torch_is_loaded() -> None:
    """A program that has not imported a library does not get it from us."""
    code = (
        "import sys, sonde.values.snapshot as f; f.freeze({'a': [1]});"
        "print([n for n in ('numpy', 'torch', 'pandas', 'PIL') if n in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
nested = st.recursive(plain, lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(), part, max_size=4))


@given(nested)
def test_plain_values_come_back(value: object) -> None:
    """The copy of plain data equals it; describing it twice gives the same note."""
    kept = freeze(value)
    assert kept.value == value
    assert kept.note == note_of(value)
