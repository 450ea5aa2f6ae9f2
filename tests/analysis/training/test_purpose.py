"""What a batch was for, in loops as people write them."""

from __future__ import annotations

import numpy as np
import pytest

from sonde.analysis.training.purpose import WORDS, Purposes, purposes_of
from sonde.analysis.training.windows import Forwards, ThreadWaits
from sonde.store.probe import FORWARD_GRAD, FORWARD_LOSS, FORWARD_TRAINING, batch_key

MODES = {"f": FORWARD_TRAINING | FORWARD_GRAD, "n": FORWARD_TRAINING, "e": FORWARD_GRAD, "o": 0, "?": -(2**63)}
MODES["l"] = MODES["f"] | FORWARD_LOSS


def judge(story: str, *, sparse: bool = False) -> Purposes:
    """`story`: one letter per event, 10 apart. A B: fetch of two iterators; b: backward.

    Forwards: f as in training, n: without gradients, e: in evaluation mode with gradients, o: neither, l: a loss function, ?: not known.
    """
    keys: list[int] = []
    starts: list[int] = []
    forwards: list[tuple[int, int]] = []
    backwards: list[int] = []
    counts = {"A": 0, "B": 0, "C": 0}
    for at, letter in enumerate(story.replace(" ", "")):
        if letter in counts:
            keys.append(batch_key(*{"A": (0, 0), "B": (1, 0), "C": (1, 1)}[letter], counts[letter]))
            counts[letter] += 1
            starts.append(10 * at)
        if letter in MODES:
            forwards.append((10 * at, MODES[letter]))
        elif letter == "b":
            backwards.append(10 * at)
    start = np.array(starts, np.int64)
    waits = ThreadWaits(np.array(keys, np.int64), start, start + 5)
    went = Forwards(*np.array(forwards, np.int64).reshape(-1, 2).T)
    return purposes_of(waits, went, np.array(backwards, np.int64), sparse=sparse)


def told(story: str, *, sparse: bool = False) -> str:
    """The first letters of the purposes, in the order of the fetches."""
    return "".join(WORDS[one][0] for one in judge(story, sparse=sparse).purpose)


