"""Errors: one root, a docstring that draws the tree, messages that help."""

from __future__ import annotations

import pickle

import pytest

from sonde import errors
from sonde.errors import MissingExtra, SettingError, SondeError

CHILDREN = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SondeError)]


@pytest.mark.parametrize("kind", CHILDREN)
def test_each_error_stands_in_the_tree(kind: type[SondeError]) -> None:
    """The module's docstring draws every error."""
    assert kind.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize("kind", CHILDREN)
def test_each_error_keeps_its_text_through_a_pickle(kind: type[SondeError]) -> None:
    """An error that crosses a process boundary says the same."""
    again = pickle.loads(pickle.dumps(kind("what happened")))
    assert type(again) is kind
    assert str(again) == "what happened"


def test_setting_error_is_a_value_error() -> None:
    """Who catches the built-in error catches ours."""
    with pytest.raises(ValueError, match="wrong"):
        raise SettingError("wrong")


def test_missing_extra_says_what_to_install() -> None:
    """The message holds the exact command."""
    error = MissingExtra.of("pyarrow", "pipeline", "ParquetDataset")
    assert str(error) == "ParquetDataset needs pyarrow, which is not installed: pip install 'sonde-ml[pipeline]'"


def test_nearest_names_the_likely_one_and_all_others() -> None:
    """A misspelt name brings the one that was meant; a wild one only the list."""
    assert errors.nearest("evnets", ["events", "steps"]) == "Did you mean 'events'? Valid: events, steps."
    assert errors.nearest("xyz", ["events", "steps"]) == "Valid: events, steps."
