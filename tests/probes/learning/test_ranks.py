"""Samples of models on several ranks, and of compiled ones: training goes on as without them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.probes.learning.samples import counters, facts, steps  # noqa: E402
from tests.probes.training import loss_of, model, sgd  # noqa: E402

from sonde.analysis.run import open_run  # noqa: E402
from sonde.store import probe  # noqa: E402
from sonde.testing import record  # noqa: E402

SCRIPT = Path(__file__).with_name("ranks.py")


def trained(how: str, folder: Path, *recording: str) -> set[str]:
    """What the ranks say of their weights."""
    ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT), how]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SONDE")}
    shown = subprocess.run(
        [sys.executable, *(["-m", "sonde", "run", "-q", *recording, "--", sys.executable] if recording else []), *ranks],
        cwd=folder, env=kept, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    return set(re.findall("[0-9a-f]{64}", shown.stdout))  # two ranks may write at once


@pytest.mark.parametrize("how", ["ddp", pytest.param("fsdp", marks=pytest.mark.soak)])
def test_ranks_train_to_the_same_weights_and_each_has_its_samples(how: str, tmp_path: Path) -> None:
    """Of a sharded model each has those of its shard."""
    assert trained(how, tmp_path, "--learning", "2", "--dir", "runs") == trained(how, tmp_path)
    (folder,) = (tmp_path / "runs").iterdir()
    with open_run(folder) as run:
        rows = run.sql("SELECT rank, step, layer, norm, update_ratio FROM gradients ORDER BY ALL").fetchall()
        sharded = run.sql(
            f"SELECT DISTINCT args->>'$.sharded' FROM events WHERE cat = '{probe.LEARNING_LAYER}'"
        ).fetchall()
        off = run.sql(f"SELECT args FROM events WHERE cat = '{probe.OFF}'").fetchall()
    assert off == []
    assert [row[:3] for row in rows] == [(rank, step, layer) for rank in (0, 1) for step in (0, 2, 4) for layer in "02"]
    assert all(norm > 0 and ratio > 0 for *_, norm, ratio in rows)
    assert sharded == [("false" if how == "ddp" else "true",)]


def test_a_compiled_model_is_sampled_without_its_layers_and_compiled_once(expected: set[str]) -> None:
    """Gradients, weights and inputs are seen; nothing makes the compiler compile again."""
    compiled = []

    def backend(graph: Any, _inputs: Any) -> Any:
        compiled.append(1)
        return graph.forward

    def trained() -> list[float]:
        torch._dynamo.reset()
        compiled.clear()
        net = torch.compile(model(), backend=backend)
        optimizer = sgd(net)
        for _ in range(7):
            optimizer.zero_grad()
            loss_of(net).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        assert len(compiled) == 1
        return [value for one in net.parameters() for value in one.flatten().tolist()]

    plain = trained()
    with record(learning=3) as recorded:
        assert trained() == plain
    assert steps(recorded, probe.GRADIENT) == steps(recorded, probe.FIELD) == [0, 3, 6]
    assert {name for name, _ in counters(recorded, probe.GRADIENT)} == {"Sequential/0", "Sequential/2"}
    assert not steps(recorded, probe.ACTIVATION)
    assert facts(recorded, probe.LEARNING_MODEL)["Sequential"]["compiled"] is True


def test_a_compiled_step_that_clips_reads_torch_itself(expected: set[str]) -> None:
    """A whole graph, with the clipping in it."""

    @torch.compile(backend="eager", fullgraph=True)  # type: ignore[untyped-decorator]
    def clipped(parameters: list[Any]) -> Any:
        return torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=False)

    with record(learning=1):
        one = torch.ones(3, requires_grad=True)
        one.grad = torch.ones(3)
        torch._dynamo.reset()
        assert clipped([one]).item() == pytest.approx(3**0.5)
