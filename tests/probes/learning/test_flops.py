"""The operations of one step: the same number as torch's counter gives for all of it, and a training that does not notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch._dynamo import utils as compiler  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import sonde  # noqa: E402
from sonde.analysis.questions.flops import Flops, flops  # noqa: E402
from sonde.analysis.run import open_run  # noqa: E402
from sonde.probes.learning import flops as probe  # noqa: E402

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    """Other tests of this process may have compiled something."""
    compiler.counters.clear()


class Net(torch.nn.Module):
    """Convolutions, results that are changed in place, attention that is computed again in the backward pass, and a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.images = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(inplace=True),
            torch.nn.MaxPool2d(2),
        )
        self.attention = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.1)
        self.recurrent = torch.nn.LSTM(8, 8, batch_first=True)
        self.head = torch.nn.Linear(8, 4)

    def forward(self, images: Any) -> Any:
        """Classes of images."""
        rows = self.images(images).flatten(2).transpose(1, 2)
        rows = checkpoint(self.attention, rows, use_reentrant=False)
        return self.head(self.recurrent(rows)[0][:, -1])


def step(net: Any, optimizer: Any, amp: bool = False) -> None:
    """One, with data that depends on the random state alone."""
    images, classes = torch.randn(4, 3, 8, 8), torch.randint(0, 4, (4,))
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=amp):
        loss = torch.nn.functional.cross_entropy(net(images), classes)
    loss.backward()
    optimizer.step()


def trained(amp: bool = False, steps: int = 5) -> list[Any]:
    """The parameters after some steps."""
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(steps):
        step(net, optimizer, amp)
    return [one.detach().clone() for one in net.parameters()]


def found(path: Path | None) -> Flops | None:
    """What the run says."""
    assert path is not None
    with open_run(path) as run:
        return flops(run)


@pytest.mark.parametrize("amp", [False, True])
def test_the_third_step_is_counted_and_training_is_the_same(tmp_path: Path, amp: bool) -> None:
    """Bit for bit, and the number is that of torch's counter over the whole step."""
    plain = trained(amp)
    with sonde.init(dir=tmp_path, flops=True, peak_flops=1e15) as session:
        assert all(map(torch.equal, trained(amp), plain))
    net = Net()
    with FlopCounterMode(display=False) as counter:
        step(net, torch.optim.SGD(net.parameters(), lr=0.1), amp)
    told = found(session.path)
    assert told is not None
    assert told.per_s is not None
    assert (told.step, told.per_step, told.peak, told.uncounted) == (2, counter.get_total_flops(), 1e15, None)
    assert told.utilization == told.per_s / 1e15


def test_nothing_is_counted_without_the_setting(tmp_path: Path) -> None:
    """Missing is not zero."""
    with sonde.init(dir=tmp_path) as session:
        trained()
    assert found(session.path) is None


def test_a_short_training_says_nothing(tmp_path: Path) -> None:
    """Two steps have no third one."""
    with sonde.init(dir=tmp_path, flops=True) as session:
        trained(steps=2)
    assert found(session.path) is None


def test_what_torch_compile_took_is_not_counted(tmp_path: Path) -> None:
    """It is compiled and called as ever, and the report says why there is no number."""
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    compiled = torch.compile(net, backend="eager")
    with sonde.init(dir=tmp_path, flops=True) as session:
        for _ in range(5):
            optimizer.zero_grad()
            compiled(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    assert found(session.path) == Flops(None, None, None, None, None, probe.COMPILED)


def test_a_count_that_fails_does_not_reach_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: set[str]
) -> None:
    """The step is the same, and the number is missing."""
    expected.add(probe.DOING)
    plain = trained()
    counting = torch.utils.flop_counter

    def broken(*_args: object, **_kwargs: object) -> int:
        raise AssertionError("a shape that nobody thought of")

    monkeypatch.setitem(counting.flop_registry, torch.ops.aten.addmm, broken)
    with sonde.init(dir=tmp_path, flops=True) as session:
        assert all(map(torch.equal, trained(), plain))
    assert found(session.path) == Flops(None, None, None, None, None, probe.UNKNOWN_SHAPES)
