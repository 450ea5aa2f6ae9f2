"""Calling back when a library is imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from sonde import guard
from sonde.hooks import finder

NAME = "sonde_test_library"


@pytest.fixture(autouse=True)
def _library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / f"{NAME}.py").write_text("value = 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    finder.forget()
    sys.modules.pop(NAME, None)


def test_the_callback_comes_after_the_import_with_the_finished_module() -> None:
    """The module's own code has run by then."""
    seen: list[int] = []
    finder.when_imported(NAME, lambda module: seen.append(module.value))
    assert seen == []
    importlib.import_module(NAME)
    assert seen == [5]


def test_a_module_that_is_there_calls_back_at_once() -> None:
    """No import is waited for."""
    importlib.import_module(NAME)
    seen: list[ModuleType] = []
    finder.when_imported(NAME, seen.append)
    assert seen == [sys.modules[NAME]]


def test_the_module_keeps_its_own_loader() -> None:
    """What the import system tells of a module is not changed by us."""
    finder.when_imported(NAME, lambda _: None)
    module = importlib.import_module(NAME)
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__


def test_a_callback_that_fails_leaves_the_import_alone() -> None:
    """The failure is counted, the module is there."""

    def fail(module: ModuleType) -> None:
        raise RuntimeError("ours")

    before = guard.counts().get("preparing a library that was just imported", 0)
    finder.when_imported(NAME, fail)
    assert importlib.import_module(NAME).value == 5
    assert guard.counts()["preparing a library that was just imported"] == before + 1


def test_a_module_that_raises_while_importing_raises_the_same() -> None:
    """The user's import error is the user's."""
    Path(sys.path[0], f"{NAME}.py").write_text("raise ZeroDivisionError('theirs')\n")
    finder.when_imported(NAME, lambda _: None)
    with pytest.raises(ZeroDivisionError, match="theirs"):
        importlib.import_module(NAME)


def test_a_missing_module_is_missing_as_before() -> None:
    """Waiting for a module does not make it exist."""
    finder.when_imported("sonde_test_nowhere", lambda _: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("sonde_test_nowhere")


def test_forget_takes_the_finder_off_the_path() -> None:
    """Nothing of ours stays in the import system."""
    before = list(sys.meta_path)
    finder.when_imported(NAME, lambda _: None)
    assert len(sys.meta_path) == len(before) + 1
    finder.forget()
    assert sys.meta_path == before


def test_several_wait_for_the_same_module() -> None:
    """Each is called once; one that fails does not keep the others from it."""
    seen: list[str] = []

    def fail(module: ModuleType) -> None:
        raise RuntimeError("ours")

    finder.when_imported(NAME, lambda _: seen.append("first"))
    finder.when_imported(NAME, fail)
    finder.when_imported(NAME, lambda _: seen.append("last"))
    importlib.import_module(NAME)
    assert seen == ["first", "last"]


def test_a_wait_can_be_ended_by_itself() -> None:
    """The others go on; after the last one the finder is off the path."""
    before = list(sys.meta_path)
    seen: list[str] = []
    first = finder.when_imported(NAME, lambda _: seen.append("first"))
    last = finder.when_imported(NAME, lambda _: seen.append("last"))
    first()
    importlib.import_module(NAME)
    last()
    first()
    assert seen == ["last"]
    assert sys.meta_path == before


def test_the_time_of_an_import_is_known_without_what_it_imports_itself(tmp_path: Path) -> None:
    """That of the outer library has it all; one that fails took its time, too."""
    (tmp_path / "sonde_test_outer.py").write_text(f"import {NAME}\nraise ImportError('broken')\n")
    finder.import_ns.clear()
    finder.when_imported(NAME, lambda _: None)
    finder.when_imported("sonde_test_outer", lambda _: None)
    with pytest.raises(ImportError, match="broken"):
        importlib.import_module("sonde_test_outer")
    assert list(finder.import_ns) == ["sonde_test_outer"]
    assert finder.import_ns["sonde_test_outer"] > 0
