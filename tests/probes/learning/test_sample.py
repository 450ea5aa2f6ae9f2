"""Sampled steps: which they are, what is in them, and that a training does not notice."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.probes.learning.samples import counters, facts, steps  # noqa: E402
from tests.probes.training import loss_of, model, sgd, train  # noqa: E402

from sonde import hooks  # noqa: E402
from sonde.probes.learning import fields, sample, tensors  # noqa: E402
from sonde.probes.learning.tensors import moments_of  # noqa: E402
from sonde.store import probe  # noqa: E402
from sonde.testing import record  # noqa: E402


@pytest.fixture(params=["c", "torch"], autouse=True)
def read_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """C reads tensors of the host, or torch does."""
    if request.param == "torch":
        monkeypatch.setattr(tensors, "native", None)
        monkeypatch.setattr(fields, "native", None)
    elif tensors.native is None:
        pytest.skip("the C parts were not built")


def test_every_nth_step_is_sampled(expected: set[str]) -> None:
    """Gradients, activations and fields."""
    with record(learning=3) as recorded:
        net = model()
        train(net, sgd(net), 8)
    assert [steps(recorded, cat) for cat in (probe.GRADIENT, probe.ACTIVATION, probe.FIELD)] == [[0, 3, 6]] * 3


def test_nothing_is_recorded_without_the_setting(expected: set[str]) -> None:
    """It is off unless somebody wants it."""
    with record() as recorded:
        net = model()
        train(net, sgd(net), 3)
    assert not steps(recorded, probe.GRADIENT)
    assert not steps(recorded, "learning")


def test_gradients_weights_and_updates_are_those_of_each_layer(expected: set[str]) -> None:
    """Against the same numbers by hand."""
    with record(learning=1) as recorded:
        net = model()
        optimizer = sgd(net)
        before = [one.detach().clone() for one in net[0].parameters()]
        loss_of(net).backward()
        gradients = [one.grad.clone() for one in net[0].parameters()]
        optimizer.step()
        moved = [one.detach() - then for one, then in zip(net[0].parameters(), before, strict=True)]
    found = counters(recorded, probe.GRADIENT)

    def norm(several: list[Any]) -> float:
        return float(sum((one.double() ** 2).sum() for one in several) ** 0.5)

    for what, several in {"norm": gradients, "weight": before, "update": moved}.items():
        assert found["Sequential/0", what] == pytest.approx(norm(several), rel=1e-5)
    zeros = sum(int((one == 0).sum()) for one in gradients) / sum(one.numel() for one in gradients)
    assert found["Sequential/0", "zeros"] == pytest.approx(zeros)
    assert found["Sequential/0", "nonfinite"] == 0


def test_gradients_of_a_closure_are_those_of_its_own_step(expected: set[str]) -> None:
    """They come within the step of the optimizer; the layers have gradients then, as without a closure."""
    with record(learning=1) as recorded:
        net = model()
        optimizer = sgd(net)
        norms = []

        def closure() -> Any:
            optimizer.zero_grad()
            loss = loss_of(net)
            loss.backward()
            norms.append(float(net[2].bias.grad.norm() ** 2 + net[2].weight.grad.norm() ** 2) ** 0.5)
            return loss

        for _ in range(3):
            optimizer.step(closure)
    for step, norm in enumerate(norms):
        assert counters(recorded, probe.GRADIENT, step)["Sequential/2", "norm"] == pytest.approx(norm)
    assert all(one["gradient"] for one in facts(recorded, probe.LEARNING_LAYER).values())


def test_activations_are_those_of_each_leaf_layer(expected: set[str]) -> None:
    """Against the same numbers by hand; a unit that is zero for all items is dead."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3), torch.nn.Tanh())
    with torch.no_grad():
        net[0].bias[2] = -100.0
        net[2].weight *= 50
    batch = torch.randn(32, 4)
    with record(learning=1) as recorded:
        given = net(batch)
        given.sum().backward()
        sgd(net).step()
    found = counters(recorded, probe.ACTIVATION)
    hidden = torch.relu(torch.nn.functional.linear(batch, *_before(net)))
    assert found["Sequential/1", "mean"] == pytest.approx(float(hidden.mean()), rel=1e-4)
    assert found["Sequential/1", "std"] == pytest.approx(float(hidden.std(correction=0)), rel=1e-4)
    assert found["Sequential/1", "zeros"] == pytest.approx(float((hidden == 0).float().mean()))
    assert found["Sequential/1", "dead"] == pytest.approx(1 / 6)
    assert found["Sequential/3", "saturated"] == pytest.approx(float((given.abs() >= 0.98).float().mean()))
    assert ("Sequential/0", "dead") not in found
    assert ("Sequential/0", "saturated") not in found


