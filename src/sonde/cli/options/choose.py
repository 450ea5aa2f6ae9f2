"""Which run a command means: a path, a URL, a folder's name, a part of it that only one run has, or nothing for the newest."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from sonde import config, units
from sonde.cli.output.progress import progress
from sonde.errors import RunNotFound
from sonde.remote.cache import fetch
from sonde.remote.storage import is_url
from sonde.store.folder import RUN_FILE
from sonde.views.runs import BROKEN, candidates, list_runs

MOST_LISTED = 5
NEWEST = 4  # runs that are looked at for the newest one that can be read
RECORD_ONE = "Record one with: sonde run train.py. Or call sonde.init() at the start of the program."


def complete(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """The names of runs that begin with what was typed."""
    folder = runs_dir(context.params.get("dir"))
    return sorted((path.name for path in candidates(folder) if path.name.startswith(typed)), reverse=True)


def directory(command: Any) -> Any:
    """The option `--dir`."""
    return click.option(
        "--dir",
        type=click.Path(file_okay=False),
        help="Folder that holds the runs (default: the setting `dir`, sonde-runs).",
    )(command)


def waiting(seconds: float, help: str) -> Callable[[Any], Any]:
    """The option `--wait`."""
    kind = click.FloatRange(min=0.1)
    return click.option("--wait", type=kind, default=seconds, show_default=True, metavar="SECONDS", help=help)


def one_run(command: Any) -> Any:
    """The argument RUN, which may be left out."""
    return click.argument("run", required=False, shell_complete=complete)(command)


def many_runs(command: Any) -> Any:
    """The arguments RUN..."""
    return click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=complete)(command)


def runs_dir(given: str | None) -> Path:
    """The folder with the runs."""
    return Path(config.load(dir=given).dir)


def choose(given: str | None, folder: Path, hint: str = RECORD_ONE, *, remote: bool = True) -> Path:
    """The folder of the run that is meant; a run at a URL is fetched, unless the command is not for such (`remote`).

    Raises RunNotFound if there is none: with the nearest name, or with the hint.
    """
    if given is None:
        return _newest(folder, hint)
    if is_url(given):
        return _fetched(given, remote)
    if (Path(given) / RUN_FILE).exists():
        return Path(given)
    names = sorted(path.name for path in candidates(folder))
    for matches in ([given] if given in names else [], _starting(given, names), _holding(given, names)):
        if len(matches) == 1:
            return folder / matches[0]
        if matches:
            raise RunNotFound(_ambiguous(given, matches))
    raise RunNotFound(_missing(given, folder, names, hint))


def _fetched(url: str, remote: bool) -> Path:
    """The copy of a run at a URL on this machine."""
    if not remote:
        raise click.UsageError(f"This command works on local runs. Fetch the run first: sonde pull {url}")
    with progress("Fetching") as bar:
        done = fetch(url, bar)
    new = f"{units.size(done.bytes)} fetched" if done.bytes else "nothing new"
    click.echo(f"sonde: {new}; the copy is {done.path}", err=True)
    return done.path


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
