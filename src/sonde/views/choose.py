"""Which run of a folder is meant: a path, a folder's name, a part of it that only one run has, or nothing for the newest."""

from __future__ import annotations

import difflib
from pathlib import Path

from sonde.errors import RunNotFound
from sonde.store.folder import RUN_FILE
from sonde.views.runs import BROKEN, candidates, list_runs

MOST_LISTED = 5
NEWEST = 4  # runs that are looked at for the newest one that can be read
RECORD_ONE = "Record one with: sonde run train.py. Or call sonde.init() at the start of the program."


def find_run(given: str | None, folder: Path, hint: str = RECORD_ONE) -> Path:
    """The folder of the run that is meant. Raises RunNotFound if there is none: with the nearest name, or with the hint."""
    if given is None:
        return _newest(folder, hint)
    if (Path(given) / RUN_FILE).exists():
        return Path(given)
    names = sorted(path.name for path in candidates(folder))
    for matches in ([given] if given in names else [], _starting(given, names), _holding(given, names)):
        if len(matches) == 1:
            return folder / matches[0]
        if matches:
            raise RunNotFound(_ambiguous(given, matches))
    raise RunNotFound(_missing(given, folder, names, hint))


def _newest(folder: Path, hint: str) -> Path:
    for limit in (NEWEST, 0):
        readable = [one for one in list_runs(folder, limit).runs if one.state != BROKEN]
        if readable:
            return Path(readable[0].path)
    raise RunNotFound(f"No runs in {folder}. {hint}")


def _starting(given: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(given)] if given else []


def _holding(given: str, names: list[str]) -> list[str]:
    return [name for name in names if given in name] if given else []


def _ambiguous(given: str, matches: list[str]) -> str:
    newest = ", ".join(sorted(matches, reverse=True)[:MOST_LISTED])
    more = f" and {len(matches) - MOST_LISTED} more" if len(matches) > MOST_LISTED else ""
    return f"{len(matches)} runs match {given!r}: {newest}{more}. Give more of the name."


def _missing(given: str, folder: Path, names: list[str], hint: str) -> str:
    if given and Path(given).is_dir():
        return f"{given} is not a run: it has no {RUN_FILE}. If it is a folder of runs, use: --dir {given}"
    if "/" in given and not Path(given).exists():
        return f"There is no folder {given}. Give a run, or part of its name; sonde runs lists those in {folder}."
    if not names:
        return f"No run {given!r}: {folder} has no runs. {hint}"
    close = _nearest(given, names)
    known = f"Did you mean {close!r}?" if close else "List the runs with: sonde runs."
    return f"No run {given!r} in {folder}. {known}"


def _nearest(given: str, names: list[str]) -> str | None:
    """The closest whole name, or the newest run with a close part between the dashes."""
    close = difflib.get_close_matches(given, names, n=1)
    if close:
        return close[0]
    parts = {part: name for name in names for part in name.split("-")}
    close = difflib.get_close_matches(given, parts, n=1)
    return parts[close[0]] if close else None
