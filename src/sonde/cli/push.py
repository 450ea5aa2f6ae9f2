"""`sonde push`: send what is new of a run to a URL, once or for as long as a program runs."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import click

from sonde import units
from sonde.analysis.exits import ending
from sonde.cli.options.choose import choose, complete, directory, runs_dir
from sonde.cli.output.progress import progress
from sonde.errors import RemoteError, RunBusy
from sonde.remote.pull import missing_in, pull
from sonde.remote.push import Pushed, push
from sonde.remote.storage import is_url


@click.command(
    epilog="""\b
Example: sonde push train-3f2a s3://bucket/runs
Example: sonde push train-3f2a file:///mnt/share/runs --id job-42
Example: sonde push train-3f2a gs://bucket/runs --delete"""
)
@click.argument("run", shell_complete=complete)
@click.argument("url")
@directory
@click.option(
    "--id", metavar="ID", help="Name of the run at the URL (default: the job's id, or the run folder's name)."
)
@click.option("--delete", is_flag=True, help="Delete the local run after everything was read back and compared.")
def command(run: str, url: str, dir: str | None, id: str | None, delete: bool) -> None:
    """Send a run, or what is new of it, to a URL such as s3://bucket/runs.

    The run may be running, killed or sealed. Data that was sent before is not sent again, and an interrupted
    push continues where it stopped. Each host writes below its own prefix, URL/ID/HOST-…. Local files are kept.

    RUN is a path, a run folder's name or any unique part of it.
    """
    if not is_url(url):
        raise click.UsageError(f"{url} is not a URL. For a folder, use: file://{Path(url).absolute()}")
    path = choose(run, runs_dir(dir), remote=False)
    with progress(f"Pushing {path.name}") as bar:
        done = push(path, url, id, describe=ending, progress=bar)
    _report(done)
    if delete:
        _delete(path, done)


def _report(done: Pushed) -> None:
    for note in done.notes:
        click.echo(f"Note: {note}", err=True)
    if not done.objects:
        click.echo(f"Nothing new. The run is at {done.url}")
        return
    click.echo(f"Pushed {units.size(done.bytes)} in {units.plural(done.objects, 'object')} to {done.url}")
    click.echo(f"Read it with: sonde report {done.url}", err=True)


def _delete(path: Path, done: Pushed) -> None:
    """Delete the local run, if the place has every byte of it."""
    if done.running:
        raise RunBusy(f"{path} was not deleted: {units.plural(done.running, 'process')} of it may still be running.")
    with tempfile.TemporaryDirectory(prefix="sonde-push-") as scratch, progress("Reading back") as bar:
        back = pull(done.url, Path(scratch), bar)
        wrong = [*missing_in(path, back.path), *back.notes]
    if wrong:
        raise RemoteError(f"{path} was not deleted: {done.url} differs in {wrong[0]}. Push it again.")
    shutil.rmtree(path)
    click.echo(f"Deleted {path}.")
