"""Makes the dataset of a source, and finds out what it has; every error says group, name and key."""

from __future__ import annotations

import copy
import inspect
from typing import TYPE_CHECKING, Any

from sonde.errors import ConfigError, DataError, SondeError, nearest
from sonde.pipeline.config import Config, Table, defaults
from sonde.pipeline.registry import find_dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sonde.pipeline.data.request import Source

GETTER, COLLATE, AUGMENT = "get_", "collate_", "augment_"


def make(config: Config, group: str, source: Source) -> Any:
    """The dataset, which has at least one item."""
    where = f"data_request.{group}.{source.friendly}"
    try:
        kind = find_dataset(source.dataset_class)
    except ConfigError as error:
        raise ConfigError(f"{where}.dataset_class: {error}") from None
    dataset = _built(where, kind, _table(where, config, kind, source), source)
    length = _length(where, kind, dataset)
    if length == 0:
        place = "" if source.data_location is None else f" at {source.data_location}"
        raise DataError(f"{where}: {kind.__name__} has no items{place}. Check data_location and its config.")
    return dataset


def _table(where: str, config: Config, kind: type, source: Source) -> dict[str, Any]:
    """The table of the class in the configuration, with the dataset_config of the request over it."""
    names = dict.fromkeys((kind.__name__, f"{kind.__module__}.{kind.__qualname__}", source.dataset_class))
    built_in: Mapping[str, Any] | None = defaults()["data_set"].get(source.dataset_class)
    known = getattr(kind, "defaults", None) or built_in
    merged = Table(copy.deepcopy(dict(known or {})), known, ("data_set", source.dataset_class))
    for name in names:
        if name in config["data_set"]:
            merged.update(config["data_set"].as_dict()[name])
    try:
        merged.update(source.dataset_config)
    except ConfigError as error:
        raise ConfigError(f"{where}.dataset_config: {error}") from None
    return merged.as_dict()


def _built(where: str, kind: type, table: dict[str, Any], source: Source) -> Any:
    arguments = _arguments(where, kind, (table, source.data_location))
    try:
        return kind(*arguments)
    except Exception as error:
        if isinstance(error, SondeError):
            raise type(error)(f"{where}: {error}") from error
        _blame(f"{where}: cannot create {kind.__name__}", error)
        raise


def _blame(what: str, error: Exception) -> None:
    raise DataError(f"{what}: {type(error).__name__}: {error}") from error


def _arguments(where: str, kind: type, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """As many of the arguments as the class takes: config and data_location, config, or none."""
    try:
        signature = inspect.signature(kind)
    except ValueError:
        return given
    for count in (2, 1, 0):
        try:
            signature.bind(*given[:count])
        except TypeError:
            continue
        return given[:count]
    names = ", ".join(signature.parameters)
    raise ConfigError(f"{where}: {kind.__name__}({names}) must accept (config, data_location).")


def _length(where: str, kind: type, dataset: Any) -> int:
    if not hasattr(kind, "__len__"):
        raise ConfigError(f"{where}: {kind.__name__} has no __len__, so it is not a dataset.")
    try:
        return len(dataset)
    except Exception as error:
        _blame(f"{where}: cannot get the length of {kind.__name__}", error)
        raise


# ── what it has ──────────────────────────────────────────────────────────────────────────────────────────────────────


def fields_of(group: str, source: Source, dataset: Any) -> tuple[str, ...]:
    """The fields that are wanted of it. Each has a getter, and so has its id field."""
    where = f"data_request.{group}.{source.friendly}"
    known = _named(dataset, GETTER)
    kind = type(dataset).__name__
    wanted = {"primary_id_field": source.primary_id_field, "join_field": source.join_field}
    for key, field in [*wanted.items(), *(("fields", field) for field in source.fields or ())]:
        if field is not None and field not in known:
            raise ConfigError(f"{where}.{key} is {field!r}, but {kind} has no get_{field}. {nearest(field, known)}")
    found = source.fields or tuple(field for field in known if _takes_one(getattr(dataset, GETTER + field)))
    if not found:
        raise ConfigError(f"{where}: {kind} has no getter. A field 'image' needs a method get_image(index).")
    return found


def _named(dataset: Any, prefix: str) -> list[str]:
    """What the methods that begin so are about."""
    names = [name.removeprefix(prefix) for name in dir(dataset) if name.startswith(prefix) and name != prefix]
    return [name for name in names if callable(getattr(dataset, prefix + name))]


def _takes_one(function: Callable[..., Any]) -> bool:
    """Can it be called with an index alone?"""
    try:
        inspect.signature(function).bind(0)
    except TypeError:
        return False
    except ValueError:
        return True  # a function in C that does not tell
    return True


def check_methods(group: str, sources: Sequence[Source], datasets: Mapping[str, Any]) -> None:
    """Raise ConfigError if a dataset has functions that exclude each other, or that are for no field."""
    for source in sources:
        dataset = datasets[source.friendly]
        where = f"data_request.{group}.{source.friendly}"
        kind = type(dataset).__name__
        fields = _named(dataset, COLLATE)
        if callable(getattr(dataset, "collate", None)) and fields:
            raise ConfigError(
                f"{where}: {kind} has both collate and collate_{fields[0]}. Keep collate for all fields, or one "
                "function for each field that np.stack cannot combine."
            )
        known = _named(dataset, GETTER)
        for prefix in (COLLATE, AUGMENT):
            for field in _named(dataset, prefix):
                if field not in known:
                    raise ConfigError(
                        f"{where}: {kind} has {prefix}{field}, but no get_{field}. {nearest(field, known)}"
                    )
