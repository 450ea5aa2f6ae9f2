"""The look at a tensor: exact, of every dtype and layout, in C and without it; a sum that overflows is no fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings, strategies

from sonde.hooks.torch import private
from sonde.nonfinite import check, watch
from sonde.nonfinite.check import INF, NAN, look, look_into

NATIVE = check.native
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
nan, inf = float("nan"), float("inf")


@pytest.fixture(autouse=True, params=["c", "torch", "python"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All ways to look: in C, by a torch without the exchange for C, and without C."""
    if request.param == "python":
        monkeypatch.setattr(check, "native", None)
    elif NATIVE is None:
        pytest.skip("the C part was not built")
    if request.param == "torch":
        monkeypatch.setattr(private, "exchange", lambda: None)
    with watch.watch_nonfinite(torch.nn.Identity()):
        yield


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("place", [0, 31, 1500, 2999])
def test_every_place_is_looked_at(dtype: Any, place: int) -> None:
    """One value among many is found, wherever it is, and told apart."""
    values = torch.ones(3000, dtype=dtype)
    assert look(values) == 0
    values[place] = nan
    assert look(values) == NAN
    values[place] = -inf
    assert look(values) == INF
    values[(place + 7) % 3000] = nan
    assert look(values) == NAN | INF


@pytest.mark.parametrize("order", [(0, 2, 1), (1, 0, 2), (2, 0, 1), (2, 1, 0)])
def test_every_place_is_looked_at_in_any_order_of_memory(order: tuple[int, ...]) -> None:
    """Of a tensor whose dimensions were exchanged, with and without gaps in its memory."""
    for memory in (torch.ones(3, 4, 5), torch.ones(3, 4, 6)[:, :, :5]):
        values = memory.permute(order)
        for place in range(values.numel()):
            assert look(values) == 0
            spot = tuple(int(one) for one in numpy.unravel_index(place, values.shape))
            values[spot] = nan
            assert look(values) == NAN
            values[spot] = 1.0


def test_what_lies_between_the_elements_is_not_looked_at() -> None:
    """Elements that lie on each other, and leave gaps, though they reach just as far as if they filled their memory."""
    memory = torch.ones(8)
    values: Any = torch.as_strided(memory, (2, 2, 2), (1, 1, 5))
    memory[3:5] = nan
    assert look(values) == 0
    memory[7] = nan
    assert look(values) == NAN


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_sum_that_overflows_is_no_fault(dtype: Any) -> None:
    """The largest numbers of a dtype are finite, though their sum is not."""
    values = torch.full((100,), torch.finfo(dtype).max, dtype=dtype)
    assert not torch.isfinite(values.sum())
    assert look(values) == 0
    assert look(torch.stack([values, -values]).t()) == 0


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_numbers_are_two_numbers(dtype: Any) -> None:
    """A NaN in the imaginary part counts, also of a view that is conjugated or strided."""
    values: Any = torch.zeros(4, 5, dtype=dtype)
    assert look(values) == 0
    values[2, 3] = complex(0, nan)
    assert look(values) == look(values.conj()) == look(values.t()[1::2]) == look(values[:, 3]) == NAN
    assert look(values[:, :3]) == 0


def test_layouts_are_followed_exactly() -> None:
    """What lies between the values of a view is not looked at, what is in it is."""
    values = torch.ones(8, 6, 4)
    values[3, 2, 1] = inf
    views = [values, values.transpose(0, 2), values[3], values[:, 2], values[..., 1], values[::3], values[3, 2, 1]]
    assert [look(one) for one in views] == [INF] * 7
    clean = [values[:3], values[:, 0], values[..., 2:], values[::2], values[3, :, 0], values[0, 0].expand(5, 4)]
    assert [look(one) for one in clean] == [0] * 6
    image = torch.ones(2, 3, 5, 5).to(memory_format=torch.channels_last)
    assert look(image) == 0
    image[1, 2, 4, 4] = nan
    assert look(image) == NAN


