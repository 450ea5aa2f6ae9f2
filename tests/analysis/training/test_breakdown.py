"""Phases of steps: nothing counted twice, nothing lost, nothing invented."""

from __future__ import annotations

from typing import Literal
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings, strategies as st

from sonde.analysis.records.schema import PHASES
from sonde.analysis.training import intervals
from sonde.analysis.training.breakdown import Timeline, Updates
from sonde.analysis.training.fold import Folded
from sonde.analysis.training.intervals import (
    BACKWARD,
    CHECKPOINT,
    EVALUATION,
    FORWARD,
    H2D,
    INPUT_WAIT,
    ITER,
    NONE,
    OPTIMIZER,
    Spans,
    nest,
)
from sonde.analysis.training.purpose import EVALUATE, TRAIN
from sonde.store.probe import FORWARD_GRAD, FORWARD_LEARNED, FORWARD_TRAINING, batch_key

TRAINING = FORWARD_TRAINING | FORWARD_GRAD
Row = tuple[int, int, int, int]  # code, start, end, key


def timeline(spans: list[Row], updates: list[int]) -> Timeline:
    columns = np.array(spans, dtype=np.int64).reshape(-1, 4).T
    count = len(updates)
    return Timeline(
        Spans(columns[0].astype(np.uint8), columns[1].copy(), columns[2].copy(), columns[3].copy()),
        Updates(np.array(updates, np.int64), np.arange(count), np.full(count, NONE), np.zeros(count, np.int64)),
    )


def fold(spans: list[Row], updates: list[int]) -> Folded:
    return timeline(spans, updates).fold(0, len(updates) + 1)


def spent(spans: list[Row], updates: list[int]) -> list[dict[str, int]]:
    """For each row the phases that took time."""
    found = fold(spans, updates)
    return [{PHASES[place]: int(ns) for place, ns in enumerate(row) if ns} for row in found.spent]


def step(at: int, number: int) -> list[Row]:
    """Fetch, forward, backward, optimizer, 10 each, with pauses of 5."""
    return [
        (INPUT_WAIT, at, at + 10, batch_key(0, 0, number)),
        (FORWARD, at + 15, at + 25, TRAINING),
        (BACKWARD, at + 30, at + 40, 0),
        (OPTIMIZER, at + 45, at + 55, 0),
    ]


def test_a_step_reaches_from_update_to_update() -> None:
    """The first one from its first event."""
    found = fold(step(100, 0) + step(160, 1), [155, 215])
    assert found.start.tolist() == [100, 155, 215]
    assert found.end.tolist() == [155, 215, 215]
    assert found.spent[:2, [INPUT_WAIT, FORWARD, BACKWARD, OPTIMIZER]].tolist() == [[10] * 4] * 2


def test_an_update_inside_the_optimizer_ends_the_step_with_it() -> None:
    """The mark is written before the span is left."""
    found = fold(step(100, 0) + step(160, 1), [153, 214])
    assert found.end.tolist()[:2] == [155, 215]
    assert found.spent[:2, OPTIMIZER].tolist() == [10, 10]


def test_a_forward_inside_the_optimizer_is_forward() -> None:
    """A closure: the optimizer has only what is left."""
    spans = [(OPTIMIZER, 0, 100, 0), (FORWARD, 10, 30, TRAINING), (BACKWARD, 30, 60, 0), (FORWARD, 60, 70, TRAINING)]
    assert spent(spans, [100])[0] == {"optimizer": 40, "forward": 30, "backward": 30}


def test_a_transfer_inside_a_forward_inside_an_optimizer_counts_once() -> None:
    """Three levels."""
    spans = [(OPTIMIZER, 0, 100, 0), (FORWARD, 10, 50, TRAINING), (H2D, 20, 25, 64)]
    assert spent(spans, [100])[0] == {"optimizer": 60, "forward": 35, "h2d": 5}


def test_spans_that_cross_are_cut() -> None:
    """Tasks that interleave in one thread: the second loses what the first has."""
    outer, end = nest(np.array([0, 5, 12]), np.array([10, 20, 15]))
    assert outer.tolist() == [-1, 0, 0]
    assert end.tolist() == [10, 10, 12]


