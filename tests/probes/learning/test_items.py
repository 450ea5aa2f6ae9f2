"""`sonde.log_items`: values are tied to the items of the batch, whatever the loop does, and never harm the program."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.probes.data import Numbers  # noqa: E402
from tests.probes.learning.test_pending import Event  # noqa: E402

import sonde  # noqa: E402
from sonde.analysis.questions.ask import question  # noqa: E402
from sonde.analysis.questions.hard import hard_items  # noqa: E402
from sonde.analysis.run import open_run  # noqa: E402
from sonde.analysis.seal import seal  # noqa: E402
from sonde.probes.learning import items, pending  # noqa: E402

pytestmark = pytest.mark.usefixtures("nothing_left")
Rows = list[tuple[Any, ...]]


class Training:
    """A model of one weight. The loss of an item is its index, whatever the model says: the truth about each row is known."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = torch.nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-6)

    def losses(self, batch: Any) -> Any:
        """One for each item."""
        return self.net(batch.float().unsqueeze(1)).squeeze(1) * 0 + batch

    def step(self, *losses: Any) -> None:
        """One update, for several micro-batches."""
        self.optimizer.zero_grad()
        for one in losses:
            one.mean().backward()
        self.optimizer.step()


def loader(length: int = 10, size: int = 4, **options: Any) -> Any:
    """Shuffled, with a shorter last batch."""
    return torch.utils.data.DataLoader(Numbers(length), batch_size=size, shuffle=True, **options)


def rows(path: Path | None, columns: str = '"index", value, step, purpose') -> Rows:
    """What the table has, in the order of steps and places."""
    assert path is not None
    with open_run(path) as run:
        return run.sql(
            f"SELECT {columns} FROM item_values ORDER BY step, loader, round, batch, position, name"
        ).fetchall()


def usual(training: Training, batches: Any) -> None:
    """The loop that most programs have."""
    for batch in batches:
        losses = training.losses(batch)
        sonde.log_items(loss=losses)
        training.step(losses)


def after_the_step(training: Training, batches: Any) -> None:
    """The values are logged when the next step has begun."""
    for batch in batches:
        losses = training.losses(batch)
        training.step(losses)
        sonde.log_items(loss=losses)


def one_ahead(training: Training, batches: Any) -> None:
    """The next batch is fetched before this one is used, as accelerate does."""
    coming = iter(batches)
    batch = next(coming)
    while batch is not None:
        following = next(coming, None)
        losses = training.losses(batch)
        sonde.log_items(loss=losses)
        training.step(losses)
        batch = following


def micro_batches(training: Training, batches: Any) -> None:
    """Two for each step, fetched together, as the Hugging Face Trainer does."""
    coming = iter(batches)
    while some := [batch for _ in range(2) if (batch := next(coming, None)) is not None]:
        found = []
        for batch in some:
            found.append(training.losses(batch))
            sonde.log_items(loss=found[-1])
        training.step(*found)


@pytest.mark.parametrize("loop", [usual, after_the_step, one_ahead, micro_batches])
def test_each_value_is_that_of_its_item(tmp_path: Path, loop: Any) -> None:
    """In loops that use batches later than they get them, too."""
    with sonde.init(dir=tmp_path) as session:
        training = Training()
        for _ in range(2):
            loop(training, loader(16))
    found = rows(session.path)
    assert sorted(index for index, *_ in found) == sorted([*range(16)] * 2)
    assert all(index == value and purpose == "train" for index, value, _, purpose in found)


def test_a_sealed_run_says_the_same(tmp_path: Path) -> None:
    """Evaluations included, whose steps are those of the training around them."""
    with sonde.init(dir=tmp_path) as session:
        training = Training()
        for _ in range(2):
            usual(training, loader())
            with torch.no_grad():
                for batch in loader(6):
                    sonde.log_items(loss=training.losses(batch))
    before = rows(session.path)
    assert [purpose for *_, purpose in before].count("evaluate") == 12
    assert session.path is not None
    seal(session.path)
    assert rows(session.path) == before


def test_names_arrays_lists_and_more_dimensions(tmp_path: Path) -> None:
    """Of further dimensions the mean."""
    with sonde.init(dir=tmp_path) as session:
        training = Training()
        for batch in loader(4):
            losses = training.losses(batch)
            deep = losses.detach().double().reshape(-1, 1, 1).expand(-1, 2, 3)
            sonde.log_items(
                loss=losses, listed=batch.tolist(), array=batch.numpy(), deep=deep, half=losses.detach().half()
            )
            training.step(losses)
    found = rows(session.path, '"index", value, name')
    assert {name for *_, name in found} == {"loss", "listed", "array", "deep", "half"}
    assert len(found) == 20
    assert all(index == value for index, value, _ in found)


def test_values_that_fit_no_batch_have_no_item_and_are_counted(tmp_path: Path) -> None:
    """A wrong length, and no batch at all."""
    with sonde.init(dir=tmp_path) as session:
        training = Training()
        training.step(training.losses(torch.ones(3)))
        sonde.log_items(loss=torch.ones(3))
        for batch in loader(4):
            sonde.log_items(loss=training.losses(batch).repeat(2))
            training.step(training.losses(batch))
    found = rows(session.path, '"index", batch, value')
    assert len(found) == 11
    assert all(index is None and batch is None for index, batch, _ in found)
    assert session.path is not None
    with open_run(session.path) as run:
        ((name, untied, hardest),) = [(one.name, one.untied, one.hardest) for one in hard_items(run, 5)]
    assert (name, untied, hardest) == ("loss", 11, [])


