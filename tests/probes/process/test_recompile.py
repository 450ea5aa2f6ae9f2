"""Recompiles of torch.compile, as they are recorded."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.probes.training import sgd  # noqa: E402

from sonde.testing import record  # noqa: E402


def test_each_recompile_has_its_function_and_reason(expected: set[str]) -> None:
    """The first compile is none. Training gets what it gets without the recording."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
            self.factor = 1.5

        def forward(self, points: Any) -> Any:
            return self.layer(points) * self.factor

    with record() as recorded:
        net = Model()
        optimizer = sgd(net)
        compiled = torch.compile(net, backend="eager", dynamic=False)
        for rows in (2, 2, 3):
            optimizer.zero_grad()
            compiled(torch.ones(rows, 4)).sum().backward()
            optimizer.step()
    (event,) = recorded.named("recompile")
    assert event["args"]["function"] == "forward"
    assert "size mismatch" in event["args"]["reason"]
    assert event["step"] == 2
