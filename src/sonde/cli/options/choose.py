"""Which run a command means, which may be at a URL too, and the arguments and options that say so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from sonde import config, units
from sonde.cli.output.progress import progress
from sonde.remote.cache import fetch
from sonde.remote.storage import is_url
from sonde.views.choose import RECORD_ONE, find_run
from sonde.views.runs import candidates


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
    if given is not None and is_url(given):
        return _fetched(given, remote)
    return find_run(given, folder, hint)


def _fetched(url: str, remote: bool) -> Path:
    """The copy of a run at a URL on this machine."""
    if not remote:
        raise click.UsageError(f"This command works on local runs. Fetch the run first: sonde pull {url}")
    with progress("Fetching") as bar:
        done = fetch(url, bar)
    new = f"{units.size(done.bytes)} fetched" if done.bytes else "nothing new"
    click.echo(f"sonde: {new}; the copy is {done.path}", err=True)
    return done.path
