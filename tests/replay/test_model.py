"""Computing a recorded forward again: the numbers of the run, or the first layer that differs and why."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from sonde.analysis.run import open_run  # noqa: E402
from sonde.errors import ReplayError  # noqa: E402
from sonde.replay import replay  # noqa: E402
from sonde.replay.model import ForwardComparison, forward, load_weights  # noqa: E402

PROGRAM = """
import torch
from torch.utils.data import DataLoader

class Pairs(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return {"x": torch.full((4,), float(index + 1)), "y": torch.tensor([index % 2.0])}

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), MIDDLE, torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for number, batch in enumerate(DataLoader(Pairs(), batch_size=3, shuffle=True)):
    torch.save({"model": model.state_dict()}, f"{number}.pt")
    optimizer.zero_grad()
    with AROUND:
        loss = torch.nn.functional.mse_loss(model(CALLED), batch["y"])
    loss.backward()
    optimizer.step()
"""


class Pairs(torch.utils.data.Dataset):
    """The data of the program."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.full((4,), float(index + 1)), "y": torch.tensor([index % 2.0])}


class Unsteady(torch.nn.Linear):
    """A layer that never gives the same twice."""

    calls = 0

    def forward(self, x: Any) -> Any:
        """Other numbers each time."""
        Unsteady.calls += 1
        return super().forward(x) + Unsteady.calls


def network(seed: int = 0, last: Any = torch.nn.Linear, middle: Sequence[Any] = (torch.nn.Tanh(),)) -> Any:
    """The model of the program, before it has trained."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), *middle, last(8, 1))


def recorded(
    folder: Path,
    every: int = 1,
    called: str = 'batch["x"]',
    model: str = "torch.nn.Tanh()",
    around: str = "torch.enable_grad()",
) -> Path:
    """Run the program; its recording."""
    program = PROGRAM.replace("CALLED", called).replace("MIDDLE", model).replace("AROUND", around)
    (folder / "train.py").write_text(program)
    command = [sys.executable, "-m", "sonde", "run", "-q", "--fingerprint", str(every), "--dir", "runs", "train.py"]
    subprocess.run(command, cwd=folder, check=True, timeout=100)
    (run,) = (folder / "runs").iterdir()
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording with fingerprints of every step."""
    return recorded(tmp_path_factory.mktemp("recorded"))


def computed(path: Path, step: int, model: Any) -> ForwardComparison:
    """The forward of a step, computed with this model."""
    with open_run(path) as opened:
        return forward(opened, step, 0, replay(opened, step, Pairs()).batches[0], model)


def test_the_same_model_gives_the_same_numbers(run: Path) -> None:
    """All layers and the output, bit for bit."""
    found = computed(run, 0, network())
    assert (found.same, found.compared, found.weights) == (True, 4, True)
    assert str(found) == "Same numbers: 4 fingerprints of the forward agree with the run bit for bit."


def test_the_checkpoint_of_a_later_step_gives_its_numbers(run: Path) -> None:
    """And it is known to be that of the step."""
    model = network()
    load_weights(model, str(run.parent.parent / "2.pt"))
    found = computed(run, 2, model)
    assert (found.same, found.weights) == (True, True)


def test_other_weights_are_named_as_the_reason(run: Path) -> None:
    """The fingerprints of the step before say so."""
    found = computed(run, 2, network())
    assert (found.same, found.weights) == (False, False)
    assert "The weights are not those that step 2 began with." in str(found)


def test_the_first_layer_that_differs_is_named(run: Path) -> None:
    """Not those before it."""
    model = network()
    with torch.no_grad():
        model[2].bias += 1
    found = computed(run, 0, model)
    assert str(found).startswith("DIFFERENT NUMBERS: layer 2 is the first to differ: its sum is ")
    assert "Two forwards here agree bit for bit." in str(found)


def test_a_machine_that_gives_other_numbers_each_time_is_said_to(run: Path) -> None:
    """Whatever the run had."""
    found = computed(run, 0, network(last=Unsteady))
    assert "Two forwards here differ too, first in layer 2" in str(found)


def test_the_model_and_random_numbers_of_the_caller_are_left_alone(run: Path) -> None:
    """Its weights, mode and hooks, and the next random number."""
    model = network().eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    computed(run, 0, model)
    assert not model.training
    assert not model[0]._forward_hooks
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_dropout_draws_the_numbers_of_the_run(tmp_path: Path) -> None:
    """The state of random numbers is in the recording."""
    path = recorded(tmp_path, model="torch.nn.Tanh(), torch.nn.Dropout(0.5)")
    found = computed(path, 0, network(middle=[torch.nn.Tanh(), torch.nn.Dropout(0.5)]))
    assert found.same


def test_dropout_without_the_state_of_random_numbers_is_named_as_a_reason(tmp_path: Path) -> None:
    """It is recorded at most every ten steps."""
    path = recorded(tmp_path, model="torch.nn.Tanh(), torch.nn.Dropout(0.5)")
    model = network(middle=[torch.nn.Tanh(), torch.nn.Dropout(0.5)])
    load_weights(model, str(tmp_path / "2.pt"))
    found = computed(path, 2, model)
    assert (found.same, found.weights) == (False, True)
    assert "The model draws random numbers (dropout)" in str(found)


def test_autocast_around_the_model_is_put_around_it_again(tmp_path: Path) -> None:
    """The run says in which precision it computed."""
    path = recorded(tmp_path, around='torch.autocast("cpu", torch.bfloat16)')
    assert computed(path, 0, network()).same


def test_a_step_without_fingerprints_lists_those_that_have_them(tmp_path: Path) -> None:
    """Only every second step was due."""
    path = recorded(tmp_path, every=2)
    with pytest.raises(ReplayError, match=r"Step 1 has no fingerprints\. These steps have: 0, 2"):
        computed(path, 1, network())


def test_data_that_the_program_changed_after_the_loader_cannot_be_compared(tmp_path: Path) -> None:
    """The input of the model is nowhere in the batch."""
    path = recorded(tmp_path, called='batch["x"] * 2')
    with pytest.raises(ReplayError, match="Input 0 of the model is not in the batch"):
        computed(path, 0, network())


def test_another_model_is_refused(run: Path) -> None:
    """It cannot be called with this batch."""
    with pytest.raises(ReplayError, match="Linear fails on this batch: RuntimeError"):
        computed(run, 0, torch.nn.Linear(7, 1))


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    """By its name."""
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ReplayError, match=r"Cannot load .*notes.txt into Sequential"):
        load_weights(network(), str(tmp_path / "notes.txt"))
