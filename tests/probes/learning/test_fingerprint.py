"""Fingerprints of inputs, layers, gradients and parameters."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.probes.training import loss_of, model, sgd, train  # noqa: E402

from sonde.probes.learning import fingerprint  # noqa: E402
from sonde.testing import Recorded, record  # noqa: E402


def prints(recorded: Recorded) -> list[tuple[int, str, str]]:
    """Step, direction and name of each, in their order."""
    return [
        (event["step"], event["cat"].removeprefix("fingerprint."), event["name"])
        for event in recorded.events
        if event["cat"].startswith("fingerprint.")
    ]


def test_every_nth_step_has_them_in_the_order_of_computing(expected: set[str]) -> None:
    """Input, leaf layers, the output, gradients, parameters."""
    with record(fingerprint=2) as recorded:
        net = model()
        train(net, sgd(net), 4)
    found = prints(recorded)
    assert {step for step, *_ in found} == {0, 2}
    names = ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert [(direction, name) for step, direction, name in found if step == 2] == [
        ("input", "0"),
        *(("forward", name) for name in ("0", "1", "2", "output")),
        *(("backward", name) for name in names),
        *(("update", name) for name in names),
    ]


def test_nothing_is_left_on_torch_or_on_the_model(expected: set[str]) -> None:
    """Neither between the steps nor afterwards."""
    hooks = torch.nn.modules.module._global_forward_hooks
    with record(fingerprint=1):
        net = model()
        train(net, sgd(net), 2)
        assert not hooks
        assert not any(module._forward_hooks for module in net.modules())
    assert not hooks


def test_the_numbers_of_a_training_do_not_change(expected: set[str]) -> None:
    """With them and without."""

    def trained() -> list[float]:
        net = model()
        train(net, sgd(net), 5)
        return [value for one in net.parameters() for value in one.flatten().tolist()]

    plain = trained()
    with record(fingerprint=1):
        assert trained() == plain


def test_equal_trainings_have_equal_fingerprints_and_others_have_not(expected: set[str]) -> None:
    """One bit is enough."""

    def keys(change: float) -> list[int]:
        with record(fingerprint=1) as recorded:
            net = model()
            with torch.no_grad():
                net[2].bias += change
            train(net, sgd(net), 1)
        return [event["key"] for event in recorded.events if event["cat"] == "fingerprint.forward"]

    same, again, other = keys(0.0), keys(0.0), keys(1e-7)
    assert same == again
    assert [one == two for one, two in zip(same, other, strict=True)] == [True, True, False, False]


def test_evaluation_has_none(expected: set[str]) -> None:
    """It is not training that goes on there."""
    with record(fingerprint=1) as recorded:
        net = model().eval()
        loss_of(net)
        with torch.no_grad():
            loss_of(net.train())
    assert prints(recorded) == []


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(()),
        torch.ones(0),
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(2, 2, dtype=torch.complex64).conj(),
        torch.arange(6).reshape(2, 3).t(),
        torch.tensor([True, False]),
        torch.ones(3).to_sparse(),
        torch.ones(3, device="meta"),
    ],
    ids=lambda one: f"{one.dtype}-{one.layout}-{one.device}",
)
def test_any_tensor_has_one_or_is_left_out(tensor: Any, expected: set[str]) -> None:
    """Nothing fails."""
    with record() as recorded:
        fingerprint.write("forward", "x", tensor)
    plain = tensor.layout is torch.strided and not tensor.is_meta
    assert len(recorded.named("x")) == plain


def test_a_failure_switches_it_off_and_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark says so."""

    def fail(*_args: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(fingerprint, "write", fail)
    with record(fingerprint=1) as recorded:
        net = model()
        train(net, sgd(net), 3)
    assert [event["name"] for event in recorded.events if event["cat"] == "probe.off"] == ["fingerprint"]
    assert len(recorded.named("update")) == 3
    assert not torch.nn.modules.module._global_forward_hooks
