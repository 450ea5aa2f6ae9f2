"""Reads what a process said about itself: process.json and names.jsonl, as hostile input."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.errors import RunUnreadable
from sonde.store.file import read_small, why

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCHEMA = 1
MAX_JSON_BYTES = 16 * 2**20
MAX_NAMES_BYTES = 256 * 2**20
MAX_NAMES_LINES = 2_000_000
_FOLDER = re.compile(r"(?P<host>.+)-(?P<pid>\d{1,18})-(?P<n>\d{1,9})")


class Moment(NamedTuple):
    """One instant on both clocks of a host."""

    mono_ns: int
    wall_ns: int


class Info(NamedTuple):
    """What process.json says. None is not known."""

    host: str
    pid: int | None
    n: int | None
    parent_pid: int | None
    boot_id: str | None
    start_ticks: int | None
    rank: int | None
    local_rank: int | None
    world_size: int | None
    role: str | None
    worker: int | None
    core: str | None
    writes: str | None
    rings: str | None
    python: str | None
    start: Moment | None
    end: Moment | None
    reason: str | None
    exception: str | None
    exit_code: int | None
    signal: int | None
    program: int | None  # of a launcher: the process that it started
    program_ticks: int | None
    program_exit: int | None  # its exit code; 128 + n if signal n ended it
    message: str | None  # of the exception, if values are kept
    place: str | None  # the line of the program that raised it: "train.py:12"
    attempt: int | None = None  # how often the job was started again before; None: nothing says


def is_ours(meta: Mapping[str, object]) -> bool:
    """Whether the recorder wrote this run.json: other programs, Sonde's pipeline among them, have files of that name."""
    return type(meta.get("schema")) is int


class Thread(NamedTuple):
    """A thread of a process: the system's id, and its name."""

    tid: int | None
    name: str | None


class Names(NamedTuple):
    """What names.jsonl says: name id -> (category, name), thread ordinal -> thread."""

    names: dict[int, tuple[str, str]]
    threads: dict[int, Thread]


def read_info(folder: Path, notes: list[str]) -> Info:
    """What process.json says; where it says nothing, what the folder's name says."""
    fields = read_object(folder / "process.json", notes)
    schema = _integer(fields.get("schema"))
    if schema is not None and schema > SCHEMA:
        raise RunUnreadable(
            f"{folder} has format {schema}; this version of Sonde reads format {SCHEMA}. Install a newer version."
        )
    named = _FOLDER.fullmatch(folder.name)
    end: dict[str, Any] = fields["end"] if isinstance(fields.get("end"), dict) else {}
    integers = {key: _integer(fields.get(key)) for key in _INTEGERS}
    texts = {key: _text(fields.get(key)) for key in _TEXTS}
    plain: dict[str, Any] = {**integers, **texts}
    return Info(
        host=_text(fields.get("host")) or (named["host"] if named else folder.name),
        pid=_integer(fields.get("pid"), int(named["pid"]) if named else None),
        n=_integer(fields.get("n"), int(named["n"]) if named else None),
        **plain,
        start=_moment(fields.get("start")),
        end=_moment(end),
        reason=_text(end.get("reason")),
        exception=_text(end.get("exception")),
        message=_text(end.get("message")),
        place=_text(end.get("place")),
    )


_INTEGERS = (
    "parent_pid", "start_ticks", "rank", "local_rank", "world_size", "worker", "exit_code", "signal", "program",
    "program_ticks", "program_exit", "attempt",
)  # fmt: skip
_TEXTS = ("boot_id", "role", "core", "writes", "rings", "python")


def read_object(path: Path, notes: list[str]) -> dict[str, Any]:
    """The JSON object in a small file; an empty one, and a note, where there is none."""
    try:
        fields = json.loads(read_small(path, MAX_JSON_BYTES))
    except OSError as error:
        notes.append(f"{path.name} {why(error)}")
        return {}
    except (ValueError, RecursionError) as error:
        notes.append(f"{path.name} is damaged: {error}")
        return {}
    if isinstance(fields, dict):
        return fields
    notes.append(f"{path.name} is damaged: it has no JSON object")
    return {}


def read_names(folder: Path, notes: list[str]) -> Names:
    """Names and threads; lines that cannot be understood are skipped and noted."""
    found = Names({}, {})
    try:
        content = read_small(folder / "names.jsonl", MAX_NAMES_BYTES)
    except OSError as error:
        notes.append(f"names.jsonl {why(error)}")
        return found
    whole, _, rest = content.rpartition(b"\n")  # behind the last newline: a line that is just being written
    lines = whole.split(b"\n", MAX_NAMES_LINES)
    bad = len(lines[MAX_NAMES_LINES:]) + sum(not _take_line(line, found) for line in lines[:MAX_NAMES_LINES] if line)
    if rest:
        _take_line(rest, found)
    if bad:
        notes.append(f"names.jsonl is damaged: {bad} lines are invalid")
    return found


def _take_line(line: bytes, found: Names) -> bool:
    """Take what a line says; False if it says nothing."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return False
    if not isinstance(fields, dict):
        return False
    id, ordinal, name = _integer(fields.get("id")), _integer(fields.get("thread")), _text(fields.get("name"))
    if ordinal is not None:
        found.threads[ordinal] = Thread(_integer(fields.get("tid")), name)
        return True
    category = _text(fields.get("cat"))
    if id is None or name is None or category is None:
        return False
    found.names[id] = (category, name)
    return True


def _integer(value: object, default: int | None = None) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return value
    return default


def _text(value: object) -> str | None:
    """The text, such that it can be written as UTF-8."""
    if not isinstance(value, str):
        return None
    return value.encode("utf-8", "backslashreplace").decode()


def _moment(value: object) -> Moment | None:
    if not isinstance(value, dict):
        return None
    mono, wall = _integer(value.get("mono_ns")), _integer(value.get("wall_ns"))
    if mono is None or wall is None or abs(mono) >= 2**62 or abs(wall) >= 2**62:
        return None
    return Moment(mono, wall)
