"""Baselines: summaries of runs that are kept by name, in a folder that can be committed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from sonde.compare import summary
from sonde.errors import FolderRefused, RunNotFound, SettingError, nearest
from sonde.exchange.output import output_file

if TYPE_CHECKING:
    from sonde.compare.summary import Summary

FOLDER = "sonde-baselines"  # in the working folder, unless another is named
SUFFIX = ".json"


def save(folder: Path, name: str, kept: Summary) -> Path:
    """Keep a summary under a name; where. An older one of this name is replaced, another file is not."""
    if not re.fullmatch(r"[\w.@+-]{1,100}", name) or name.startswith("."):
        raise SettingError(f"{name!r} cannot be the name of a baseline: use letters, digits, -, _, . and +.")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}{SUFFIX}"
    if path.exists() and not _is_one(path):
        raise FolderRefused(f"{path} exists and is not a baseline. Give another name.")
    with output_file(path, compressed=False) as file:
        file.write(summary.to_json(kept))
    return path


def saved(folder: Path) -> list[Path]:
    """All baselines in a folder, by name."""
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if _is_one(path)) if folder.is_dir() else []


def remove(folder: Path, name: str) -> None:
    """Remove a baseline. Raises RunNotFound if there is none."""
    named(folder, name).unlink()


def named(folder: Path, name: str) -> Path:
    """The file of a baseline. Raises RunNotFound, with the nearest name."""
    path = folder / f"{name}{SUFFIX}"
    if path.is_file():
        return path
    names = [one.name.removesuffix(SUFFIX) for one in saved(folder)]
    known = nearest(name, names) if names else "Save one: sonde baseline save NAME RUN."
    raise RunNotFound(f"There is no baseline {name!r} in {folder}. {known}")


def _is_one(path: Path) -> bool:
    """Whether a file says that it is a baseline."""
    try:
        with path.open("rb") as file:
            return summary.KIND.encode() in file.read(summary.MOST_BYTES)
    except OSError:
        return False
