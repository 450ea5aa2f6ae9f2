"""What a profiler of the vocabulary promises: switches, arguments, iteration, init, derive, update, nesting."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from time import sleep
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sonde import ai
from sonde.ai.node import Node

if TYPE_CHECKING:
    from tests.ai.conftest import Recording

MS = 1_000_000


# ── the forms ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_decorates_in_every_form(recording: Recording) -> None:
    """Bare, called, with arguments, and as a direct call: each gives one event per call."""

    def work() -> str:
        return "done"

    forms = (
        ai.compute.forward(work),
        ai.compute.forward()(work),
        ai.compute.forward(args={"a": 1})(work),
        ai.compute.forward(work, args={"a": 1}),
        ai.compute.forward(work, enable=False),
        ai.compute.forward(work, enable=True),
    )
    assert [form() for form in forms] == ["done"] * 6
    assert [event.args for event in recording.named("forward")] == [{}, {}, {"a": 1}, {"a": 1}, {}]


def test_a_node_called_without_arguments_is_the_node() -> None:
    """`with node():` costs no new object."""
    assert ai.comm.all_reduce() is ai.comm.all_reduce


def test_the_root_is_a_profiler(recording: Recording) -> None:
    """`ai` itself works as a context manager, as a decorator, with start and stop, and as an iterator."""
    with ai:
        pass

    @ai
    def work() -> None: ...

    work()
    ai.start()
    ai.stop()
    assert list(ai.iter([1])) == [1]
    assert recording.counts() == {"ai_root": 3, "ai_root.iter": 1, "ai_root.block": 1}
    assert {event.cat for event in recording.events} == {"ai_root"}


def test_categories_are_profilers(recording: Recording) -> None:
    """A category records events named as itself."""
    with ai.compute, ai.data.io, ai.data.io.open, ai.other.log:
        pass
    assert recording.shape() == [
        ("compute", "compute", None),
        ("data", "data.io", "compute"),
        ("data", "data.io.open", "data.io"),
        ("other", "other.log", "data.io.open"),
    ]


def test_a_decorated_function_keeps_its_looks() -> None:
    """Name, documentation, signature and module are those of the function."""

    @ai.compute.forward(args={"a": 1})
    def forward(model: int, *, scale: float = 1.0) -> float:
        """Multiply."""
        return model * scale

    assert forward.__name__ == "forward"
    assert forward.__doc__ == "Multiply."
    assert forward.__module__ == __name__
    assert list(inspect.signature(forward).parameters) == ["model", "scale"]


def test_static_and_class_methods_are_recorded_under_and_over_their_decorators(recording: Recording) -> None:
    """The profiler may stand above or below `@staticmethod` and `@classmethod`."""

    class Loader:
        @ai.data.item
        @staticmethod
        def above(x: int) -> int:
            return x

        @staticmethod
        @ai.data.item
        def below(x: int) -> int:
            return x

        @classmethod
        @ai.data.item
        def kind(cls, x: int) -> tuple[str, int]:
            return cls.__name__, x

    assert Loader.above(1) == Loader().above(1) == 1
    assert Loader.below(2) == Loader().below(2) == 2
    assert Loader.kind(3) == ("Loader", 3)
    assert recording.counts() == {"item": 5}


def test_an_exception_passes_and_marks_the_event(recording: Recording) -> None:
    """The event of a block that raised is there, complete, with the flag error; the one beside it has none."""
    with pytest.raises(KeyError, match="mine"), ai.compute.forward:
        raise KeyError("mine")
    with ai.compute.backward:
        pass
    assert recording.one("forward").error
    assert recording.one("forward").args == {"error": "KeyError"}
    assert not recording.one("forward").open
    assert not recording.one("backward").error


# ── the switch ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_function_decorated_while_disabled_records_after_enable(recording: Recording) -> None:
    """The switch is read at the call, not at the definition."""
    ai.compute.disable()

    @ai.compute.forward
    def bare() -> None: ...

    @ai.compute.forward()
    def called() -> None: ...

    @ai.compute.forward(args={"a": 1})
    def detached() -> None: ...

    for _ in range(2):
        bare()
        called()
        detached()
        ai.compute.enable()
    assert [event.args for event in recording.events] == [{}, {}, {"a": 1}]


def test_a_detached_profiler_follows_its_node(recording: Recording) -> None:
    """Disable and enable reach what `node(args=...)` returned before."""
    detached = ai.comm.send(args={"to": 1})
    ai.comm.disable()
    with detached:
        pass
    ai.enable()
    with detached:
        pass
    assert [event.args for event in recording.events] == [{"to": 1}]


@pytest.mark.parametrize("state", [True, False])
def test_an_override_wins_whatever_the_node_says(recording: Recording, state: bool) -> None:
    """`enable=True` records and `enable=False` does not, with the category on or off, before or after."""
    on, off = ai.comm.send(enable=True), ai.comm.receive(enable=False)
    ai.comm.enable() if state else ai.comm.disable()
    with on, off:
        pass
    assert recording.counts() == {"send": 1}


def test_a_derived_node_inherits_the_switch(recording: Recording) -> None:
    """What is derived from a disabled node is disabled, and enabled together with it."""
    ai.data.preprocess.disable()
    derived = ai.data.preprocess.derive(name="late")
    with derived, derived.derive("deeper"):
        pass
    assert recording.events == []
    ai.data.enable()
    with derived, derived.derive("deeper"):
        pass
    assert recording.counts() == {"preprocess.late": 1, "preprocess.late.deeper": 1}


def test_a_child_can_be_enabled_alone(recording: Recording) -> None:
    """After `ai.disable()` one node may be switched on again."""
    ai.disable()
    ai.compute.step.enable()
    with ai.compute, ai.compute.step, ai.compute.forward:
        pass
    assert recording.shape() == [("compute", "step", None)]


def test_iter_follows_the_switch_item_by_item(recording: Recording) -> None:
    """A loop that is running when its node is disabled records no further items, and goes on when it is enabled."""
    for item in ai.dataloader.fetch.iter(range(6)):
        if item == 1:
            ai.dataloader.disable()
        if item == 3:
            ai.dataloader.enable()
    assert [event.key for event in recording.named("fetch.iter")] == [1, 2, 5, 6]


def test_an_entry_that_was_open_when_its_node_was_disabled_is_completed(recording: Recording) -> None:
    """Disable inside a block does not lose the block."""
    with ai.compute.forward:
        ai.compute.disable()
    assert not recording.one("forward").open


def test_a_block_entered_while_disabled_is_no_event_when_it_is_left_enabled(recording: Recording) -> None:
    """Enable inside a block does not close somebody else's entry."""
    with ai.compute.step:
        ai.compute.disable()
        with ai.compute.forward:
            ai.compute.enable()
        with ai.compute.backward:
            pass
    assert recording.shape() == [("compute", "step", None), ("compute", "backward", "step")]


