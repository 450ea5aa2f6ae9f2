"""`data_request`: which datasets each group (train, validate, test, infer) consists of; checked, with names in each error.

{"train": {"data": {"dataset_class": "RandomDataset", "fields": ["image"], "primary_id_field": "object_id"}}}
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sonde.errors import ConfigError, nearest

ID = "object_id"  # where an item and a batch hold the ids
MATCHED = "__matched"  # ends the name of the mask of a joined source


class Source(NamedTuple):
    """One dataset of a group."""

    friendly: str
    dataset_class: str
    data_location: str | None
    fields: tuple[str, ...] | None  # None: every one that the dataset has
    primary_id_field: str | None
    join_field: str | None
    split_fraction: float | None
    dataset_config: dict[str, Any]
    augment: bool | tuple[str, ...]  # whether fields are augmented, or which


def parse_request(request: Any) -> dict[str, list[Source]]:
    """The sources of each group, the primary one first. Raises ConfigError, which says group, name and key."""
    if not isinstance(request, Mapping):
        raise ConfigError(f"data_request is {request!r:.100}. Give a dict of groups such as 'train' and 'infer'.")
    return {_named(group, "data_request"): _group(group, sources) for group, sources in request.items()}


def _named(name: object, where: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"{where} has the key {name!r}. Its keys are names.")
    return name


def _group(group: str, sources: Any) -> list[Source]:
    where = f"data_request.{group}"
    if not isinstance(sources, Mapping) or not sources:
        raise ConfigError(f"{where} is {sources!r:.100}. Give a dict: a name of your choice -> its dataset.")
    if "dataset_class" in sources and not isinstance(sources["dataset_class"], Mapping):
        raise ConfigError(
            f"{where} has dataset_class directly. Put a name of your choice in between: "
            f"{{{group!r}: {{'data': {{...}}}}}}."
        )
    found = [_source(group, _friendly(name, where), given) for name, given in sources.items()]
    return _ordered(where, found)


def _friendly(name: object, where: str) -> str:
    friendly = _named(name, where)
    if friendly == ID or friendly.endswith(MATCHED):
        raise ConfigError(f"{where} names a dataset {friendly!r}, which is reserved in a batch. Choose another name.")
    return friendly


def _ordered(where: str, sources: list[Source]) -> list[Source]:
    names = ", ".join(source.friendly for source in sources)
    primary = [source for source in sources if source.primary_id_field is not None]
    if not primary:
        raise ConfigError(f"{where} has no primary_id_field. Give it to one of: {names}.")
    if len(primary) > 1:
        raise ConfigError(
            f"{where} has primary_id_field in {' and '.join(source.friendly for source in primary)}. Keep one; the "
            "others need a join_field."
        )
    for source in sources:
        _check_join(f"{where}.{source.friendly}", source, primary[0])
    return primary + [source for source in sources if source is not primary[0]]


def _check_join(where: str, source: Source, primary: Source) -> None:
    if source is primary:
        if source.join_field is not None:
            raise ConfigError(
                f"{where} has both primary_id_field and join_field. Remove join_field: the other "
                "datasets join this one."
            )
        return
    if source.join_field is None:
        raise ConfigError(f"{where} has no join_field, the field whose values are ids of {primary.friendly}.")
    if source.split_fraction is not None:
        raise ConfigError(
            f"{where} has split_fraction, but its items are looked up by id. Set split_fraction on {primary.friendly}."
        )


# ── one source ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _source(group: str, friendly: str, given: Any) -> Source:
    where = f"data_request.{group}.{friendly}"
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} is {given!r:.100}. Give a dict with dataset_class and primary_id_field.")
    for key in given:
        if key not in _KEYS:
            raise ConfigError(f"{where} has no key {key!r}. {nearest(str(key), list(_KEYS))}")
    if given.get("dataset_class") is None:
        raise ConfigError(f"{where} has no dataset_class: the name of a class, or its import path.")
    read = {key: _value(f"{where}.{key}", check, given.get(key)) for key, check in _KEYS.items()}
    augment = read.pop("augment")
    if augment and group == "infer":
        raise ConfigError(f"{where}.augment is {augment!r}, but inference data is not augmented. Remove it.")
    return Source(
        friendly=friendly,
        augment=group == "train" if augment is None else augment,
        **{**read, "dataset_config": read["dataset_config"] or {}},
    )


def _value(where: str, check: Callable[[Any], Any], given: Any) -> Any:
    if given is None:
        return None
    try:
        return check(given)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where} is {given!r:.100}. {error}") from None


def _text(given: Any) -> str:
    if not isinstance(given, str) or not given.strip():
        raise TypeError("Give a non-empty string.")
    return given


def _location(given: Any) -> str:
    path = _text(os.fspath(given) if isinstance(given, os.PathLike) else given)
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))


def _fields(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not all(isinstance(field, str) and field for field in given):
        raise TypeError("Give a list of field names.")
    twice = [field for field in given if given.count(field) > 1]
    if twice:
        raise ValueError(f"It names {twice[0]!r} twice.")
    if not given:
        raise ValueError("Name at least one field, or omit the key for all fields.")
    return tuple(given)


def _fraction(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= 1:
        raise ValueError("Give a number above 0 and up to 1.")
    return float(given)


def _table(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise TypeError("Give a dict of keys of the dataset.")
    return dict(given)


def _augment(given: Any) -> bool | tuple[str, ...]:
    if isinstance(given, bool):
        return given
    if not isinstance(given, list | tuple):
        raise TypeError("Give true, false, or a list of field names.")
    return _fields(given) if given else False


_KEYS: dict[str, Callable[[Any], Any]] = {
    "dataset_class": _text,
    "data_location": _location,
    "fields": _fields,
    "primary_id_field": _text,
    "join_field": _text,
    "split_fraction": _fraction,
    "dataset_config": _table,
    "augment": _augment,
}
