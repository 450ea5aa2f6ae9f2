"""Every setting of Sonde in one table, and the only place that reads the environment.

A value comes from the first of these that has one: an argument of `sonde.init()`, the environment, the nearest
`sonde.toml` or `[tool.sonde]` of a `pyproject.toml` (in the working folder or a parent), the default.
`docs/reference/settings.md` is made from the table, by `make docs`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.errors import SettingError, nearest
from sonde.guard import pass_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

FILE = "sonde.toml"
PROJECT_FILE = "pyproject.toml"
LARGEST_CAP = 2**62
LONGEST_ARGUMENT = 2**24
MOST_BATCHES = 64  # in the black box
MOST_EVERY = 10**9  # steps between two fingerprints


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


class Found(NamedTuple):
    """A value and where it came from."""

    value: Any
    source: str


class Ranks(NamedTuple):
    """The place of this process in a distributed job; None is not known."""

    rank: int | None
    local_rank: int | None
    world_size: int | None


# ── what a value may be ──────────────────────────────────────────────────────────────────────────────────────────────

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")
_UNITS = {
    "": 1, "b": 1,
    "k": 10**3, "kb": 10**3, "kib": 2**10,
    "m": 10**6, "mb": 10**6, "mib": 2**20,
    "g": 10**9, "gb": 10**9, "gib": 2**30,
    "t": 10**12, "tb": 10**12, "tib": 2**40,
}  # fmt: skip


def _switch(given: object) -> bool:
    word = str(given).strip().lower()
    if isinstance(given, bool | int | str) and word in _TRUE + _FALSE:
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


def _size(given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise TypeError
    text = str(given).strip().lower().replace("_", "")
    digits = text.rstrip("bkmgti ")
    size = float(digits) * _UNITS.get(text[len(digits) :].strip(), 0)
    if not 1 <= size <= LARGEST_CAP:  # also false for NaN
        raise ValueError
    return int(size)


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


# ── defaults that depend on the machine ──────────────────────────────────────────────────────────────────────────────


def script_name() -> str:
    """What the running program is called: its script or package, "notebook", or "python"."""
    script = sys.argv[0] if getattr(sys, "argv", None) else ""
    stem = os.path.splitext(os.path.basename(script))[0]
    if stem == "__main__":
        stem = os.path.basename(os.path.dirname(script))
    if stem in ("ipykernel_launcher", "colab_kernel_launcher"):
        return "notebook"
    return stem if stem.strip("-") and stem not in ("-c", "-m") else "python"


def _temporary_folder() -> str:
    for name in ("TMPDIR", "TEMP", "TMP"):
        if _env(name):
            return os.path.abspath(_env(name))
    return "/var/tmp" if os.path.isdir("/var/tmp") else "/tmp"  # noqa: S108  the store makes its own private folder in it


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
        "name", "SONDE_NAME", _text, "a non-empty text", script_name, "the script's name",
        "Name of the run; part of its folder name.",
    ),
    Setting(
        "core", "SONDE_CORE", _choice("auto", "c", "python"), "auto, c or python", lambda: "auto", "auto",
        "Which event core to use. auto: the C core if it was built, else the Python core.",
        {"argument": "the core is chosen when sonde is imported, before init() is called"},
    ),
    Setting(
        "cap", "SONDE_CAP", _size, "a size in bytes such as 4GB, 500MB, 2GiB or 1e9", lambda: 4 * 10**9, "4GB",
        "Maximum size of a run. Near the limit, details are dropped first and steps last. Dropped records are "
        "counted.",
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
        "scratch", "SONDE_SCRATCH", _path, "a path", _temporary_folder, "the system's folder for temporary files",
        "Folder for memory-mapped files when the run folder cannot be mapped (network file systems), and for "
        "temporary files of a trace.",
    ),
    Setting(
        "values", "SONDE_VALUES", _choice("full", "summary", "off"), "full, summary or off", lambda: "full", "full",
        "What a trace stores of each value. full: a copy, statistics and a digest. summary: no copy; only length and "
        "digest of texts and text ids. off: only types and shapes.",
    ),
    Setting(
        "values_limit", "SONDE_VALUES_LIMIT", _size, "a size in bytes such as 64MB", lambda: 64 * 10**6, "64MB",
        "Maximum copy of one captured value. Longer copies are cut and marked; statistics and digest always cover "
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
)  # fmt: skip
NAMES = [row.name for row in TABLE]
# What children share.
PROBES = (
    "mode",
    *(f"patch_{name}" for name in _PATCHES),
    "deep",
    "steps",
    "every",
    "ranks",
    "blackbox",
    "watch_nonfinite",
    "fingerprint",
)
_ROWS = {row.name: row for row in TABLE}
_PATHS = ("run", "dir", "scratch")


# ── putting the sources together ─────────────────────────────────────────────────────────────────────────────────────


def load(**arguments: object) -> Settings:
    """The effective settings. An argument that is None counts as not given. Raises SettingError on a wrong one."""
    return Settings(**{name: found.value for name, found in gather(**arguments).items()})


def gather(**arguments: object) -> dict[str, Found]:
    """The same as `load`, with the source of each value."""
    _refuse_unknown(arguments, "init() has no")
    path, table = _file()
    _refuse_unknown(table, f"{path} has an unknown")
    found = {row.name: _find(row, arguments, path, table) for row in TABLE}
    for contradiction in _contradictions({name: one.value for name, one in found.items()}):
        raise SettingError(contradiction)
    return found


def _refuse_unknown(given: Mapping[str, object], what: str) -> None:
    for name in given:
        if name not in _ROWS:
            raise SettingError(f"{what} setting {name!r}. {nearest(name, NAMES)}")


def settle(**arguments: object) -> tuple[Settings, list[str]]:
    """The effective settings for a program that has to run whatever its surroundings say.

    Only a wrong argument raises. A wrong value from the environment or a file counts as not given; what is wrong with
    it is told in the list.
    """
    _refuse_unknown(arguments, "init() has no")
    complaints: list[str] = []
    path, table = _file_or_none(complaints)
    values: dict[str, Any] = {row.name: _settled(row, arguments, path, table, complaints) for row in TABLE}
    for contradiction in _contradictions(values):
        if arguments.get("mode") is not None or any(arguments.get(f"patch_{name}") is not None for name in _PATCHES):
            raise SettingError(contradiction)
        complaints.append(contradiction)
        values |= {f"patch_{name}": None for name in _PATCHES} | {"mode": "auto"}
    return Settings(**values), complaints


def _contradictions(values: Mapping[str, object]) -> Iterator[str]:
    """What does not fit together in these settings."""
    given = [f"patch_{name}" for name in _PATCHES if values[f"patch_{name}"] is not None]
    if values["mode"] != "selective" and given:
        yield f"The setting {given[0]} works only with mode='selective', and the mode is {values['mode']!r}."
    if values["mode"] == "selective" and not any(values[name] for name in given):
        yield f"The mode 'selective' records nothing: set one of {', '.join(f'patch_{name}' for name in _PATCHES)}."


def peek(name: str) -> Any:
    """One setting without arguments. Never raises: a wrong value counts as not given (`settle` complains of it)."""
    row = _ROWS[name]
    path, table = ("", {}) if _env(row.env) else _file_or_none([])
    return _settled(row, {}, path, table, [])


def _file_or_none(complaints: list[str]) -> tuple[str, dict[str, object]]:
    try:
        path, table = _file()
    except SettingError as error:
        complaints.append(str(error))
        return "", {}
    try:
        _refuse_unknown(table, f"{path} has an unknown")
    except SettingError as error:
        complaints.append(str(error))
    return path, table


def _settled(
    row: Setting, arguments: Mapping[str, object], path: str, table: Mapping[str, object], complaints: list[str]
) -> object:
    for given, kind, source in _given(row, arguments, path, table):
        try:
            return _made(row, given, kind, source).value
        except SettingError as error:
            if kind == "argument":
                raise
            complaints.append(str(error))
    return _default(row).value


def _find(row: Setting, arguments: Mapping[str, object], path: str, table: Mapping[str, object]) -> Found:
    for given, kind, source in _given(row, arguments, path, table):
        return _made(row, given, kind, source)
    return _default(row)


def _given(
    row: Setting, arguments: Mapping[str, object], path: str, table: Mapping[str, object]
) -> Iterator[tuple[object, str, str]]:
    """What each source says of a setting, the strongest first: the value, the kind of source, its name."""
    if arguments.get(row.name) is not None:
        yield arguments[row.name], "argument", f"the argument {row.name}"
    if _env(row.env):
        yield _env(row.env), "environment", f"the environment variable {row.env}"
    if row.name in table:
        yield table[row.name], "file", path


def _default(row: Setting) -> Found:
    return Found(_absolute(row, row.default(), ""), "default")


def _made(row: Setting, given: object, kind: str, source: str) -> Found:
    if kind in row.refused:
        raise SettingError(f"The setting {row.name} cannot come from {source}: {row.refused[kind]}.")
    try:
        value = row.read(given)
    except (TypeError, ValueError, OverflowError):
        raise SettingError(
            f"The setting {row.name} is {repr(given)[:200]} (from {source}), which is not valid. Use {row.allowed}."
        ) from None
    return Found(_absolute(row, value, os.path.dirname(source) if kind == "file" else ""), source)


def _absolute(row: Setting, value: object, folder: str) -> object:
    if row.name not in _PATHS or not isinstance(value, str):
        return value
    try:
        return os.path.abspath(os.path.join(folder, value))
    except OSError:  # the working folder was deleted
        return value


# ── settings files ───────────────────────────────────────────────────────────────────────────────────────────────────


def _file() -> tuple[str, dict[str, object]]:
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


# ── the environment ──────────────────────────────────────────────────────────────────────────────────────────────────


def _env(name: str) -> str:
    """The variable, or an empty text: a variable that is set to nothing counts as not set."""
    return os.environ.get(name, "")


def wanted_at_import() -> bool:
    """Does the environment ask that recording starts when sonde is imported? `SONDE=0` says no in any case."""
    word = _env("SONDE").strip().lower()
    return word not in _FALSE and bool(word or _env("SONDE_RUN"))


def publish_run(path: str | os.PathLike[str] | None) -> None:
    """Tell child processes which run to join; None: none."""
    if path is None:
        os.environ.pop("SONDE_RUN", None)
    else:
        os.environ["SONDE_RUN"] = os.path.abspath(path)


def publish_probes(settings: Settings, given: Iterable[str]) -> dict[str, str | None]:
    """Tell child processes what `init()` was given about probes. Returns what stood there, for `restore`."""
    told = {_ROWS[name].env: _told(name, getattr(settings, name)) for name in given if name in PROBES}
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    return before


def restore(before: Mapping[str, str | None]) -> None:
    """Undo `publish_probes`."""
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _told(name: str, value: Any) -> str:
    """A value as the environment has it."""
    if name == "steps":
        return ":".join("" if end is None else str(end) for end in value)
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(int(value)) if isinstance(value, bool) else str(value)


def of_program(run: str | None, boot: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program that is recorded into `run`, with these settings; of None, one that is not recorded.

    `boot` is the folder with the file that brings Sonde into each Python of it.
    """
    environment = dict(os.environ)
    if run is None:
        return environment | {"SONDE": "0"}
    paths = [boot, *(path for path in _env("PYTHONPATH").split(os.pathsep) if path != boot)]
    environment["PYTHONPATH"] = os.pathsep.join(paths if _env("PYTHONPATH") else [boot])
    environment["SONDE_RUN"] = run
    return environment | {_ROWS[name].env: value for name, value in settings.items()}