def test_evaluation_is_a_stretch_with_its_pauses() -> None:
    """From the first fetch to the last forward, and the checkpoint in it stays a checkpoint."""
    spans = [
        *step(0, 0),
        (ITER, 60, 65, batch_key(1, 0, 0)),
        (INPUT_WAIT, 70, 80, batch_key(1, 0, 0)),
        (FORWARD, 85, 90, 0),
        (CHECKPOINT, 92, 95, 0),
        (INPUT_WAIT, 100, 110, batch_key(1, 0, 1)),
        (H2D, 111, 112, 64),
        (FORWARD, 115, 120, 0),
    ]
    found = spent(spans + step(130, 1), [55, 185])
    assert found[1] == {
        "evaluation": 60 - 3, "checkpoint": 3, "input_wait": 10, "forward": 10, "backward": 10, "optimizer": 10,
    }  # fmt: skip


def test_evaluation_after_the_last_update_is_no_step() -> None:
    """It stands in the row behind the steps."""
    spans = [*step(0, 0), (INPUT_WAIT, 70, 80, batch_key(1, 0, 0)), (FORWARD, 85, 90, 0)]
    spans += [(INPUT_WAIT, 90, 92, batch_key(1, 0, 1)), (FORWARD, 92, 100, 0)]
    assert spent(spans, [55])[1] == {"evaluation": 30}


def test_an_evaluation_between_fetch_and_use_leaves_the_training_forward_alone() -> None:
    """`for batch in loader: evaluate(); model(batch)`."""
    first = batch_key(0, 0, 0)
    spans = [(INPUT_WAIT, 0, 10, first), (INPUT_WAIT, 20, 25, batch_key(1, 0, 0)), (FORWARD, 25, 30, 0)]
    spans += [(INPUT_WAIT, 30, 35, batch_key(1, 0, 1)), (FORWARD, 35, 40, 0)]
    spans += [(FORWARD, 50, 60, TRAINING), (BACKWARD, 60, 70, 0), (OPTIMIZER, 70, 80, 0)]
    assert spent(spans + step(80, 1), [80, 135])[0] == {
        "input_wait": 10, "evaluation": 20, "forward": 10, "backward": 10, "optimizer": 10,
    }  # fmt: skip


def test_a_fetch_in_an_explicit_evaluation_is_for_that() -> None:
    """Whatever comes after it, and whatever the modes of its forward are."""
    spans = [*step(0, 0), (EVALUATION, 60, 90, 0), (INPUT_WAIT, 65, 70, batch_key(1, 0, 0))]
    spans += [(FORWARD, 75, 85, TRAINING), *step(100, 0)[1:]]
    line = timeline(spans, [55, 155])
    assert line.purposes.purpose.tolist() == [TRAIN, EVALUATE]
    assert line.fold(0, 2).spent[1, [INPUT_WAIT, FORWARD, EVALUATION]].tolist() == [0, 10, 30]


def test_a_batch_belongs_to_the_step_of_its_backward() -> None:
    """Some loops fetch the next one before the update, and the last step of an epoch may have fewer than the others."""
    early = [row for n in range(3) for row in step(60 * n, n)]
    early = [(code, start - 18, end - 18, key) if code == INPUT_WAIT and key & 3 else (code, start, end, key)
             for code, start, end, key in early]  # fmt: skip
    assert timeline(early, [55, 115, 175]).trained()[1].tolist() == [0, 1, 2]
    ahead = [(INPUT_WAIT, at, at + 1, batch_key(0, 0, n)) for n, at in enumerate((0, 2, 4, 40, 44))]
    passes = [(BACKWARD, at, at + 5, 0) for at in (10, 20, 50, 60, 80)]
    assert timeline(ahead + passes, [30, 70, 90]).trained()[1].tolist() == [0, 0, 1, 1, 2]