# ── arguments ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_arguments_belong_to_their_own_event(recording: Recording) -> None:
    """Neither the next event of the node nor one inside has them."""
    with ai.compute.forward(args={"k": "v"}), ai.compute.forward:
        pass
    with ai.compute.forward:
        pass
    assert [event.args for event in recording.events] == [{"k": "v"}, {}, {}]


def test_all_ways_to_give_arguments(recording: Recording) -> None:
    """`args=`, the names of the guide and any keyword, together."""
    with ai.data.item(args={"a": 1}, epoch=3, step=4, image_idx=5, image_size=6.5, label="cat", missing=None):
        pass
    with ai.data.item:
        pass
    first, second = recording.events
    assert first.args == {
        "a": 1,
        "epoch": 3,
        "step": 4,
        "image_idx": 5,
        "image_size": 6.5,
        "label": "cat",
        "missing": None,
    }
    assert (first.epoch, first.step, second.args) == (None, None, {})


def test_a_key_says_what_the_event_is_about(recording: Recording) -> None:
    """`key=` goes into the record, not among the arguments."""
    with ai.data.item(key=8412):
        pass
    assert (recording.one("item").key, recording.one("item").args) == (8412, {})


def test_a_detached_profiler_takes_more_arguments(recording: Recording) -> None:
    """Calling it again adds to what it has; the first one stays as it was."""
    first = ai.comm.send(args={"a": 1}, enable=True)
    with first(b=2), first:
        pass
    assert [event.args for event in recording.events] == [{"a": 1, "b": 2}, {"a": 1}]


def test_changing_a_dictionary_afterwards_changes_no_event(recording: Recording) -> None:
    """Arguments are taken when they are given."""
    given = {"a": 1}
    profiler = ai.comm.send(args=given)
    given["a"] = 2
    with profiler:
        pass
    assert recording.one("send").args == {"a": 1}


