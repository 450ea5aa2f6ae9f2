"""Counters, marks, step and epoch; and arguments of every kind, none of which may raise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st
from tests.events.harness import COUNTER, MARK, META, NO_EPOCH, NO_KEY, NO_STEP, process, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.events.conftest import Clock
    from tests.events.harness import FolderHost, Process


class Hostile:
    """Raises whatever is done with it."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__

    def __float__(self) -> float:
        raise RuntimeError("no number")

    def __index__(self) -> int:
        raise RuntimeError("no index")

    def __hash__(self) -> int:
        raise RuntimeError("no hash")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")


class Text(str):
    """A str that lies about its hash."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise RuntimeError("no hash")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")


def test_a_counter_has_a_value(recording: Any, clock: Clock, done: Callable[[], Process]) -> None:
    """A counter's record holds its time and its value as a float."""
    recording.counter("loss", 0.125, "train", key=4)
    found = done()
    (event,) = found.listed()
    assert (event.kind, event.start, event.value, event.key) == (COUNTER, 1_000_000, 0.125, 4)
    assert found.names[event.name] == ("train", "loss")


@pytest.mark.parametrize("value", [0, -1, True, 2**53, math.inf, -math.inf, 1e-320])
def test_any_number_can_be_counted(recording: Any, done: Callable[[], Process], value: float) -> None:
    """Whole numbers, infinities and subnormal numbers are kept as floats."""
    recording.counter("c", value)
    assert done().only("c").value == float(value)


def test_nan_can_be_counted(recording: Any, done: Callable[[], Process]) -> None:
    """A loss that is not a number is recorded as such."""
    recording.counter("c", math.nan)
    assert math.isnan(done().only("c").value)


def test_an_object_with_a_float_can_be_counted(recording: Any, done: Callable[[], Process]) -> None:
    """What has __float__ (numpy's and torch's scalars) counts as its number."""

    class Scalar:
        def __float__(self) -> float:
            return 2.5

    recording.counter("c", Scalar())
    assert done().only("c").value == 2.5


@pytest.mark.parametrize("value", ["3.5", None, 2**2000, [1]])
def test_what_is_no_number_becomes_a_mark(recording: Any, done: Callable[[], Process], value: object) -> None:
    """A value that is no float is kept among the arguments of a mark."""
    recording.counter("c", value, args={"a": 1})
    found = done()
    assert found.only("c").kind == MARK
    shown = found.args(found.only("c"))
    assert shown["a"] == 1
    assert str(shown["value"]) == str(value)


def test_a_mark_is_a_moment(recording: Any, clock: Clock, done: Callable[[], Process]) -> None:
    """A mark has a time, and its arguments."""
    recording.mark("saved", "checkpoint", key=2, args={"path": "a"})
    found = done()
    event = found.only("saved")
    assert (event.kind, event.start, event.dur, event.key) == (MARK, 1_000_000, 0, 2)
    assert found.args(event) == {"path": "a"}


def test_metadata_marks_have_a_flag(recording: Any, done: Callable[[], Process]) -> None:
    """A mark that stands for start(metadata=True) can be told apart."""
    recording.mark("m", metadata=True)
    assert done().only("m").kind == MARK | META


def test_points_have_parents(recording: Any, done: Callable[[], Process]) -> None:
    """Counters and marks belong to the span they are in, and are nobody's parent."""
    with recording.Span("x"):
        recording.counter("c", 1)
        recording.mark("m")
        with recording.Span("y"):
            recording.mark("n")
    found = done()
    assert found.tree() == [("x", None), ("c", "x"), ("m", "x"), ("y", "x"), ("n", "y")]
    assert [event.depth for event in found.listed()] == [0, 1, 1, 1, 2]


# ── step and epoch ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_records_have_the_step_of_their_entry(recording: Any, done: Callable[[], Process]) -> None:
    """Step and epoch are those at the entry, also when they change before the exit."""
    with recording.Span("x"):
        recording.set_context(1, 0)
        recording.counter("c", 1)
        with recording.Span("y"):
            recording.set_context(2, 1)
    recording.mark("m")
    assert [(e.step, e.epoch) for e in done().listed()] == [(NO_STEP, NO_EPOCH), (1, 0), (1, 0), (2, 1)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((5, 2), (5, 2)),
        ((None, None), (1, 1)),
        ((5, None), (5, 1)),
        ((None, 5), (1, 5)),
        ((-1, -1), (None, None)),
        ((0, 0), (0, 0)),
        ((2**32 - 2, 2**16 - 2), (2**32 - 2, 2**16 - 2)),
        ((2**32 - 1, 2**16 - 1), (None, None)),
        ((2**70, -5), (None, None)),
        ((True, False), (1, 0)),
    ],
)
def test_setting_the_context(core: Any, given: tuple[Any, Any], expected: tuple[Any, Any]) -> None:
    """None leaves a value as it is, -1 and what is out of range unset it."""
    core.set_context(1, 1)
    core.set_context(*given)
    assert core.get_context() == expected


