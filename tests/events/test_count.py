"""Steps that are counted, and the quick ways to a mark and a counter."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.events.harness import COUNTER, MARK, NO_STEP, PLENTY, FolderHost, Process


def test_a_note_is_a_mark_or_a_counter_of_its_span(recording: Any, done: Callable[[], Process]) -> None:
    """With the name, the category and the key of the span."""
    span = recording.Span("update", "probe", key=3)
    recording.note(span)
    recording.note(span, 2.5)
    found = done()
    first, second = found.listed()
    assert (first.kind, first.key, first.dur) == (MARK, 3, 0)
    assert (second.kind, second.key, second.value) == (COUNTER, 3, 2.5)
    assert {found.names[event.name] for event in (first, second)} == {("probe", "update")}


def test_a_note_may_have_a_key_of_its_own(recording: Any, done: Callable[[], Process]) -> None:
    """What is no number of 64 bits leaves that of the span."""
    span = recording.Span("samples", "probe", key=3)
    for key in (7, 0, -2, None, 2**70, "text"):
        recording.note(span, 1.0, key)
    assert [event.key for event in done().listed()] == [7, 0, -2, 3, 3, 3]


def test_a_note_follows_the_switch_of_the_base(recording: Any, done: Callable[[], Process]) -> None:
    """And what is no number is left out."""
    base = recording.Span("base")
    span = recording.Span("loss", base=base)
    base.on = False
    recording.note(span, 1.0)
    base.on = True
    recording.note(span, "text")
    recording.note(span, 2.0)
    assert [event.value for event in done().listed()] == [2.0]


def test_counted_steps_go_on_with_each_advance(recording: Any, done: Callable[[], Process]) -> None:
    """The mark carries the step that has ended."""
    span = recording.Span("update")
    recording.count_steps(7)
    assert [recording.advance(span) for _ in range(3)] == [True] * 3
    assert recording.get_context()[0] == 10
    assert [event.step for event in done().listed()] == [7, 8, 9]


def test_a_step_may_have_ended_before(recording: Any, done: Callable[[], Process]) -> None:
    """The mark has that time, and the number of the step as it is counted."""
    span = recording.Span("update")
    recording.count_steps(3)
    when = time.monotonic_ns()
    recording.advance(span)
    recording.advance(span, when)
    recording.advance(span, None)
    first, late, last = done().listed()
    assert (first.step, late.step, last.step) == (3, 4, 5)
    assert late.start == when <= first.start <= last.start


def test_a_step_that_somebody_sets_is_counted_no_more(recording: Any, done: Callable[[], Process]) -> None:
    """Setting the epoch alone changes nothing; counting again does."""
    span = recording.Span("update")
    recording.count_steps(0)
    recording.set_context(None, 4)
    assert recording.advance(span) is True
    recording.set_context(50, None)
    assert recording.advance(span) is False
    assert recording.get_context() == (50, 4)
    recording.count_steps(60)
    assert recording.advance(span) is True
    assert [event.step for event in done().listed()] == [0, 50, 60]


def test_a_count_ends_where_steps_do(recording: Any, done: Callable[[], Process]) -> None:
    """A number that no record can hold is none."""
    span = recording.Span("update")
    recording.count_steps(NO_STEP - 1)
    assert recording.advance(span) is True
    assert recording.advance(span) is False
    assert recording.get_context()[0] is None


@pytest.mark.parametrize("counted", [True, False])
def test_a_recording_does_not_go_on_with_an_earlier_count(core: Any, host: FolderHost, counted: bool) -> None:
    """But a step that somebody has set before is meant for it."""
    if counted:
        core.count_steps(3)
    else:
        core.set_context(3, None)
    core.begin(host, PLENTY)
    assert core.get_context()[0] == (None if counted else 3)
    assert core.advance(core.Span("update")) is False


def test_without_a_recording_only_the_step_changes(core: Any) -> None:
    """Nothing is written, nothing fails."""
    span = core.Span("update")
    core.count_steps(1)
    core.note(span, 1.0)
    assert core.advance(span) is True
    assert core.get_context()[0] == 2


@pytest.mark.parametrize("call", ["note", "advance"])
def test_what_is_no_span_is_refused(recording: Any, call: str) -> None:
    """A mistake in the call."""
    with pytest.raises((TypeError, AttributeError)):
        getattr(recording, call)("text")
