"""Entering and leaving spans: slots, durations, parents, switches, arguments."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from tests.events.harness import CUT, ERROR, NO_EPOCH, NO_KEY, NO_STEP, OPEN, PLENTY, SPAN, FolderHost, Process, process

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.events.conftest import Clock

    Done = Callable[[], Process]


def test_a_span_has_start_and_duration(recording: Any, clock: Clock, done: Done) -> None:
    """A span's record says when it was entered and how long it lasted."""
    with recording.Span("load", "data"):
        clock.now += 250
    found = done()
    (event,) = found.listed()
    assert (event.start, event.dur, event.kind) == (1_000_000, 250, SPAN)
    assert found.names[event.name] == ("data", "load")


def test_a_bare_span_has_nothing_it_was_not_given(recording: Any, done: Done) -> None:
    """Without key, arguments, step, epoch and parent, the record says so."""
    with recording.Span("x"):
        pass
    (event,) = done().listed()
    assert (event.key, event.args, event.step, event.epoch, event.parent) == (NO_KEY, 0, NO_STEP, NO_EPOCH, 0)
    assert (event.depth, event.seq, event.thread) == (0, 1, 1)


def test_an_open_span_is_visible_at_once(recording: Any, tmp_path: Path) -> None:
    """A span that was entered and not left is in the file, marked open."""
    with recording.Span("x"):
        (event,) = process(tmp_path).listed()
        assert event.kind == SPAN | OPEN
    (event,) = process(tmp_path).listed()
    assert event.kind == SPAN


def test_a_clock_that_goes_back_gives_no_negative_duration(recording: Any, clock: Clock, done: Done) -> None:
    """A duration is never below zero."""
    with recording.Span("x"):
        clock.now -= 10
    assert done().only("x").dur == 0


def test_entering_gives_the_span_itself(recording: Any) -> None:
    """`with span as x` binds the span."""
    span = recording.Span("x")
    with span as bound:
        assert bound is span


def test_exceptions_pass(recording: Any) -> None:
    """A span swallows no exception."""
    with pytest.raises(KeyError), recording.Span("x"):
        raise KeyError


def test_an_exception_marks_the_span(recording: Any, done: Done) -> None:
    """A span left by an exception is marked, and names the exception's type."""
    with pytest.raises(KeyError), recording.Span("x"):
        raise KeyError
    found = done()
    assert found.only("x").kind == SPAN | ERROR
    assert found.args(found.only("x")) == {"error": "KeyError"}


def test_an_exception_keeps_the_arguments(recording: Any, done: Done) -> None:
    """The exception's type joins the arguments that the span has."""
    with pytest.raises(OSError), recording.Span("x", args={"a": 1}):
        raise OSError
    found = done()
    assert found.args(found.only("x")) == {"a": 1, "error": "OSError"}


def test_later_entries_do_not_inherit_the_error(recording: Any, done: Done) -> None:
    """Only the entry that failed is marked."""
    span = recording.Span("x", args={"a": 1})
    with pytest.raises(KeyError), span:
        raise KeyError
    with span:
        pass
    found = done()
    assert [(e.flags, found.args(e)) for e in found.listed()] == [(ERROR, {"a": 1, "error": "KeyError"}), (0, {"a": 1})]


def test_a_closed_generator_is_no_error(recording: Any, done: Done) -> None:
    """A span inside a generator that is closed early ended well."""

    def items() -> Any:
        with recording.Span("x"):
            yield 1

    generator = items()
    next(generator)
    generator.close()
    assert done().only("x").kind == SPAN


# ── nesting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_parents_and_depths(recording: Any, done: Done) -> None:
    """Each span's parent is the innermost one open at its entry."""
    a, b, c = (recording.Span(name) for name in "abc")
    with a:
        with b, c:
            pass
        with c:
            pass
    with b:
        pass
    found = done()
    assert found.tree() == [("a", None), ("b", "a"), ("c", "b"), ("c", "a"), ("b", None)]
    assert [event.depth for event in found.listed()] == [0, 1, 2, 1, 0]


def test_recursion(recording: Any, clock: Clock, done: Done) -> None:
    """One span object entered in itself gives one event per entry, each with its own duration."""
    span = recording.Span("x")

    def descend(levels: int) -> None:
        with span:
            clock.now += 1
            if levels:
                descend(levels - 1)
            clock.now += 1

    descend(4)
    events = done().listed()
    assert [event.dur for event in events] == [10, 8, 6, 4, 2]
    assert [event.parent for event in events] == [0, 1, 2, 3, 4]