def _before(net: Any) -> tuple[Any, Any]:
    """The weights of the first layer before its update: the learning rate is 0.1."""
    layer = net[0]
    return layer.weight.detach() + 0.1 * layer.weight.grad, layer.bias.detach() + 0.1 * layer.bias.grad


def test_fields_of_a_batch_have_their_numbers_and_the_key_of_the_batch(expected: set[str]) -> None:
    """Also what is not finite, and how many labels there are."""
    points, labels = torch.arange(16.0).reshape(8, 2), torch.tensor([0, 1, 0, 1, 2, 2, 2, 2])
    points[5, 1] = float("nan")
    data = torch.utils.data.TensorDataset(points, labels)
    with record(learning=1) as recorded:
        net = torch.nn.Linear(2, 3)
        optimizer = sgd(net)
        for batch, classes in torch.utils.data.DataLoader(data, batch_size=4):
            torch.nn.functional.cross_entropy(net(batch), classes).backward()
            optimizer.step()
    first, second = (counters(recorded, probe.FIELD, step) for step in (0, 1))
    assert (first["0", "low"], first["0", "high"], first["0", "mean"]) == (0.0, 7.0, 3.5)
    assert first["0", "std"] == pytest.approx(float(torch.arange(8.0).std(correction=0)))
    assert (second["0", "nonfinite"], second["0", "high"]) == (1 / 8, 15.0)
    assert (first["1", "distinct"], second["1", "distinct"]) == (2, 1)
    keys = {event["key"] for event in recorded.events if event["cat"] == "field.mean"}
    assert {probe.number_of(key) for key in keys} == {0, 1}


@pytest.mark.parametrize("mask", [True, False])
def test_padding_is_told_by_a_mask_or_by_the_ends_of_rows(mask: bool, expected: set[str]) -> None:
    """A third of twelve tokens is padding."""
    ids = torch.tensor([[5, 6, 7, 8], [5, 6, 0, 0], [9, 3, 0, 0]])
    batch = {"input_ids": ids, **({"attention_mask": (ids != 0).long()} if mask else {})}
    with record(learning=1) as recorded:
        net = torch.nn.Embedding(10, 4)
        _Model(net)(**batch).sum().backward()
        sgd(net).step()
    found = counters(recorded, probe.FIELD)
    assert found["input_ids", "tokens"] == 12
    assert found["input_ids", "padding"] == pytest.approx(4 / 12)


