"""Whether two runs are the same training."""

from __future__ import annotations

from pathlib import Path

from tests.compare.building import training

from sonde.analysis.run import open_run
from sonde.compare.divergence import Numbers, compare_numbers


def compared(a: Path, b: Path) -> Numbers:
    """The numbers of two run folders."""
    with open_run(a) as one, open_run(b) as other:
        return compare_numbers(one, other)


def test_equal_losses_are_identical(tmp_path: Path) -> None:
    """Whatever time the steps took; NaN is equal to itself."""

    def loss(step: int) -> float:
        return float("nan") if step == 7 else 1 / (step + 1)

    found = compared(training(tmp_path / "a", loss=loss), training(tmp_path / "b", loss=loss, seed=2))
    assert (found.identical, found.first_difference, found.steps) == (True, None, 80)
    assert found.text == "Identical: losses of all 80 common steps."


def test_the_first_loss_that_differs_is_named(tmp_path: Path) -> None:
    """With its step and by how much."""
    a = training(tmp_path / "a", loss=lambda step: 1.0)
    found = compared(a, training(tmp_path / "b", loss=lambda step: 1.0 if step < 52 else 1.0003))
    assert found.identical is False
    assert found.first_difference is not None
    assert (found.first_difference.step, found.first_difference.what) == (52, "loss")
    assert found.text == "Identical up to step 51; at step 52 the loss differs by 0.0003."


def test_a_run_that_is_longer_is_compared_as_far_as_both_go(tmp_path: Path) -> None:
    """The common steps count."""
    a = training(tmp_path / "a", loss=lambda step: step, steps=50)
    found = compared(a, training(tmp_path / "b", loss=lambda step: step, steps=70))
    assert (found.identical, found.steps) == (True, 50)


def test_without_losses_nothing_is_known(tmp_path: Path) -> None:
    """That is not the same as identical."""
    found = compared(training(tmp_path / "a"), training(tmp_path / "b"))
    assert found.identical is None


def test_ranks_are_compared_with_each_other(tmp_path: Path) -> None:
    """Rank by rank."""
    found = compared(
        training(tmp_path / "a", loss=lambda step: step, ranks=2),
        training(tmp_path / "b", loss=lambda step: step, ranks=2),
    )
    assert (found.identical, found.steps) == (True, 160)