def test_depth_stops_at_255(recording: Any, done: Done) -> None:
    """A depth that does not fit its byte says 255, and the parents still lead to the root."""
    span = recording.Span("x")
    for _ in range(300):
        span.start()
    for _ in range(300):
        span.stop()
    events = done().listed()
    assert [event.depth for event in events] == [min(i, 255) for i in range(300)]
    assert [event.parent for event in events] == list(range(300))
    assert not any(event.open for event in events)


def test_leaving_out_of_order_closes_the_right_one(recording: Any, clock: Clock, done: Done) -> None:
    """Enter a, enter b, leave a: a is closed, b stays open and innermost."""
    a, b, c = (recording.Span(name) for name in "abc")
    a.start()
    clock.now += 1
    b.start()
    clock.now += 1
    a.stop()
    clock.now += 1
    with c:
        pass
    b.stop()
    with c:
        pass
    found = done()
    assert (found.only("a").dur, found.only("b").dur) == (2, 2)
    assert found.tree() == [("a", None), ("b", "a"), ("c", "b"), ("c", None)]


def test_equal_names_are_not_the_same_span(recording: Any, clock: Clock, done: Done) -> None:
    """Leaving closes an entry of this very object, not of another one with the same name."""
    one, two = recording.Span("x"), recording.Span("x")
    one.start()
    clock.now += 1
    two.start()
    clock.now += 1
    one.stop()
    clock.now += 1
    two.stop()
    assert [event.dur for event in done().listed()] == [2, 2]


def test_stop_without_start_does_nothing(recording: Any, done: Done) -> None:
    """Stopping what is not open is harmless, also twice."""
    span, other = recording.Span("x"), recording.Span("y")
    span.stop()
    with other:
        span.stop()
        span.start()
        span.stop()
        span.stop()
    assert [(e.open, e.depth) for e in done().listed()] == [(False, 0), (False, 1)]


def test_stop_leaves_the_innermost_entry(recording: Any, clock: Clock, done: Done) -> None:
    """Two starts need two stops, the inner one first."""
    span = recording.Span("x")
    span.start()
    clock.now += 1
    span.start()
    clock.now += 1
    span.stop()
    clock.now += 1
    span.stop()
    assert [event.dur for event in done().listed()] == [3, 1]


def test_stop_does_not_end_a_call(recording: Any, clock: Clock, done: Done) -> None:
    """A stray stop() inside a recorded function leaves the function's own event alone."""
    span = recording.Span("x")

    def work() -> None:
        clock.now += 1
        span.stop()
        clock.now += 1

    span.wrap(work)()
    assert done().only("x").dur == 2


def test_a_span_never_left_stays_open(recording: Any, done: Done) -> None:
    """A forgotten stop() loses nothing: the event is there, open."""
    recording.Span("x").start()
    assert done().only("x").open


# ── metadata ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_metadata_calls_stamp(recording: Any, host: FolderHost) -> None:
    """start and stop with metadata=True go to `stamp`, and open nothing."""
    stamps: list[str] = []

    class Stamped(recording.Span):
        def stamp(self, which: str) -> None:
            stamps.append(which)

    span = Stamped("x")
    span.start(metadata=True)
    span.stop(metadata=True)
    assert stamps == ["start", "end"]
    assert host.asked == 0


def test_metadata_without_stamp_does_nothing(recording: Any) -> None:
    """A span that cannot stamp ignores the request."""
    recording.Span("x").start(metadata=True)
    recording.Span("x").stop(metadata=True)


# ── the switch ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_switch_acts_at_each_entry(recording: Any, done: Done) -> None:
    """A span that is off records nothing, and can be switched at any time."""
    span = recording.Span("x")
    for on in (True, False, True):
        span.on = on
        assert span.on is on
        with span:
            pass
    assert len(done().listed()) == 2


def test_a_span_switched_off_while_open_is_still_closed(recording: Any, done: Done) -> None:
    """Switching off does not keep an open entry from being completed."""
    span = recording.Span("x")
    with span:
        span.on = False
    assert not done().only("x").open


def test_a_based_span_has_the_switch_of_its_base(recording: Any, done: Done) -> None:
    """Switching the base switches what is based on it, also further down."""
    base = recording.Span("base")
    span = recording.Span("x", base=recording.Span("y", base=base))
    base.on = False
    assert span.on is False
    with span:
        pass
    base.on = True
    with span:
        pass
    assert len(done().named("x")) == 1


@pytest.mark.parametrize("enable", [True, False])
def test_enable_overrides_the_switch(recording: Any, tmp_path: Path, enable: bool) -> None:
    """With enable=, neither the own switch nor that of the base matters."""
    base = recording.Span("base")
    span = recording.Span("x", base=base, enable=enable)
    for on in (True, False):
        base.on = on
        assert span.on is enable
        with span:
            pass
    recording.end()
    places = [place for place in tmp_path.iterdir() if place.is_dir()]
    assert len(places) == int(enable)
    assert sum(len(Process(place).listed()) for place in places) == 2 * enable