class _Model(torch.nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
        return self.inner(input_ids)


def test_a_training_is_the_same_to_the_bit_and_its_checkpoint_to_the_byte(expected: set[str]) -> None:
    """With samples at every step, and without any."""

    def trained() -> bytes:
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        torch.manual_seed(3)
        optimizer = torch.optim.Adam(net.parameters())
        for one in net.parameters():
            torch.nn.init.normal_(one)
        for _ in range(6):
            optimizer.zero_grad()
            loss_of(net).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
        file = io.BytesIO()
        torch.save({"net": net, "optimizer": optimizer.state_dict()}, file)
        return file.getvalue()

    plain = trained()
    with record(learning=2):
        assert trained() == plain


def test_nothing_is_left_on_torch_or_on_the_model(expected: set[str]) -> None:
    """Neither between the steps nor afterwards."""
    shared = torch.nn.modules.module._global_forward_hooks
    clip = torch.nn.utils.clip_grad_norm_
    with record(learning=1):
        net = model()
        train(net, sgd(net), 3)
        assert not shared
        assert not any(module._forward_hooks for module in net.modules())
    assert not shared
    assert torch.nn.utils.clip_grad_norm_ is clip
    assert hooks.describe() == []


def test_two_models_of_one_class_have_different_names(expected: set[str]) -> None:
    """As the two sides of a GAN."""
    with record(learning=1) as recorded:
        for net in (model(), model()):
            train(net, sgd(net), 1)
    assert {name for name, _ in counters(recorded, probe.GRADIENT)} == {
        f"{one}/{layer}" for one in ("Sequential", "Sequential#2") for layer in (0, 2)
    }


def test_layers_tell_whether_they_can_learn(expected: set[str]) -> None:
    """Frozen, without a gradient, or in no optimizer."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen, self.used, self.unused, self.forgotten = (torch.nn.Linear(4, 4) for _ in range(4))
            self.frozen.requires_grad_(False)

        def forward(self, batch: Any) -> Any:
            return self.forgotten(self.used(self.frozen(batch)))

    with record(learning=1) as recorded:
        net = Net()
        optimizer = torch.optim.SGD([*net.used.parameters(), *net.unused.parameters()], lr=0.1)
        for _ in range(2):
            net(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    found = facts(recorded, probe.LEARNING_LAYER)
    told = {name: tuple(one[what] for what in ("frozen", "gradient", "optimized")) for name, one in found.items()}
    assert told == {
        "Net/frozen": (True, False, False),
        "Net/used": (False, True, True),
        "Net/unused": (False, False, True),
        "Net/forgotten": (False, True, False),
    }


def test_the_mode_of_a_model_in_training_is_told(expected: set[str]) -> None:
    """Only of layers that it changes, and that are part of what learns."""
    with record(learning=1) as recorded:
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.1))
        net.eval()
        net(torch.ones(2, 4)).sum().backward()
        sgd(net).step()
        net[0].requires_grad_(False)
        net[1].requires_grad_(False)
        head = torch.nn.Sequential(net, torch.nn.Linear(4, 1))
        head(torch.ones(2, 4)).sum().backward()
    told = facts(recorded, probe.LEARNING_MODEL)
    assert [told["Sequential"][what] for what in ("training", "changing", "evaluating")] == [False, 2, 2]
    assert [told["Sequential#2"][what] for what in ("training", "changing", "evaluating")] == [True, 0, 0]


@pytest.mark.parametrize("data", [True, False])
def test_weights_that_change_between_updates_are_told(data: bool, expected: set[str]) -> None:
    """Also behind the back of torch, through `.data`."""
    with record(learning=2) as recorded:
        net = model()
        optimizer = sgd(net)
        for _ in range(4):
            train(net, optimizer, 1)
            weight = net[0].weight.data if data else net[0].weight
            with torch.no_grad():
                weight.clamp_(-0.1, 0.1)
    changed = {event["name"] for event in recorded.events if event["cat"] == probe.CHANGED}
    assert changed == {"Sequential/0"}


def test_weights_that_only_the_optimizer_changes_are_told_to_be_the_same(expected: set[str]) -> None:
    """They were compared."""
    with record(learning=2) as recorded:
        net = model()
        train(net, sgd(net), 4)
    assert not steps(recorded, probe.CHANGED)
    assert [event["value"] for event in recorded.named("compared")] == [4.0, 4.0]


@pytest.mark.parametrize("zeroed", [True, False])
def test_gradients_that_were_never_set_to_zero_are_told(zeroed: bool, expected: set[str]) -> None:
    """Those of the step before are still there when the first backward pass begins."""
    with record(learning=1) as recorded:
        net = model()
        optimizer = sgd(net)
        for _ in range(3):
            for _ in range(2):
                loss_of(net).backward()
            optimizer.step()
            if zeroed:
                optimizer.zero_grad()
    carried = [event["value"] for event in recorded.named("carried")]
    assert carried == ([0.0, 0.0, 0.0] if zeroed else [0.0, 1.0, 1.0])


@pytest.mark.parametrize("fused", [True, False])
def test_gradients_are_told_without_the_scale_of_a_scaler(fused: bool, expected: set[str]) -> None:
    """Also where the optimizer itself divides by it. The scale is told when it changes."""
    with record(learning=1) as recorded:
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
        norms = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = loss_of(net)
            norms.append(torch.autograd.grad(loss, net[0].weight, retain_graph=True)[0].norm().item())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    told = [
        event["value"]
        for event in recorded.events
        if (event["cat"], event["name"]) == ("gradient.norm", "Sequential/0")
    ]
    assert all(one == pytest.approx(other, rel=0.5) for one, other in zip(told, norms, strict=True))
    assert [event["value"] for event in recorded.named("scale")] == [1024.0, 2048.0]


def test_autocast_changes_nothing(expected: set[str]) -> None:
    """Activations are of the type that it chose, and are read."""

    def trained() -> list[float]:
        net = model()
        optimizer = sgd(net)
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = loss_of(net)
            loss.backward()
            optimizer.step()
        return [value for one in net.parameters() for value in one.flatten().tolist()]

    plain = trained()
    with record(learning=1) as recorded:
        assert trained() == plain
    assert counters(recorded, probe.ACTIVATION)["Sequential/0", "std"] > 0


def test_the_norm_before_clipping_is_told(expected: set[str]) -> None:
    """At every step, and the limit when it changes."""
    with record(learning=100) as recorded:
        net = model()
        optimizer = sgd(net)
        norms = []
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(net).backward()
            norms.append(float(torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)))
            optimizer.step()
    assert [event["value"] for event in recorded.named("clip.norm")] == norms
    assert [event["value"] for event in recorded.named("clip.limit")] == [0.01]


def test_a_failure_switches_it_off_and_training_goes_on(expected: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails: the run says why."""
    expected.add(sample.DOING)

    def failing(*_: object) -> None:
        raise RuntimeError("ours")

    for owner, name in _places():
        with monkeypatch.context() as patch, record(learning=1) as recorded:
            patch.setattr(owner, name, failing)
            net = model()
            train(net, sgd(net), 3)
        (off,) = [event for event in recorded.events if event["cat"] == probe.OFF]
        assert (off["name"], off["args"]) == ("learning", {"reason": "RuntimeError: ours"})
        assert len(recorded.named("update")) == 3
        assert hooks.describe() == []


def _places() -> list[tuple[Any, str]]:
    from sonde.probes.learning import activations, parameters, trainable, unchanged, zerograd

    return [
        (activations._Layer, "look"),
        (zerograd.Carried, "backward_begins"),
        (trainable.Trainable, "called"),
        (parameters.Update, "end"),
        (unchanged.Weights, "keep"),
    ]


def test_a_model_that_is_called_without_gradients_is_not_sampled(expected: set[str]) -> None:
    """An evaluation in a sampled step."""
    with record(learning=1) as recorded:
        net = model()
        with torch.no_grad():
            net(torch.ones(2, 4))
    assert not steps(recorded, probe.ACTIVATION)


ODD: dict[str, Callable[[], Any]] = {
    "empty slice": lambda: torch.randn(70, 64),
    "turned": lambda: torch.randn(33, 5).t(),
    "with gaps": lambda: torch.randn(10, 8)[:, ::2],
    "bfloat16": lambda: torch.randn(5000).bfloat16(),
    "half": lambda: torch.randn(500).half(),
    "double": lambda: torch.randn(100, dtype=torch.float64),
    "tiny": lambda: torch.full((9000,), 1e-25),
    "huge": lambda: torch.full((9000,), 1e15),
    "zeros": lambda: torch.zeros(100),
    "nan": lambda: torch.tensor([1.0, float("nan"), float("inf")] * 2000),
}


@pytest.mark.parametrize("kind", ODD)
def test_numbers_of_tensors_are_right_whoever_reads_them(kind: str) -> None:
    """In single precision, also where squares vanish in it, or overflow."""
    torch.manual_seed(1)
    tensor = ODD[kind]()
    found, wide = moments_of(tensor, (0.0, 1.0)), tensor.double()
    if kind != "tiny" or tensors.native is not None:  # torch adds up squares in single precision
        expected = float(torch.linalg.vector_norm(wide))
        assert float(found.norm) == pytest.approx(expected, rel=1e-5, nan_ok=True)
    assert float(found.mean) == pytest.approx(float(wide.mean()), rel=1e-4, abs=1e-6, nan_ok=True)
    assert int(found.nonzero) == int(torch.count_nonzero(wide))
    assert int(found.nonfinite) == int((~wide.isfinite()).sum())
    assert int(found.beyond) == int((wide.abs() >= 1).sum())
