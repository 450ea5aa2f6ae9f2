"""Every setting of Sonde in one table.

A value comes from the first of these that has one: an argument of `sonde.init()`, the environment, the nearest
`sonde.toml` or `[tool.sonde]` of a `pyproject.toml` (in the working folder or a parent), the default.
`docs/reference/settings.md` is made from the table, by `make docs`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sonde import environment
from sonde.environment import variable
from sonde.errors import SettingError, nearest

FILE = "sonde.toml"
PROJECT_FILE = "pyproject.toml"
LARGEST_CAP = 2**62
LONGEST_ARGUMENT = 2**24
MOST_BATCHES = 64  # in the black box
MOST_DEEP = 10_000  # steps that are recorded deep after an outlier
MOST_HZ = 1000  # looks at stacks in a second
MOST_EVERY = 10**9  # steps between two fingerprints, or two looks at gradients


class Settings(NamedTuple):
    """The effective settings. Paths are absolute, sizes are bytes."""

    enabled: bool | None
    run: str | None
    dir: str
    name: str
    core: str
    cap: int
    args_limit: int
    writes: str
    scratch: str
    values: str
    values_limit: int
    exclude: tuple[str, ...]
    mode: str
    patch_dataloader: bool | None
    patch_forward: bool | None
    patch_backward: bool | None
    patch_optimizer: bool | None
    patch_h2d: bool | None
    deep: bool
    steps: tuple[int, int | None] | None
    every: int
    ranks: tuple[int, ...] | None
    blackbox: int
    watch_nonfinite: str
    fingerprint: int
    learning: int
    item_losses: bool
    flops: bool
    peak_flops: float
    io: bool
    profile_step: tuple[int, int] | None
    sample: int
    adaptive: int
    rules: tuple[str, ...]


class Setting(NamedTuple):
    """One row of the table."""

    name: str
    env: str
    read: Callable[[object], object]  # makes the value of what was given; raises TypeError or ValueError
    allowed: str
    default: Callable[[], object]
    default_text: str
    doc: str
    refused: Mapping[str, str] = {}  # a source that this setting cannot come from -> why not


class SettingValue(NamedTuple):
    """A value and where it came from."""

    value: Any
    source: str


# ── what a value may be ──────────────────────────────────────────────────────────────────────────────────────────────

_TRUE = ("1", "true", "yes", "on")
_UNITS = {
    "": 1, "b": 1,
    "k": 10**3, "kb": 10**3, "kib": 2**10,
    "m": 10**6, "mb": 10**6, "mib": 2**20,
    "g": 10**9, "gb": 10**9, "gib": 2**30,
    "t": 10**12, "tb": 10**12, "tib": 2**40,
}  # fmt: skip


def _switch(given: object) -> bool:
    word = str(given).strip().lower()
    if isinstance(given, bool | int | str) and word in _TRUE + environment.OFF:
        return word in _TRUE
    raise ValueError


def _text(given: object) -> str:
    if isinstance(given, str) and given.strip() and "\0" not in given:
        return given.strip()
    raise ValueError


def _path(given: object) -> str:
    path = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(path, str) or not path.strip() or "\0" in path:
        raise ValueError
    return os.path.expanduser(path)


def _choice(*words: str) -> Callable[[object], str]:
    def read(given: object) -> str:
        if isinstance(given, str) and given.strip().lower() in words:
            return given.strip().lower()
        raise ValueError

    return read


def _between(low: int, high: int) -> Callable[[object], int]:
    def read(given: object) -> int:
        if isinstance(given, bool) or not isinstance(given, int | str):
            raise TypeError
        number = int(given)
        if not low <= number <= high:
            raise ValueError
        return number

    return read


def size(given: object) -> int:
    """Bytes, from a text such as 4GB. Raises ValueError or TypeError."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise TypeError
    text = str(given).strip().lower().replace("_", "")
    digits = text.rstrip("bkmgti ")
    bytes = float(digits) * _UNITS.get(text[len(digits) :].strip(), 0)
    if not 1 <= bytes <= LARGEST_CAP:  # also false for NaN
        raise ValueError
    return int(bytes)