def without_run() -> dict[str, str]:
    """The environment without a run that this process may be part of, for a program with a run of its own."""
    return {name: value for name, value in os.environ.items() if name not in ("SONDE", "SONDE_RUN")}


def dftracer_enabled() -> bool:
    """Is DFTracer's own switch on? Its names record nothing without it."""
    return _env("DFTRACER_ENABLE").strip() == "1"


class _Learned:
    """What torch has told of this process, or of the one that it was forked from."""

    ranks: Ranks | None = None


def ranks() -> Ranks:
    """Rank, local rank and world size: as they were learned, else as torchrun, Lightning or Slurm give them."""
    if _Learned.ranks is not None:
        return _Learned.ranks
    if _number("RANK") is not None:
        return Ranks(_number("RANK"), _number("LOCAL_RANK"), _number("WORLD_SIZE"))
    if _of_lightning():
        return Ranks(_number("LOCAL_RANK"), _number("LOCAL_RANK"), _number("WORLD_SIZE"))
    return Ranks(_number("SLURM_PROCID"), _number("SLURM_LOCALID"), _number("SLURM_NTASKS"))


def learn_ranks(rank: int, world_size: int) -> bool:
    """Torch says which rank this process is. Is that new? It is not taken for a part of a larger job that is known.

    Where variables of the environment say something else, they were inherited, or count nodes.
    """
    known = ranks()
    if known.rank is not None and world_size < (known.world_size or 0):
        return False
    told = Ranks(rank, known.local_rank if known.rank == rank else _local_rank(), world_size)
    new = told != _Learned.ranks
    _Learned.ranks = told
    return new


