"""The configuration of a pipeline: packaged defaults, a TOML file over them, and what the program sets over both.

    config = Config.load("my.toml")
    config["train"]["epochs"] = 3
    config.set("data_set.RandomDataset.shape", [1, 32, 32])

Every key and type is checked when it is set, against `defaults.toml`. The tables of classes (`data_set.<class>`,
`model.<class>`, `"torch.optim.SGD"`) also take other keys: the class says which ones it knows.
"""

from __future__ import annotations

import copy
import datetime
import os
import tomllib
from collections.abc import Iterator, Mapping, MutableMapping
from functools import cache
from pathlib import Path
from typing import Any, Self

from sonde.errors import ConfigError, MissingExtra, nearest
from sonde.pipeline.data.request import parse_request
from sonde.pipeline.registry import class_names, is_class, is_path

Place = tuple[str, ...]

DEFAULTS = Path(__file__).parent / "defaults.toml"

OPEN: tuple[Place, ...] = (("data_request",), ("data", "nan_fields"), ("split", "index"))  # any key
CLASSES: tuple[Place, ...] = (("data_set",), ("model",))  # a key for each class
MAY_BE_FALSE: tuple[Place, ...] = (("data", "nan_mode"),)  # the word "false" may be written as the value
_TIMES = (datetime.date, datetime.time)
_PLAIN: tuple[Any, ...] = (str, bool, int, float, *_TIMES)  # bool before int, which it also is
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "a table",
}


@cache
def defaults() -> dict[str, Any]:
    """The packaged defaults. Not to be changed."""
    return tomllib.loads(DEFAULTS.read_text("utf-8"))


class Table(MutableMapping[str, Any]):
    """A part of a configuration. It reads and writes like a dict, and checks what is written."""

    __slots__ = ("_known", "_place", "_values")

    def __init__(self, values: dict[str, Any], known: Mapping[str, Any] | None, place: Place) -> None:
        """`known` are the defaults that say which keys there are; None: any."""
        self._values = values
        self._known = known
        self._place = place

    def __getitem__(self, key: str) -> Any:
        if key not in self._values:
            _check_key(self._place, self._known, key)
            if self._known is None:
                raise ConfigError(f"{_dotted(self._place)} has no key {key!r}. {nearest(key, list(self._values))}")
            self._values[key] = {}  # the table of a class that nothing has been said about yet
        value = self._values[key]
        if isinstance(value, dict):
            return Table(value, _known_in(self._place, self._known, key), (*self._place, key))
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        self._values[key] = _checked(self._place, self._known, key, value)

    def __delitem__(self, key: str) -> None:
        if key not in self._values:
            raise KeyError(key)
        if self._known is not None and key in self._known:
            self._values[key] = copy.deepcopy(self._known[key])  # a key cannot go; its default comes back
        else:
            del self._values[key]

    def get(self, key: str, default: Any = None) -> Any:
        """The value, or `default`. Makes no table."""
        return self[key] if key in self._values else default

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    def as_dict(self) -> dict[str, Any]:
        """A copy of everything in it, as plain dicts."""
        return copy.deepcopy(self._values)