# ── update ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_update_reaches_the_subtree_and_nothing_else(recording: Recording) -> None:
    """Children, derived ones, iter, init and detached ones carry it; siblings do not."""
    derived = ai.data.preprocess.derive(name="collate")
    assert ai.data.preprocess.update(args={"foo": "bar"}) is ai.data.preprocess
    with ai.data.preprocess, derived, ai.data.preprocess.init, ai.data.preprocess(x=1):
        pass
    list(ai.data.preprocess.iter([0]))
    with ai.data.item:
        pass
    assert [event.args for event in recording.events] == [
        {"foo": "bar"},
        {"foo": "bar"},
        {"foo": "bar"},
        {"foo": "bar", "x": 1},
        {"foo": "bar"},
        {"foo": "bar"},
        {},
    ]


def test_what_a_child_was_given_wins(recording: Recording) -> None:
    """In either order of the two updates."""
    ai.compute.forward.update(who="child", only="child")
    ai.compute.update(who="category", both="category")
    ai.update(who="root", all="root")
    with ai.compute.forward, ai.compute.backward, ai.device.transfer:
        pass
    assert [event.args for event in recording.events] == [
        {"all": "root", "who": "child", "both": "category", "only": "child"},
        {"all": "root", "who": "category", "both": "category"},
        {"all": "root", "who": "root"},
    ]


def test_a_node_derived_after_an_update_inherits_it(recording: Recording) -> None:
    """Also through several levels."""
    ai.data.update(tag=1)
    with ai.data.preprocess.derive(name="after").derive(name="update"):
        pass
    assert recording.one("preprocess.after.update").args == {"tag": 1}


def test_own_arguments_win_over_updates(recording: Recording) -> None:
    """`node(args=...)` is closer to the event than `update`."""
    ai.compute.update(args={"a": 1, "b": 1})
    with ai.compute.forward(a=2):
        pass
    assert recording.one("forward").args == {"a": 2, "b": 1}


def test_step_and_epoch_are_one_pair_for_the_process(recording: Recording) -> None:
    """Whoever sets it, all later events have it, also those of other threads; what is not given stays."""
    ai.compute.forward.update(epoch=1, step=10)
    with ai.device.transfer:
        pass
    ai.update(step=11)
    thread = threading.Thread(target=ai.device.transfer(lambda: None))
    thread.start()
    thread.join()
    assert [(event.epoch, event.step, event.args) for event in recording.events] == [(1, 10, {}), (1, 11, {})]


def test_numbers_of_numpy_are_numbers(recording: Recording) -> None:
    """A step that is a numpy integer counts as any other."""
    ai.update(step=np.int64(5), epoch=np.uint8(2))
    with ai.compute.step:
        pass
    assert (recording.one("step").epoch, recording.one("step").step) == (2, 5)


@pytest.mark.parametrize(
    "value", ["x", 2**70, -5, 1.5, object(), [], float("nan")], ids=lambda value: type(value).__name__
)
def test_nonsense_as_step_or_argument_never_raises(recording: Recording, value: object) -> None:
    """The event is recorded all the same."""
    ai.update(step=value, epoch=value, image_idx=value, args={"v": value})
    ai.update(args=value)  # type: ignore[arg-type]
    with ai.compute.step(args=value, key=value, anything=value):  # type: ignore[call-overload]
        pass
    assert len(recording.named("step")) == 1


def test_update_on_a_detached_profiler_updates_its_node(recording: Recording) -> None:
    """`with node(...) as profiler: profiler.update(step=...)` works."""
    with ai.compute.step(args={"a": 1}) as profiler:
        assert profiler.update(step=3, tag="x") is profiler
        with ai.compute.step:
            pass
    assert recording.events[1].step == 3
    assert recording.events[1].args == {"tag": "x"}


# ── iter ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_iter_keeps_the_last_item_on_break(recording: Recording) -> None:
    """Both events of the item at which the loop was left are there."""
    for item in ai.dataloader.fetch.iter(range(10)):
        if item == 1:
            break
    assert [(event.name, event.key, event.open) for event in recording.events] == [
        ("fetch.iter", 1, False),
        ("fetch.block", 1, False),
        ("fetch.iter", 2, False),
        ("fetch.block", 2, False),
    ]


