"""Replacing attributes: once each, and undone."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from sonde.hooks import patches


@pytest.fixture(autouse=True)
def _undone() -> Iterator[None]:
    yield
    patches.undo()


def plus_one(original: Any) -> Any:
    """What stands in for a wrapper."""
    return original + 1


def test_an_attribute_is_replaced_by_what_is_made_of_it() -> None:
    """The replacement is made of the original."""
    owner = SimpleNamespace(value=1)
    patches.replace(owner, "value", plus_one, "a test")
    assert owner.value == 2


def test_the_same_attribute_is_replaced_only_once() -> None:
    """A second call changes nothing."""
    owner = SimpleNamespace(value=1)
    patches.replace(owner, "value", plus_one, "a test")
    patches.replace(owner, "value", plus_one, "a test")
    assert owner.value == 2


def test_undo_puts_the_original_back() -> None:
    """Nothing of ours stays."""
    owner = SimpleNamespace(value=1)
    patches.replace(owner, "value", plus_one, "a test")
    patches.undo()
    assert owner.value == 1
    assert patches.describe() == []


def test_undo_leaves_alone_what_somebody_else_has_replaced_since() -> None:
    """Their replacement may well call ours."""
    owner = SimpleNamespace(value=1)
    patches.replace(owner, "value", plus_one, "a test")
    owner.value = 7
    patches.undo()
    assert owner.value == 7


def test_a_missing_attribute_is_an_error_and_changes_nothing() -> None:
    """A library that has changed is noticed (the caller guards)."""
    with pytest.raises(AttributeError):
        patches.replace(SimpleNamespace(), "value", plus_one, "a test")
    assert patches.describe() == []


def test_what_is_replaced_is_told_with_its_reason() -> None:
    """For `sonde doctor`."""
    import json

    patches.replace(json, "dumps", lambda original: original, "a test")
    assert patches.describe() == ["json.dumps: a test"]


def test_one_patch_is_put_back_and_the_others_stay() -> None:
    """In any order."""
    owner = SimpleNamespace(value=1, other=10)
    patch = patches.replace(owner, "value", plus_one, "a test")
    patches.replace(owner, "other", plus_one, "a test")
    assert patch is not None
    assert patches.restore(patch)
    assert (owner.value, owner.other) == (1, 11)
    assert len(patches.describe()) == 1


def test_one_patch_that_somebody_else_has_replaced_stays_theirs() -> None:
    """The answer says so."""
    owner = SimpleNamespace(value=1)
    patch = patches.replace(owner, "value", plus_one, "a test")
    owner.value = 7
    assert patch is not None
    assert not patches.restore(patch)
    assert owner.value == 7
    assert patches.describe() == []


def test_ours_is_cleared_away_once_nothing_covers_it_any_more() -> None:
    """By the next replacement of the same attribute."""
    owner = SimpleNamespace(value=1)
    patches.replace(owner, "value", plus_one, "a test")
    owner.value = 7
    patches.undo()
    owner.value = 2  # they put back what they had found: ours
    patches.replace(owner, "value", plus_one, "a test")
    assert owner.value == 2
    patches.undo()
    assert owner.value == 1


class Above:
    """Has an attribute."""

    value = 1


class Below(Above):
    """Inherits it."""


def test_an_inherited_attribute_is_inherited_again() -> None:
    """Nothing stays in the class that inherits."""
    patches.replace(Below, "value", plus_one, "a test")
    assert (Above.value, Below.value) == (1, 2)
    patches.undo()
    assert "value" not in vars(Below)


def test_an_instance_has_nothing_of_its_own_afterwards() -> None:
    """It goes by its class again."""
    owner = Above()
    patches.replace(owner, "value", plus_one, "a test")
    assert owner.value == 2
    patches.undo()
    assert vars(owner) == {}