def _positive(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise TypeError
    number = float(given)
    if not 0 <= number <= 1e30:  # also false for NaN
        raise ValueError
    return number


def _names(given: object) -> tuple[str, ...]:
    if isinstance(given, str):
        given = given.split(",")
    if not isinstance(given, list | tuple | set | frozenset) or any(not isinstance(name, str) for name in given):
        raise TypeError
    return tuple(sorted({name.strip() for name in given if name.strip()}))


def _steps(given: object) -> tuple[int, int | None]:
    if isinstance(given, tuple | list) and len(given) == 2:
        given = ":".join("" if end is None else str(end) for end in given)
    if isinstance(given, bool) or not isinstance(given, int | str):
        raise TypeError
    first, colon, end = str(given).strip().partition(":")
    if not colon:
        return _step(first), _step(first) + 1
    start, stop = _step(first.strip() or "0"), _step(end) if end.strip() else None
    if stop is not None and stop <= start:
        raise ValueError
    return start, stop


def _bounded_steps(given: object) -> tuple[int, int]:
    start, stop = _steps(given)
    if stop is None:
        raise ValueError
    return start, stop


def _step(text: str) -> int:
    number = int(text)
    if not 0 <= number < 2**32:
        raise ValueError
    return number


def _numbers(given: object) -> tuple[int, ...]:
    if isinstance(given, int) and not isinstance(given, bool):
        given = [given]
    if isinstance(given, str):
        given = given.split(",")
    if not isinstance(given, list | tuple | set | frozenset) or not given:
        raise TypeError
    return tuple(sorted({_step(str(number).strip()) for number in given}))


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────

_PATCHES = {
    "dataloader": "what a `DataLoader` does",
    "forward": "calls of models and losses",
    "backward": "backward passes and losses",
    "optimizer": "optimizer steps",
    "h2d": "copies from the host to a device",
}
TABLE = (
    Setting(
        "enabled", "SONDE", _switch, "1 or 0 (also true/false, yes/no, on/off)", lambda: None, "not set",
        "0: never record; `sonde.init()` does nothing. 1 in the environment: start recording when `sonde` is "
        "imported.",
    ),
    Setting(
        "run", "SONDE_RUN", _path, "a path", lambda: None, "none",
        "Join this run folder instead of creating a new one. `sonde.init()` sets it in the environment for child "
        "processes.",
        {"file": "every program started below that folder would write to one run"},
    ),
    Setting(
        "dir", "SONDE_DIR", _path, "a path", lambda: "sonde-runs", "sonde-runs",
        "Folder that holds the run folders. In a file, a relative path is relative to that file.",
    ),
    Setting(
        "name", "SONDE_NAME", _text, "a non-empty string", environment.script_name, "the script's name",
        "Name of the run; part of its folder name.",
    ),
    Setting(
        "core", "SONDE_CORE", _choice("auto", "c", "python"), "auto, c or python", lambda: "auto", "auto",
        "Which event core to use. auto: the C core if it was built, else the Python core.",
        {"argument": "the core is chosen when sonde is imported, before init() is called"},
    ),
    Setting(
        "cap", "SONDE_CAP", size, "a size in bytes such as 4GB, 500MB, 2GiB or 1e9", lambda: 4 * 10**9, "4GB",
        "Maximum size of a run. From half of it on, `sonde run` packs records to an eighth. Near the limit, details are "
        "dropped first and steps last. Dropped records are counted.",
    ),
    Setting(
        "args_limit", "SONDE_ARGS_LIMIT", _between(1, LONGEST_ARGUMENT), f"a whole number from 1 to {LONGEST_ARGUMENT}",
        lambda: 4096, "4096",
        "Maximum length of one event argument, in characters.",
    ),
    Setting(
        "writes", "SONDE_WRITES", _choice("auto", "mapped", "block"), "auto, mapped or block", lambda: "auto", "auto",
        "How records are written. mapped: to memory-mapped files, which survive a kill. block: from memory in "
        "blocks; a kill loses the last block. auto: mapped where the file system supports it safely.",
    ),
    Setting(
        "scratch", "SONDE_SCRATCH", _path, "a path", environment.temporary_folder, "the system's folder for temporary files",
        "Folder for memory-mapped files when the run folder cannot be mapped (network file systems), and for "
        "temporary files of a trace.",
    ),
    Setting(
        "values", "SONDE_VALUES", _choice("full", "summary", "off"), "full, summary or off", lambda: "full", "full",
        "What a trace stores of each value. full: a copy, statistics and a digest. summary: no copy; only length and "
        "digest of texts and text ids. off: only types and shapes.",
    ),
    Setting(
        "values_limit", "SONDE_VALUES_LIMIT", size, "a size in bytes such as 64MB", lambda: 64 * 10**6, "64MB",
        "Maximum size of the copy of one captured value. Larger copies are cut and marked; statistics and digest always cover "
        "the whole value. All copies of one trace may take 32 times as much; later values are only described.",
    ),
    Setting(
        "exclude", "SONDE_EXCLUDE", _names, "names separated by commas, or a list of names", lambda: (), "none",
        "Arguments, keys and fields that a trace never reads, such as `password,patient`.",
    ),
    Setting(
        "mode", "SONDE_MODE", _choice("auto", "manual", "selective"), "auto, manual or selective", lambda: "auto", "auto",
        "What to record of a training loop without edits. auto: everything. selective: what the `patch_...` settings "
        "name. manual: nothing; use `sonde.trace_step` and the `sonde.wrap_...` functions.",
    ),
    *(
        Setting(
            f"patch_{name}", f"SONDE_PATCH_{name.upper()}", _switch, "1 or 0 (also true/false, yes/no, on/off)",
            lambda: None, "not set", f'Only with `mode="selective"`: record {what} without edits.',
        )
        for name, what in _PATCHES.items()
    ),
    Setting(
        "deep", "SONDE_DEEP", _switch, "1 or 0 (also true/false, yes/no, on/off)", lambda: False, "0",
        "Also record each layer of the model: forward and backward time, and memory.",
    ),
    Setting(
        "steps", "SONDE_STEPS", _steps, "a step such as 100, or a range such as 100:200, 100: or :50", lambda: None, "all",
        "Record phases of these steps only; the end of a range is excluded. Other steps have only their end recorded.",
    ),
    Setting(
        "every", "SONDE_EVERY", _between(1, 2**31), "a whole number from 1", lambda: 1, "1",
        "Record phases every N steps, starting at the first selected step.",
    ),
    Setting(
        "ranks", "SONDE_RANKS", _numbers, "ranks separated by commas, such as 0,3", lambda: None, "all",
        "Record phases of these ranks only; other ranks have only the ends of steps recorded. A process counts as "
        "rank 0 until its rank is known, from its environment or its process group.",
    ),
    Setting(
        "blackbox", "SONDE_BLACKBOX", _between(0, MOST_BATCHES), f"a whole number from 0 to {MOST_BATCHES}", lambda: 0, "0",
        "Save the last N batches in the run when training fails. 0: off. `sonde run --blackbox` saves 3.",
    ),
    Setting(
        "watch_nonfinite", "SONDE_WATCH_NONFINITE", _choice("off", "record", "warn", "stop"), "off, record, warn or stop",
        lambda: "off", "off",
        "Check layer outputs, the loss and gradients for NaN and infinity, and record where the first one appeared. "
        "warn: also log it once. stop: raise NonFinite there.",
    ),
    Setting(
        "fingerprint", "SONDE_FINGERPRINT", _between(0, MOST_EVERY), f"a whole number from 0 to {MOST_EVERY:,}", lambda: 0, "0",
        "Record fingerprints of inputs, layer outputs, gradients and parameters every N steps, for `sonde compare`. 0: off. "
        "`sonde run --fingerprint` takes one every 100 steps.",
    ),
    Setting(
        "learning", "SONDE_LEARNING", _between(0, MOST_EVERY), f"a whole number from 0 to {MOST_EVERY:,}", lambda: 0, "0",
        "Record gradients, weights, updates, activations and batch fields every N steps, to see whether the model learns. 0: off. "
        "`sonde run --learning` records them every 50 steps.",
    ),
    Setting(
        "item_losses", "SONDE_ITEM_LOSSES", _switch, "1 or 0 (also true/false, yes/no, on/off)", lambda: False, "0",
        'Record the loss of each item wherever a loss module with `reduction="none"` is called, as `sonde.log_items` does.',
    ),
    Setting(
        "flops", "SONDE_FLOPS", _switch, "1 or 0 (also true/false, yes/no, on/off)", lambda: False, "0",
        "Count the floating-point operations of one step, as `learning` does too.",
    ),
    Setting(
        "peak_flops", "SONDE_PEAK_FLOPS", _positive, "a number of operations per second such as 312e12, or 0", lambda: 0.0, "0",
        "Peak FLOP/s of one device in the precision that you train in. The report then says which share of it the training reaches (MFU). 0: unknown.",
    ),
    Setting(
        "io", "SONDE_IO", _switch, "1 or 0 (also true/false, yes/no, on/off)", lambda: False, "0",
        "Record which files are read, how many bytes and how long, for each item of a loader.",
    ),
    Setting(
        "profile_step", "SONDE_PROFILE_STEP", _bounded_steps, "a step such as 54, or a range such as 54:57", lambda: None, "none",
        "Record these steps with torch.profiler too, in rank 0 or in the selected ranks. `sonde run` puts its events on the timeline.",
    ),
    Setting(
        "sample", "SONDE_SAMPLE", _between(0, MOST_HZ), f"a whole number from 0 to {MOST_HZ}", lambda: 0, "0",
        "Samples of the stacks of all threads per second, to see which lines take time. 0: off. `sonde run --sample` "
        "takes 50 samples a second.",
    ),
    Setting(
        "adaptive", "SONDE_ADAPTIVE", _between(0, MOST_DEEP), f"a whole number from 0 to {MOST_DEEP:,}", lambda: 0, "0",
        "When a step is an outlier, memory grows or a loss jumps, record layers and stacks of the next N steps. This happens at "
        "most once a minute, and 10 times in a process. 0: off.",
    ),
    Setting(
        "rules", "SONDE_RULES", _names, "paths separated by commas, or a list of paths", lambda: (), "none",
        "Python and TOML files with your own rules, for `sonde report` and everything else that shows findings. In a file, a relative path "
        "is relative to that file.",
    ),
)  # fmt: skip
NAMES = [row.name for row in TABLE]
_SELECTION = ("mode", *(f"patch_{name}" for name in _PATCHES))
# What children share.
PROBES = (
    *_SELECTION,
    "deep",
    "steps",
    "every",
    "ranks",
    "blackbox",
    "watch_nonfinite",
    "fingerprint",
    "learning",
    "item_losses",
    "flops",
    "peak_flops",
    "io",
    "profile_step",
    "sample",
    "adaptive",
)
_ROWS = {row.name: row for row in TABLE}
_PATHS = ("run", "dir", "scratch", "rules")


# ── putting the sources together ─────────────────────────────────────────────────────────────────────────────────────


def load(**arguments: object) -> Settings:
    """The effective settings. An argument that is None counts as not given. Raises SettingError on a wrong value."""
    return _as_settings(gather(**arguments))


def gather(**arguments: object) -> dict[str, SettingValue]:
    """The same as `load`, with the source of each value."""
    return _gathered(arguments, None)


def load_leniently(**arguments: object) -> tuple[Settings, list[str]]:
    """The effective settings for a program that has to run whatever its surroundings say.

    Only a wrong argument raises. A wrong value from the environment or a file counts as not given; the list says what
    is wrong with it.
    """
    complaints: list[str] = []
    return _as_settings(_gathered(arguments, complaints)), complaints


def peek(name: str) -> Any:
    """One setting without arguments. Never raises: a wrong value counts as not given (`load_leniently` complains of it)."""
    row = _ROWS[name]
    path, table = ("", {}) if variable(row.env) else _file([])
    return _value(row, {}, path, table, []).value


def _as_settings(found: Mapping[str, SettingValue]) -> Settings:
    return Settings(**{name: one.value for name, one in found.items()})


def _gathered(arguments: Mapping[str, object], complaints: list[str] | None) -> dict[str, SettingValue]:
    """All settings. What is wrong with the surroundings goes into `complaints`; None: it raises."""
    _refuse_unknown(arguments, "init() has no", None)
    path, table = _file(complaints)
    found = {row.name: _value(row, arguments, path, table, complaints) for row in TABLE}
    given = any(arguments.get(name) is not None for name in _SELECTION)
    for contradiction in _contradictions({name: one.value for name, one in found.items()}):
        _complain(SettingError(contradiction), None if given else complaints)
        found |= {name: _default(_ROWS[name]) for name in _SELECTION}
    return found


def _complain(error: SettingError, complaints: list[str] | None) -> None:
    if complaints is None:
        raise error
    complaints.append(str(error))


def _refuse_unknown(given: Mapping[str, object], what: str, complaints: list[str] | None) -> None:
    for name in given:
        if name not in _ROWS:
            _complain(SettingError(f"{what} setting {name!r}. {nearest(name, NAMES)}"), complaints)


def _contradictions(values: Mapping[str, object]) -> Iterator[str]:
    """What does not fit together in these settings."""
    given = [f"patch_{name}" for name in _PATCHES if values[f"patch_{name}"] is not None]
    if values["mode"] != "selective" and given:
        yield f"The setting {given[0]} works only with mode='selective', and the mode is {values['mode']!r}."
    if values["mode"] == "selective" and not any(values[name] for name in given):
        yield f"The mode 'selective' records nothing: set one of {', '.join(f'patch_{name}' for name in _PATCHES)}."


def _value(
    row: Setting, arguments: Mapping[str, object], path: str, table: Mapping[str, object], complaints: list[str] | None
) -> SettingValue:
    for given, kind, source in _given(row, arguments, path, table):
        try:
            return _made(row, given, kind, source)
        except SettingError as error:
            _complain(error, None if kind == "argument" else complaints)
    return _default(row)


def _given(
    row: Setting, arguments: Mapping[str, object], path: str, table: Mapping[str, object]
) -> Iterator[tuple[object, str, str]]:
    """What each source says of a setting, the strongest first: the value, the kind of source, its name."""
    if arguments.get(row.name) is not None:
        yield arguments[row.name], "argument", f"the argument {row.name}"
    if variable(row.env):
        yield variable(row.env), "environment", f"the environment variable {row.env}"
    if row.name in table:
        yield table[row.name], "file", path


def _default(row: Setting) -> SettingValue:
    return SettingValue(_absolute(row, row.default(), ""), "default")


def _made(row: Setting, given: object, kind: str, source: str) -> SettingValue:
    if kind in row.refused:
        raise SettingError(f"The setting {row.name} cannot come from {source}: {row.refused[kind]}.")
    try:
        value = row.read(given)
    except (TypeError, ValueError, OverflowError):
        raise SettingError(
            f"The setting {row.name} is {repr(given)[:200]} (from {source}), which is not valid. Use {row.allowed}."
        ) from None
    return SettingValue(_absolute(row, value, os.path.dirname(source) if kind == "file" else ""), source)


def _absolute(row: Setting, value: object, folder: str) -> object:
    if row.name in _PATHS and isinstance(value, tuple):
        return tuple(_absolute(row, one, folder) for one in value)
    if row.name not in _PATHS or not isinstance(value, str):
        return value
    try:
        return os.path.abspath(os.path.join(folder, value))
    except OSError:  # the working folder was deleted
        return value


# ── settings files ───────────────────────────────────────────────────────────────────────────────────────────────────


def _file(complaints: list[str] | None) -> tuple[str, dict[str, object]]:
    """The path and the table of the settings file, as far as it can be read."""
    try:
        path, table = _nearest_file()
    except SettingError as error:
        _complain(error, complaints)
        return "", {}
    _refuse_unknown(table, f"{path} has an unknown", complaints)
    return path, table


def _nearest_file() -> tuple[str, dict[str, object]]:
    """The path of the nearest settings file and its table; an empty path and table if there is none."""
    try:
        folder = os.getcwd()
    except OSError:
        return "", {}
    while True:
        path = os.path.join(folder, FILE)
        if os.path.isfile(path):
            return path, _parsed(path, _content(path))
        path = os.path.join(folder, PROJECT_FILE)
        if os.path.isfile(path) and os.access(path, os.R_OK):
            table = _project_table(path)
            if table is not None:
                return path, table
        above = os.path.dirname(folder)
        if above == folder:
            return "", {}
        folder = above


def _project_table(path: str) -> dict[str, object] | None:
    content = _content(path)
    if b"sonde" not in content:  # most projects: no reason to load a parser, or to complain of what is wrong in it
        return None
    tool = _parsed(path, content).get("tool", {})
    table = tool.get("sonde") if isinstance(tool, dict) else None
    return table if isinstance(table, dict) else None


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise SettingError(f"Cannot read {path}: {error.strerror}. Make it readable, or delete it.") from None


def _parsed(path: str, content: bytes) -> dict[str, Any]:
    import tomllib  # only if there is a file

    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # also what is no UTF-8
        raise SettingError(f"{path} is not valid TOML: {error}. Correct it, or delete it.") from None


# ── for child processes ──────────────────────────────────────────────────────────────────────────────────────────────


def publish_probes(settings: Settings, given: Iterable[str]) -> dict[str, str | None]:
    """Tell child processes what `init()` was given about probes. Returns what stood there, for `environment.restore`."""
    return environment.publish(as_variables({name: getattr(settings, name) for name in given if name in PROBES}))


def as_variables(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings, as the environment has them."""
    return {_ROWS[name].env: _word(name, value) for name, value in settings.items()}


def _word(name: str, value: object) -> str:
    if isinstance(value, tuple):
        return (":" if name in ("steps", "profile_step") else ",").join(
            "" if one is None else str(one) for one in value
        )
    return str(int(value)) if isinstance(value, bool) else str(value)
