"""The tables of trainings that were really recorded, loop by loop."""

from __future__ import annotations

import itertools
import multiprocessing.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.integration.conftest import Programs
from tests.integration.launching import run as launch, script
from torch import nn
from torch.utils.data import DataLoader, Dataset

from sonde.analysis.live.run import Live
from sonde.analysis.records.schema import PHASES
from sonde.analysis.run import Run, open_run
from sonde.analysis.seal import seal
from sonde.testing import record

SLOW = 13
ENDING = 0.6  # s


class Numbers(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Twenty items, one of which takes its time."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if index == SLOW:
            time.sleep(0.05)
        return torch.full((4,), float(index)), torch.tensor([float(index)])


class Loop:
    """A model and what is needed to train it."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        self.loss = nn.MSELoss()
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)

    def backward(self, batch: Any) -> torch.Tensor:
        """Forward and backward."""
        self.optimizer.zero_grad()
        found: torch.Tensor = self.loss(self.model(batch[0]), batch[1])
        found.backward()  # type: ignore[no-untyped-call]
        return found

    def train(self, batches: Any) -> None:
        """One update per batch."""
        for batch in batches:
            self.backward(batch)
            self.optimizer.step()

    def evaluate(self, batches: Any) -> None:
        """No gradients."""
        self.model.eval()
        with torch.no_grad():
            for batch in batches:
                self.loss(self.model(batch[0]), batch[1])
        self.model.train()


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[Callable[[Loop], None]], Run]:
    """Runs a function that trains, and opens what was recorded."""

    def run(train: Callable[[Loop], None]) -> Run:
        with record(dir=str(tmp_path)) as found:
            train(Loop())
        return open_run(found.path)

    return run


def rows(run: Run, query: str) -> list[tuple[Any, ...]]:
    return run.sql(query).fetchall()


Recorded = Callable[[Callable[[Loop], None]], Run]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_plain_loop_with_evaluation(recorded: Recorded, tmp_path: Path, workers: int) -> None:
    """Steps, batches and items; the evaluation is the delay of the step after it."""

    def train(loop: Loop) -> None:
        for _ in range(2):
            loop.train(DataLoader(Numbers(), batch_size=4, num_workers=workers))
            loop.evaluate(DataLoader(Numbers(), batch_size=10))
        torch.save(loop.model.state_dict(), tmp_path / "model.pt")

    with recorded(train) as run:
        counts = "count(input_wait_ns), count(forward_ns), count(backward_ns), count(optimizer_ns), count(loss)"
        assert rows(run, f"SELECT count(*), {counts}, min(samples), max(samples) FROM steps") == [(10,) * 6 + (4, 4)]
        evaluated = "SELECT step, evaluation_ns > 50000000 FROM steps WHERE evaluation_ns IS NOT NULL"
        assert rows(run, evaluated) == [(5, True)]
        after = [("checkpoint",), ("evaluation",), ("input_wait",)]  # the loop and its workers end after the last step
        assert rows(run, "SELECT phase FROM phases WHERE step IS NULL ORDER BY 1") == after
        assert rows(run, "SELECT purpose, count(*), sum(size) FROM batches GROUP BY 1 ORDER BY 1") == [
            ("evaluate", 4, 40), ("train", 10, 40),
        ]  # fmt: skip
        assert rows(run, "SELECT count(*), count(DISTINCT index) FROM items") == [(80, 20)]
        slow = (
            "SELECT b.step, i.worker IS NULL, i.dur_ns > 50000000 FROM items i JOIN batches b USING (process, loader, round, batch) "
            f"WHERE i.index = {SLOW} AND b.purpose = 'train' ORDER BY 1"
        )
        assert rows(run, slow) == [(3, not workers, True), (8, not workers, True)]
        _holds(run)


def test_accumulation_is_one_step_with_its_micro_batches(recorded: Recorded) -> None:
    """One update for every two batches."""

    def train(loop: Loop) -> None:
        for number, batch in enumerate(DataLoader(Numbers(), batch_size=5)):
            loop.backward(batch)
            if number % 2:
                loop.optimizer.step()

    with recorded(train) as run:
        assert rows(run, "SELECT step, micro_batches, samples FROM steps ORDER BY step") == [(0, 2, 10), (1, 2, 10)]
        _holds(run)


@pytest.mark.parametrize("left_out", [(0,), (0, 1), (0, 3), (0, 1, 2, 4)], ids=str)
@pytest.mark.parametrize("epochs", [1, 2])
def test_batches_that_are_left_out_shift_no_others(recorded: Recorded, left_out: tuple[int, ...], epochs: int) -> None:
    """The first ones, as after a checkpoint, and a corrupt one later."""

    def train(loop: Loop) -> None:
        for _ in range(epochs):
            for number, batch in enumerate(DataLoader(Numbers(), batch_size=2)):
                if number not in left_out:
                    loop.backward(batch)
                    loop.optimizer.step()

    kept = [[2 * number, 2 * number + 1] for number in range(10) if number not in left_out] * epochs
    with recorded(train) as run:
        found = rows(run, "SELECT step, indices FROM batches WHERE purpose = 'train' ORDER BY step")
        assert found == list(enumerate(kept))
        assert rows(run, "SELECT count(*) FROM batches WHERE purpose = 'unknown'") == [(len(left_out) * epochs,)]


def test_of_batches_that_are_kept_and_used_again_the_step_is_not_known(recorded: Recorded) -> None:
    """They were for training; no item is named for a step that may not have had it."""

    def train(loop: Loop) -> None:
        batches = list(DataLoader(Numbers(), batch_size=4))
        for _ in range(3):
            for batch in batches:
                loop.backward(batch)
                loop.optimizer.step()

    with recorded(train) as run:
        assert rows(run, "SELECT DISTINCT purpose, step FROM batches") == [("train", None)]
        assert rows(run, "SELECT count(*), count(samples) FROM steps") == [(15, 0)]


def test_a_loop_that_is_ahead_leaves_no_batch_out(recorded: Recorded) -> None:
    """Its last one is used after the loop has ended, and after an evaluation."""

    def train(loop: Loop) -> None:
        before = None
        for batch in DataLoader(Numbers(), batch_size=2):
            if before is not None:
                loop.backward(before)
                loop.optimizer.step()
            before = batch
        loop.evaluate(DataLoader(Numbers(), batch_size=10))
        loop.backward(before)
        loop.optimizer.step()

    with recorded(train) as run:
        found = rows(run, "SELECT step, indices FROM batches WHERE purpose = 'train' ORDER BY step")
        assert found == [(number, [2 * number, 2 * number + 1]) for number in range(10)]


def _end_slowly(_worker: int) -> None:
    multiprocessing.util.Finalize(None, time.sleep, (ENDING,), exitpriority=1)


def test_the_end_of_workers_is_waiting_for_data_without_a_batch(recorded: Recorded) -> None:
    """It lies in the step after it, which has no batch more for that."""
    data = DataLoader(
        Numbers(), batch_size=5, num_workers=1, worker_init_fn=_end_slowly, multiprocessing_context="fork"
    )

    def train(loop: Loop) -> None:
        for _ in range(2):
            loop.train(data)

    with recorded(train) as run:
        long = int(ENDING * 1e9)
        waits = "(SELECT step, sum(wait_ns) AS waited FROM batches GROUP BY step)"
        ended = f"SELECT step FROM steps JOIN {waits} USING (step) WHERE step > 0 AND input_wait_ns - waited > {long}"
        assert rows(run, ended) == [(4,)]
        assert rows(run, "SELECT count(*), count(DISTINCT micro_batches), sum(batches), sum(samples) FROM steps") == [
            (8, 1, 8, 40)
        ]
        assert rows(run, "SELECT purpose, count(*) FROM batches GROUP BY 1") == [("train", 8)]
        assert rows(run, f"SELECT dur_ns > {long} FROM phases WHERE step IS NULL AND phase = 'input_wait'") == [(True,)]
        assert _live(run) == rows(run, _LIVE)
        _holds(run)


@pytest.mark.parametrize("at_once", [False, True])
def test_batches_whose_losses_are_summed_are_training(recorded: Recorded, at_once: bool) -> None:
    """One backward for two batches, fetched one by one or both before; the evaluation behind them is one."""

    def train(loop: Loop) -> None:
        for _ in range(2):
            batches = iter(DataLoader(Numbers(), batch_size=5))
            for _ in range(2):
                loop.optimizer.zero_grad()
                pair: Any = [next(batches), next(batches)] if at_once else (next(batches) for _ in range(2))
                sum(loop.loss(loop.model(batch[0]), batch[1]) for batch in pair).backward()
                loop.optimizer.step()
            loop.evaluate(DataLoader(Numbers(), batch_size=10))

    with recorded(train) as run:
        assert rows(run, "SELECT step, micro_batches, samples FROM steps ORDER BY step") == [
            (n, 2, 10) for n in range(4)
        ]
        assert rows(run, "SELECT step FROM steps WHERE evaluation_ns IS NOT NULL") == [(2,)]
        assert rows(run, "SELECT purpose, count(*) FROM batches GROUP BY 1 ORDER BY 1") == [
            ("evaluate", 4),
            ("train", 8),
        ]
        assert rows(run, "SELECT count(*) FROM phases WHERE phase = 'forward' AND calls = 4") == [(4,)]
        _holds(run)
        assert _live(run) == rows(run, _LIVE)


def test_a_loop_under_the_launcher_that_sums_four_losses_has_no_evaluation(programs: Programs) -> None:
    """With workers, whose batches are there before they are asked for."""
    code = """
        import torch
        torch.set_num_threads(1)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 1e-5)
        data = [torch.ones(4)] * 24
        for _ in range(2):
            total = 0
            for number, batch in enumerate(torch.utils.data.DataLoader(data, batch_size=2, num_workers=1), 1):
                total = total + model(batch).sum()
                if number % 4 == 0:
                    optimizer.zero_grad()
                    total.backward()
                    optimizer.step()
                    total = 0
    """
    launch(programs, "-q", str(script(programs.folder, code)))
    assert programs.rows("SELECT micro_batches, samples, evaluation_ns FROM steps") == [(4, 8, None)] * 6
    assert programs.rows("SELECT purpose, count(*) FROM batches GROUP BY 1") == [("train", 24)]


def test_a_closure_is_not_counted_twice(recorded: Recorded) -> None:
    """LBFGS calls forward and backward itself."""

    def train(loop: Loop) -> None:
        loop.optimizer = torch.optim.LBFGS(loop.model.parameters(), lr=1e-4, max_iter=3)
        for batch in DataLoader(Numbers(), batch_size=10):
            loop.optimizer.step(lambda batch=batch: loop.backward(batch))  # type: ignore[no-untyped-call]

    with recorded(train) as run:
        assert rows(run, "SELECT count(*), min(micro_batches) FROM steps") == [(2, 1)]
        assert rows(run, "SELECT min(calls) > 1 FROM phases WHERE phase IN ('forward', 'backward')") == [(True,)]
        _holds(run)


def test_a_loop_that_fetches_ahead(recorded: Recorded) -> None:
    """Each batch belongs to the step that used it."""

    def train(loop: Loop) -> None:
        batches: Iterator[Any] = iter(DataLoader(Numbers(), batch_size=4))
        ahead = next(batches)
        for following in itertools.chain(batches, [None]):
            loop.train([ahead])
            ahead = following

    with recorded(train) as run:
        assert rows(run, "SELECT batch, step, purpose FROM batches ORDER BY batch") == [
            (number, number, "train") for number in range(5)
        ]
        _holds(run)


def _known_ahead(batches: Iterable[Any]) -> Iterator[Any]:
    """One ahead, so that the end is known before the last one is given, as accelerate does it."""
    following = iter(batches)
    held = next(following)
    while (after := next(following, None)) is not None:
        yield held
        held = after
    yield held


def test_an_evaluation_of_one_batch_before_the_last_one_of_an_epoch_is_evaluation(recorded: Recorded) -> None:
    """The last batch was fetched before, and has its own step."""

    def train(loop: Loop) -> None:
        for number, batch in enumerate(_known_ahead(DataLoader(Numbers(), batch_size=4))):
            loop.train([batch])
            if number == 3:
                loop.evaluate(DataLoader(Numbers(), batch_size=20))

    with recorded(train) as run:
        assert rows(run, "SELECT size, batch, step, purpose FROM batches ORDER BY 1, 2") == [
            *((4, number, number, "train") for number in range(5)), (20, 0, 4, "evaluate"),
        ]  # fmt: skip
        assert rows(run, "SELECT step, samples FROM steps WHERE evaluation_ns IS NOT NULL") == [(4, 4)]
        _holds(run)


def test_batches_that_one_process_fetches_for_several_are_one_micro_batch(recorded: Recorded) -> None:
    """As accelerate does it with streams: it fetches for all ranks, and each gets its part."""

    def train(loop: Loop) -> None:
        batches: Iterator[Any] = iter(DataLoader(Numbers(), batch_size=2))
        for number, (own, _) in enumerate(_known_ahead(zip(batches, batches, strict=True))):
            loop.backward(own)
            if number % 2 or number == 4:
                loop.optimizer.step()

    with recorded(train) as run:
        columns = "step, micro_batches, batches, samples, evaluation_ns"
        assert rows(run, f"SELECT {columns} FROM steps ORDER BY step") == [
            (0, 2, 4, 8, None), (1, 2, 4, 8, None), (2, 1, 2, 4, None),
        ]  # fmt: skip
        assert rows(run, "SELECT DISTINCT purpose FROM batches") == [("train",)]
        _holds(run)


@pytest.mark.parametrize("ahead", [1, 2])
def test_batches_that_were_fetched_ahead_and_not_used_any_more_are_in_no_step(recorded: Recorded, ahead: int) -> None:
    """Where a loop that fetches ahead stops early, the last step has its own batch and no other."""

    def train(loop: Loop) -> None:
        batches: Iterator[Any] = iter(DataLoader(Numbers(), batch_size=4))
        held = [next(batches) for _ in range(ahead)]
        for _ in range(3):
            held.append(next(batches))
            loop.train([held.pop(0)])

    with recorded(train) as run:
        assert rows(run, "SELECT step, batches, samples FROM steps ORDER BY step") == [
            (step, 1, 4) for step in range(3)
        ]
        assert rows(run, "SELECT batch, step FROM batches ORDER BY batch") == [
            *((number, number) for number in range(3)), *((number, None) for number in range(3, 3 + ahead)),
        ]  # fmt: skip
        _holds(run)


def test_a_loop_without_a_loader_waits_between_its_steps(recorded: Recorded) -> None:
    """What takes long before the forward is waiting for input."""

    def train(loop: Loop) -> None:
        for _ in range(4):
            time.sleep(0.02)
            loop.train([(torch.ones(2, 4), torch.ones(2, 1))])

    with recorded(train) as run:
        assert rows(run, "SELECT step, input_wait_ns > 20000000 FROM steps ORDER BY step") == [
            (0, None), (1, True), (2, True), (3, True),
        ]  # fmt: skip
        assert rows(run, "SELECT count(*) FROM batches") == [(0,)]
        _holds(run)


KILLED = """
import os, signal, sys
import torch, sonde
sonde.init("killed", dir=sys.argv[1], enabled=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.arange(40.0).reshape(10, 4), batch_size=2)
for batch in loader:
    model(batch).sum().backward()
    optimizer.step()
