"""Finds what `script.py:name` means: a dataset, a loader, a model, or a function that makes one."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

from sonde.errors import ReplayError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable

# What the program's own code raises; anything else passes as it is.
USUAL = (ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)


def load_data(target: str) -> Any:
    """The dataset or loader of `script.py:name`; ReplayError if there is none."""
    return _load(target, "dataset", _is_data)


def load_model(target: str) -> Any:
    """The torch module of `script.py:name`; ReplayError if there is none."""
    return _load(target, "model", _is_model)


def _load(target: str, kind: str, accepts: Callable[[Any], bool]) -> Any:
    """What has this name, or what it returns when it is called.

    The script is imported under its own name, so that its main part does not run.
    """
    file, colon, name = target.rpartition(":")
    if not colon or not name or not file:
        raise ReplayError(f"{target!r} does not name a {kind}. Give SCRIPT:NAME, such as train.py:make_{kind}.")
    if not os.path.isfile(file):
        raise ReplayError(f"No such file: {file}. Give the script that defines {name}.")
    module = _imported(file)
    if not hasattr(module, name):
        names = [
            one
            for one, value in vars(module).items()
            if not one.startswith("_") and (accepts(value) or _is_defined_in(module, value))
        ]
        raise ReplayError(f"{file} has no {name!r}. {nearest(name, names) if names else 'It defines nothing.'}")
    found = getattr(module, name)
    if accepts(found):
        return found
    if not callable(found):
        raise ReplayError(f"{name} in {file} is a {type(found).__name__}, not a {kind} or a function that makes one.")
    return _returned(found, f"{name}() of {file}", kind, accepts)


def _imported(file: str) -> Any:
    path = os.path.abspath(file)
    stem = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(stem, path)
    if spec is None or spec.loader is None:
        raise ReplayError(f"{file} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(path))  # as for the script itself: it may import its neighbours
    sys.modules.setdefault(stem, module)
    try:
        spec.loader.exec_module(module)
    except (ImportError, SyntaxError) as error:
        raise ReplayError(f"Cannot import {file}: {type(error).__name__}: {error}.") from error
    except USUAL as error:
        said = f"{type(error).__name__}: {error}".rstrip(".")
        advice = "If it trains on import, move that below: if __name__ == '__main__'"
        raise ReplayError(f"Cannot import {file}: {said}. {advice}") from error
    return module


def _returned(make: Callable[[], Any], what: str, kind: str, accepts: Callable[[Any], bool]) -> Any:
    try:
        found = make()
    except USUAL as error:
        raise ReplayError(f"{what} fails: {type(error).__name__}: {error}.") from error
    if not accepts(found):
        raise ReplayError(f"{what} returns a {type(found).__name__}, not a {kind}.")
    return found


def _is_data(value: Any) -> bool:
    return not isinstance(value, type) and (hasattr(value, "__getitem__") or hasattr(value, "__iter__"))


def _is_model(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def _is_defined_in(module: Any, value: Any) -> bool:
    return callable(value) and getattr(value, "__module__", None) == module.__name__
