"""Datasets and models by name: built in, registered by the program, or given by an import path."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from sonde.errors import ConfigError, nearest
from sonde.pipeline.datasets.images import ImageFolderDataset
from sonde.pipeline.datasets.npy import NpyDataset
from sonde.pipeline.datasets.parquet import ParquetDataset
from sonde.pipeline.datasets.random import RandomDataset
from sonde.pipeline.datasets.results import ResultDataset

_C = TypeVar("_C", bound=type)


def _autoencoder() -> type:
    from sonde.pipeline.models.autoencoder import Autoencoder

    return Autoencoder


def _classifier() -> type:
    from sonde.pipeline.models.classifier import Classifier

    return Classifier


DATASETS = {
    kind.__name__: kind for kind in (RandomDataset, ImageFolderDataset, NpyDataset, ParquetDataset, ResultDataset)
}
MODELS = {"Autoencoder": _autoencoder, "Classifier": _classifier}  # imported when they are asked for: torch is heavy


class _Registry(NamedTuple):
    """One of the two registries."""

    word: str
    register: str
    built_in: Mapping[str, object]
    load: Callable[[str], type]  # a built-in one
    registered: dict[str, type]

    def names(self) -> list[str]:
        return [*self.built_in, *self.registered]


_kinds = {
    "data_set": _Registry("dataset", "register_dataset", DATASETS, DATASETS.__getitem__, {}),
    "model": _Registry("model", "register_model", MODELS, lambda name: MODELS[name](), {}),
}


def register_dataset(kind: _C) -> _C:
    """Let `dataset_class` name this class. Use it as a decorator, or call it."""
    return _register(_kinds["data_set"], kind)


def register_model(kind: _C) -> _C:
    """Let `model.name` name this class. Use it as a decorator, or call it."""
    return _register(_kinds["model"], kind)


def find_dataset(name: str) -> type:
    """The dataset class of that name or import path."""
    return _find(_kinds["data_set"], name)


def find_model(name: str) -> type:
    """The model class of that name or import path."""
    return _find(_kinds["model"], name)


def is_class(table: str, name: str) -> bool:
    """Can `name` be a class of this table of the configuration (data_set or model)? An import path is not followed."""
    return name in _kinds[table].names() or is_path(name)


def class_names(table: str) -> list[str]:
    """The names that need no import path."""
    return _kinds[table].names()


def is_path(name: str) -> bool:
    """Is this an import path: a module and a class in it?"""
    module, _, attribute = _split(name)
    return bool(module and attribute) and all(part.isidentifier() for part in f"{module}.{attribute}".split("."))


def import_path(path: str, what: str) -> Any:
    """The thing at "package.module.Name" or "package.module:Name"; `what` begins the message if there is none."""
    module_name, _, attribute = _split(path)
    module = _imported(module_name, path, what)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            names = [name for name in vars(found) if not name.startswith("_")]
            raise ConfigError(f"{what} is {path!r}, but {module_name} has no {part!r}. {nearest(part, names[:50])}")
        found = getattr(found, part)
    return found


def _split(path: str) -> tuple[str, str, str]:
    return path.partition(":") if ":" in path else path.rpartition(".")


def _imported(module: str, path: str, what: str) -> Any:
    if module in sys.modules:
        return sys.modules[module]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            raise ConfigError(
                f"{what} is {path!r}, but there is no module {error.name!r}. Install it, or put its folder on PYTHONPATH."
            ) from None
        raise  # the module is there, and misses another one


def _register(registry: _Registry, kind: _C) -> _C:
    if not isinstance(kind, type):
        raise ConfigError(f"{registry.register} takes a class, not {kind!r:.100}.")
    name = kind.__name__
    other = registry.registered.get(name)
    if name in registry.built_in:
        raise ConfigError(f"{name!r} is a built-in {registry.word}. Give your class another name.")
    if other is not None and (other.__module__, other.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ConfigError(
            f"The {registry.word} {name!r} already exists, from {other.__module__}. Rename your class, or use its "
            f"import path {kind.__module__}.{kind.__qualname__} without registering it."
        )
    registry.registered[name] = kind  # the same one again: a cell of a notebook that runs a second time
    return kind


def _find(registry: _Registry, name: str) -> type:
    if name in registry.registered:
        return registry.registered[name]
    if name in registry.built_in:
        return registry.load(name)
    if not is_path(name):
        raise ConfigError(
            f"No {registry.word} class {name!r}. {nearest(name, registry.names())} For your own class, use "
            f"sonde.pipeline.{registry.register} or its import path."
        )
    found = import_path(name, f"The {registry.word} class")
    if not isinstance(found, type):
        raise ConfigError(f"The {registry.word} class {name!r} is not a class, but {type(found).__name__}.")
    return found
