"""Random nesting, checked against a model that is a plain list."""

from __future__ import annotations

import importlib
from typing import Any

from hypothesis import given, settings, strategies as st
from tests.events.conftest import MODULES, Clock
from tests.events.harness import COUNTER, ERROR, MARK, NO_STEP, PLENTY, SPAN, Event, FolderHost, process

NAMES = ("a", "b", "c")
ACTIONS = st.one_of(
    st.tuples(st.just("start"), st.sampled_from(range(3))),
    st.tuples(st.just("stop"), st.sampled_from(range(3))),
    st.tuples(st.just("fail"), st.sampled_from(range(3))),
    st.tuples(st.just("tick"), st.integers(1, 1000)),
    st.tuples(st.just("mark"), st.integers(-(2**63) + 1, 2**63 - 1)),
    st.tuples(st.just("counter"), st.integers(-1000, 1000)),
    st.tuples(st.just("step"), st.integers(0, 2**32 - 2)),
    st.tuples(st.just("flush"), st.just(0)),
    st.tuples(st.just("fill"), st.sampled_from([1, 681, 1364, 1365])),
)


class Model:
    """What the store must say: [kind, name, start, dur or value, parent, depth, step], None while open."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self.open: list[int] = []
        self.now = 0
        self.step: int | None = None

    def add(self, kind: int, name: str, value: object) -> None:
        parent = self.open[-1] if self.open else 0
        self.rows.append([kind, name, self.now, value, parent, len(self.open), self.step])

    def start(self, name: str) -> None:
        self.add(SPAN, name, None)
        self.open.append(len(self.rows))

    def stop(self, name: str, flag: int) -> None:
        for seq in reversed(self.open):
            if self.rows[seq - 1][1] == name:
                self.open.remove(seq)
                self.rows[seq - 1][3] = self.now - self.rows[seq - 1][2]
                self.rows[seq - 1][0] |= flag
                return


def apply(core: Any, spans: list[Any], clock: Clock, model: Model, action: str, value: int) -> None:
    """Do one thing, to the core and to the model."""
    if action == "start":
        spans[value].start()
        model.start(NAMES[value])
    elif action in ("stop", "fail"):
        error = KeyError if action == "fail" else None
        spans[value].__exit__(error, None, None)
        model.stop(NAMES[value], ERROR if error else 0)
    elif action == "tick":
        clock.now += value
        model.now += value
    elif action == "mark":
        core.mark("m", key=value)
        model.add(MARK, "m", 0)
    elif action == "counter":
        core.counter("n", value)
        model.add(COUNTER, "n", float(value))
    elif action == "step":
        core.set_context(value, None)
        model.step = value
    elif action == "flush":
        core.flush()
    else:
        for _ in range(value):
            core.mark("f")
            model.add(MARK, "f", 0)


def row(name: str, event: Event) -> list[Any]:
    value = None if event.open else event.value if event.sort == COUNTER else event.dur
    kind = event.kind & (7 | ERROR)
    return [kind, name, event.start, value, event.parent, None, None if event.step == NO_STEP else event.step]


@settings(deadline=None, max_examples=60)
@given(actions=st.lists(ACTIONS, max_size=60))
def test_any_order_of_entries_and_exits(core_name: str, tmp_path_factory: Any, actions: list[tuple[str, int]]) -> None:
    """Whatever the order of starts, stops, failures, points, steps and spills, the store says what happened."""
    core: Any = importlib.import_module(MODULES[core_name])
    folder = tmp_path_factory.mktemp("model")
    clock, model = Clock(), Model()
    clock.now = 0
    core.set_clock(clock)
    core.set_context(-1, -1)
    core.begin(FolderHost(folder), PLENTY)
    spans = [core.Span(name) for name in NAMES]
    try:
        for action, value in actions:
            apply(core, spans, clock, model, action, value)
    finally:
        core.end()
        core.set_clock(None)
        core.set_context(-1, -1)
    if model.rows:
        found = process(folder)
        assert not found.gaps
        assert [row(found.name(event), event) for event in found.listed()] == [[*r[:5], None, r[6]] for r in model.rows]
