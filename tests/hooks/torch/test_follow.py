"""Modules that are followed: another function is called for them, wherever they are called; with the C gate and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
from tests.hooks.torch.told import Told  # noqa: E402

from sonde.hooks.torch import outermost, status  # noqa: E402
from sonde.hooks.torch.module import module_call  # noqa: E402
from sonde.hooks.torch.outermost import OutermostPoint, until_gone  # noqa: E402

nn: Any = torch.nn
Calls = dict[int, Callable[..., Any]]


@pytest.fixture(params=["c", "python"])
def point(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> OutermostPoint:
    """The point of modules, or one of its kind without the C gate."""
    if request.param == "python":
        monkeypatch.setattr(outermost, "native", None)
        return OutermostPoint(
            "modules", "for a test", library="torch", find=lambda torch: [(torch.nn.Module, "__call__")]
        )
    if status.native is None:
        pytest.skip("the C part was not built")
    return module_call


def noting(seen: list[str], *modules: Any) -> Callable[[Callable[..., Any]], Calls]:
    """Follow these modules, and note their calls."""

    def make(original: Callable[..., Any]) -> Calls:
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(type(module).__name__)
            return original(module, *args, **kwargs)

        return {id(module): call for module in modules}

    return make


def test_followed_modules_are_seen_outside_and_inside_of_others(point: OutermostPoint) -> None:
    """Alone, in a model, and as the model; others are not, and results are the same."""
    layer, other = nn.Linear(4, 4), nn.Tanh()
    net = nn.Sequential(layer, other)
    given = torch.ones(1, 4)
    expected = net(given)
    seen: list[str] = []
    leave = point.replace_some(noting(seen, net, layer))
    assert torch.equal(net(given), expected)
    layer(given)
    other(given)
    leave()
    net(given)
    assert seen == ["Sequential", "Linear", "Linear"]


def test_subscribers_and_lanes_come_first(point: OutermostPoint) -> None:
    """Both are told of the outermost call, and then the follower."""
    net = nn.Sequential(nn.Linear(4, 4))
    seen: list[str] = []

    def fast(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            seen.append("fast")
            return original(*args, **kwargs)

        return call

    leave = [point.fast_path(fast), point.replace_some(noting(seen, net))]
    net(torch.ones(1, 4))
    outer = Told()
    leave.append(point.subscribe(outer))
    net(torch.ones(1, 4))
    for each in reversed(leave):
        each()
    assert seen == ["fast", "Sequential"] * 2
    assert len(outer.calls) == 1


def test_a_module_may_come_and_go_at_any_time(point: OutermostPoint) -> None:
    """The dict that was given is looked at for each call."""
    net, calls = nn.Linear(4, 4), {}
    seen: list[str] = []

    def make(original: Callable[..., Any]) -> Calls:
        calls.update({"make": noting(seen, net)(original)[id(net)]})
        return followed

    followed: Calls = {}
    leave = point.replace_some(make)
    net(torch.ones(1, 4))
    followed[id(net)] = calls["make"]
    net(torch.ones(1, 4))
    del followed[id(net)]
    net(torch.ones(1, 4))
    leave()
    assert seen == ["Linear"]


def test_what_replaces_modules_may_change_at_any_time(point: OutermostPoint) -> None:
    """A module gets another function, none, and one again."""
    nets, replaced = [nn.Identity() for _ in range(100)], dict[int, Callable[..., Any]]()
    seen: list[tuple[str, int]] = []

    def calls(word: str) -> Callable[..., Any]:
        return lambda module, _given: seen.append((word, nets.index(module)))

    leave = point.replace_some(lambda _original: replaced)
    for word in ("first", "second"):
        for net in nets:
            replaced[id(net)] = calls(word)
        for net in (*nets, *nets):
            net(1)
    expected = [(word, place) for word in ("first", "second") for _ in range(2) for place in range(100)]
    replaced.clear()
    nets[4](1)
    replaced[id(nets[4])] = calls("third")
    nets[4](1)
    leave()
    assert seen == [*expected, ("third", 4)]


def test_nothing_is_called_for_a_module_at_the_place_of_one_that_is_gone(point: OutermostPoint) -> None:
    """The address of a module is that of another one as soon as it is gone."""
    replaced: dict[int, Callable[..., Any]] = {}
    seen: list[Any] = []
    leave = point.replace_some(lambda _original: replaced)
    net: nn.Module | None = nn.Identity()
    address = id(net)
    replaced[address] = lambda _module, given: seen.append(given)
    kept = until_gone(replaced, net)
    assert net is not None
    net(1)
    del net
    assert address not in replaced
    others = [nn.Identity() for _ in range(100)]
    for other in others:
        other(2)
    leave()
    assert seen == [1]
    assert kept() is None


def test_a_module_that_is_computed_again_in_a_backward_pass_is_not_seen(point: OutermostPoint) -> None:
    """It belongs to that pass."""
    layer = nn.Linear(4, 4)
    seen: list[str] = []
    leave = point.replace_some(noting(seen, layer))
    torch.utils.checkpoint.checkpoint(layer, torch.ones(1, 4), use_reentrant=False).sum().backward()
    leave()
    assert seen == ["Linear"]


def test_exceptions_pass(point: OutermostPoint) -> None:
    """And the next call is seen again."""
    layer = nn.Linear(4, 4)
    seen: list[str] = []
    leave = point.replace_some(noting(seen, layer))
    for _ in range(2):
        with pytest.raises(RuntimeError):
            nn.Sequential(layer)(torch.ones(1, 3))
    leave()
    assert seen == ["Linear"] * 2