def test_values_that_are_not_finite_are_kept_and_counted(tmp_path: Path) -> None:
    """An item without a finite value stands first."""
    with sonde.init(dir=tmp_path) as session:
        training = Training()
        for batch in loader(4):
            losses = training.losses(batch)
            sonde.log_items(loss=torch.where(batch == 2, math.nan, losses))
            training.step(losses)
    assert session.path is not None
    with open_run(session.path) as run:
        (found,) = hard_items(run, 2)
    assert [(one.index, one.mean, one.nonfinite) for one in found.hardest] == [(2, None, 1), (3, 3.0, 0)]
    assert (found.items, found.middle) == (4, 1.0)


def test_a_rise_is_told_with_its_step(tmp_path: Path) -> None:
    """The question for jumps, and the report."""
    with sonde.init(dir=tmp_path) as session:
        training = Training()
        for epoch in range(3):
            for batch in loader(8):
                losses = training.losses(batch)
                sonde.log_items(loss=torch.where((batch == 5) & (epoch == 2), 100.0, losses))
                training.step(losses)
    assert session.path is not None
    with open_run(session.path) as run:
        ((_, name, index, _, step, earlier, value, rise),) = run.sql(question("loss-jumps").query()).fetchall()
        assert run.sql(question("hardest-items").query()).fetchall()[0][:5] == ("train", "loss", 5, None, 3)
        (found,) = hard_items(run, 1)
    assert (name, index, earlier, value, rise) == ("loss", 5, 5.0, 100.0, 95.0)
    assert (found.hardest[0].rise, found.hardest[0].rise_step) == (95.0, step)


@pytest.mark.parametrize("wrong", [torch.tensor(1.0), 3, "words", [], [["a"]], {}, object(), torch.zeros(0)])
def test_what_is_no_value_for_each_item_is_refused_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: Any, expected: set[str]
) -> None:
    """The program goes on."""
    if isinstance(wrong, list) and wrong:
        expected.add(items.DOING)
    with sonde.init(dir=tmp_path) as session:
        Training().step(Training().losses(torch.ones(2)))
        sonde.log_items(loss=wrong)
        sonde.log_items(loss=wrong)
    assert len([one for one in caplog.records if one.name == "sonde"]) == 1
    assert rows(session.path) == []


def test_nothing_happens_outside_of_a_recording() -> None:
    """Not even a look at the values."""
    sonde.log_items(loss=object())


def test_long_batches_take_several_records(tmp_path: Path) -> None:
    """As long as the limit of arguments says."""
    with sonde.init(dir=tmp_path, args_limit=64) as session:
        usual(Training(), loader(100, 50))
    found = rows(session.path)
    assert len(found) == 100
    assert all(index == value for index, value, *_ in found)


def test_training_does_not_notice(tmp_path: Path) -> None:
    """The same weights, bit for bit, and the graph of the losses is untouched."""

    def trained() -> Any:
        training = Training()
        torch.manual_seed(1)
        usual(training, loader())
        return [one.detach().clone() for one in training.net.parameters()]

    plain = trained()
    with sonde.init(dir=tmp_path, item_losses=True):
        assert all(map(torch.equal, trained(), plain))


def test_losses_that_reduce_nothing_are_seen_if_the_setting_says_so(tmp_path: Path) -> None:
    """Not those of other losses, and not without the setting."""

    def run(session: Any) -> Rows:
        training, plain = Training(), torch.nn.MSELoss()
        each = torch.nn.L1Loss(reduction="none")
        for batch in loader(4):
            losses = each(training.losses(batch), torch.zeros(len(batch)))
            plain(losses, losses.detach())
            training.step(losses)
        sonde.finish()
        return rows(session.path)

    assert run(sonde.init(dir=tmp_path)) == []
    found = run(sonde.init(dir=tmp_path, item_losses=True))
    assert [(index, value) for index, value, *_ in sorted(found)] == [(0, 0), (1, 1), (2, 2), (3, 3)]


class OnDevice:
    """A vector on a device: reading it would wait."""

    is_cpu = False
    device = torch.device("cuda")

    def __init__(self, values: list[float]) -> None:
        self.float = lambda: torch.tensor(values)

        self.numel = lambda: len(values)

    def tolist(self) -> None:
        raise AssertionError("this would wait for the device")


def test_vectors_of_a_device_come_when_the_event_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one copy with scalars, and nobody waits."""
    empty = torch.empty_like
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch, "empty_like", lambda tensor, **_: empty(tensor))
    monkeypatch.setattr(Event, "passed", False)
    found: list[list[float]] = []
    results = pending.PendingNumbers()
    results.add_vector(OnDevice([1.0, 2.0]), found.append)
    results.add_vector(OnDevice([3.0]), found.append)
    results.order()
    results.collect()
    assert found == []
    monkeypatch.setattr(Event, "passed", True)
    results.collect()
    assert found == [[1.0, 2.0], [3.0]]
