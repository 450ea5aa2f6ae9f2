"""Keys that belong to one entry: given when a span is entered or left, or item by item in a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.events.harness import AGAIN, ERROR, HALF, NO_KEY, SPAN, VOID, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.events.conftest import Clock
    from tests.events.harness import Process


# ── entering and leaving ─────────────────────────────────────────────────────────────────────────────────────────────


def test_each_entry_has_the_key_it_was_entered_with(recording: Any, clock: Clock, done: Callable[[], Process]) -> None:
    """The span's own key stands where none is given."""
    span = recording.Span("fetch", "probe", key=9)
    for key in (4, -5, None, 2**62):
        recording.enter(span, key)
        clock.now += 7
        recording.leave(span)
    assert [(e.key, e.dur, e.kind) for e in done().listed()] == [
        (4, 7, SPAN), (-5, 7, SPAN), (9, 7, SPAN), (2**62, 7, SPAN),
    ]  # fmt: skip


def test_a_key_given_when_leaving_replaces_the_one_of_the_entry(recording: Any, done: Callable[[], Process]) -> None:
    """None leaves it as it is."""
    span = recording.Span("wait")
    for key in (12, None):
        recording.enter(span, 3)
        recording.leave(span, key)
    recording.enter(span)
    recording.leave(span)
    assert [event.key for event in done().listed()] == [12, 3, NO_KEY]


@pytest.mark.parametrize("key", ["text", 2**63, -(2**63), 1.5, object()])
def test_what_is_no_number_for_a_record_is_no_key(key: object, recording: Any, done: Callable[[], Process]) -> None:
    """The entry keeps the key it has."""
    span = recording.Span("wait", key=1)
    recording.enter(span, key)
    recording.leave(span, key)
    assert done().only("wait").key == 1


def test_a_key_is_written_again_with_a_record_that_had_left_the_ring(
    recording: Any, done: Callable[[], Process]
) -> None:
    """A long span, with many short ones inside."""
    outer, inner = recording.Span("outer"), recording.Span("inner")
    recording.enter(outer, 1)
    for _ in range(3 * HALF):
        with inner:
            pass
    recording.leave(outer, 77)
    recording.end()
    raw = [event for event in done().raw if event.seq == 1]
    assert [(event.key, bool(event.kind & AGAIN)) for event in raw] == [(1, False), (77, True)]


def test_leaving_by_an_exception_marks_the_record(recording: Any, done: Callable[[], Process]) -> None:
    """With its type among the arguments, and the key."""
    span = recording.Span("fetch", args={"of": 3})
    recording.enter(span)
    recording.leave(span, 5, KeyError)
    found = done()
    event = found.only("fetch")
    assert (event.key, event.flags, found.args(event)) == (5, ERROR, {"of": 3, "error": "KeyError"})


def test_a_cancelled_entry_is_no_event(recording: Any, done: Callable[[], Process]) -> None:
    """It takes a number, and nothing is missing."""
    outer, span = recording.Span("outer"), recording.Span("wait")
    with outer:
        recording.enter(span, 5)
        recording.cancel(span)
        recording.mark("after")
    found = done()
    assert found.tree() == [("outer", None), ("after", "outer")]
    assert [event.sort for event in found.events.values()].count(VOID) == 1
    assert not found.gaps


def test_an_entry_may_turn_out_to_be_another_span(recording: Any, done: Callable[[], Process]) -> None:
    """With its name, and its key or another one; what is inside stays inside, and the time is that of the entry."""
    outer, wait, end = recording.Span("outer"), recording.Span("wait", key=1), recording.Span("end", key=2)
    with outer:
        for key in ((), (7,)):
            recording.enter(wait, 5)
            recording.mark("inside")
            recording.turn(wait, end, *key)
        recording.mark("after")
    found = done()
    inside = [("end", "outer"), ("inside", "end")]
    assert found.tree() == [("outer", None), *inside, *inside, ("after", "outer")]
    ends = [event for event in found.listed() if found.names[event.name][1] == "end"]
    assert [(event.key, event.kind) for event in ends] == [(2, SPAN), (7, SPAN)]