def test_a_teacher_without_gradients_is_part_of_the_step() -> None:
    """With a loader the batch says so, without one that it happens in every step."""
    teacher = [[(FORWARD, at + 11, at + 14, 0)] for at in (0, 60, 120)]
    with_loader = [row for n, at in enumerate((0, 60, 120)) for row in (*step(at, n), *teacher[n])]
    assert [row.get("evaluation") for row in spent(with_loader, [55, 115, 175])] == [None] * 4
    without = [row for row in with_loader if row[0] != INPUT_WAIT]
    assert [row.get("evaluation") for row in spent(without, [55, 115, 175])] == [None] * 4


def test_a_model_that_learns_is_evaluated_also_in_every_step() -> None:
    """As where all data are one batch, held by the program: no teacher goes forward with gradients at other times."""
    steps = [
        row for n in range(3) for row in (*step(60 * n, n)[1:], (FORWARD, 60 * n + 1, 60 * n + 4, FORWARD_LEARNED))
    ]
    assert [row.get("evaluation") for row in spent(steps, [55, 115, 175])] == [3, 3, 3, None]


def acting(at: int) -> tuple[int, int, int, int]:
    """A forward in training mode and without gradients, of a model that learns."""
    return (FORWARD, at + 1, at + 4, FORWARD_TRAINING | FORWARD_LEARNED)


def test_a_forward_in_training_mode_without_gradients_that_no_backward_follows_is_no_training() -> None:
    """The program goes on to its next step, or to its end; what lies between two of them is not evaluation."""
    steps = [row for n in range(3) for row in (*step(60 * n, n)[1:], acting(60 * n))]
    found = spent([*steps, acting(180), acting(190)], [55, 115, 175])
    assert [row.get("evaluation") for row in found] == [3, 3, 3, 6]
    seldom = [row for n in range(3) for row in step(60 * n, n)[1:]]
    assert [row.get("evaluation") for row in spent([*seldom, acting(60)], [55, 115, 175])] == [None, 3, None, None]


def test_a_forward_in_training_mode_without_gradients_in_each_step_is_part_of_it() -> None:
    """Made-up data of a generator, or labels of the model itself; also where a batch was fetched for it."""
    steps = [row for n in range(3) for row in (*step(60 * n, n)[1:], acting(60 * n))]
    assert [row.get("evaluation") for row in spent(steps, [55, 115, 175])] == [None] * 4
    fetched = [row for n in range(3) for row in (*step(60 * n, n), acting(60 * n + 10))]
    assert [row.get("evaluation") for row in spent(fetched[:-1], [55, 115, 175])] == [None] * 4


def test_validation_of_held_data_without_a_loader_is_evaluation() -> None:
    """Forwards with neither training mode nor gradients, in some steps only."""
    steps = [row for n in range(5) for row in step(60 * n, n)]
    held = [(FORWARD, 300, 310, 0), (FORWARD, 312, 320, 0)]
    found = spent(steps + held + step(330, 5), [60 * n + 55 for n in range(5)] + [385])
    assert [row.get("evaluation") for row in found] == [None] * 5 + [20, None]


def test_input_wait_without_a_loader_is_the_gap_before_the_forward() -> None:
    """Except for the first step, of which nobody knows when it began, and without what other phases have."""
    rows = [row for at in (0, 100) for row in step(at, 0)[1:]] + [(CHECKPOINT, 60, 70, 0)]
    found = fold(rows, [55, 155])
    assert found.spent[:, INPUT_WAIT].tolist() == [0, 115 - 55 - 10, 0]
    assert found.calls[:, INPUT_WAIT].tolist() == [0, 0, 0]


def test_a_span_around_the_whole_training_is_no_evaluation() -> None:
    """Somebody wrote `with ai.pipeline.test:` around everything."""
    found = spent([(EVALUATION, 0, 200, NONE), *step(0, 0), *step(60, 1)], [55, 115])
    assert [row.get("evaluation") for row in found] == [None] * 3


def test_a_fetch_inside_a_fetch_is_waiting_once() -> None:
    """A loader inside a dataset."""
    spans = [*step(0, 0), (INPUT_WAIT, 2, 8, batch_key(1, 0, 0))]
    line = timeline(spans, [55])
    assert line.fold(0, 1).spent[0, INPUT_WAIT] == 10
    assert line.batches()[0].key.tolist() == [batch_key(0, 0, 0)]