print("trained", flush=True)
sys.stdin.read()
"""


def test_a_living_a_killed_and_a_sealed_run_have_the_same_rows(tmp_path: Path) -> None:
    """Nothing that was recorded is lost, and nothing depends on how it ended."""
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"trained\n"
        path = next(tmp_path.iterdir())
        living = _all(path)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)
    assert len(living[0]) == 5
    assert _all(path) == living
    seal(path)
    assert _all(path) == living


def _all(path: Path) -> list[list[str]]:
    with open_run(path) as run:
        return [sorted(map(repr, run.table(table).fetchall())) for table in ("steps", "phases", "batches", "items")]


_LIVE = "SELECT samples, input_wait_ns, forward_ns, coalesce(evaluation_ns, -1) FROM steps ORDER BY step"


def _live(run: Run) -> list[tuple[float, ...]]:
    """What `_LIVE` asks for, as the live screen has it."""
    live = Live(run.path)
    live.look()
    (trainer,) = live.trainers
    steps = trainer.window.steps()
    spent = steps.spent[:, [PHASES.index(phase) for phase in ("input_wait", "forward", "evaluation")]]
    return [(*one,) for one in np.nan_to_num(np.column_stack([steps.samples, spent]), nan=-1).tolist()]


def _holds(run: Run) -> None:
    """What is true of every run: phases and residual are the step, and no time is negative."""
    assert rows(run, "SELECT count(*) FROM phases WHERE dur_ns < 0") == [(0,)]
    off = (
        "SELECT s.step FROM steps s JOIN phases p USING (process, step) "
        "GROUP BY s.process, s.step, s.dur_ns HAVING s.dur_ns <> sum(p.dur_ns)"
    )
    assert rows(run, off) == []