def test_an_entry_that_was_spilled_turns_out_to_be_another_span(recording: Any, done: Callable[[], Process]) -> None:
    """It is written again with the other name."""
    wait, end, inner = recording.Span("wait"), recording.Span("end"), recording.Span("inner")
    recording.enter(wait, 5)
    for _ in range(3 * HALF):
        with inner:
            pass
    recording.turn(wait, end, 7)
    recording.end()
    found = done()
    raw = [event for event in found.raw if event.seq == 1]
    assert [(found.names[event.name][1], event.key) for event in raw] == [("wait", 5), ("end", 7)]


def test_turning_takes_two_spans(recording: Any) -> None:
    """Anything else is an error of the caller."""
    with pytest.raises(TypeError, match="two Spans"):
        recording.turn(recording.Span("wait"), "end")


def test_leaving_what_was_not_entered_does_nothing(recording: Any, done: Callable[[], Process]) -> None:
    """Neither does cancelling it."""
    span = recording.Span("wait")
    recording.leave(span, 1)
    recording.cancel(span)
    recording.turn(span, recording.Span("end"))
    with recording.Span("other"):
        recording.leave(span, 1, ValueError)
    assert [(e.key, e.kind) for e in done().listed()] == [(NO_KEY, SPAN)]


def test_entries_of_one_span_may_lie_in_each_other(recording: Any, done: Callable[[], Process]) -> None:
    """The innermost is left first."""
    span = recording.Span("layer")
    recording.enter(span, 1)
    recording.enter(span, 2)
    recording.leave(span, 20)
    recording.leave(span, 10)
    assert [event.key for event in done().listed()] == [10, 20]


def test_a_span_that_is_off_takes_no_entry(recording: Any, done: Callable[[], Process]) -> None:
    """Not even inside an entry of its own, which goes on."""
    span = recording.Span("layer")
    recording.enter(span, 1)
    span.on = False
    recording.enter(span, 2)
    recording.leave(span, 20)
    span.on = True
    recording.leave(span, 10)
    assert [event.key for event in done().listed()] == [10]


def test_nothing_happens_without_a_recording(core: Any, tmp_path: Path) -> None:
    """No file, no error."""
    span = core.Span("wait")
    core.enter(span, 1)
    core.leave(span, 2)
    core.cancel(span)
    core.turn(span, span)
    assert list(core.iterate_keyed([1, 2], [3, 4], span)) == [1, 2]
    assert processes(tmp_path) == []


# ── loops ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def keyed(recording: Any) -> Callable[..., Any]:
    item = recording.Span("item", level=2)
    return lambda items, keys=None: recording.iterate_keyed(items, items if keys is None else keys, item)


def test_each_item_has_its_key_and_lasts_to_the_next_request(
    keyed: Any, clock: Clock, done: Callable[[], Process]
) -> None:
    """Also the last one: it ends when there are no more."""
    for index in keyed([30, 10, 20]):
        clock.now += index
    clock.now += 1000
    assert [(e.key, e.dur, e.kind) for e in done().listed()] == [(30, 30, SPAN), (10, 10, SPAN), (20, 20, SPAN)]


def test_keys_may_differ_from_the_items(keyed: Any, done: Callable[[], Process]) -> None:
    """As they do in a subset of a dataset."""
    assert list(keyed("abc", [7, 8, 9])) == ["a", "b", "c"]
    assert [event.key for event in done().listed()] == [7, 8, 9]


def test_a_span_in_place_of_a_key_is_entered_instead(recording: Any, keyed: Any, done: Callable[[], Process]) -> None:
    """For items whose key is no number."""
    named = recording.Span("item", key=1, args={"key": "dog.png"})
    list(keyed(["a", "b", "c"], [0, named, 2]))
    found = done()
    assert [(e.key, found.args(e)) for e in found.listed()] == [(0, {}), (1, {"key": "dog.png"}), (2, {})]