def forget_ranks() -> None:
    """Know only what the environment says."""
    _Learned.ranks = None


def _local_rank() -> int | None:
    """As Lightning gives it; beside a rank that is not the one of this process it is not either."""
    return None if _env("RANK") else _number("LOCAL_RANK")


def _of_lightning() -> bool:
    """Is this a rank that Lightning has started on the first node, or the one that has started the others?

    It gives them no global rank. On other nodes that depends on how many there are on each.
    """
    local, size = _number("LOCAL_RANK"), _number("WORLD_SIZE")
    return not _env("RANK") and _number("NODE_RANK") == 0 and local is not None and local < (size or 0)


def job() -> str | None:
    """A text that all ranks of one attempt of a job share, and no other job; None outside of such jobs.

    It may hold any character.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return _elastic_job()
    if _of_lightning():
        return _lightning_job()
    if _env("SLURM_JOB_ID") and _env("SLURM_STEP_ID"):
        # The script's name, because one step may run several programs, one after the other.
        parts = (_env("SLURM_JOB_ID"), _env("SLURM_STEP_ID"), _env("SLURM_RESTART_COUNT") or "0", script_name())
        return "slurm " + " ".join(parts)
    return None


def _elastic_job() -> str:
    name = _env("TORCHELASTIC_RUN_ID")
    # The port is chosen anew for each rendezvous, so it tells apart jobs that reuse an id.
    parts = [name, _env("TORCHELASTIC_RESTART_COUNT") or "0", _env("MASTER_ADDR"), _env("MASTER_PORT")]
    if name in (
        "",
        "none",
    ):  # torchrun's default: the same for every job, so the launcher itself has to tell them apart
        parent = os.getppid()
        parts.append(f"{parent}-{start_ticks(parent)}")
    return "torchelastic " + " ".join(parts)


def _lightning_job() -> str:
    launcher = os.getppid() if _number("LOCAL_RANK") else os.getpid()  # rank 0 has started the others
    return f"lightning {_env('MASTER_ADDR')} {_env('MASTER_PORT')} {launcher}-{start_ticks(launcher)}"


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; with the pid it names a process for good. None: not known."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError) as error:
        pass_on(error)
        return None


def _number(name: str) -> int | None:
    text = _env(name).strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


# ── the documentation ────────────────────────────────────────────────────────────────────────────────────────────────

_INTRODUCTION = """# Settings