def test_the_context_does_not_need_a_recording(core: Any, host: FolderHost, done: Callable[[], Process]) -> None:
    """A step set before the recording begins counts in it."""
    core.set_context(3, 1)
    core.begin(host, 2**40)
    core.mark("m")
    event = done().only("m")
    assert (event.step, event.epoch) == (3, 1)


def test_a_point_can_have_a_step_of_its_own(recording: Any, done: Callable[[], Process]) -> None:
    """step= and epoch= of a counter or mark hold for that record only."""
    recording.set_context(1, 1)
    recording.counter("a", 1, step=7)
    recording.mark("b", step=8, epoch=9)
    recording.counter("c", 1, step=-1, epoch=2**20)
    recording.mark("d")
    assert [(e.step, e.epoch) for e in done().listed()] == [(7, 1), (8, 9), (NO_STEP, NO_EPOCH), (1, 1)]


# ── anything goes ────────────────────────────────────────────────────────────────────────────────────────────────────

NAMES = ['"', "new\nline", "\0", "\x1b[31m", "\ud800", "ä" * 10, "", "a" * 100_000, 5, None, b"x", Hostile(), Text("t")]


@pytest.mark.parametrize("name", NAMES, ids=[str(i) for i in range(len(NAMES))])
def test_any_name_will_do(recording: Any, done: Callable[[], Process], name: Any) -> None:
    """Names of any kind are taken as text, bounded, for spans, counters and marks alike."""
    with recording.Span(name, name):
        recording.counter(name, 1, name)
        recording.mark(name, name)
    found = done()
    assert len(found.listed()) == 3
    (id_,) = {event.name for event in found.listed()}
    cat, text = found.names[id_]
    assert cat == text
    expected = (
        "<unprintable Hostile>"
        if isinstance(name, Hostile)
        else str.__str__(name)
        if isinstance(name, str)
        else str(name)
    )
    assert text == expected[:512]


def test_hostile_values_do_not_raise(recording: Any, done: Callable[[], Process]) -> None:
    """Keys, values, arguments, steps and levels that raise at every touch still give their records."""
    bad: Any = Hostile()
    loop: dict[str, Any] = {}
    loop["self"] = loop
    for args in ({"a": bad}, loop, [1, 2], bad, {5: 5, None: 1}, {"a": "x" * 1_000_000}):
        with recording.Span("x", key=bad, args=args):
            recording.counter("c", bad, key=bad, args=args)
            recording.mark("m", key=bad, args=args)
    recording.counter("c", 1.0, step=bad, epoch=bad, level=bad)
    recording.mark("m", step=bad, epoch=bad, level=bad)
    recording.set_context(bad, "x")
    span = recording.Span("x")
    span.shared = bad
    with span:
        pass
    found = done()
    assert len(found.listed()) == 6 * 3 + 3
    assert not found.gaps
    assert {event.key for event in found.listed()} == {NO_KEY}


@pytest.mark.parametrize(("count", "length", "most"), [(16_500, 1, 16_384), (2_200, 500, 2**20 // 500 + 1)])
def test_names_without_end(tmp_path: Path, core_name: str, count: int, length: int, most: int) -> None:
    """A program that makes up names keeps the first of them; of the others the name is among the arguments."""
    run(core_name, tmp_path, f"for i in range({count}): core.mark(f'name {{i}}'.ljust({length}))\ncore.end()")
    found = process(tmp_path)
    assert len(found.events) == count
    assert most - 20 <= len(found.names) <= most + 1
    last = found.listed()[-1]
    assert found.name(last) == "(too many names)"
    assert found.args(last)["name"].strip() == f"name {count - 1}"
    assert found.name(found.listed()[2000]).strip() == "name 2000"


@given(
    name=st.text(max_size=20) | st.integers(),
    key=st.integers() | st.text() | st.none() | st.floats(),
    args=st.none() | st.dictionaries(st.text(), st.integers() | st.text() | st.floats() | st.none()),
    value=st.floats() | st.integers() | st.text() | st.none(),
    step=st.integers() | st.none(),
)
def test_points_of_any_values(
    core_name: str, tmp_path_factory: Any, name: Any, key: Any, args: Any, value: Any, step: Any
) -> None:
    """Whatever a counter is given, one valid record comes out."""
    import importlib

    from tests.events.conftest import MODULES
    from tests.events.harness import PLENTY, FolderHost, process

    core: Any = importlib.import_module(MODULES[core_name])
    folder = tmp_path_factory.mktemp("points")
    core.begin(FolderHost(folder), PLENTY)
    core.counter(name, value, key=key, args=args, step=step)
    core.end()
    (event,) = process(folder).listed()
    assert event.step == (step if step is not None and 0 <= step < 2**32 - 1 else NO_STEP)
    assert event.key == (key if isinstance(key, int) and -(2**63) < key < 2**63 else NO_KEY)
