"""`sonde rm`: remove runs, after asking, and nothing that is not a run."""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from pathlib import Path

import click

from sonde import units
from sonde.cli.options.choose import choose, directory, many_runs, runs_dir
from sonde.cli.output.console import out
from sonde.errors import FolderRefused, RunBusy, SondeError
from sonde.store.file import RegularFile
from sonde.store.folder import PROCESS_FILE, RUN_FILE
from sonde.store.process import is_ours, read_info, read_object
from sonde.store.record import RINGS_MAGIC
from sonde.terminal.runs import draw_runs
from sonde.views.runs import BROKEN, RunEntry, Runs, entry, list_runs

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def _age(context: click.Context, option: click.Parameter, given: str | None) -> float | None:
    """An age in seconds."""
    if given is None:
        return None
    found = _AGE.fullmatch(given.strip().lower())
    if found is None:
        raise click.BadParameter(f"{given!r} is not an age. Give a number and s, m, h, d or w, such as 30d.")
    return float(found[1]) * _SECONDS[found[2]]


@click.command(
    epilog="""\b
Example: sonde rm 20251115-211200-train-3f2a
Example: sonde rm --older-than 30d --yes"""
)
@many_runs
@directory
@click.option(
    "--older-than",
    callback=_age,
    metavar="AGE",
    help="Delete all runs that ended longer ago than this: a number and s, m, h, d or w, such as 30d.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.pass_context
def command(
    context: click.Context, runs: tuple[str, ...], dir: str | None, older_than: float | None, yes: bool
) -> None:
    """Delete runs, after confirmation.

    Never deletes a run that is still recording, a symbolic link, or a folder that Sonde did not record.
    """
    if bool(runs) == (older_than is not None):
        raise click.UsageError("Give the runs to delete, or --older-than AGE (not both).")
    folder = runs_dir(dir)
    wanted = _named(runs, folder) if runs else _old(folder, older_than or 0)
    doomed = [one for one in map(_removable, wanted) if one is not None]
    refused = len(doomed) < len(wanted)
    if not doomed:
        click.echo("Nothing to delete.")
        context.exit(1 if refused else 0)
    _ask(doomed, yes)
    for one in doomed:
        remove(Path(one.path))
    click.echo(f"Deleted {units.plural(len(doomed), 'run')}, {units.size(sum(one.size for one in doomed))}.")
    context.exit(1 if refused else 0)


def _named(runs: tuple[str, ...], folder: Path) -> list[Path]:
    return list(dict.fromkeys(_literal(run, folder) for run in runs))


def _literal(run: str, folder: Path) -> Path:
    """A link is taken as it is, so that it can be refused; `choose` does the rest."""
    for path in (Path(run), folder / run):
        if path.is_symlink():
            return path
    return choose(run, folder, remote=False)


def _old(folder: Path, age: float) -> list[Path]:
    limit = time.time_ns() - int(age * 1e9)
    runs = [one for one in list_runs(folder).runs if one.state != BROKEN]
    old = [one for one in runs if one.started_ns is not None and one.started_ns + (one.dur_ns or 0) < limit]
    return [Path(one.path) for one in old]


def _removable(path: Path) -> RunEntry | None:
    """The run to remove. None if it has to stay, which is printed with the reason."""
    try:
        return check(path)
    except SondeError as error:
        click.echo(f"Not deleted: {error}", err=True)
        return None


def _ask(doomed: list[RunEntry], yes: bool) -> None:
    if yes:
        return
    draw_runs(Runs("", doomed), out())
    size = units.size(sum(one.size for one in doomed))
    if not click.confirm(f"Permanently delete {units.plural(len(doomed), 'run')}, {size}?"):
        raise click.ClickException("Nothing was deleted.")


def check(path: Path) -> RunEntry:
    """The run at this path. Raises if this is not a run, a link, somebody else's, or still recording."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise FolderRefused(f"{path} is a symbolic link. Give the run it points to, or delete the link yourself.")
    if not is_ours(read_object(path / RUN_FILE, [])):
        raise FolderRefused(f"{path} was not recorded by Sonde. Delete it yourself if you do not need it.")
    if found.st_uid != os.geteuid():
        raise FolderRefused(f"{path} belongs to user {found.st_uid}, not to you.")
    one = entry(path)
    if one.running:
        pids = ", ".join(map(str, one.running[:5]))
        raise RunBusy(f"{path.name} is still being recorded by pid {pids}. Wait until it ends, or stop it.")
    return one


def remove(path: Path) -> None:
    """Remove a run, and the rings that it keeps elsewhere. Links inside are removed, never followed."""
    rings = [ring for ring in map(_rings_elsewhere, sorted(path.glob(f"*/{PROCESS_FILE}"))) if ring]
    shutil.rmtree(path)
    for ring in rings:
        ring.unlink(missing_ok=True)


def _rings_elsewhere(process: Path) -> Path | None:
    """The ring file that a process keeps in a folder for temporary files: ours, and really one, else None.

    The path comes from a file that anybody may have written, so it is not believed.
    """
    try:
        named = read_info(process.parent, []).rings
        if not named or Path(named).name != _name_elsewhere(process.parent) or process.parent.is_symlink():
            return None
        with RegularFile(Path(named)) as file:
            ours = file.owner == os.geteuid() and file.read(len(RINGS_MAGIC), 0) == RINGS_MAGIC
    except (OSError, SondeError, ValueError):
        return None
    return Path(named) if ours else None


def _name_elsewhere(process: Path) -> str:
    return f"{process.parent.name}-{process.name}.rings"
