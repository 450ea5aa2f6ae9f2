"""What a batch was for, in loops as people write them."""

from __future__ import annotations

import numpy as np
import pytest

from sonde.analysis.purpose import WORDS, Purposes, Waits, purposes_of
from sonde.store.probe import batch_key


def judge(story: str, *, sparse: bool = False) -> Purposes:
    """`story`: one letter per event, 10 apart. A B: fetch of two iterators; f: forward, b: backward."""
    keys: list[int] = []
    starts: list[int] = []
    forwards: list[int] = []
    backwards: list[int] = []
    counts = {"A": 0, "B": 0, "C": 0}
    for at, letter in enumerate(story.replace(" ", "")):
        if letter in counts:
            keys.append(batch_key(*{"A": (0, 0), "B": (1, 0), "C": (1, 1)}[letter], counts[letter]))
            counts[letter] += 1
            starts.append(10 * at)
        (forwards if letter == "f" else backwards if letter == "b" else []).append(10 * at)
    start = np.array(starts, np.int64)
    waits = Waits(np.array(keys, np.int64), start, start + 5)
    return purposes_of(waits, np.array(forwards, np.int64), np.array(backwards, np.int64), sparse=sparse)


def told(story: str, *, sparse: bool = False) -> str:
    """The first letters of the purposes, in the order of the fetches."""
    return "".join(WORDS[one][0] for one in judge(story, sparse=sparse).purpose)


@pytest.mark.parametrize(
    ("story", "purposes"),
    [
        ("Afb Afb Afb", "ttt"),
        ("Afb Afb Bf Bf Bf Afb", "tteeet"),
        ("Afb Bf Afb Cf Afb", "tetet"),  # one batch for evaluation
        ("A Bf Bf fb Afb", "teet"),  # evaluation between fetch and use
        ("A Afb Afb Afb fb", "tttt"),  # one batch ahead
        ("A Afb Afb fb B Bf Bf Bf f Afb", "ttteeeet"),
        ("AB fb AB fb AB fb", "tttttt"),  # two loaders at once
        ("Afb fb Afb fb", "tt"),  # two backwards per batch
        ("AAA fb fb fb", "ttt"),  # everything fetched before anything is used
        ("AAA fbfbfb AAA fbfbfb Bf Bf", "tttttt" + "ee"),  # all micro-batches of a step at once
        ("AAAA fbfbfb AAA fbfbfb AA fbfbfb", "t" * 9),  # the same, and one ahead
        ("AAA fbfbfb AAA fb", "tttt" + "tt"),  # in the middle of a step
        ("Af", "u"),  # nobody knows yet
        ("Afb A", "tt"),
        ("A", "u"),
        ("", ""),
    ],
)
def test_loops(story: str, purposes: str) -> None:
    """Training is what a backward follows."""
    assert told(story) == purposes


def test_a_batch_that_was_fetched_ahead_is_used_after_the_next_fetch() -> None:
    """First in, first out."""
    found = judge("A Afb Afb fb")
    assert found.used.tolist() == [1, 2, 2]
    assert found.over.tolist() == [0, 0, 1]


def test_a_batch_that_was_fetched_with_others_and_not_used_is_in_no_step() -> None:
    """Training ended in the middle of a round, and the loop fetched one batch ahead."""
    found = judge("AAA fbfb AA fbfb AA fbfb")
    assert [bool(over) for over in found.over] == [False] * 6 + [True]
    assert found.over[-1] > 1 << 32


def test_batches_of_a_step_that_were_fetched_at_once_are_used_in_that_step() -> None:
    """Also where one more is fetched ahead."""
    assert judge("AAA fbfbfb AAA fbfbfb").used.tolist() == [2, 2, 2, 5, 5, 5]
    assert judge("AAAA fbfbfb AA fbfbfb").used.tolist() == [3, 3, 3, 5, 5, 5]


def test_one_update_speaks_for_the_whole_iterator() -> None:
    """Where backward is not recorded, updates are all that is known, and they are fewer than batches."""
    assert told("Af Af Afb Bf Bf Af Afb", sparse=True) == "ttteett"
