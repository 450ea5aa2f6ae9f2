"""Transfers: what the program moves to a device is told, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.hooks.torch.told import told  # noqa: E402

from sonde.hooks.torch.transfer import tensor_to  # noqa: E402


@pytest.fixture(autouse=True)
def _restored() -> Any:
    yield
    assert not {"to", "cuda"} & set(vars(torch.Tensor))  # they are inherited


WITH_DEVICE: dict[str, Callable[[Any], Any]] = {
    "text": lambda tensor: tensor.to("cpu"),
    "device": lambda tensor: tensor.to(torch.device("cpu")),
    "by name": lambda tensor: tensor.to(device="cpu"),
    "with type": lambda tensor: tensor.to("cpu", torch.float64),
    "other": lambda tensor: tensor.to(torch.ones(1)),
    "other by name": lambda tensor: tensor.to(tensor=torch.ones(1)),
    "not blocking": lambda tensor: tensor.to("cpu", non_blocking=True, copy=True),
    "meta": lambda tensor: tensor.to("meta"),
}
WITHOUT_DEVICE: dict[str, Callable[[Any], Any]] = {
    "type": lambda tensor: tensor.to(torch.float64),
    "type by name": lambda tensor: tensor.to(dtype=torch.float64),
    "no device": lambda tensor: tensor.to(None, torch.float64),
    "no device by name": lambda tensor: tensor.to(device=None, dtype=torch.float64),
    "double": lambda tensor: tensor.double(),
    "layout": lambda tensor: tensor.to(memory_format=torch.contiguous_format),
}


@pytest.mark.parametrize("move", WITH_DEVICE.values(), ids=WITH_DEVICE)
def test_a_move_is_told_with_tensor_and_result(move: Callable[[Any], Any]) -> None:
    """The result is that of torch."""
    tensor = torch.arange(3.0)
    expected = move(tensor)
    with told(tensor_to) as (seen,):
        result = move(tensor)
    assert len(seen.calls) == 1
    assert seen.calls[0].args[0] is tensor
    assert seen.calls[0].result is result
    assert (result.dtype, result.device, result is tensor) == (expected.dtype, expected.device, expected is tensor)


@pytest.mark.parametrize("change", WITHOUT_DEVICE.values(), ids=WITHOUT_DEVICE)
def test_a_change_of_type_is_not_told(change: Callable[[Any], Any]) -> None:
    """Nothing moves."""
    with told(tensor_to) as (seen,):
        assert torch.equal(change(torch.arange(3.0)).float(), torch.arange(3.0))
    assert seen.begun == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a device")
def test_a_move_that_fails_is_told_and_fails_as_before() -> None:
    """There is no device here."""
    with told(tensor_to) as (seen,):
        with pytest.raises((AssertionError, RuntimeError)):
            torch.ones(1).cuda()
        with pytest.raises((AssertionError, RuntimeError)):
            torch.ones(1).to("cuda")
        with pytest.raises(RuntimeError, match="nonsense"):
            torch.ones(1).to("nonsense")
    assert [call.error is None for call in seen.calls] == [False] * 3


def test_a_model_that_is_moved_is_not_told() -> None:
    """Its parameters are no inputs; neither is the state of an optimizer."""
    model = torch.nn.BatchNorm1d(3)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    with told(tensor_to) as (seen,):
        model.to("cpu")
        model.to("meta")
        optimizer.load_state_dict(optimizer.state_dict())
        repr(torch.ones(2))
    assert seen.begun == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_functions_keep_their_graph() -> None:
    """The compiler sees the same operations as without us."""
    operations: list[list[str]] = []

    def backend(graph: Any, inputs: Any) -> Any:
        operations.append([node.op for node in graph.graph.nodes])
        return graph.forward

    def move(tensor: Any) -> Any:
        return tensor.to("cpu", torch.float64) + 1

    torch._dynamo.reset()
    expected = torch.compile(move, backend=backend, fullgraph=True)(torch.ones(2))
    torch._dynamo.reset()
    with told(tensor_to):
        compiled = torch.compile(move, backend=backend, fullgraph=True)
        results = [compiled(torch.ones(2)) for _ in range(3)]
    torch._dynamo.reset()
    assert all(torch.equal(result, expected) for result in results)
    assert len(operations) == 2
    assert operations[0] == operations[1]
