"""torch.compile with spans in the code: it works as without them, and what it reads through is not recorded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sonde import ai
from sonde.store.probe import SETUP
from sonde.testing import record


class Model(nn.Module):
    """A model whose methods have spans."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    @ai.compute.forward
    def forward(self, batch: Tensor) -> Tensor:
        return self.inner(batch).relu()

    @ai.data.preprocess
    def inner(self, batch: Tensor) -> Tensor:
        return self.layer(batch)  # type: ignore[no-any-return]


class Helper:
    """A class that is no model."""

    @ai.compute.step
    def double(self, batch: Tensor) -> Tensor:
        return batch * 2


helper = Helper()


@ai.compute.forward
def decorated(batch: Tensor) -> Tensor:
    """A plain function with a span."""
    return batch + 1


def calls_a_method(batch: Tensor) -> Tensor:
    """A function that calls a method with a span."""
    return helper.double(batch)


def calls_a_function(batch: Tensor) -> Tensor:
    """A function that calls a function with a span."""
    return decorated(batch)


def has_a_block(batch: Tensor) -> Tensor:
    """A function with a span inside."""
    with ai.compute.forward:
        return batch * 3


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_model_whose_methods_have_spans_compiles(fullgraph: bool) -> None:
    """Also as one graph."""
    model, batch = Model(), torch.ones(2, 4)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=fullgraph)
    with record():
        assert torch.equal(compiled(batch), model(batch))


@pytest.mark.parametrize("function", [calls_a_method, calls_a_function, has_a_block, decorated])
def test_a_function_with_spans_compiles(function: Callable[[Tensor], Tensor]) -> None:
    """Where torch cannot read a span, it leaves its graph there, as with any other code."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager")
    with record():
        assert torch.equal(compiled(torch.ones(2)), function(torch.ones(2)))


def test_a_method_of_a_model_is_recorded_when_it_is_not_compiled() -> None:
    """The way round torch.compile costs no events."""
    with record() as recorded:
        Model()(torch.ones(2, 4))
    forward, preprocess = (event for event in recorded.events if event["cat"] not in ("probe", SETUP))
    assert (forward["name"], preprocess["name"]) == ("forward", "preprocess")
    assert preprocess["parent"] == forward["seq"]