@settings(max_examples=60, deadline=None)
@given(strategies.data())
def test_any_view_is_as_torch_says(data: strategies.DataObject) -> None:
    """For views of any shape and stride the answer is that of `isfinite`."""
    values = torch.ones(4, 5, 6)
    for _ in range(data.draw(strategies.integers(0, 3))):
        values.view(-1)[data.draw(strategies.integers(0, 119))] = data.draw(strategies.sampled_from([nan, inf, -inf]))
    view = values.permute(*data.draw(strategies.permutations([0, 1, 2])))
    steps = [slice(data.draw(strategies.integers(0, 2)), None, data.draw(strategies.integers(1, 3))) for _ in range(3)]
    view = view[tuple(steps)]
    expected = (INF if torch.isinf(view).any() else 0) | (NAN if torch.isnan(view).any() else 0)
    assert look(view) == expected


def test_what_is_no_number_with_a_point_is_not_looked_at() -> None:
    """Integers, truth values, empty ones, tensors without data, other types: nothing to find, and no failure."""
    for one in (torch.ones(3, dtype=torch.long), torch.ones(2, dtype=torch.bool), torch.empty(0), torch.empty(3, 0)):
        assert look(one) == 0
    assert look(torch.empty(4, device="meta")) == 0
    assert look("text") == look(None) == 0


def test_sparse_gradients_are_looked_at() -> None:
    """The values of a sparse tensor count."""
    table = torch.nn.Embedding(10, 3, sparse=True)
    table(torch.tensor([1, 1, 4])).sum().backward()
    assert table.weight.grad is not None
    assert look(table.weight.grad) == 0
    table(torch.tensor([2])).mul(inf).sum().backward()
    assert look(table.weight.grad) == INF


def test_inside_a_transformation_nothing_is_looked_at() -> None:
    """A tensor of vmap stands for others: it is left alone."""
    seen: list[int] = []

    def double(one: Any) -> Any:
        seen.append(look(one))
        return one * 2

    torch.vmap(double)(torch.full((3, 2), nan))
    assert seen == [0]


def _value(numbers: Any) -> Any:
    """A tensor of these numbers, in one of some layouts."""
    return torch.tensor(numbers).reshape(1, -1).expand(3, -1)


NUMBERS = strategies.sampled_from([0.0, 1.5, nan, inf, -inf])
VALUES = strategies.recursive(
    NUMBERS
    | strategies.lists(NUMBERS, max_size=5).map(_value)
    | strategies.sampled_from([None, "a", b"b", 7, True, numpy.float32(nan), numpy.array([1.0, inf])]),
    lambda inner: (
        strategies.lists(inner, max_size=4)
        | strategies.lists(inner, max_size=4).map(tuple)
        | strategies.dictionaries(strategies.text(max_size=2), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(VALUES)
def test_a_look_into_containers_is_the_same_in_c(value: Any) -> None:
    """Or C says that it cannot tell."""
    if check.native is None:
        pytest.skip("there is only one")
    for one in (value, {"a": [value] * 70}):
        found = check.native.look_into(one)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(check, "native", None)
            assert found in (-1, look_into(one))


def test_whatever_a_dataset_gives_is_looked_into() -> None:
    """Tensors, arrays and numbers are found in containers, and the rest is passed over."""
    sample: dict[str, Any] = {"x": [torch.ones(2), numpy.ones(3)], "y": (1.0, 2, "nan"), "z": numpy.float32(1)}
    assert look_into(sample) == 0
    assert look_into({**sample, "y": (nan,)}) == NAN
    assert look_into({**sample, "z": numpy.array([1, inf], dtype=">f8").astype("f4")}) == INF
    assert look_into([numpy.array([[1, nan]], dtype="f2")]) == NAN
    assert look_into(numpy.array(["nan"], dtype=object)) == 0
