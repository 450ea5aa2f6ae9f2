"""The loss of a step is the one that the program would print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.probes.training import loss_of, model, sgd, train

import sonde
from sonde.analysis.live.run import Live
from sonde.analysis.seal import seal
from sonde.testing import record
from sonde.views.report import report

STEPS = 12


def rows(folder: Path, loop: Callable[[], object], query: str = "select loss from steps order by step") -> list[Any]:
    """The answer to a query about the recording of a loop."""
    with record(dir=folder) as recorded:
        loop()
    with sonde.open_run(recorded.path) as run:
        found = run.sql(query).fetchall()
        run.close()
    return [row[0] if len(row) == 1 else row for row in found]


def accumulated(scale: Callable[[Any], Any], printed: list[float], batches: int = 4 * STEPS) -> None:
    """Four micro-batches in a step; the mean of their losses, before they are scaled, goes to `printed`."""
    net = model()
    optimizer = sgd(net)
    losses = []
    for batch in range(batches):
        loss = loss_of(net) * torch.ones(1).add(batch % 3).sum()
        losses.append(loss.item())
        scale(loss).backward()
        if batch % 4 == 3 or batch == batches - 1:
            printed.append(sum(losses) / len(losses))
            losses.clear()
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("scale", [lambda loss: loss / 4, lambda loss: loss * 0.25, lambda loss: loss.add(0)])
@pytest.mark.parametrize("batches", [4 * STEPS, 4 * STEPS + 2])
def test_accumulated_losses_are_shown_as_before_they_were_scaled(
    tmp_path: Path, scale: Callable[[Any], Any], batches: int
) -> None:
    """Divided by the number of micro-batches, multiplied, or not at all; also in a last step that has fewer."""
    printed: list[float] = []
    assert rows(tmp_path, lambda: accumulated(scale, printed, batches)) == pytest.approx(printed)


def test_a_loss_that_is_divided_by_something_else_stays(tmp_path: Path) -> None:
    """By the number of its samples, as a sum is."""
    printed: list[float] = []
    accumulated(lambda loss: loss, printed)
    found = rows(tmp_path, lambda: accumulated(lambda loss: loss / 32, []))
    assert found[0] == pytest.approx(printed[0] / 32)


def test_a_scaler_does_not_hide_the_divisor(tmp_path: Path) -> None:
    """The loss is divided before the gradient scaler multiplies it."""
    printed: list[float] = []
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    assert rows(tmp_path, lambda: accumulated(lambda loss: scaler.scale(loss / 4), printed))[0] == pytest.approx(
        printed[0]
    )


def test_the_loss_of_lbfgs_is_what_its_step_returns(tmp_path: Path) -> None:
    """That of the first closure, not the mean of all."""
    printed: list[float] = []

    def loop() -> None:
        net = model()
        optimizer: Any = torch.optim.LBFGS(net.parameters(), max_iter=5)

        def closure() -> Any:
            optimizer.zero_grad()
            loss = loss_of(net)
            loss.backward()
            return loss

        printed.extend(optimizer.step(closure).item() for _ in range(4))

    assert rows(tmp_path, loop) == pytest.approx(printed)


def adversaries(printed: list[tuple[float, float]]) -> None:
    """A critic with two backward passes, and a generator with one, in turn."""
    nets = model(), model()
    critic, generator = (sgd(net) for net in nets)
    for _ in range(STEPS):
        good, bad, made = loss_of(nets[0]) * 3, loss_of(nets[0]), loss_of(nets[1])
        good.backward()
        bad.backward()
        critic.step()
        made.backward()
        generator.step()
        printed.append(((good.item() + bad.item()) / 2, made.item()))


def test_each_optimizer_has_its_own_loss(tmp_path: Path) -> None:
    """In the table `losses`; `steps` has that of the optimizer that ends the step."""
    printed: list[tuple[float, float]] = []
    query = "select optimizer, list(loss order by step nulls last) from losses group by optimizer order by optimizer"
    critic, generator = rows(tmp_path / "one", lambda: adversaries(printed), query)
    assert critic == (0, pytest.approx([one for one, _ in printed]))
    assert generator == (1, pytest.approx([other for _, other in printed]))
    assert rows(tmp_path / "two", lambda: adversaries([])) == pytest.approx([one for one, _ in printed])


def test_a_sealed_run_has_the_same_losses(tmp_path: Path) -> None:
    """Divided ones too."""
    printed: list[float] = []
    with record(dir=tmp_path) as recorded:
        accumulated(lambda loss: loss / 4, printed)
    seal(recorded.path)
    with sonde.open_run(recorded.path) as run:
        assert [loss for (loss,) in run.sql("select loss from losses order by step").fetchall()] == pytest.approx(
            printed
        )


def test_the_live_screen_has_the_same_loss(tmp_path: Path) -> None:
    """The last one, as before it was divided."""
    net = model()
    optimizer = sgd(net)
    with record(dir=tmp_path) as recorded:
        for batch in range(32):
            loss = loss_of(net)
            (loss / 8).backward()
            if batch % 8 == 7:
                optimizer.step()
    live = Live(recorded.path)
    live.look()
    assert live.trainers[0].window.loss == pytest.approx(loss.item())


def test_without_a_divisor_the_card_says_of_what_the_loss_is_the_mean(tmp_path: Path) -> None:
    """Nobody knows whether the program sums or averages them."""

    def parts(folder: Path, loop: Callable[[], object]) -> int | None:
        with record(dir=folder) as recorded:
            loop()
        with sonde.open_run(recorded.path) as run:
            return report(run).steps.loss_parts

    assert parts(tmp_path / "plain", lambda: accumulated(lambda loss: loss.add(0), [])) == 4
    assert parts(tmp_path / "divided", lambda: accumulated(lambda loss: loss / 4, [])) is None
    net = model()
    assert parts(tmp_path / "one", lambda: train(net, sgd(net), STEPS)) is None