def test_only_the_end_of_a_step_is_known_where_nothing_else_was_recorded() -> None:
    """`--steps`: other steps have their updates only."""
    found = fold(step(100, 2), [50, 90, 155])
    assert found.start.tolist()[:3] == [NONE, 50, 90]
    assert found.calls.sum(axis=1).tolist() == [0, 0, 4, 0]


codes = st.sampled_from([*range(len(PHASES)), ITER])
keys = st.one_of(st.just(NONE), st.integers(0, 7), st.builds(batch_key, *[st.integers(0, 3)] * 3))
rows = st.builds(
    lambda code, start, lasting, key: (code, start, start + lasting, key),
    codes, st.integers(0, 300), st.integers(0, 80), keys,
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(st.lists(rows, max_size=40), st.lists(st.integers(0, 400), max_size=12).map(sorted))
def test_phases_and_residual_are_the_whole_step(spans: list[Row], updates: list[int]) -> None:
    """Whatever was recorded: no phase below zero, no step with more phases than time."""
    found = fold(spans, updates)
    assert (found.spent >= 0).all()
    assert (found.calls >= 0).all()
    known = found.start != NONE
    lasting = np.where(known, found.end - found.start, 0)
    assert (lasting >= 0).all()
    assert (found.spent.sum(axis=1) <= lasting).all()
    assert (found.first[found.calls > 0] != NONE).all()


@settings(deadline=None, max_examples=200)
@given(st.lists(rows, max_size=40), st.lists(st.integers(0, 400), max_size=12).map(sorted), st.integers(1, 5))
def test_it_does_not_matter_in_which_pieces_steps_are_folded(spans: list[Row], updates: list[int], size: int) -> None:
    """A long run is folded piece by piece."""
    line = timeline(spans, updates)
    count = len(updates) + 1
    whole = line.fold(0, count)
    pieces = [line.fold(low, min(low + size, count)) for low in range(0, count, size)]
    for place, column in enumerate(whole):
        assert np.array_equal(column, np.concatenate([piece[place] for piece in pieces]))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 30), st.sampled_from([0.0, 0.05]))
def test_steps_that_are_alike_are_folded_as_any_others(seed: int, count: int, odd: float) -> None:
    """Where all steps have the same spans there is a shorter way, with the same result; where one has not, it is not taken."""
    chance = np.random.default_rng(seed)
    spans: list[Row] = []
    for number in range(count):
        for code, start, end, key in step(100 * number, number):
            missing, starting, bare, long = (chance.random(4) < odd).tolist()
            late, more = chance.integers(0, 3, 2).tolist()
            span = (ITER if starting else code, start + late, end + late + (200 if long else more), 0 if bare else key)
            spans += [] if missing else [span]
    found = timeline(spans, [100 * number + 70 for number in range(count)])
    for low, high in ((0, count), (1, count), (0, count + 1), (count // 2, count)):
        short = found.fold(low, high)
        with patch.object(Timeline, "_alike", lambda *_: None):
            long = found.fold(low, high)
        assert [part.tolist() for part in short] == [part.tolist() for part in long]
        assert odd or high > count or found._alike(low, high) == [INPUT_WAIT, FORWARD, BACKWARD, OPTIMIZER]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 50), st.sampled_from(["left", "right"]), st.booleans())
def test_places_are_those_of_a_search(
    seed: int, each: int, count: int, side: Literal["left", "right"], even: bool
) -> None:
    """Whether moments come at even distances or not."""
    chance = np.random.default_rng(seed)
    known = np.arange(each * (count + 2)) * 10 if even else np.sort(chance.integers(0, 500, each * (count + 2)))
    wanted = np.sort(known[each::each][:count] + chance.integers(-3, 4, count))
    with patch.object(intervals, "BLOCK", 16):
        assert intervals.places_in(known, wanted, side).tolist() == np.searchsorted(known, wanted, side).tolist()