def test_base_must_be_a_span(core: Any) -> None:
    """A wrong base is a mistake in the call, and is told."""
    with pytest.raises(TypeError):
        core.Span("x", base="compute")


def test_name_and_category_can_be_read(core: Any) -> None:
    """A span knows what it is called, and cannot be renamed."""
    span = core.Span("forward", "compute")
    assert (span.name, span.cat, core.Span("x").cat) == ("forward", "compute", "user")
    with pytest.raises(AttributeError):
        span.name = "backward"


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda span: pickle.loads(pickle.dumps(span))])
def test_a_span_can_be_copied_and_pickled(recording: Any, done: Done, again: Callable[[Any], Any]) -> None:
    """A model or dataset that holds a span is copied, and sent to other processes, as ever."""
    span = recording.Span("x", "c", key=3, args={"a": 1}, level=0)
    span.shared = {"b": 2}
    with again(span):
        pass
    span.on = False
    with again(recording.Span("y", base=span)), again(recording.Span("z", base=span, enable=True)):
        pass
    found = done()
    assert [found.names[event.name] for event in found.listed()] == [("c", "x"), ("user", "z")]
    event = found.only("x")
    assert (event.key, found.args(event)) == (3, {"a": 1, "b": 2})


@pytest.mark.parametrize("tasks", [False, True])
def test_a_span_switched_off_inside_its_own_entry_leaves_that_entry_alone(
    recording: Any, done: Done, tasks: bool
) -> None:
    """The inner entry is no event, and its end is not the end of the outer one."""
    span, inside = recording.Span("x"), recording.Span("inside")
    recording.task_mode(tasks)
    with span:
        span.on = False
        with span, inside:
            pass
        span.start()
        span.stop()
        span.on = True
        with inside:
            pass
    recording.task_mode(False)
    found = done()
    outer = found.only("x")
    assert not outer.open
    assert [event.parent for event in found.listed()] == [0, outer.seq, outer.seq]
    assert all(event.start + event.dur <= outer.start + outer.dur for event in found.listed())


# ── keys and arguments ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("key", [0, 1, -1, True, 2**63 - 1, -(2**63) + 1])
def test_whole_numbers_are_keys(recording: Any, done: Done, key: int) -> None:
    """Any 64-bit number can be a key."""
    with recording.Span("x", key=key):
        pass
    found = done().only("x")
    assert (found.key, found.args) == (key, 0)


@pytest.mark.parametrize("key", [2**63, -(2**63), 2**70, "a/b.png", 1.5])
def test_other_keys_become_arguments(recording: Any, done: Done, key: object) -> None:
    """What does not fit the field of the key is kept among the arguments."""
    with recording.Span("x", key=key, args={"a": 1}):
        pass
    found = done()
    assert found.only("x").key == NO_KEY
    assert found.args(found.only("x")) == {"a": 1, "key": key}


def test_arguments_are_written_once(recording: Any, host: FolderHost, done: Done) -> None:
    """A span that is entered often encodes and writes its arguments once."""
    span = recording.Span("x", args={"path": "a"})
    for _ in range(10):
        with span:
            pass
    events = done().listed()
    assert host.encoded == 1
    assert len({event.args for event in events}) == 1


def test_arguments_belong_to_their_own_span(recording: Any, done: Done) -> None:
    """Arguments given to one span do not reach others of the same name."""
    with recording.Span("x", args={"a": 1}), recording.Span("x"):
        pass
    found = done()
    assert [found.args(event) for event in found.listed()] == [{"a": 1}, {}]


def test_arguments_are_taken_at_the_start(recording: Any, done: Done) -> None:
    """What happens to the caller's dict afterwards does not matter."""
    args = {"a": 1}
    span = recording.Span("x", args=args)
    args["a"] = 2
    with span:
        pass
    found = done()
    assert found.args(found.only("x")) == {"a": 1}


def test_shared_arguments_reach_what_is_based_on_the_span(recording: Any, done: Done) -> None:
    """`shared` is on every event of the span and of those based on it; own arguments win."""
    base = recording.Span("base")
    span = recording.Span("x", args={"b": 3}, base=base)
    base.shared = {"a": 1, "b": 2}
    with base, span:
        pass
    found = done()
    assert found.args(found.only("base")) == {"a": 1, "b": 2}
    assert found.args(found.only("x")) == {"a": 1, "b": 3}


