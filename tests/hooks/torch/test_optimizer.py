"""Steps of optimizers: outermost ones, once each, with or without a closure."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")


from tests.hooks.torch.told import Told, told  # noqa: E402

from sonde.hooks.torch.module import module_call  # noqa: E402
from sonde.hooks.torch.optimizer import StepAborted, optimizer_step, scaler_step  # noqa: E402

nn: Any = torch.nn


@pytest.fixture(autouse=True)
def _restored() -> Any:
    yield
    module = torch.optim.Optimizer.__module__
    hooks = __import__(module, fromlist=["_"])
    assert not hooks._global_optimizer_pre_hooks
    assert not hooks._global_optimizer_post_hooks


def trained(model: Any) -> Any:
    """The model, with gradients."""
    model(torch.ones(2, 3)).sum().backward()
    return model


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adafactor"])
def test_each_step_is_told_once_with_its_optimizer(kind: str) -> None:
    """With foreach implementations and without."""
    optimizer = getattr(torch.optim, kind)(trained(nn.Linear(3, 1)).parameters(), lr=0.1)
    with told(optimizer_step) as (seen,):
        optimizer.step()
        optimizer.step()
    assert [(call.args[0] is optimizer, call.error) for call in seen.calls] == [(True, None)] * 2


def test_a_closure_runs_inside_the_step() -> None:
    """LBFGS calls it several times: forward and backward are inside one step."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    order: list[str] = []

    class Order(Told):
        def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            order.append(f"{type(args[0]).__name__} begins")
            return super().before(args, kwargs)

        def after(self, token: Any, result: Any, error: BaseException | None) -> None:
            order.append(f"{type(token[0][0]).__name__} ends")

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).pow(2).sum()
        loss.backward()
        return loss

    leave = [optimizer_step.subscribe(Order()), module_call.subscribe(Order())]
    optimizer.step(closure)
    for each in leave:
        each()
    assert (order[0], order[-1]) == ("LBFGS begins", "LBFGS ends")
    assert order.count("LBFGS begins") == 1
    assert order.count("Linear begins") > 1


def test_a_step_that_raises_is_told_as_aborted_when_the_next_begins() -> None:
    """Torch says nothing of its end; the exception passes."""
    optimizer = torch.optim.SGD(trained(nn.Linear(3, 1)).parameters(), lr=0.1)

    def closure() -> Any:
        raise ValueError("theirs")

    with told(optimizer_step) as (seen,):
        with pytest.raises(ValueError, match="theirs"):
            optimizer.step(closure)
        torch.optim.Adam(trained(nn.Linear(3, 1)).parameters()).step()
        optimizer.step()
    assert [(call.of, type(call.error)) for call in seen.calls] == [
        ("SGD", StepAborted), ("Adam", type(None)), ("SGD", type(None)),
    ]  # fmt: skip


def test_a_step_that_raises_is_told_as_aborted_when_the_subscriber_leaves() -> None:
    """At the latest."""
    optimizer = torch.optim.SGD(trained(nn.Linear(3, 1)).parameters(), lr=0.1)

    def closure() -> Any:
        raise KeyboardInterrupt

    with told(optimizer_step) as (seen,):
        with pytest.raises(KeyboardInterrupt):
            optimizer.step(closure)
        assert seen.calls == []
    assert [type(call.error) for call in seen.calls] == [StepAborted]


def test_a_step_inside_another_one_is_not_told() -> None:
    """As in an optimizer that wraps another."""

    class Wrapping(torch.optim.Optimizer):
        def __init__(self, inner: Any) -> None:
            super().__init__(inner.param_groups, {})
            self.inner = inner

        def step(self, closure: Any = None) -> None:
            self.inner.step()

    optimizer = Wrapping(torch.optim.SGD(trained(nn.Linear(3, 1)).parameters(), lr=0.1))
    with told(optimizer_step) as (seen,):
        optimizer.step()
        optimizer.step()
    assert [call.of for call in seen.calls] == ["Wrapping"] * 2


def test_steps_inside_a_backward_pass_are_not_told() -> None:
    """One optimizer per parameter, as memory savers have it."""
    model = nn.Linear(3, 1)
    for parameter in model.parameters():
        inner = torch.optim.SGD([parameter], lr=0.1)
        parameter.register_post_accumulate_grad_hook(lambda _, inner=inner: inner.step())
    with told(optimizer_step) as (seen,):
        trained(model)
    assert seen.begun == 0


@pytest.mark.filterwarnings("ignore:.*GradScaler.*:UserWarning", "ignore:.*GradScaler.*:FutureWarning")
@pytest.mark.parametrize("overflow", [False, True])
def test_a_scaler_that_skips_a_step_is_seen_by_itself(overflow: bool) -> None:
    """The optimizer takes no step then, and none is told."""
    model = trained(nn.Linear(3, 1))
    if overflow:
        model.weight.grad.fill_(float("inf"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(1))
    with told(optimizer_step, scaler_step) as (steps, scales):
        scaler.step(optimizer)
        scaler.update()
    assert scales.calls[0].args == (scaler, optimizer)
    assert steps.begun == (0 if overflow else 1)


def test_optimizers_are_copied_and_pickled_without_a_trace_of_us() -> None:
    """And copies are told too."""
    optimizer = torch.optim.Adam(trained(nn.Linear(3, 1)).parameters())
    with told(optimizer_step) as (seen,):
        optimizer.step()
        data = pickle.dumps(optimizer)
        copy.deepcopy(optimizer).step()
        pickle.loads(data).step()
    assert b"sonde" not in data
    assert len(seen.calls) == 3


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_step_computes_the_same() -> None:
    """It is told from outside of the graph, or not at all."""

    def run(subscribed: bool) -> Any:
        torch.manual_seed(0)
        torch._dynamo.reset()
        model = trained(nn.Linear(3, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = torch.compile(optimizer.step, backend="eager")
        leave = optimizer_step.subscribe(Told()) if subscribed else lambda: None
        for _ in range(3):
            step()
        leave()
        return model.weight

    assert torch.equal(run(True), run(False))
    torch._dynamo.reset()