class Config(Table):
    """The whole configuration."""

    __slots__ = ()

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        """The defaults, and `values` over them."""
        super().__init__(copy.deepcopy(defaults()), defaults(), ())
        self.update(values or {})

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None) -> Self:
        """The defaults, and the TOML file over them."""
        config = cls()
        if path is not None:
            try:
                config.merge(_read(path))
            except ConfigError as error:
                raise ConfigError(f"{os.fspath(path)}: {error}") from None
        return config

    def merge(self, values: Mapping[str, Any]) -> None:
        """Put tables over those that are there: what is not in `values` stays as it is."""
        _merge(self, values)

    def set(self, key: str, value: Any) -> None:
        """Set "train.epochs", or a whole table such as "data_request". Quote names with dots: '"torch.optim.Adam".lr'."""
        table: Any = self
        *tables, last = _parts(self, key)
        for part in tables:
            table = table[part]
            if not isinstance(table, Table):
                raise ConfigError(f"{key!r} cannot be set: {part!r} is a value, not a table.")
        table[last] = value

    def copy(self) -> Self:
        """One that can be changed without changing this one."""
        return copy.deepcopy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = type(self).__new__(type(self))
        Table.__init__(made, copy.deepcopy(self._values, memo), self._known, ())
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._values,)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything, also the defaults, as TOML."""
        Path(path).write_text(_toml().dumps(self.as_dict()), "utf-8")


def _restored(values: dict[str, Any]) -> Config:
    made = Config.__new__(Config)
    Table.__init__(made, values, defaults(), ())
    return made


def _toml() -> Any:
    try:
        import tomlkit
    except ImportError:
        raise MissingExtra.of("tomlkit", "pipeline", "Writing a configuration") from None
    return tomlkit


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"Cannot read the file: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"This is not valid TOML: {error}.") from None


def _merge(table: Table, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        inner = table.get(key)
        if isinstance(inner, Table) and isinstance(value, Mapping) and inner._place not in OPEN:
            _merge(inner, value)
        else:
            table[key] = value


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _parts(table: Any, key: str) -> list[str]:
    """The keys that a dotted one consists of. A part in quotes stays whole, and so does the name of a table that exists."""
    found: list[str] = []
    rest = key
    while rest:
        if rest[0] in "\"'" and rest[0] in rest[1:]:
            part, rest = rest[1:].split(rest[0], 1)
        else:
            known = [name for name in table if rest == name or rest.startswith(f"{name}.")] if table is not None else []
            part = max(known, key=len, default=rest.partition(".")[0])
            rest = rest[len(part) :]
        found.append(part)
        rest = rest.removeprefix(".")
        inner = table.get(part) if table is not None and part in table else None
        table = inner if isinstance(inner, Table) else None
    if not found or "" in found:
        raise ConfigError(f"{key!r} is not a key. A key looks like 'train.epochs'.")
    return found


def _check_key(place: Place, known: Mapping[str, Any] | None, key: object) -> None:
    """Raise ConfigError if there cannot be such a key. A table whose keys nobody knows beforehand has `known` None."""
    where = _dotted(place) or "The configuration"
    if not isinstance(key, str):
        raise ConfigError(f"{where} has the key {key!r}. Keys are strings.")
    if known is None or key in known or (place in CLASSES and is_class(place[0], key)) or (not place and is_path(key)):
        return
    classes = class_names(place[0]) if place in CLASSES else []
    hint = " Register your own class first, or give its import path." if classes else ""
    raise ConfigError(f"{where} has no key {key!r}. {nearest(key, list(dict.fromkeys([*known, *classes])))}{hint}")


def _known_in(place: Place, known: Mapping[str, Any] | None, key: str) -> Mapping[str, Any] | None:
    """The defaults of the table `key`; None if it may have any keys: the class it belongs to knows them."""
    found = None if known is None or (*place, key) in OPEN or (not place and is_path(key)) else known.get(key)
    return found if isinstance(found, dict) else None


def _dotted(place: Place) -> str:
    return ".".join(f'"{part}"' if "." in part or ":" in part else part for part in place)


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _checked(place: Place, known: Mapping[str, Any] | None, key: str, value: Any) -> Any:
    """The value as it is kept."""
    _check_key(place, known, key)
    inner = (*place, key)
    if inner == ("data_request",):
        return _request(value)
    if known is None:
        return _plain(inner, value)
    if key not in known or isinstance(known[key], dict):
        return _whole_table(inner, _known_in(place, known, key), value)
    return _typed(inner, known[key], _plain(inner, value))


def _request(value: Any) -> dict[str, Any]:
    parse_request(value)
    plain: dict[str, Any] = _plain(("data_request",), value)
    return plain


def _whole_table(place: Place, known: Mapping[str, Any] | None, value: Any) -> dict[str, Any]:
    """A table that is set as a whole: what it leaves out has its default again."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{_dotted(place)} is a table. Give a dict, not {value!r:.100}.")
    made = Table(copy.deepcopy(dict(known or {})), known, place)
    _merge(made, value)
    return made._values


def _typed(place: Place, default: Any, value: Any) -> Any:
    kind = type(default)
    if place in MAY_BE_FALSE and value is False:
        return "false"
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        example = "" if default in ("", [], {}) else f", such as {default!r}"
        raise ConfigError(f"{_dotted(place)} is {value!r:.100}. Give {_WORDS[kind]}{example}.")
    if kind is list and default:
        for element in value:
            _typed((*place[:-1], f"{place[-1]}[...]"), default[0], element)
    return value


def _plain(place: Place, value: Any) -> Any:
    """The value as a configuration holds it: what TOML can say, and a copy."""
    if isinstance(value, Mapping):
        return {_text(place, key): _plain((*place, str(key)), one) for key, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_plain(place, one) for one in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return _plain(place, value.tolist())  # numbers and arrays of NumPy
    if not isinstance(value, _PLAIN):
        raise ConfigError(
            f"{_dotted(place)} is {value!r:.100} ({type(value).__name__}), which a TOML file cannot hold."
        )
    return value


def _text(place: Place, key: object) -> str:
    if not isinstance(key, str):
        raise ConfigError(f"A key of {_dotted(place)} must be a string, not {key!r}.")
    return key