def test_items_beyond_the_last_key_are_not_recorded(keyed: Any, done: Callable[[], Process]) -> None:
    """They are handed out all the same; so are they when asking for a key fails."""

    def failing() -> Iterator[int]:
        yield 1
        raise OSError

    assert list(keyed([1, 2, 3], [1])) == [1, 2, 3]
    assert list(keyed([1, 2], failing())) == [1, 2]
    assert [event.key for event in done().listed()] == [1, 1]


def test_what_happens_in_an_item_lies_inside_it(recording: Any, keyed: Any, done: Callable[[], Process]) -> None:
    """Spans of the dataset are children of the item."""
    with recording.Span("fetch"):
        for _ in keyed([5, 6]):
            with recording.Span("read"):
                pass
    assert done().tree() == [("fetch", None), ("item", "fetch"), ("read", "item"), ("item", "fetch"), ("read", "item")]


def test_closing_ends_the_item_that_is_open(keyed: Any, clock: Clock, done: Callable[[], Process]) -> None:
    """An iterator that somebody keeps, as a traceback does, cannot end it itself. A second closing does nothing."""
    loop = keyed([5, 6])
    next(loop)
    clock.now += 3
    loop.close(ValueError)
    clock.now += 100
    loop.close()
    found = done()
    event = found.only("item")
    assert (event.key, event.dur, event.flags, found.args(event)) == (5, 3, ERROR, {"error": "ValueError"})


def test_an_exception_in_a_comprehension_marks_the_item(keyed: Any, done: Callable[[], Process]) -> None:
    """This is how torch asks a dataset for items; the loop is closed by who sees the call end."""
    loop = keyed([5, 6, 7])
    with pytest.raises(ZeroDivisionError) as caught:
        [1 // (index - 6) for index in loop]
    loop.close(caught.type)
    del caught
    assert [(event.key, event.flags) for event in done().listed()] == [(5, 0), (6, ERROR)]


def test_the_loop_counts_what_it_hands_out(keyed: Any, recording: Any) -> None:
    """Not the request that found nothing."""
    for loop in (keyed([5, 6]), recording.iterate(iter([5, 6]), recording.Span("wait"), None)):
        assert loop.count == 0
        next(loop)
        assert loop.count == 1
        list(loop)
        assert loop.count == 2


def test_waits_are_numbered_from_where_one_says(recording: Any, done: Callable[[], Process]) -> None:
    """The ordinals of a stream go on from one batch to the next."""
    list(recording.iterate(iter("ab"), recording.Span("item"), None, 40))
    list(recording.iterate(iter("a"), None, recording.Span("item"), 0))
    assert [event.key for event in done().listed()] == [40, 41, 0]


@pytest.mark.parametrize("wrong", [None, "item", 3])
def test_a_keyed_loop_needs_a_span(wrong: object, recording: Any) -> None:
    """A mistake of ours is told at once."""
    with pytest.raises(TypeError):
        recording.iterate_keyed([1], [1], wrong)


def test_many_items_over_many_spills_lose_nothing(keyed: Any, done: Callable[[], Process]) -> None:
    """Each key once, in order."""
    count = 5 * HALF + 3
    for _ in keyed(range(count)):
        pass
    found = done()
    assert [event.key for event in found.listed()] == list(range(count))
    assert not found.gaps


def test_an_iterator_under_way_is_not_asked_for_another(recording: Any, done: Callable[[], Process]) -> None:
    """It goes on where it is, each item with its number; what is no iterator is refused."""

    class Anew:
        def __iter__(self) -> Anew:
            raise AssertionError("it would begin anew")

        def __next__(self) -> str:
            return next(letters)

    letters = iter("ab")
    wait = recording.Span("wait")
    loop = recording.iterate_on(Anew(), wait, 40)
    assert [next(loop), next(loop), next(loop, None)] == ["a", "b", None]
    with pytest.raises(TypeError, match="iterate_on"):
        recording.iterate_on([1], wait, 0)
    assert [event.key for event in done().listed()] == [40, 41]
