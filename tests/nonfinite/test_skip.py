"""What the watch looks at: tensors of any kind, in any mode of torch; and what it knows without a look."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from tests.flow.faults import birth
from tests.hooks.torch.data import read_in_c
from torch import nn

from sonde.flow import watch_nonfinite
from sonde.nonfinite import check

pytestmark = [
    pytest.mark.usefixtures("watch_ended"),
    pytest.mark.skipif(check.native is None, reason="the C part was not built"),
]
KINDS = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.bool)


def _net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


@read_in_c
@settings(deadline=None, max_examples=150)
@given(
    kind=st.sampled_from(KINDS), shape=st.lists(st.integers(0, 5), max_size=4), turned=st.booleans(), step=st.integers(1, 3),
    fault=st.sampled_from([None, "inf", "nan"]), place=st.integers(0, 10**6),
)  # fmt: skip
def test_a_tensor_of_any_shape_and_layout_is_seen_as_it_is(
    kind: Any, shape: list[int], turned: bool, step: int, fault: str | None, place: int
) -> None:
    """Its faults, as torch itself finds them."""
    tensor = torch.zeros(shape, dtype=kind)
    if fault and tensor.numel() and (kind.is_floating_point or kind.is_complex):
        tensor.view(-1)[place % tensor.numel()] = float(fault)
    if tensor.dim() and turned:
        tensor = tensor.transpose(0, -1)
    if tensor.dim():
        tensor = tensor[::step]
    with watch_nonfinite():
        bits = check.native.look(tensor)
    wanted = check.INF * bool(torch.isinf(tensor).any()) | check.NAN * bool(torch.isnan(tensor).any())
    assert bits == wanted


@pytest.mark.parametrize("transform", ["vmap", "grad", "jvp"])
def test_what_torchs_transforms_pass_through_a_model_is_left_alone(transform: str) -> None:
    """Their tensors have no memory of their own: the result is what it is without a watch."""
    net, given = _net(), torch.randn(5, 4)
    func: Any = torch.func

    def run() -> Any:
        if transform == "vmap":
            return func.vmap(net)(given)
        if transform == "grad":
            return func.grad(lambda x: net(x).sum())(given)
        return func.jvp(net, (given,), (torch.ones_like(given),))[1]

    plain = run()
    with watch_nonfinite() as watch:
        assert torch.equal(run(), plain)
        assert watch.birth is None


@pytest.mark.parametrize("mode", ["inference", "no_grad", "meta", "fake"])
def test_a_model_that_learns_nothing_now_is_watched_as_it_can_be(mode: str) -> None:
    """In the modes of torch for it, and on devices that have no numbers."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    modes: dict[str, Any] = {
        "inference": torch.inference_mode(), "no_grad": torch.no_grad(), "meta": torch.device("meta"), "fake": FakeTensorMode(),
    }  # fmt: skip
    with watch_nonfinite() as watch, modes[mode]:
        assert _net()(torch.ones(2, 4)).shape == (2, 3)
        assert watch.birth is None


# ── what is known without a look ─────────────────────────────────────────────────────────────────────────────────────


class _Twisted(nn.Module):
    """Does something to what its layer gives, and returns that."""

    def __init__(self, twist: Any) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.twist = twist

    def forward(self, x: torch.Tensor) -> Any:
        return self.twist(self.inner(x))


TWISTS: dict[str, Any] = {
    "in place": lambda x: x.mul_(torch.nan),
    "another tensor": lambda x: x * torch.nan,
    "not tracked": lambda x: torch.log(x.detach().abs() * -1 - 1),
    "not tracked, in the same place": lambda x: torch.log(_moved(x) * -1 - 1),
}


def _moved(x: torch.Tensor) -> torch.Tensor:
    return x.detach().abs()


@pytest.mark.parametrize("twist", list(TWISTS))
def test_a_container_that_does_something_after_its_last_layer_is_looked_at(twist: str) -> None:
    """Also if autograd does not see it, and if what it gives lies where the layer's result was."""
    for _ in range(20):
        with watch_nonfinite() as watch:
            net = nn.Sequential(nn.Linear(4, 4), _Twisted(TWISTS[twist]))
            net(torch.randn(3, 4))
            facts = birth(watch)
            assert (facts["layer"], facts["producer"]) == ("1", True)


def test_a_layer_that_makes_nothing_itself_is_looked_at_if_somebody_has_hooked_it() -> None:
    """What the hook gives in its place is the layer's."""
    net = _net()
    handle = net[1].register_forward_hook(lambda _module, _given, result: result / 0)
    with watch_nonfinite() as watch:
        net(torch.randn(3, 4))
        assert birth(watch)["layer"] == "1"
    handle.remove()


def test_a_layer_that_makes_nothing_itself_is_looked_at_if_all_are_hooked() -> None:
    """The same by a hook of all modules."""

    def spoil(module: nn.Module, _given: Any, result: Any) -> Any:
        return result / 0 if isinstance(module, nn.ReLU) else None

    handle = nn.modules.module.register_module_forward_hook(spoil)
    try:
        with watch_nonfinite() as watch:
            _net()(torch.randn(3, 4))
            assert birth(watch)["layer"] == "1"
    finally:
        handle.remove()


def test_a_layer_that_makes_nothing_itself_is_looked_at_if_its_input_is_not_known() -> None:
    """As the first of a model, which gets what the loop gives it."""
    with watch_nonfinite() as watch:
        nn.Sequential(nn.ReLU(), nn.Linear(4, 2))(torch.tensor([[1.0, 2.0, torch.nan, 3.0]]))
        facts = birth(watch)
    assert (facts["where"], facts["before"]) == ("data", "0")


def test_a_layer_of_ones_own_of_the_same_name_is_looked_at() -> None:
    """Only those of torch are known."""

    class ReLU(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x / 0

    with watch_nonfinite() as watch:
        nn.Sequential(nn.Linear(4, 4), ReLU(), nn.Linear(4, 2))(torch.randn(2, 4))
        assert birth(watch)["layer"] == "1"


def test_nothing_is_known_of_what_is_no_tensor() -> None:
    """A layer may give None first, and the next one may get it."""

    class Half(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return None, x * 2

    half, same = Half(), nn.Identity()
    with watch_nonfinite() as watch:
        for _ in range(3):
            nothing, rest = half(torch.ones(2, requires_grad=True))
            assert same(nothing) is None
            rest.sum().backward()
        assert watch.birth is None
