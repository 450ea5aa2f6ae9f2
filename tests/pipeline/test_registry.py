"""Classes by name: built in, registered, by import path."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline import stars

from sonde.errors import ConfigError
from sonde.pipeline import registry
from sonde.pipeline.config import Config
from sonde.pipeline.datasets.random import RandomDataset
from sonde.pipeline.registry import find_dataset, find_model, register_dataset, register_model

pytestmark = pytest.mark.usefixtures("as_before")


@pytest.mark.parametrize("path", ["tests.pipeline.stars.Stars", "tests.pipeline.stars:Stars"])
def test_class_is_found_by_its_import_path(path: str) -> None:
    """With a dot or a colon before the class."""
    assert find_dataset(path) is stars.Stars


def test_built_in_class_is_found_by_its_name() -> None:
    """Without anybody having imported it."""
    assert find_dataset("RandomDataset") is RandomDataset


@pytest.mark.parametrize("name", registry.DATASETS)
def test_each_built_in_dataset_exists(name: str) -> None:
    """The table leads somewhere."""
    assert find_dataset(name).__name__ == name


@pytest.mark.parametrize("name", registry.MODELS)
def test_each_built_in_model_exists(name: str) -> None:
    """The same for models."""
    assert find_model(name).__name__ == name


def test_registered_class_is_found_by_its_name() -> None:
    """And its table in the configuration exists from then on."""
    with pytest.raises(ConfigError, match="Register your own class first"):
        Config().set("data_set.Stars.size", 3)
    assert register_dataset(stars.Stars) is stars.Stars
    assert find_dataset("Stars") is stars.Stars
    Config().set("data_set.Stars.size", 3)


def test_models_are_registered_apart() -> None:
    """A model is no dataset."""
    register_model(stars.Stars)
    with pytest.raises(ConfigError, match="No dataset class 'Stars'"):
        find_dataset("Stars")


def test_same_class_may_be_registered_again() -> None:
    """As a cell of a notebook does when it runs a second time: the new one counts."""
    register_dataset(stars.Stars)
    again = type("Stars", (), {"__module__": stars.Stars.__module__})
    register_dataset(again)
    assert find_dataset("Stars") is again


def test_other_class_of_the_same_name_is_refused() -> None:
    """It is not clear which of them is meant."""
    register_dataset(stars.Stars)
    with pytest.raises(ConfigError, match=r"from tests.pipeline.stars"):
        register_dataset(type("Stars", (), {"__module__": "elsewhere"}))


def test_name_of_a_built_in_class_is_refused() -> None:
    """A program does not change what others mean."""
    with pytest.raises(ConfigError, match="'RandomDataset' is a built-in dataset"):
        register_dataset(type("RandomDataset", (), {}))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("RandomDatset", "Did you mean 'RandomDataset'?"),
        ("tests.pipeline.stars.Starz", "Did you mean 'Stars'?"),
        ("no.such.module.X", "there is no module 'no'"),
        ("tests.pipeline.nothing.X", "there is no module 'tests.pipeline.nothing'"),
        ("tests.pipeline.stars.PATH", "is not a class"),
        ("", "No dataset class ''"),
        ("not a name", "No dataset class 'not a name'"),
    ],
)
def test_class_that_cannot_be_found_is_told(name: str, words: str) -> None:
    """With the nearest name there is."""
    with pytest.raises(ConfigError) as caught:
        find_dataset(name)
    assert words in str(caught.value)


def test_error_inside_an_imported_module_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that is there but misses another one says so itself."""
    (tmp_path / "needy.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        find_dataset("needy.X")