def test_iter_keeps_the_last_item_on_an_exception_of_the_body(recording: Recording) -> None:
    """The block of that item is complete once the loop's frame is gone."""

    def loop() -> None:
        for _ in ai.dataloader.fetch.iter(range(10)):
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        loop()
    assert [(event.name, event.key, event.open) for event in recording.events] == [
        ("fetch.iter", 1, False),
        ("fetch.block", 1, False),
    ]


def test_iter_marks_a_wait_that_raised(recording: Recording) -> None:
    """An exception of the iterator passes, and its wait is an event with the flag error."""

    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        list(ai.dataloader.fetch.iter(failing()))
    assert [(event.name, event.error) for event in recording.events] == [
        ("fetch.iter", False),
        ("fetch.block", False),
        ("fetch.iter", True),
    ]


def test_iter_over_nothing_records_nothing(recording: Recording) -> None:
    """The last, exhausted wait is no event."""
    assert list(ai.dataloader.fetch.iter([])) == []
    assert recording.events == []


def test_the_count_is_local_to_each_loop(recording: Recording) -> None:
    """Two loops at once count for themselves, and a later plain event has no count."""
    for _ in zip(ai.dataloader.fetch.iter(range(2)), ai.dataloader.fetch.iter(range(2)), strict=True):
        pass
    with ai.dataloader.fetch:
        pass
    assert sorted(event.key for event in recording.named("fetch.iter") if event.key) == [1, 1, 2, 2]
    assert recording.one("fetch").key is None


def test_iter_leaves_out_what_is_not_wanted(recording: Recording) -> None:
    """Only waits, only blocks, or nothing; the items come in any case."""
    fetch = ai.dataloader.fetch
    assert list(fetch.iter("ab", include_block=False)) == ["a", "b"]
    assert list(fetch.iter("ab", include_iter=False)) == ["a", "b"]
    assert list(fetch.iter("ab", include_iter=False, include_block=False)) == ["a", "b"]
    assert recording.counts() == {"fetch.iter": 2, "fetch.block": 2}


def test_iter_takes_other_names_and_doubles_no_suffix(recording: Recording) -> None:
    """`iter_name` and `block_name` replace the profiler's name."""
    list(ai.dataloader.fetch.iter([1], iter_name="wait", block_name="use.block"))
    assert [(event.cat, event.name) for event in recording.events] == [
        ("dataloader", "wait.iter"),
        ("dataloader", "use.block"),
    ]


def test_iter_of_a_detached_profiler_carries_its_arguments(recording: Recording) -> None:
    """And its override of the switch."""
    ai.dataloader.disable()
    list(ai.dataloader.fetch(args={"loader": "val"}, enable=True).iter([1]))
    assert [(event.name, event.args) for event in recording.events] == [
        ("fetch.iter", {"loader": "val"}),
        ("fetch.block", {"loader": "val"}),
    ]


def test_iter_refuses_what_is_not_iterable() -> None:
    """A mistake in the user's program shows where it is made."""
    with pytest.raises(TypeError):
        ai.dataloader.fetch.iter(5)  # type: ignore[arg-type]


# ── init and derive ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_init_works_bare_and_called_as_decorator_and_as_context(recording: Recording) -> None:
    """All four forms record `<name>.init`."""

    class Dataset:
        @ai.data.item.init
        def __init__(self) -> None: ...

        @ai.data.item.init()
        def set_up(self) -> None: ...

    Dataset().set_up()
    with ai.data.item.init:
        pass
    with ai.data.item.init():
        pass
    with ai.data.item.init(args={"n": 5}):
        pass
    assert recording.counts() == {"item.init": 5}
    assert {event.cat for event in recording.events} == {"data"}
    assert recording.events[4].args == {"n": 5}


def test_derive_caches_and_nests(recording: Recording) -> None:
    """The same name gives the same object; names grow from level to level."""
    collate = ai.data.preprocess.derive(name="collate")
    assert ai.data.preprocess.derive("collate") is collate
    assert collate.derive("deep") is collate.derive(name="deep")
    with collate.derive("deep"):
        pass
    assert recording.shape() == [("data", "preprocess.collate.deep", None)]