@pytest.mark.parametrize(
    ("story", "purposes"),
    [
        ("Afb Afb Afb", "ttt"),
        ("Afb Afb A Bfb Bfb Bfb", "ttuttt"),  # broken off with a batch in hand, then a new loader
        ("Afb Afb A Cf Cf Bfb Bfb", "ttueett"),  # the same, and evaluation in between
        ("ABfb ABfb A Cfb", "tttttt"),  # two at once, and one of them begins anew
        ("Afb Afb Bf Bf Bf Afb", "tteeet"),
        ("Afb Bf Afb Cf Afb", "tetet"),  # one batch for evaluation
        ("A Bf Bf fb Afb", "teet"),  # evaluation between fetch and use
        ("A Afb Afb Afb fb", "tttt"),  # one batch ahead
        ("A Afb Afb Afb", "tttu"),  # the same, and the training ends with a batch in hand
        ("AA Afb Afb Afb", "tttuu"),
        ("A Afb Afb Bf Bf Afb Afb", "ttteetu"),
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


@pytest.mark.parametrize(
    ("story", "purposes"),
    [
        ("Af Af b Af Af b", "tttt"),  # f(next(it)) + f(next(it))
        ("Afl Afl b Afl Afl b", "tttt"),
        ("Af Af Af Afb Af Af Af Afb Af", "t" * 9),  # four losses, and the first of the next four
        ("Af Af Af b Bo Bo Cf Cf Cf b", "ttteettt"),  # the whole epoch
        ("Af Af b", "tt"),
        ("A Af Af b Af Af b f f b", "t" * 5),  # and one batch ahead
        ("AA ffb AA ffb AA ffb", "t" * 6),  # zip(it, it)
        ("AA ffb AA ffb A", "t" * 5),
    ],
)
def test_batches_whose_losses_are_summed_are_training(story: str, purposes: str) -> None:
    """One backward for several batches."""
    assert told(story) == purposes


@pytest.mark.parametrize(
    ("story", "purposes"),
    [
        ("Afb Afb Ao Ao Afb Afb", "tteett"),  # evaluation with the same iterator
        ("Af Af b Ao Ao Af Af b", "tteett"),
        ("Af Af b An An Af Af b", "tteett"),  # in training mode
        ("Afb Ael Afb Ael Afb Afb", "tetett"),  # gradients left on
        ("Afb Aef Afb Aef Afb Afb", "tetett"),  # and the loss is a module of the program's own
        ("Afb Afb Af Afb Afb Afb", "ttuttt"),  # dropped after its forward: the loss was NaN
        ("Afb A Afb A A Afb Afb", "tutuutt"),  # skipped
        ("Af Af b Bf Bf Af Af b", "tteett"),  # evaluation as in training, with another iterator
        ("A Bf Bf fb Afb", "teet"),  # and between fetch and use
        ("Bef Bef Bef fb fb Cef Cef", "eeeee"),  # training without a loader
        ("Bf Bf Bf fb fb Cf Cf", "eeeee"),
        (
            "Afb Bef Bef Afb Bef Bef Afb Bef Bef",
            "tet" + "tet" + "tee",
        ),  # an iterator that goes on: the next fetch is far away
        ("Afb Bf Bf Afb Bf Bf Afb Bf Bf", "tet" + "tet" + "tee"),
        ("A? A? b A? A? b A?b", "etett"),  # nobody knows the modes
    ],
)
def test_batches_without_a_backward_are_no_training_where_nothing_says_that_losses_are_summed(
    story: str, purposes: str
) -> None:
    """One that goes forward without gradients, in evaluation mode, or now and then."""
    assert told(story) == purposes


@pytest.mark.parametrize(
    ("story", "purposes"),
    [
        ("A Bo fb Afb Afb A Co fb Afb", "tetttet"),  # at the begin of the loop's body
        ("A Be fb Afb Afb A Ce fb Afb", "tetttet"),  # gradients left on
        ("Afb Afb Bo Afb Afb Co Afb", "ttettet"),
        ("fb fb Bo fb fb Co fb fb", "ee"),  # data in memory
        ("fb Bo fb Co", "ee"),
        ("fb Bo fb Co fb", "ee"),
        ("fb Bo fb Ao fb", "ee"),  # each with a loader of its own
        ("A Afb Afb BB o o fb", "tttee"),  # the training is one batch ahead, and so is the evaluation
        ("A Afb Afb Bo fb", "ttte"),  # before the last batch, which was fetched ahead
        ("A Afb Afb Bn fb", "ttte"),  # in training mode
        ("AAA fbfb AA fbfb Bo fb", "ttttte"),  # the same, where micro-batches are fetched at once
        ("AAAA fb AA fb AA fb Bo fb", "tttttttte"),  # and where one process fetches for two
        ("Afb Afb Bo", "tte"),  # at the end
        ("Bofb Cofb", "tt"),  # one batch is the epoch, and it has a teacher
        ("Bofb Ao Ao Cofb", "teet"),
    ],
)
def test_an_evaluation_of_one_batch_is_none_of_the_training_around_it(story: str, purposes: str) -> None:
    """The first forward after it was without training and gradients."""
    assert told(story) == purposes


@pytest.mark.parametrize(
    ("story", "purposes"),
    [
        ("AAA Afb Afb Afb Afb", "uuutttt"),  # from the middle of an epoch
        ("BB Bfb Bfb Bfb Bfb Cfb Cfb", "uutttt" + "tt"),
        ("AAA Afb Afb Afb fb fb fb", "tttttt"),  # but this is three ahead
        ("B Bfb Bfb Bfb C Cfb Cfb Cfb", "uttt" + "uttt"),  # the first one of each epoch
        ("B Bfb Bfb Bfb fb C Cfb Cfb Cfb", "tttt" + "tttu"),  # one ahead, and broken off
        (
            "B Bfb Bfb Bfb Ao Ao fb C Cfb Cfb Cfb",
            "tttt" + "ee" + "tttu",
        ),  # the same, with an evaluation before the last step
        ("Afb Afb A Afb Afb A Afb", "ttuttut"),  # what could not be read was left out
        ("Bfb Bfb B Cfb Cfb", "ttutt"),  # the epoch ended with one that was not used
        ("BA fb BA fb B CA fb CA fb", "ttttu" + "tttt"),  # zip() of a longer and a shorter one
        ("A Afb A Afb Afb fb", "tuttt"),  # of a loop that is one batch ahead
        ("A Afb Af Afb Afb fb", "tuttt"),  # after its forward
    ],
)
def test_batches_that_the_program_left_out_are_for_nothing(story: str, purposes: str) -> None:
    """They are neither training nor evaluation."""
    assert told(story) == purposes


@pytest.mark.parametrize(
    ("story", "purposes"),
    [
        ("AAAA fb AA fb AA fb fb", "t" * 8),  # for two; a micro-batch ahead
        ("AAAAAA fbfb AAAA fbfb AAAA fbfb fb", "t" * 14),  # the micro-batches of a step at once
        ("AAAAAA fb AAA fb BBB o Afb fb", "t" * 9 + "eeet"),  # for three, and the last ones got nothing
        ("AAAA fb AA fb fb", "t" * 6),
        ("AA fb AA fb AA fb", "t" * 6),  # two that are put together
        ("AAAA fb AA fb AA fb", "t" * 8),  # broken off
        ("BBBB o BB o o", "eeeeee"),  # an evaluation
    ],
)
def test_batches_that_one_process_fetches_for_several_are_for_one_thing(story: str, purposes: str) -> None:
    """Nothing is done between their fetches, and as many of them come for each backward."""
    assert told(story) == purposes


@pytest.mark.parametrize(
    ("story", "parts"),
    [
        ("AAAA fb AA fb fb", [0, 1, 0, 1, 0, 1]),
        ("AA ffb AA ffb", [0, 0, 0, 0]),  # each goes forward by itself
        ("AAA fbfb AA fbfb fb", [0, 0, 0, 0, 0]),
    ],
)
def test_batches_that_one_process_fetches_for_several_are_one_micro_batch(story: str, parts: list[int]) -> None:
    """All but the first one are part of it."""
    assert judge(story).part.tolist() == parts


def when(story: str) -> list[int | None]:
    """The number of the backward that used each batch, in the order of the fetches; None: none did."""
    letters = story.replace(" ", "")
    backwards = [10 * at for at, letter in enumerate(letters) if letter == "b"]
    return [backwards.index(one) if one in backwards else None for one in judge(story).moment.tolist()]


@pytest.mark.parametrize(
    ("story", "used"),
    [
        ("Afb Afb Afb", [0, 1, 2]),
        ("A Afb Afb fb", [0, 1, 2]),  # one ahead
        ("AA Afb Afb fb fb", [0, 1, 2, 3]),
        ("AAAA fbfbfbfb", [0, 1, 2, 3]),  # the whole epoch
        ("AAA fbfbfb AAA fbfbfb", [0, 1, 2, 3, 4, 5]),
        ("AAAA fbfbfb AA fbfbfb", [0, 1, 2, 3, 4, 5]),  # one ahead
        ("AAA fbfb AA fbfb fb", [0, 1, 2, 3, 4]),  # and the last step has one
        ("AAA fbfb AA fbfb AA fbfb", [0, 1, 2, 3, 4, 5, None]),  # training ended in the middle of a round
        ("AA ffb AA ffb", [0, 0, 1, 1]),  # one backward for both
        ("Afbfb Afbfb", [0, 2]),  # two backwards for each
        ("AAA Afb Afb Afb", [None, None, None, 0, 1, 2]),  # the first ones were left out
        ("A Afb Afb Bo Bo fb", [0, 1, 2, None, None]),  # an evaluation before the last step
        ("A Afb Afb Bo fb", [0, 1, 2, None]),
        ("AAA fbfb AA fbfb Bo fb", [0, 1, 2, 3, 4, None]),
        ("AAAA fb AA fb AA fb fb", [0, 0, 1, 1, 2, 2, 3, 3]),  # one process fetches for two
        ("AAAAAA fbfb AAAA fbfb AAA fbfb fb", [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6]),  # and the last one gets nothing
        ("AAAA fb AA fb AA fb", [0, 0, 1, 1, 2, 2, None, None]),  # broken off
        ("A Afb A Afb Afb fb", [0, None, 1, 2, 3]),  # one was left out
    ],
)
def test_a_batch_belongs_to_its_own_backward(story: str, used: list[int | None]) -> None:
    """First in, first out."""
    assert when(story) == used


def test_one_update_speaks_for_the_whole_iterator() -> None:
    """Where backward is not recorded, updates are all that is known, and they are fewer than batches."""
    assert told("Af Af Afb Bf Bf Af Afb", sparse=True) == "ttteett"


def test_batches_whose_losses_are_summed_are_used_where_they_were_fetched() -> None:
    """The backward comes after the last of them."""
    assert judge("Af Af b Af Af b").moment.tolist() == [0, 40, 50, 90]
