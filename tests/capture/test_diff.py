"""Two traces side by side: what is the same, what differs first, and what only one of them has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.flow.making import Making

from sonde.capture.diff import Diff, compare
from sonde.values.snapshot import FULL, OFF, SUMMARY, Keep


def image(index: int) -> Any:
    """A picture like none of the others."""
    return np.random.default_rng(index).random((2, 4), dtype=np.float32)


def traced(
    items: Any = (0, 1), noise: Any = None, keep: Keep = FULL, forward: Any = lambda x: {"out": x * 2, "n": 3}
) -> Making:
    """A small pipeline; `noise` changes an item."""
    making = Making(keep)
    change = noise or (lambda index, x: x)
    plain = [one[0] if isinstance(one, tuple) else one for one in items]
    samples = [making.get("data__get_image", lambda i: change(i, image(i)), one) for one in items]
    batch = making.collate(np.stack, samples, items)
    making.call("Model__forward", forward, batch, items=plain)
    return making


def diffed(a: Making, b: Making, rtol: float = 0.0) -> Diff:
    return a.result.diff(b.result, rtol=rtol)


def test_equal_traces_do_not_differ() -> None:
    """It is false, and says how much was compared."""
    diff = diffed(traced(), traced())
    assert not diff
    assert str(diff) == repr(diff) == "No difference in 4 calls."
    assert diff.first is None


def test_the_first_difference_is_told_with_both_values() -> None:
    """Item 1 was changed at the source: the getter is the first, and the rest follows from it."""
    diff = diffed(traced(), traced(noise=lambda i, x: x + i))
    assert diff
    assert diff.first is not None
    assert (diff.first.stage, diff.first.function) == ("dataset_getter", "data__get_image")
    assert (diff.first.items, diff.first.field) == ("item 1", "image")
    lines = str(diff).splitlines()
    assert lines[0] == "First difference: dataset_getter · data__get_image · item 1 · image"
    assert lines[1].startswith("\tA = <numpy.ndarray shape=(2, 4)")
    assert lines[2].startswith("\tB = <numpy.ndarray shape=(2, 4)")
    assert "\tevaluation · Model__forward · items 0, 1 · forward.out" in lines


def test_items_are_aligned_by_index_whatever_their_order() -> None:
    """Shuffling is no difference of the items; the batch says that its rows have another order."""
    diff = diffed(traced((0, 1)), traced((1, 0)))
    assert {one.function for one in diff.differences} == {"collate", "Model__forward"}
    assert diff.first is not None
    assert (diff.first.field, diff.first.a, diff.first.b) == ("items", "items 0, 1", "items 1, 0")
    assert not diff.only_a + diff.only_b


def test_items_are_aligned_by_id_where_both_know_it() -> None:
    """A data set whose indices moved by one."""

    def run(shift: int) -> Making:
        making = Making()
        for number in (5, 6):
            making.get("data__get_image", lambda i: image(i - shift), (number + shift, f"id{number}"))
        return making

    diff = diffed(run(0), run(1))
    assert [(one.field, one.a, one.b) for one in diff.differences] == [("i", "5", "6"), ("i", "6", "7")]


def test_calls_of_one_side_only_are_listed() -> None:
    """An item more, and a function more."""
    more = traced((0, 1, 2))
    more.call("Loss__forward", lambda x: x, 1.5)
    diff = diffed(traced(), more)
    assert diff.only_a == []
    assert diff.only_b == ["dataset_getter · data__get_image · item 2", "evaluation · Loss__forward"]
    assert "2 calls only in B:" in str(diff)


def test_an_array_and_its_tensor_are_the_same() -> None:
    """The content counts."""
    assert not diffed(traced(), traced(noise=lambda i, x: torch.from_numpy(x)))


def test_another_type_of_numbers_is_a_difference() -> None:
    """float64 is not float32."""
    diff = diffed(traced(), traced(noise=lambda i, x: x.astype(np.float64)), rtol=0.5)
    assert diff.first is not None
    assert "dtype=float64" in diff.first.b


@pytest.mark.parametrize("keep", [FULL, SUMMARY])
def test_small_differences_may_be_allowed(keep: Keep) -> None:
    """Other hardware, other roundings: by element where there are copies, by statistics where not."""
    a, b = traced(keep=keep), traced(keep=keep, noise=lambda i, x: x * np.float32(1 + 1e-6))
    assert diffed(a, b)
    assert not diffed(a, b, rtol=1e-4)


def test_the_same_statistics_are_not_the_same_elements() -> None:
    """Where copies are there, they decide."""
    a, b = traced(), traced(noise=lambda i, x: x[:, ::-1])
    assert diffed(a, b, rtol=1e-3)


def test_nan_is_equal_to_nan() -> None:
    """With and without a tolerance."""
    spoil: dict[str, Any] = {"noise": lambda i, x: x * np.nan, "forward": lambda x: float("nan")}
    assert not diffed(traced(**spoil), traced(**spoil))
    assert not diffed(traced(**spoil), traced(**spoil), rtol=1e-3)


def test_numbers_and_texts_are_compared() -> None:
    """The field says which part it is."""
    diff = diffed(traced(), traced(forward=lambda x: {"out": x * 2, "n": 4, "more": "text"}))
    assert [(one.field, one.a, one.b) for one in diff.differences] == [
        ("forward.n", "3", "4"),
        ("forward.more", "(missing)", "'text'"),
    ]


def test_a_call_that_failed_in_one_differs() -> None:
    """The type of the exception is shown."""

    def fail(x: Any) -> Any:
        raise ValueError("no")

    diff = diffed(traced(), traced(forward=fail))
    assert [(one.field, one.a, one.b) for one in diff.differences] == [("error", "None", "ValueError")]


def test_values_that_were_not_kept_are_compared_by_shape() -> None:
    """With values = off nothing more is known."""
    assert not diffed(traced(keep=OFF), traced(keep=OFF, noise=lambda i, x: x + 1))
    assert diffed(traced(keep=OFF), traced(keep=OFF, noise=lambda i, x: x[:1]))


def test_more_differences_than_fit_are_counted() -> None:
    """The list ends, the number does not."""
    a, b = (traced(range(100), noise=noise) for noise in (None, lambda i, x: x + 1))
    assert "... and" in str(diffed(a, b))
    assert len(diffed(a, b).differences) >= 100


def test_half_precision_of_tensors_is_compared_too() -> None:
    """NumPy has no bfloat16."""
    a, b = (Making(), Making())
    for making, more in ((a, 0.0), (b, 0.001)):
        making.call("f", lambda x: x, torch.linspace(1, 2, 5).bfloat16() + more)
    assert not compare(a.result, b.result, rtol=0.01)


def test_keys_that_print_alike_are_kept_apart() -> None:
    """1 and "1" are two keys."""
    a, b = Making(), Making()
    a.call("f", lambda x: x, {1: 5, "1": 6})
    b.call("f", lambda x: x, {1: 5, "1": 7})
    assert not compare(a.result, a.result)
    assert [(one.a, one.b) for one in compare(a.result, b.result).differences] == [("6", "7")] * 2


def test_hostile_names_cannot_break_the_lines() -> None:
    """A newline in a name is escaped."""
    a, b = Making(), Making()
    a.call("evil\n\x1b[31m", lambda x: x, 1)
    b.call("evil\n\x1b[31m", lambda x: x, 2)
    assert "\x1b" not in str(compare(a.result, b.result))
    assert len(str(compare(a.result, b.result)).splitlines()) == 5
