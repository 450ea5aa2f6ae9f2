"""Who is told of losses: a listener, or in its place what writes them quickly for it; real losses are in test_phases."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

torch: Any = pytest.importorskip("torch")

from sonde.hooks.torch.status import native  # noqa: E402
from sonde.probes.phases import loss  # noqa: E402
from sonde.testing import record  # noqa: E402


def differentiate(*values: float) -> None:
    """Some backward passes with losses of these values."""
    weight = torch.zeros((), requires_grad=True)
    for value in values:
        (weight + value).backward()


def test_a_listener_gets_each_loss_until_it_leaves() -> None:
    """With the step that it belongs to."""
    told: list[Any] = []
    with record() as recorded:
        leave = loss.at_loss(lambda value, step: told.append((value, step)))
        differentiate(1.0, 2.0)
        leave()
        differentiate(3.0)
    losses = [(event["value"], event["step"]) for event in recorded.named("loss")]
    assert [value for value, _ in losses] == [1.0, 2.0, 3.0]
    assert told == losses[:2]


def real(value: float, dtype: str) -> Any:
    """A loss of this type."""
    return torch.tensor(value, dtype=getattr(torch, dtype), requires_grad=True) * 1


def negated() -> Any:
    """A loss that lies in memory with the other sign: the imaginary part of a conjugate."""
    return torch.tensor(2 + 7j, requires_grad=True).conj().imag


class Named(torch.Tensor):
    """A tensor with a class of its own, as libraries for images have them, which sees what is done with it."""

    seen: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(getattr(function, "__name__", ""))
        return super().__torch_function__(function, types, args, kwargs or {})


def named() -> Any:
    """A loss of that class."""
    return torch.tensor([0.1]).as_subclass(Named).requires_grad_().sum()


LOSSES: dict[str, Any] = {
    "a class of the program's": named,
    "float32": lambda: real(0.1, "float32"),
    "float64": lambda: real(0.1, "float64"),
    "float16": lambda: real(0.1, "float16"),
    "bfloat16": lambda: real(0.1, "bfloat16"),
    "a vector of one": lambda: real(0.1, "float32").reshape(1),
    "a part of a vector": lambda: (torch.arange(4.0, requires_grad=True) * 1)[3],
    "an imaginary part": lambda: torch.tensor([1 + 2j, 3 + 4j], requires_grad=True).sum().imag,
    "that of a conjugate": negated,
    "a column of numbers far apart": lambda: (torch.arange(6.0, requires_grad=True) * 1).reshape(2, 3)[1:, 1],
}


@pytest.mark.parametrize("kind", LOSSES)
def test_a_loss_is_recorded_as_the_number_that_it_is(kind: str) -> None:
    """Whatever its type, and wherever in memory it lies."""
    with record() as recorded:
        differentiate(1.0)  # the plain case is at hand from the first event of training on
        loss = LOSSES[kind]()
        loss.backward()
    assert [event["value"] for event in recorded.named("loss")] == [1.0, loss.item()]


def test_a_class_of_the_programs_sees_nothing_of_it() -> None:
    """What it counts or prints is what it would be."""
    loss = named()
    Named.seen.clear()
    with record():
        loss.backward()
    assert set(Named.seen) <= {"backward"}


def test_what_is_no_single_number_is_no_loss() -> None:
    """The pass is recorded without one."""
    with record() as recorded:
        differentiate(1.0)
        (torch.zeros(3, requires_grad=True) * 1).backward(torch.ones(3))
    assert [event["value"] for event in recorded.named("loss")] == [1.0]
    assert len(recorded.named("backward")) == 2


@pytest.mark.skipif(native is None, reason="the C module is not built")
def test_a_torch_without_an_exchange_is_asked_for_the_number() -> None:
    """As older ones are."""
    with record() as recorded:
        differentiate(1.0)
        native.exchange(None, None)  # until the probe is installed again
        differentiate(2.0)
    assert [event["value"] for event in recorded.named("loss")] == [1.0, 2.0]
