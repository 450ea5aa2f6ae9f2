"""A whole training program under all points at once: it computes the same, bit for bit, and nothing stays behind."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")


from tests.hooks.torch.data import Count  # noqa: E402
from tests.hooks.torch.told import Told, told  # noqa: E402

from sonde import guard, hooks  # noqa: E402
from sonde.hooks.torch import loader  # noqa: E402
from sonde.hooks.torch.backward import backward  # noqa: E402
from sonde.hooks.torch.module import module_call  # noqa: E402
from sonde.hooks.torch.optimizer import optimizer_step, scaler_step  # noqa: E402
from sonde.hooks.torch.transfer import tensor_to  # noqa: E402

nn: Any = torch.nn
DataLoader = torch.utils.data.DataLoader

POINTS = (
    loader.loader_iter, loader.loader_len, loader.next_index, loader.next_batch, loader.fetch, module_call, backward,
    optimizer_step, scaler_step, tensor_to,
)  # fmt: skip


class Broken:
    """Fails whenever it is told something."""

    def before(self, args: Any, kwargs: Any) -> None:
        """A call begins."""
        raise RuntimeError("ours")

    def after(self, token: Any, result: Any, error: Any) -> None:
        """Never called."""


def train(workers: int, stop_at: int | None = None) -> list[Any]:
    """A seeded program with dropout and shuffling; all that it computes."""
    torch.manual_seed(1)
    random.seed(1)
    model = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())
    data = DataLoader(
        Count(12), batch_size=4, shuffle=True, num_workers=workers, multiprocessing_context="fork" if workers else None
    )
    results: list[Any] = [len(data)]
    for _epoch in range(2):
        for batch in data:
            inputs = batch.to("cpu").float().unsqueeze(1)
            loss = nn.functional.mse_loss(model(inputs), inputs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            results.append(loss.item())
            if len(results) == stop_at:
                raise KeyboardInterrupt
    return [
        *results,
        *(parameter.tolist() for parameter in model.parameters()),
        torch.rand(3).tolist(),
        random.random(),
    ]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_program_computes_the_same_bits(workers: int) -> None:
    """Losses, parameters and the state of the random numbers."""
    expected = train(workers)
    with told(*POINTS) as seen:
        assert train(workers) == expected
    asked = 2 * (4 + 3) if workers else 2 * 4  # workers are given batches ahead of time, and after each delivery
    assert [one.begun for one in seen] == [2, 1, asked, 8, 0 if workers else 6, 6, 6, 6, 0, 6]
    assert train(workers) == expected


def test_a_program_computes_the_same_bits_when_all_subscribers_fail() -> None:
    """Each failure is counted, none is felt."""
    expected = train(0)
    leave = [point.subscribe(Broken()) for point in POINTS]
    failures = sum(guard.counts().values())
    assert train(0) == expected
    for each in leave:
        each()
    assert sum(guard.counts().values()) - failures == 2 + 1 + 8 + 8 + 6 + 6 + 6 + 6 + 6
    assert hooks.describe() == []


def test_an_interrupt_and_repeated_use_leave_nothing_behind() -> None:
    """After each of them the program runs as if we had never been there."""
    expected = train(0)
    for _ in range(3):
        with told(*POINTS) as outer:
            inner = Told()
            leave = module_call.subscribe(inner)
            with pytest.raises(KeyboardInterrupt):
                train(0, stop_at=4)
            leave()
        assert outer[5].begun == inner.begun == 3
    assert train(0) == expected
