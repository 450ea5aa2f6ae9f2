"""The text of a trace: the layout, every kind of value, and that printing never fails."""

from __future__ import annotations

import re
from pathlib import Path

import numpy
import pytest
from hypothesis import given, strategies as st
from tests.flow.hand import train

from sonde.capture.result import TraceCall, TraceResult
from sonde.capture.show import text
from sonde.finding import WARN, Finding
from sonde.values.note import ARRAY, MAPPING, SCALAR, SEQUENCE, TEXT, TUPLE, Note
from sonde.values.snapshot import freeze

SEED = Path(__file__).with_name("train.txt")


def shown(value: object) -> str:
    """How a value prints."""
    return text.value_text(freeze(value).note)


def test_the_layout_is_that_of_the_seed() -> None:
    """Stages, calls, values, indentation, durations: to the letter."""
    assert str(train()) == SEED.read_text()


def test_a_stage_alone_prints_without_indentation() -> None:
    """As the seed shows the collate stage."""
    lines = str(train().collate).split("\n")
    assert lines[0] == "["
    assert lines[1] == "\tDataProvider__collate(batch_dicts) -> batch_dict duration=0.12 ms"
    assert lines[-1] == "]"


def test_a_call_alone_ends_with_a_new_line() -> None:
    """So that calls that are printed one after the other stand apart."""
    written = str(train().evaluation[0])
    assert written.startswith("HyraxAutoencoder__train_batch(batch) -> loss_dict duration=213 ms\ninputs:\n\tbatch = <")
    assert written.endswith("\t\tloss: 218.092529296875\n\t}\n")


def test_the_path_of_an_item_prints_by_stage() -> None:
    """With the rows, and where it ran."""
    written = str(train().item(1))
    assert written.startswith("Path of item index 1 id '24' {\n\tdataset_getter: [\n\t\tdata__get_image(index)")
    assert "\t\tat row 1 of 2, pid 17\n" in written


# ── values ──


def test_an_array_prints_type_shape_digest_and_statistics() -> None:
    """One line, in pointed brackets."""
    written = shown(numpy.array([[0.5, 1.5]], dtype="f4"))
    pattern = r"<numpy\.ndarray shape=\(1, 2\) dtype=float32 hash=\d+ device=cpu min=0.5 max=1.5 mean=1>"
    assert re.fullmatch(pattern, written)


def test_numbers_that_are_not_finite_are_counted() -> None:
    """Only where there are any."""
    assert shown(numpy.array([1.0, numpy.nan, numpy.inf])).endswith(" nonfinite=2>")
    assert "nonfinite" not in shown(numpy.ones(3))


def test_what_is_not_known_of_an_array_is_left_out() -> None:
    """Not shown as zero."""
    assert text.array_text(Note(ARRAY, "torch.Tensor", shape=(), dtype="float32", device="meta")) == (
        "<torch.Tensor shape=() dtype=float32 device=meta>"
    )


def test_a_cut_copy_is_marked() -> None:
    """The statistics cover all of it, the copy does not."""
    assert text.array_text(Note(ARRAY, "numpy.ndarray", shape=(9,), cut=True)).endswith(" cut>")
    assert text.value_text(Note(TEXT, "str", text="'aa'", length=900, cut=True)) == "'aa' <cut, length=900>"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "None"),
        (3, "3"),
        (True, "True"),
        (0.1, "0.1"),
        (float("nan"), "nan"),
        ("it's", '"it\'s"'),
        ("two\nlines", "'two\\nlines'"),
        (b"\x00", "b'\\x00'"),
        ([], "<list len=0> []"),
        ((), "()"),
        ({}, "{}"),
        ([1, "a"], "<list len=2> [\n\t1\n\t'a'\n]"),
        ((1, 2), "(\n\t1,\n\t2,\n)"),
        ({"a": {"b": 1}}, "{\n\ta: {\n\t\tb: 1\n\t}\n}"),
        ({2}, "<set len=1> [\n\t2\n]"),
        (numpy.float32(0.5), "0.5"),
        (numpy.array(7), "7"),
    ],
)
def test_plain_values_print_as_in_the_seed(value: object, expected: str) -> None:
    """Scalars their value; containers one part a line."""
    assert shown(value) == expected


def test_long_containers_say_how_much_is_left_out() -> None:
    """Neither all of it nor silence."""
    assert shown(list(range(5000))).endswith(f"\n\t... {5000 - text.MAX_CHILDREN} more\n]")


def test_values_in_values_end_somewhere() -> None:
    """A note from a file may be nested as deep as it likes."""
    note = Note(SCALAR, "int", text="1")
    for _ in range(300):
        note = Note(SEQUENCE, "list", length=1, children=(("0", note),))
    assert "<too deep>" in text.value_text(note)


def test_control_characters_do_not_reach_the_terminal() -> None:
    """Names and texts from the traced program are shown, not obeyed."""
    call = TraceCall("\x1b[31mred\x1b[0m", inputs=[freeze(1, name="a\nb")], error="\x07")
    written = str(call)
    assert "\x1b" not in written
    assert "\\x1b[31mred" in written
    assert "a\\nb" in written


def test_lone_surrogates_can_be_printed_anywhere() -> None:
    """File names have them."""
    str(TraceResult(calls=[TraceCall("\udcff", inputs=[freeze({"\udcfe": "\udcfd"}, name="\udcfc")])])).encode("utf-8")


ODD = Note(MAPPING, None, length="x", children=((3, Note(TUPLE, "tuple", children=((None, None),))),))  # type: ignore[arg-type]


def test_a_description_that_is_wrong_prints_too() -> None:
    """Printing never fails, whatever a handler of another library made."""
    assert "<unprintable>" in text.value_text(ODD)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4) | st.tuples(inner, inner)
        ),
        max_leaves=20,
    )
)
def test_any_value_prints_in_lines_that_can_be_encoded(value: object) -> None:
    """No control characters except our own tabs and line ends."""
    written = shown(value)
    written.encode("utf-8")
    assert all(mark.isprintable() or mark in "\t\n" for mark in written)


# ── durations, notes, findings ──


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        (1170, "0.00117 ms"),
        (213_000_000, "213 ms"),
        (1_234_567_890, "1235 ms"),
        (0, "0 ms"),
        (None, "? (not finished)"),
    ],
)
def test_durations_have_three_digits(taken: int | None, expected: str) -> None:
    """In milliseconds; a call that has not ended has none."""
    assert text.duration(taken) == expected


def test_a_call_that_raised_says_so() -> None:
    """It has no output."""
    written = str(TraceCall("f", inputs=[freeze(1, name="x")], error="ValueError", duration_ns=1000))
    assert written == "f(x) -> return_value duration=0.001 ms raised ValueError\ninputs:\n\tx = 1\noutputs:\n"


def test_notes_stand_below_the_stages() -> None:
    """What was cut, dropped or not seen."""
    assert str(TraceResult(notes=["2 values were cut."])).endswith("}\nnotes:\n\t2 values were cut.\n")


def test_findings_are_counted_and_the_first_ones_shown() -> None:
    """The rest is in findings()."""
    found = [Finding("shapes", WARN, 0.9, f"Shape {n}.", "Look.", {}) for n in range(12)]
    lines = text.result_text({}, [], found).splitlines()
    assert lines[2:4] == ["findings: 12", "\twarn: Shape 0. Look."]
    assert lines[-1] == "\t... 2 more in .findings()"
