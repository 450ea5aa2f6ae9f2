"""Arguments become JSON, whatever they hold."""

from __future__ import annotations

import enum
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.events.harness import PLENTY, FolderHost, process

from sonde.events.args import MAX_DEPTH, TOTAL_FACTOR, clean, encode, merge

LIMIT = 4096


def encoded(args: Any, limit: int = LIMIT) -> Any:
    return json.loads(encode(args, limit)[0])


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no text")


class Number(enum.IntEnum):
    THREE = 3


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1),
        (2**70, 2**70),
        (-(2**70), -(2**70)),
        (True, True),
        (None, None),
        (0.1, 0.1),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        ('quote " backslash \\ newline \n nul \0', 'quote " backslash \\ newline \n nul \0'),
        ("é漢😀", "é漢😀"),
        ("\udc80", "\\udc80"),
        (b"ab\xff", "b'ab\\xff'"),
        ((1, [2, {3}]), [1, [2, [3]]]),
        ({1: {None: 2}}, {"1": {"None": 2}}),
        (Number.THREE, 3),
        (Unprintable(), "<unprintable Unprintable>"),
        (int, "<class 'int'>"),
    ],
)
def test_each_kind_of_value_has_its_form(value: object, expected: object) -> None:
    """A value is kept as it is where JSON can hold it, and shown as text otherwise."""
    assert encoded({"x": value}) == {"x": expected}


def test_small_arguments_are_not_cut() -> None:
    """What fits is kept whole, and not marked."""
    assert encode({"a": 1, "b": "x"}, LIMIT) == (b'{"a":1,"b":"x"}', False)


def test_a_long_text_is_cut_and_says_so() -> None:
    """Of a text of a million characters the beginning is kept, with the number of those left out."""
    raw, cut = encode({"x": "y" * 1_000_000}, 100)
    assert cut
    assert json.loads(raw)["x"] == "y" * 100 + "... (999900 more characters)"


@pytest.mark.parametrize(
    "value",
    [
        10**5000,
        b"x" * 10_000,
        list(range(1000)),
        {str(number): number for number in range(1000)},
        [[[[[[[[[[[[1]]]]]]]]]]]],
    ],
    ids=["number", "bytes", "list", "dict", "depth"],
)
def test_other_large_values_are_cut_and_say_so(value: object) -> None:
    """Large numbers, bytes, lists and dicts, and deep ones, are bounded too."""
    raw, cut = encode({"x": value}, 1000)
    assert cut
    assert len(raw) < 5000


def test_all_arguments_together_are_bounded() -> None:
    """Many texts that each fit do not fit together."""
    raw, cut = encode({str(number): "y" * 4000 for number in range(200)}, LIMIT)
    assert cut
    assert len(raw) < (TOTAL_FACTOR + 2) * LIMIT


def test_self_references_end() -> None:
    """A dict and a list that hold themselves are shown once."""
    loop: dict[str, Any] = {"a": 1}
    loop["me"] = loop
    ring: list[Any] = []
    ring.append(ring)
    assert encoded({"x": loop, "y": ring}) == {"x": {"a": 1, "me": "<circular>"}, "y": ["<circular>"]}


def test_the_same_value_twice_is_no_circle() -> None:
    """A value that stands twice beside itself is shown twice."""
    both = [1]
    assert encoded({"x": [both, both]}) == {"x": [[1], [1]]}


def test_arrays_are_described_and_single_numbers_kept() -> None:
    """numpy scalars become numbers, arrays their type and shape."""
    np = pytest.importorskip("numpy")
    found = encoded(
        {"s": np.float32(1.5), "i": np.int64(3), "z": np.array(2.0), "a": np.zeros((3, 4)), "n": np.float64("nan")}
    )
    assert found == {"s": 1.5, "i": 3, "z": 2.0, "a": "<ndarray (3, 4) float64>", "n": "NaN"}