def test_a_derived_node_never_replaces_one_of_the_table(recording: Recording) -> None:
    """`compute.derive("forward")` is `compute.forward` beside `forward`, and a method keeps its place."""
    derived, method = ai.compute.derive("forward"), ai.compute.derive("update")
    assert (derived.name, method.name) == ("compute.forward", "compute.update")
    assert ai.compute.forward.name == "forward"
    assert ai.compute.update(step=1) is ai.compute


def test_threads_that_derive_the_same_name_get_the_same_node() -> None:
    """Whoever comes first."""
    ready = threading.Barrier(8)
    found: list[Node] = []

    def derive() -> None:
        ready.wait()
        found.extend(ai.data.preprocess.derive(f"race{i}") for i in range(50))

    threads = [threading.Thread(target=derive) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(node) for node in found}) == 50


# ── metadata ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_metadata_is_there_for_a_reader_at_once(recording: Recording) -> None:
    """Before `stop`, and while the program still records."""
    ai.pipeline.epoch.start(metadata=True)
    (event,) = recording.events
    assert (event.kind, event.cat, event.name) == ("mark", "pipeline", "epoch.start")
    ai.pipeline.epoch.stop(metadata=True)
    assert [event.name for event in recording.events] == ["epoch.start", "epoch.end"]


def test_metadata_follows_switch_and_arguments(recording: Recording) -> None:
    """A disabled node writes no mark; a detached one its arguments."""
    ai.pipeline.disable()
    ai.pipeline.epoch.start(metadata=True)
    ai.pipeline.epoch(enable=True, n=1).start(metadata=True)
    ai.pipeline.enable()
    ai.pipeline.epoch(enable=False).start(metadata=True)
    ai.pipeline.epoch.update(tag="t").stop(metadata=True)
    assert [(event.name, event.args) for event in recording.events] == [
        ("epoch.start", {"n": 1}),
        ("epoch.end", {"tag": "t"}),
    ]


# ── nesting, threads, generators, coroutines ─────────────────────────────────────────────────────────────────────────


def test_nested_use_of_one_profiler_keeps_both_events(recording: Recording) -> None:
    """The outer one is as long as it was, and the parent of the inner one."""
    with ai.compute.forward:
        sleep(0.002)
        with ai.compute.forward:
            sleep(0.002)
        sleep(0.002)
    outer, inner = recording.events
    assert (outer.parent, inner.parent) == (None, outer.seq)
    assert outer.dur_ns >= 6 * MS
    assert 2 * MS <= inner.dur_ns <= outer.dur_ns - 4 * MS


def test_recursion_keeps_every_level(recording: Recording) -> None:
    """Depth and parents follow the calls."""

    @ai.compute.forward
    def down(n: int) -> int:
        return n and down(n - 1)

    down(3)
    events = recording.events
    assert [event.depth for event in events] == [0, 1, 2, 3]
    assert [event.parent for event in events] == [None, *(event.seq for event in events[:3])]


def test_start_and_stop_nest_and_a_stop_too_many_is_nothing(recording: Recording) -> None:
    """Stop closes the innermost entry of its own profiler."""
    ai.compute.step.start()
    ai.compute.step.start()
    ai.compute.step.stop()
    ai.compute.step.stop()
    ai.compute.step.stop()
    assert [(event.depth, event.open) for event in recording.events] == [(0, False), (1, False)]


def test_a_forgotten_stop_leaves_an_open_event(recording: Recording) -> None:
    """It is not lost, and says that it is open."""
    ai.compute.step.start()
    assert recording.one("step").open
    ai.compute.step.stop()


def test_reset_starts_a_new_event(recording: Recording) -> None:
    """What was running is recorded up to there."""
    with ai.compute.step as step:
        step.reset()
    assert recording.counts() == {"step": 2}
    assert not any(event.open for event in recording.events)


def test_threads_have_their_own_entries(recording: Recording) -> None:
    """Eight threads in one profiler: every event is there, none has a parent in another thread."""

    @ai.data.item
    def item() -> None:
        with ai.data.preprocess:
            pass

    def work() -> None:
        for _ in range(200):
            item()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recording.counts() == {"item": 1600, "preprocess": 1600}
    items = {event.seq: event for event in recording.named("item")}
    inner = recording.named("preprocess")
    assert all(event.parent is not None and items[event.parent].tid == event.tid for event in inner)
    assert {event.parent for event in inner} == set(items)


