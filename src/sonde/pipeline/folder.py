"""The folders of runs, `results/<utc>-<verb>-<4 hex>/`: one for each run of a verb, never used twice.

    run.json       verb, model, status (running, completed, failed, interrupted), start and end, what the verb has to say
    config.toml    the effective config

A traced verb makes no folder, so that nothing of it can be picked up later.
"""

from __future__ import annotations

import json
import math
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.errors import FolderRefused
from sonde.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sonde.pipeline.config import Config

RECORD = "run.json"
CONFIG = "config.toml"
RUNNING, COMPLETED, FAILED, INTERRUPTED = "running", "completed", "failed", "interrupted"
TRIES = 100  # other runs of the same second that may have taken the name


class RunFolder(NamedTuple):
    """The folder of one run."""

    path: Path

    def record(self) -> dict[str, Any]:
        """What run.json says; nothing if it cannot be read."""
        return read(self.path)

    def describe(self, **facts: Any) -> None:
        """Add facts to run.json, which is replaced as a whole."""
        _write(self.path, {**self.record(), **facts})


def create(results_dir: str | Path, verb: str, config: Config) -> RunFolder:
    """A new folder with the config and a record that says "running"."""
    parent = Path(results_dir)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        path = _new(parent, verb)
        config.save(path / CONFIG)
        _write(path, _beginning(verb, config))
    except OSError as error:
        raise FolderRefused(
            f"Cannot write the results of {verb} to {str(parent)!r}: {error.strerror or error}. Set "
            'config["general"]["results_dir"] to a writable folder.'
        ) from error
    return RunFolder(path)


def finish(folder: RunFolder, **facts: Any) -> None:
    """Mark a run as completed: from now on others may build on it."""
    folder.describe(status=COMPLETED, ended_ns=time.time_ns(), **facts)


@contextmanager
def running(results_dir: str | Path, verb: str, config: Config) -> Iterator[RunFolder]:
    """A new folder for the time of a block, whose end (completed, failed, interrupted) is written down."""
    folder = create(results_dir, verb, config)
    try:
        yield folder
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)
        _ended(folder, INTERRUPTED if stopped else FAILED, error)
        raise
    finish(folder)


def _ended(folder: RunFolder, status: str, error: BaseException) -> None:
    try:
        folder.describe(status=status, ended_ns=time.time_ns(), error=f"{type(error).__name__}: {error}"[:1000])
    except OSError as also:  # a full disk, which may be what ended the run: its own exception says more
        error.add_note(f"Could not record in {str(folder.path)!r} that the run was {status}: {also}")


def newest(results_dir: str | Path, verb: str = "train", status: tuple[str, ...] = (COMPLETED,)) -> Path | None:
    """The folder of the run of this verb that was started last and has come to such an end; None if there is none."""
    found = [(record.get("started_ns", 0), path.name, path) for path, record in runs(results_dir, verb, status)]
    return max(found)[2] if found else None


def runs(results_dir: str | Path, verb: str, status: tuple[str, ...]) -> list[tuple[Path, dict[str, Any]]]:
    """The folders of runs of this verb, with their records."""
    parent = Path(results_dir)
    paths = [path for path in parent.iterdir() if (path / RECORD).is_file()] if parent.is_dir() else []
    read_all = [(path, read(path)) for path in paths]
    return [
        (path, record) for path, record in read_all if record.get("verb") == verb and record.get("status") in status
    ]


def read(path: Path) -> dict[str, Any]:
    """The record in this folder; nothing if there is none that can be understood."""
    try:
        found = json.loads((path / RECORD).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _beginning(verb: str, config: Config) -> dict[str, Any]:
    return {
        "verb": verb,
        "model": config["model"]["name"],
        "status": RUNNING,
        "started_ns": time.time_ns(),
        "sonde": __version__,
    }


def _new(parent: Path, verb: str) -> Path:
    for _ in range(TRIES):
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{verb}-{os.urandom(2).hex()}"
        try:
            (parent / name).mkdir()
        except FileExistsError:
            continue
        return parent / name
    raise FolderRefused(f"No free name for a run of {verb} in {str(parent)!r}. Choose another results_dir.")


def _write(path: Path, record: dict[str, Any]) -> None:
    fresh = path / f".{RECORD}.{os.getpid()}"
    fresh.write_text(as_json(record), "utf-8")
    fresh.replace(path / RECORD)


def as_json(record: dict[str, Any]) -> str:
    """A record as text. Numbers that JSON does not know (nan, inf) are written as texts."""
    return json.dumps(_plain(record), indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