def test_a_text_of_an_own_class_is_not_asked() -> None:
    """A subclass of str whose methods fail is still a text."""

    class Text(str):
        __slots__ = ()

        def __len__(self) -> int:
            raise ValueError

        def __getitem__(self, _: object) -> str:
            raise ValueError

    assert encoded({"x": Text("abc")}) == {"x": "abc"}


def test_names_that_cannot_be_printed_do_not_hurt() -> None:
    """The name of an argument may be any object."""
    assert encoded({Unprintable(): 1, 2: 3}) == {"<unprintable Unprintable>": 1, "2": 3}


def test_what_is_no_mapping_is_shown_under_one_name() -> None:
    """Something else than a mapping does not fail."""
    assert encoded([1, 2]) == {"args": [1, 2]}


def test_a_deep_value_stops_at_the_depth_limit() -> None:
    """Nesting is shown to a fixed depth."""
    deep: Any = 1
    for _ in range(10_000):
        deep = [deep]
    raw, cut = encode({"x": deep}, LIMIT)
    assert cut
    assert raw.count(b"[") == MAX_DEPTH


anything = st.text(st.characters(exclude_categories=()))  # lone surrogates too
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | anything | st.binary(max_size=50),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(anything | st.integers(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(anything | st.integers(), values, max_size=6), st.integers(1, 200))
def test_any_arguments_become_a_valid_object(args: dict[Any, Any], limit: int) -> None:
    """The result is always strict JSON in UTF-8, and an object."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    raw, _ = encode(args, limit)
    assert isinstance(json.loads(raw.decode(), parse_constant=refuse), dict)


@given(anything)
def test_clean_text_is_valid_unicode(text: str) -> None:
    """Cleaned text can be written as UTF-8, and is as long as before or longer."""
    assert len(clean(text).encode()) >= len(text)


def test_of_two_objects_the_inner_one_wins() -> None:
    """Merging keeps all names, and the inner value where both have one."""
    assert json.loads(merge(b'{"a":1,"b":2}', b'{"b":3,"c":4}')) == {"a": 1, "b": 3, "c": 4}


class _Limited(FolderHost):
    """Encodes as a recorder does, and says what it does not cut."""

    def __init__(self, folder: Path, limit: int) -> None:
        super().__init__(folder)
        self.longest = limit

    def encode(self, args: Any) -> tuple[bytes, bool]:
        self.encoded += 1
        return encode(args, self.longest)


words = st.text(st.characters(min_codepoint=1, max_codepoint=0x100), max_size=70)
numbers = st.integers(-(2**70), 2**70) | st.integers(0, 10**6)
few = st.dictionaries(
    words,
    numbers | words | st.booleans() | st.floats() | st.lists(numbers | words, max_size=130),
    min_size=1,
    max_size=18,
)
listing = st.dictionaries(words, st.lists(numbers, max_size=300), min_size=1, max_size=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.lists(few | listing, min_size=1, max_size=4), st.integers(1, 100))
def test_a_core_writes_the_same_bytes_as_its_host_would(core: Any, several: list[dict[str, Any]], limit: int) -> None:
    """Whatever a core encodes by itself, nobody can tell from the file."""
    with tempfile.TemporaryDirectory() as folder:
        core.begin(_Limited(Path(folder), limit), PLENTY)
        for place, args in enumerate(several):
            core.mark("x", key=place, args=args)
        core.end()
        found = process(Path(folder))
        written = {event.key: found.written(event) for event in found.named("x")}
    assert written == {place: encode(args, limit)[0] for place, args in enumerate(several)}


def test_arguments_that_are_whole_numbers_and_words_need_no_host(core: Any, tmp_path: Path) -> None:
    """The items of a batch are written without a call of Python."""
    host = _Limited(tmp_path, LIMIT)
    core.begin(host, PLENTY)
    core.mark("x", args={"indices": list(range(32)), "count": 32, "why": "eval"})
    core.end()
    assert host.encoded == (0 if core.KIND == "c" else 1)
    assert process(tmp_path).args(process(tmp_path).only("x")) == {
        "indices": list(range(32)),
        "count": 32,
        "why": "eval",
    }