def test_shared_arguments_can_change(recording: Any, done: Done) -> None:
    """Each event has the shared arguments of the moment it was entered."""
    span = recording.Span("x")
    for shared in ({"a": 1}, {"a": 2}, None):
        span.shared = shared
        assert span.shared == shared
        with span:
            pass
    found = done()
    assert [found.args(event) for event in found.listed()] == [{"a": 1}, {"a": 2}, {}]


def test_cut_arguments_mark_the_record(recording: Any, done: Done) -> None:
    """When the host had to cut something, the record says so, also after an error."""
    long = recording.Span("x", args={"a": "y" * 2000})
    with long:
        pass
    with pytest.raises(KeyError), long:
        raise KeyError
    assert [event.flags for event in done().listed()] == [CUT, CUT | ERROR]


def test_args_are_aligned(recording: Any, done: Done) -> None:
    """Blobs of any length start at multiples of eight, one after the other."""
    for size in range(20):
        with recording.Span("x", args={"a": "y" * size}):
            pass
    found = done()
    assert [found.args(event) for event in found.listed()] == [{"a": "y" * size} for size in range(20)]
    assert found.header["args_len"] == (found.folder / "args.bin").stat().st_size


# ── begin and end ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_recorded_before_begin(core: Any, host: FolderHost) -> None:
    """Without a recording, spans are harmless and nobody is asked for files."""
    span = core.Span("x")
    with span:
        core.counter("c", 1)
        core.mark("m")
    span.start()
    span.stop()
    core.flush()
    core.end()
    assert host.asked == 0
    assert core.info()["recording"] is False


def test_files_are_opened_at_the_first_record(recording: Any, host: FolderHost) -> None:
    """Beginning alone makes no files."""
    assert host.asked == 0
    recording.mark("m")
    assert host.asked == 1


def test_begin_again(core: Any, tmp_path: Path) -> None:
    """A second recording has its own files, and numbers that start at 1 again."""
    span = core.Span("x", args={"a": 1})
    for part in ("one", "two"):
        (tmp_path / part).mkdir()
        core.begin(FolderHost(tmp_path / part), PLENTY)
        with span:
            pass
        core.end()
    for part in ("one", "two"):
        found = process(tmp_path / part)
        assert [event.seq for event in found.listed()] == [1]
        assert found.args(found.only("x")) == {"a": 1}


def test_begin_while_recording_starts_a_new_one(core: Any, tmp_path: Path) -> None:
    """Beginning again without an end ends the first recording properly."""
    for part in ("one", "two"):
        (tmp_path / part).mkdir()
        core.begin(FolderHost(tmp_path / part), PLENTY)
        core.mark(part)
    core.end()
    assert [process(tmp_path / part).tree() for part in ("one", "two")] == [[("one", None)], [("two", None)]]


def test_a_span_open_across_the_end_is_left_alone(core: Any, tmp_path: Path) -> None:
    """What was open at the end stays open in its file, and leaving it does nothing to the next recording."""
    span = core.Span("x")
    for part in ("one", "two"):
        (tmp_path / part).mkdir()
    core.begin(FolderHost(tmp_path / "one"), PLENTY)
    with span:
        core.end()
        core.begin(FolderHost(tmp_path / "two"), PLENTY)
        core.mark("between")
    core.mark("after")
    core.end()
    assert process(tmp_path / "one").only("x").open
    assert process(tmp_path / "two").tree() == [("between", None), ("after", None)]


def test_a_call_across_the_end_is_left_alone(core: Any, tmp_path: Path) -> None:
    """The same for a recorded function that ends one recording and begins another."""
    for part in ("one", "two"):
        (tmp_path / part).mkdir()

    def swap() -> None:
        core.end()
        core.begin(FolderHost(tmp_path / "two"), PLENTY)
        core.mark("m")

    core.begin(FolderHost(tmp_path / "one"), PLENTY)
    core.Span("x").wrap(swap)()
    core.end()
    assert process(tmp_path / "one").only("x").open
    assert process(tmp_path / "two").tree() == [("m", None)]


def test_info_tells_the_state(recording: Any) -> None:
    """info() counts threads, rings, names and records."""
    before = recording.info()["names"]
    recording.set_context(3, 1)
    with recording.Span("a name that is new to info"):
        pass
    info = recording.info()
    assert (info["recording"], info["mapped"], info["threads"], info["rings"]) == (True, True, 1, 1)
    assert (info["next_seq"], info["step"], info["epoch"], info["names"] - before) == (2, 3, 1, 1)
    assert [info[name] for name in ("lost_space", "lost_cap", "lost_ring", "lost_args")] == [0, 0, 0, 0]
