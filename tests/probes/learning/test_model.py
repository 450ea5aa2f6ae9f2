"""What is trained, and in which precision, as it is noted in the second step."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.probes.training import loss_of, model, sgd  # noqa: E402

from sonde.hooks.torch.module import module_call  # noqa: E402
from sonde.probes import step  # noqa: E402
from sonde.testing import Recorded, record  # noqa: E402


class Casting(torch.nn.Sequential):
    """A model that uses autocast in its own forward, as accelerate lets models do."""

    def forward(self, x: Any) -> Any:
        """In bfloat16."""
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x).float()


def train(net: Any, around: Any = None, steps: int = 4) -> None:
    """Each step far enough from the last one for those who are told of its end."""
    optimizer = sgd(net)
    for _ in range(steps):
        with around or nullcontext():
            loss = loss_of(net)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step.notify()


def noted(recorded: Recorded) -> list[dict[str, Any]]:
    """What was noted of each model."""
    return [event["args"] for event in recorded.named("model") if event["cat"] == "setup"]


def test_the_class_of_a_model_and_its_frozen_parameters_are_noted_once(expected: set[str]) -> None:
    """And afterwards nothing looks at calls any more."""
    with record() as recorded:
        net = model()
        net[0].weight.requires_grad_(False)
        before = module_call._made_all
        train(net)
        assert module_call._made_all == before
    assert noted(recorded) == [
        {"type": "Sequential", "frozen": 32, "compiled": False, "device": "cpu", "autocast": "none"}
    ]


@pytest.mark.parametrize("inside", [False, True], ids=["around the model", "inside it"])
def test_autocast_is_noted_wherever_it_begins(inside: bool, expected: set[str]) -> None:
    """Around the model, or inside it, as some frameworks do it."""
    with record() as recorded:
        if inside:
            train(Casting(*model()))
        else:
            train(model(), torch.autocast("cpu", torch.bfloat16))
    assert [one["autocast"] for one in noted(recorded)] == ["bfloat16"]


def test_two_models_are_both_noted(expected: set[str]) -> None:
    """As of a GAN."""
    with record() as recorded:
        one, other = model(), Casting(*model())
        optimizers = [sgd(one), sgd(other)]
        for _ in range(4):
            (loss_of(one) + loss_of(other)).backward()
            for each in optimizers:
                each.step()
            step.notify()
    assert [each["type"] for each in noted(recorded)] == ["Sequential", "Casting"]


def test_a_program_that_only_predicts_has_none(expected: set[str]) -> None:
    """And its calls are never looked at."""
    with record() as recorded:
        net = model().eval()
        with torch.no_grad():
            for _ in range(3):
                loss_of(net)
    assert noted(recorded) == []


def test_a_compiled_model_is_noted_as_such_and_compiled_once(expected: set[str]) -> None:
    """Looking at its calls does not make the compiler compile again."""
    compiled = []

    def backend(graph: Any, _inputs: Any) -> Any:
        compiled.append(1)
        return graph.forward

    torch._dynamo.reset()
    with record() as recorded:
        train(torch.compile(model(), backend=backend))
    assert len(compiled) == 1
    assert [(one["type"], one["compiled"]) for one in noted(recorded)] == [("Sequential", True)]