<!-- Made from the table in src/sonde/config.py by `make docs`. -->

A setting takes its value from the first of these sources:

1. an argument: `sonde.init(cap="500MB")`;
2. an environment variable: `SONDE_CAP=500MB` (an empty one is ignored);
3. the nearest `sonde.toml`, or `[tool.sonde]` in `pyproject.toml`, in the working folder or one of its parents:
   `cap = "500MB"`;
4. the default.

An invalid argument raises `SettingError`, which says what is valid. An invalid value in the environment or in a file is
logged with its source and ignored, so that it never stops your program. Settings are read when recording starts; later
changes have no effect.
"""


def document() -> str:
    """The page docs/reference/settings.md."""
    return "\n".join([_INTRODUCTION, *(_section(row) for row in TABLE)])


def _section(row: Setting) -> str:
    refusals = [f"- Not from {_article(kind)}: {why}.\n" for kind, why in row.refused.items()]
    return (
        f"## {row.name}\n\n{row.doc}\n\n- Environment: `{row.env}`\n- Allowed: {row.allowed}\n"
        f"- Default: {row.default_text}\n{''.join(refusals)}"
    )


def _article(kind: str) -> str:
    return "an argument" if kind == "argument" else "a file"


def dumb_terminal() -> bool:
    """Does the terminal say that it can only print?"""
    return os.environ.get("TERM", "dumb") in ("dumb", "")
