"""What a run was made with, as it is recorded and read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.probes.training import model, sgd, train  # noqa: E402

from sonde.analysis.run import open_run  # noqa: E402
from sonde.compare.setup import setup_of  # noqa: E402
from sonde.testing import record  # noqa: E402


def test_a_training_says_what_it_was_made_with(tmp_path: Path) -> None:
    """Model, optimizer, loader, versions, precision."""
    with record(dir=str(tmp_path)) as recorded:
        net = model()
        data = torch.utils.data.TensorDataset(torch.ones(12, 4))
        for _ in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True):
            train(net, sgd(net), 1)
    with open_run(recorded.path) as run:
        found = setup_of(run)
    assert found["optimizer"] == "SGD"
    assert found["optimizer.lr"] == 0.1
    assert found["model.parameters"] == 49
    assert found["precision.parameters"] == "float32"
    assert found["version.torch"] == torch.__version__
    loader = {name: value for name, value in found.items() if name.startswith("loader.")}
    assert loader == {
        "loader.workers": 0,
        "loader.batch_size": 4,
        "loader.dataset": "TensorDataset",
        "loader.items": 12,
        "loader.length": 3,
        "loader.prefetch": "none",
        "loader.pin_memory": False,
        "loader.persistent": False,
        "loader.sampler": "RandomSampler",
        "loader.drop_last": False,
    }
