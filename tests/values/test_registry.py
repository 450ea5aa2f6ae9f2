"""The registry: who describes which type, and how a user adds his own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

from sonde.errors import SettingError
from sonde.values.note import ARRAY, MAPPING, OBJECT, Note
from sonde.values.registry import _own, find, register
from sonde.values.snapshot import OFF, freeze


class Spectrum:
    """A class of a user, with data inside."""

    def __init__(self) -> None:
        self.flux = numpy.arange(3.0)


class Special(Spectrum):
    """A subclass of it."""


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """What a test registers ends with it."""
    yield
    _own.pop(Spectrum, None)
    _own.pop(Special, None)


def test_type_without_a_handler_still_prints() -> None:
    """By its text."""
    assert freeze(Spectrum()).note.kind == OBJECT


def test_text_of_the_user_is_shown() -> None:
    """A function may return a text; it counts for the digest."""
    register(Spectrum, lambda one: f"spectrum of {len(one.flux)}")
    note = freeze(Spectrum()).note
    assert (note.kind, note.text) == (OBJECT, "spectrum of 3")
    assert note.digest is not None


def test_anything_that_can_be_described_may_be_returned() -> None:
    """An array or a dict stands for the object, under the object's type."""
    register(Spectrum, lambda one: one.flux)
    kept = freeze(Spectrum())
    assert (kept.note.kind, kept.note.high) == (ARRAY, 2)
    assert kept.note.type.endswith("Spectrum")
    assert isinstance(kept.value, numpy.ndarray)
    register(Spectrum, vars)
    assert freeze(Spectrum()).note.kind == MAPPING


def test_note_may_be_returned() -> None:
    """Who wants to say it all himself can."""
    register(Spectrum, lambda one: Note(OBJECT, "Spectrum", text="mine"))
    assert freeze(Spectrum()).note.text == "mine"


def test_nearest_class_counts() -> None:
    """Subclasses are described too, unless they have their own."""
    register(Spectrum, lambda one: "any")
    assert freeze(Special()).note.text == "any"
    register(Special, lambda one: "special")
    assert (freeze(Special()).note.text, freeze(Spectrum()).note.text) == ("special", "any")


def test_user_may_replace_ours() -> None:
    """Also for types that Sonde knows."""
    register(numpy.ndarray, lambda array: "an array")
    try:
        assert freeze(numpy.ones(2)).note.text == "an array"
    finally:
        _own.pop(numpy.ndarray, None)


def test_description_that_raises_falls_back_to_the_text(caplog: pytest.LogCaptureFixture) -> None:
    """A mistake in it does not reach the program."""
    caplog.set_level(logging.CRITICAL, "sonde")

    def broken(one: Any) -> str:
        raise ValueError

    register(Spectrum, broken)
    assert freeze(Spectrum()).note.kind == OBJECT


def test_description_by_itself_ends() -> None:
    """Returning the object itself, or a new one each time, is no endless loop."""
    register(Spectrum, lambda one: one)
    assert freeze(Spectrum()).note
    register(Spectrum, lambda one: Spectrum())
    assert freeze(Spectrum()).note


def test_off_asks_nobody() -> None:
    """Where no content is to be kept, the user's function is not called."""
    register(Spectrum, lambda one: "secret")
    assert freeze(Spectrum(), OFF).note.text != "secret"


@pytest.mark.parametrize(("kind", "describe"), [("Spectrum", str), (Spectrum, None), (None, str)])
def test_wrong_arguments_are_refused(kind: Any, describe: Any) -> None:
    """A mistake in the call is told at once."""
    with pytest.raises(SettingError, match="needs a"):
        register(kind, describe)


def test_every_type_has_a_handler() -> None:
    """Also `object` and `type`."""
    assert callable(find(object))
    assert callable(find(type))
