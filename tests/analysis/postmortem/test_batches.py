"""The batches of a dump with their losses, in real loops: the loss of the step that used the batch, however far ahead it was fetched."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from tests.flow.boxes import Rows, loader

from sonde import open_run
from sonde.analysis.postmortem.batches import used
from sonde.analysis.postmortem.blackbox import black_box
from sonde.analysis.postmortem.dumps import DumpedBatch
from sonde.blackbox.box import trigger
from sonde.testing import record
from sonde.views.blackbox import blackbox

Truth = dict[str, float]


class Training:
    """A model, and what the first loss of each batch was, by the id of its first item."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1)
        self.truth: Truth = {}

    def use(self, batch: Any, update: bool = True) -> None:
        """Train with it."""
        loss: Any = (self.net(batch["x"]) - batch["y"]).pow(2).mean()
        loss.backward()
        self.truth.setdefault(batch["id"][0], loss.item())
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


LOOPS = [
    _usual, _fetches_ahead, _fetches_ahead_to_the_end, _fetches_ahead_by_itself, _leaves_out_some, _goes_on_where_it_was,
    _fetches_micro_batches_at_once, _fetches_them_ahead, _evaluates_in_between, _twice_each, _twice_each_ahead,
    _copies,
]  # fmt: skip


def last_batches(folder: Path, loop: Callable[[Training], None]) -> tuple[list[DumpedBatch], Truth]:
    """The batches of the black box that a loop asked for at its end, and the truth."""
    training = Training()
    with record(dir=str(folder), blackbox=3) as run:
        loop(training)
        trigger("demand")
    with open_run(run.path) as opened:
        return used(opened, black_box(opened).dumps[-1]), training.truth


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loss_is_that_of_the_batch_that_was_used(tmp_path: Path, loop: Callable[[Training], None]) -> None:
    """A batch that was not used, or not yet, has none."""
    batches, truth = last_batches(tmp_path, loop)
    assert [batch.loss for batch in batches] == [truth.get(str(batch.ids[0])) for batch in batches]
    assert any(batch.loss is not None for batch in batches)


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