def test_a_generator_is_recorded_for_its_real_life(recording: Recording) -> None:
    """From the first item to the end; what runs inside has it as parent, what the consumer does has not."""

    @ai.dataloader.fetch
    def batches() -> Iterator[int]:
        for i in range(3):
            with ai.data.item:
                sleep(0.002)
            yield i

    assert inspect.isgeneratorfunction(batches)
    for _ in batches():
        with ai.compute.step:
            pass
    assert recording.one("fetch").dur_ns >= 6 * MS
    assert recording.parents("item") == {"fetch"}
    assert recording.parents("step") == {None}


def test_coroutines_are_recorded_for_their_real_life(recording: Recording) -> None:
    """A coroutine function stays one, and tasks that interleave keep their own parents."""

    @ai.data.item
    async def load(i: int) -> int:
        with ai.data.io.read(key=i):
            await asyncio.sleep(0.002)
        return i

    @ai.dataloader.fetch
    async def stream() -> AsyncIterator[int]:
        for i in range(2):
            yield await load(i)

    async def main() -> list[int]:
        loaded = await asyncio.gather(*(load(i) for i in range(10)))
        return [*loaded, *[i async for i in stream()]]

    assert inspect.iscoroutinefunction(load)
    assert inspect.isasyncgenfunction(stream)
    assert asyncio.run(main()) == [*range(10), 0, 1]
    assert recording.counts() == {"item": 12, "data.io.read": 12, "fetch": 1}
    assert all(event.dur_ns >= 2 * MS for event in recording.named("item"))
    reads = recording.named("data.io.read")
    assert {event.parent for event in reads} == {event.seq for event in recording.named("item")}


# ── trees ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_custom_profilers_have_their_own_tree(recording: Recording) -> None:
    """One for each category and name; `ai.disable()` does not reach it, its own switch does."""
    mine = ai.custom(cat="simulation", name="solve", epoch=1, solver="cg")
    assert ai.custom(cat="simulation", name="solve") is mine
    assert ai.custom("simulation").name == "simulation"
    ai.disable()
    with mine, mine.derive("inner"), ai.custom("simulation", "solve", enable=False):
        pass
    assert [(event.cat, event.name, event.args) for event in recording.events] == [
        ("simulation", "solve", {"epoch": 1, "solver": "cg"}),
        ("simulation", "solve.inner", {"epoch": 1, "solver": "cg"}),
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ai,
        lambda: ai.compute.forward,
        lambda: ai.data.io.read,
        lambda: ai.data.item.init,
        lambda: ai.data.preprocess.derive("a").derive("b"),
        lambda: ai.custom("mine", "x").derive("y"),
    ],
)
def test_a_node_is_the_same_after_pickling_and_copying(make: Any) -> None:
    """So that a dataset may hold one and go to a worker."""
    node = make()
    assert pickle.loads(pickle.dumps(node)) is node
    assert copy.deepcopy([node])[0] is node


def test_a_detached_profiler_can_be_pickled(recording: Recording) -> None:
    """With its arguments."""
    with pickle.loads(pickle.dumps(ai.comm.send(args={"to": 3}, key=4))):
        pass
    assert (recording.one("send").args, recording.one("send").key) == ({"to": 3}, 4)


def test_a_wrong_name_raises_and_the_interpreter_names_the_right_one() -> None:
    """AttributeError, with the nearest name in what Python prints."""
    with pytest.raises(AttributeError, match="'Compute' object has no attribute 'forwrd'"):
        _ = ai.compute.forwrd  # type: ignore[attr-defined]
    program = "from sonde import ai\nai.compute.forwrd"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert "Did you mean: 'forward'?" in done.stderr


def test_the_package_can_be_imported_in_every_way() -> None:
    """The root stands for the package; its modules and names are found as in any package."""
    program = """
import importlib, sys
import sonde.ai
import sonde.ai as one
from sonde import ai as two
from sonde.ai import comm, compute, data, dataloader, device, checkpoint, pipeline, other, update, custom, Node
import sonde.ai.node as node_module
from sonde.ai.vocabulary import TABLE
from sonde.ai import *
assert sonde.ai is one is two is importlib.import_module("sonde.ai") is sys.modules["sonde.ai"]
assert compute is one.compute and node_module.Node is Node and isinstance(one, Node)
assert sonde.ai.vocabulary.TABLE is TABLE and one.__name__ == "sonde.ai" and "vocabulary" in one.__doc__
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
