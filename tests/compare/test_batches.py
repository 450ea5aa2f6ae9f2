"""Batches of two runs, compared item by item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.probes.training import model, sgd  # noqa: E402

from sonde.analysis.run import open_run  # noqa: E402
from sonde.compare.divergence import Numbers, compare_numbers  # noqa: E402
from sonde.testing import record  # noqa: E402


def trained(folder: Path, order: list[int], size: int = 2, accumulate: int = 1, evaluate_every: int = 1000) -> Path:
    """A run that loads items in this order, and evaluates every so many batches."""
    with record(dir=str(folder)) as recorded:
        net = model()
        optimizer = sgd(net)
        inputs = next(net.parameters()).shape[1]
        loader = torch.utils.data.DataLoader(torch.zeros(64, inputs), size, sampler=order)
        for number, batch in enumerate(loader, 1):
            net(batch).sum().backward()
            if number % accumulate == 0:
                optimizer.step()
            if number % evaluate_every == 0:
                _evaluate(net.eval(), inputs)
                net.train()
    return recorded.path


def _evaluate(net: Any, inputs: int) -> None:
    with torch.no_grad():
        for batch in torch.utils.data.DataLoader(torch.ones(6, inputs), 2):
            net(batch)


def compared(a: Path, b: Path) -> Numbers:
    """The numbers of two runs."""
    with open_run(a) as one, open_run(b) as other:
        return compare_numbers(one, other)


def test_steps_are_counted_not_batches(tmp_path: Path) -> None:
    """Two batches make one step here."""
    found = compared(*(trained(tmp_path, list(range(24)), accumulate=2) for _ in range(2)))
    assert (found.identical, found.steps) == (True, 6)


def test_the_first_item_that_differs_is_named(tmp_path: Path) -> None:
    """With its step."""
    one, other = list(range(24)), [*range(9), 50, *range(10, 24)]
    found = compared(trained(tmp_path, one), trained(tmp_path, other))
    assert "the batches differ from step 4 on: B loaded item 50 where A loaded 9" in found.text


def test_batches_of_another_size_are_counted(tmp_path: Path) -> None:
    """Their first items are the same."""
    found = compared(trained(tmp_path, list(range(24))), trained(tmp_path, list(range(24)), size=4))
    assert "the batches differ from step 0 on: B loaded 4 items where A loaded 2" in found.text


def test_batches_of_an_evaluation_make_no_difference(tmp_path: Path) -> None:
    """B evaluates between, with a loader of its own."""
    order = list(range(24))
    found = compared(trained(tmp_path, order), trained(tmp_path, order, evaluate_every=3))
    assert (found.identical, found.steps) == (True, 12)


def test_a_difference_after_batches_of_an_evaluation_is_found(tmp_path: Path) -> None:
    """At its own step."""
    found = compared(trained(tmp_path, list(range(24))), trained(tmp_path, [*range(21), 50, 22, 23], evaluate_every=3))
    assert "the batches differ from step 10 on: B loaded item 50 where A loaded 21" in found.text
