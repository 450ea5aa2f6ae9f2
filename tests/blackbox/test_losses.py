"""Whose loss it is, in real loops: of the batch that was used, however far ahead the loop fetches; in C and in Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings, strategies
from tests.flow.boxes import Rows, loader, only

from sonde import open_run
from sonde.analysis.postmortem.blackbox import black_box
from sonde.blackbox import fingerprint
from sonde.blackbox.box import trigger
from sonde.blackbox.losses import Losses
from sonde.testing import Recorded, record
from sonde.views.blackbox import blackbox

Truth = dict[str, float]


@pytest.fixture(params=["c", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who matches losses with batches."""
    if request.param == "python":
        monkeypatch.setattr(fingerprint, "native", None)
    elif fingerprint.native is None:
        pytest.skip("the C part was not built")


class Training:
    """A model, and what its losses were: by the id of its first item."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1)
        self.truth: Truth = {}

    def use(self, batch: Any, update: bool = True) -> None:
        """Train with it."""
        loss: Any = (self.net(batch["x"]) - batch["y"]).pow(2).mean()
        loss.backward()
        self.truth[batch["id"][0]] = loss.item()
        if update:
            self.optimizer.step()
            self.optimizer.zero_grad()


def ahead(batches: Any) -> Iterator[Any]:
    """Fetches the next one before it gives one, as accelerate does."""
    batches = iter(batches)
    current = next(batches)
    for following in batches:
        yield current
        current = following
    yield current


def _usual(training: Training) -> None:
    for batch in loader():
        training.use(batch)


def _fetches_ahead(training: Training) -> None:
    for number, batch in enumerate(ahead(loader())):
        training.use(batch)
        if number == 6:
            break


def _fetches_ahead_to_the_end(training: Training) -> None:
    for batch in ahead(loader()):
        training.use(batch)


def _fetches_ahead_by_itself(training: Training) -> None:
    batches = iter(loader())
    following = next(batches)
    for _ in range(7):
        batch, following = following, next(batches)
        training.use(batch)


def _leaves_out_some(training: Training) -> None:
    for number, batch in enumerate(ahead(loader())):
        if number not in (3, 6):
            training.use(batch)
        if number == 7:
            break


def _goes_on_where_it_was(training: Training) -> None:
    for number, batch in enumerate(loader()):
        if number >= 5:
            training.use(batch)


def _fetches_micro_batches_at_once(training: Training) -> None:
    batches = iter(loader())
    for _ in range(4):
        several = [next(batches), next(batches)]
        for batch in several:
            training.use(batch, update=batch is several[-1])


def _fetches_them_ahead(training: Training) -> None:
    batches = ahead(loader())
    for _ in range(4):
        several = [next(batches), next(batches)]
        for batch in several:
            training.use(batch, update=batch is several[-1])


def _evaluates_in_between(training: Training) -> None:
    for number, batch in enumerate(ahead(loader())):
        training.use(batch)
        if number == 6:
            _evaluate(training)


def _evaluate(training: Training) -> None:
    for batch in loader(torch.utils.data.Subset(Rows(80), range(60, 64))):
        training.net(batch["x"])


def _twice_each(training: Training) -> None:
    for batch in loader():
        training.use(batch)
        training.use(batch)


LOOPS = [
    _usual, _fetches_ahead, _fetches_ahead_to_the_end, _fetches_ahead_by_itself, _leaves_out_some, _goes_on_where_it_was,
    _fetches_micro_batches_at_once, _fetches_them_ahead, _evaluates_in_between, _twice_each,
]  # fmt: skip


def recorded(folder: Path, loop: Callable[[Training], None]) -> tuple[Recorded, Truth]:
    """The run of a loop whose black box was asked for in the end, and the truth."""
    training = Training()
    with record(dir=str(folder), blackbox=3) as run:
        loop(training)
        trigger("demand")
    return run, training.truth


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("loop", LOOPS)
def test_a_loss_is_that_of_the_batch_that_was_used(tmp_path: Path, loop: Callable[[Training], None]) -> None:
    """A batch that was not used, or not yet, has none."""
    run, truth = recorded(tmp_path, loop)
    batches = only(run)["batches"]
    assert [batch["loss"] for batch in batches] == [truth.get(batch["ids"][0]) for batch in batches]
    assert any(batch["loss"] is not None for batch in batches)


def _twice_each_ahead(training: Training) -> None:
    for number, batch in enumerate(ahead(loader())):
        training.use(batch)
        training.use(batch)
        if number == 6:
            break


def _copies(training: Training) -> None:
    for number, batch in enumerate(ahead({"x": one["x"] + 0, "y": one["y"] + 0, "id": one["id"]} for one in loader())):
        training.use(batch)
        if number == 6:
            break


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("loop", [_twice_each_ahead, _copies])
def test_a_loss_that_may_be_of_another_batch_is_nobodys(tmp_path: Path, loop: Callable[[Training], None]) -> None:
    """Ahead, with several losses for each batch, or with other tensors than those of the batch."""
    run, _ = recorded(tmp_path, loop)
    assert [batch["loss"] for batch in only(run)["batches"]] == [None] * 3


@pytest.mark.usefixtures("way")
def test_a_batch_that_waited_while_others_came_has_none(tmp_path: Path) -> None:
    """Neither has the one of the evaluation, which came last."""

    def loop(training: Training) -> None:
        for number, batch in enumerate(ahead(loader())):
            training.use(batch)
            if number == 8:
                _evaluate(training)

    run, truth = recorded(tmp_path, loop)
    assert [batch["loss"] for batch in only(run)["batches"]] == [truth["row 32"], None, None]


def test_the_page_names_the_batch_whose_loss_was_not_finite(tmp_path: Path) -> None:
    """In a loop that fetches ahead, without the watch: the batch that was used, and its step."""
    training = Training()
    with record(dir=str(tmp_path), blackbox=3) as run:
        for batch in ahead(loader(Rows(odd=17))):
            training.use(batch)
    with open_run(run.path) as opened:
        page = blackbox(opened, black_box(opened))
    assert (page.headline or "").startswith("the loss was NaN or infinite in step 4, batch 4")


@pytest.mark.parametrize("ends", [True, False], ids=["step ends", "step is left"])
def test_the_page_has_the_loss_of_the_batch_that_the_watch_has_dumped(tmp_path: Path, ends: bool) -> None:
    """The dump is older than the loss; the records have it, also of a step that never ended."""
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with record(dir=str(tmp_path), blackbox=3, watch_nonfinite="record") as run:
        for batch in loader(Rows(odd=17)):
            loss: Any = (net(batch["x"]) - batch["y"]).pow(2).mean()
            loss.backward()
            if not (ends or loss.isfinite()):
                break
            optimizer.step()
    with open_run(run.path) as opened:
        page = blackbox(opened, black_box(opened))
    assert [math.isnan(batch.loss or 0) for batch in page.batches] == [False, False, True]


ACTIONS = strategies.lists(
    strategies.one_of(strategies.floats(0, 9), strategies.none(), strategies.integers(0, 5)), max_size=60
)
ITERATIONS = [loader << 44 | turn << 28 for loader in (0, 1) for turn in (0, 1, 2)]


@pytest.mark.skipif(fingerprint.native is None, reason="the C part was not built")
@settings(deadline=None)
@given(actions=ACTIONS, answer=strategies.sampled_from([None, 0, 1, 2, 70]))
def test_c_matches_as_python_does(actions: list[float | int | None], answer: int | None) -> None:
    """Losses (fractions), batches of six iterations (whole numbers) and batches that are not known, in any order."""
    asked: list[tuple[str, int, int]] = []

    def ask(who: str, newest: int, unused: int) -> int | None:
        asked.append((who, newest, unused))
        return answer

    one = fingerprint.native.latest(lambda *_: None, lambda _: None, partial(ask, "c"))
    two = Losses(partial(ask, "python"))
    counts = [0] * 6
    for action in actions:
        if isinstance(action, float):
            one.note(action)
            two.note(action)
        else:
            assert one.settled(True) == two.settled(True)
            key = None if action is None else ITERATIONS[action] + counts[action]
            counts[action or 0] += action is not None
            one.came(key)
            two.came(key)
        assert one.settled(False) == two.settled(False)
    questions = [[rest for who, *rest in asked if who == one] for one in ("c", "python")]
    assert questions[0] == questions[1]
