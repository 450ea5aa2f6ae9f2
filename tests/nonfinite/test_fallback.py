"""The watch without its C part: layers, losses and gradients of parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.flow.faults import Items, Log, Root, birth, train
from torch import nn

from sonde.errors import NonFinite
from sonde.flow import watch_nonfinite
from sonde.nonfinite import check
from sonde.nonfinite.watch import NonFiniteWatch
from sonde.testing import record

pytestmark = pytest.mark.usefixtures("watch_ended")


@pytest.fixture(autouse=True)
def watch(monkeypatch: pytest.MonkeyPatch) -> NonFiniteWatch:
    """A watch of all models, where C was not built."""
    monkeypatch.setattr(check, "native", None)
    return watch_nonfinite()


def test_a_layer_that_makes_a_nan_is_named(watch: NonFiniteWatch) -> None:
    """The innermost one, and no container of it."""
    nn.Sequential(nn.Linear(4, 4), nn.Sequential(Log(), nn.Linear(4, 2)))(-torch.ones(3, 4))
    facts = birth(watch)
    assert (facts["where"], facts["layer"], facts["type"]) == ("forward", "1.0", "Log")


def test_a_nan_in_the_data_is_of_the_dataset(watch: NonFiniteWatch) -> None:
    """With its item."""
    with record(watch_nonfinite="record"):
        train(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), Items(13))
        facts = birth(watch)
    assert (facts["where"], facts["stage"]) == ("data", "dataset")
    assert [item["index"] for item in facts["items"]] == [13]


def test_a_loss_that_is_not_finite_is_told(watch: NonFiniteWatch) -> None:
    """All layers were finite."""
    net: Any = nn.Linear(4, 2)
    (net(torch.ones(3, 4)).sum() * float("inf")).backward()
    assert birth(watch)["where"] == "loss"


def test_a_gradient_that_is_not_finite_is_told_by_a_parameter(watch: NonFiniteWatch) -> None:
    """Its layer is named."""
    train(Root())
    facts = birth(watch)
    assert (facts["where"], facts["layer"]) == ("gradient", "first")


def test_stop_raises_at_the_layer() -> None:
    """The program gets NonFinite there."""
    watch_nonfinite(action="stop")
    with pytest.raises(NonFinite):
        Log()(-torch.ones(2))


def test_a_good_training_is_quiet(watch: NonFiniteWatch) -> None:
    """Nothing is found."""
    train(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)))
    assert watch.birth is None


def test_a_model_that_is_traced_gets_no_operation_of_ours() -> None:
    """The look would be part of its graph."""
    trace: Any = torch.jit.trace
    net = nn.Sequential(nn.Linear(4, 2))
    net(torch.ones(1, 4))
    assert "sum" not in str(trace(net, torch.ones(1, 4)).inlined_graph)
