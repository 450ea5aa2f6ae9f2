"""Numbers for objects: the same while it lives, never given twice."""

from __future__ import annotations

import gc
import os

import numpy as np
import torch

from sonde import flow
from sonde.values.identity import number
from sonde.values.snapshot import freeze


def test_an_object_keeps_its_number() -> None:
    """And another one with the same content has another."""
    array = np.zeros(3)
    assert number(array) == number(array)
    assert number(array) != number(array.copy())


def test_a_number_is_not_given_again() -> None:
    """Though the memory of an object that is gone is."""
    numbers = set()
    for _ in range(100):
        array = np.zeros(1000)
        numbers.add(number(array))
        del array
        gc.collect(0)
    assert len(numbers) == 100


def test_what_cannot_be_followed_has_no_number() -> None:
    """Lists, numbers, texts."""
    assert [number(one) for one in ([1], 5, "text", (1,))] == [None] * 4


def test_arrays_and_tensors_have_their_number_in_the_description() -> None:
    """Wherever they stand; other values have none."""
    array, tensor = np.zeros(3), torch.zeros(3)
    note = freeze({"a": array, "b": [tensor], "c": 5}).note
    (_, a), (_, b), (_, c) = note.children
    assert a.identity == number(array)
    assert b.children[0][1].identity == number(tensor)
    assert c.identity is None
    assert note.identity is None


def test_a_child_process_numbers_anew() -> None:
    """Its objects are copies, and its parent's numbers say nothing about them."""
    array = np.zeros(3)
    before = number(array)
    pid = os.fork()
    if not pid:
        os._exit(int(number(array) in (before, (before or 0) + 1)))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_nothing_of_a_trace_stays_on_a_tensor() -> None:
    """torch refuses to swap a tensor to which there is a weak reference."""
    one, other = torch.ones(3), torch.zeros(3)
    with flow.trace(), flow.capture(torch.nn.functional, "relu", stage_name="evaluation"):
        torch.nn.functional.relu(one)
    torch.utils.swap_tensors(one, other)  # type: ignore[no-untyped-call]
    assert one.sum() == 0
