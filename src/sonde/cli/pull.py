"""`sonde pull`: fetch a run from a URL into a run folder."""

from __future__ import annotations

from pathlib import Path

import click

from sonde import units
from sonde.cli.options.choose import runs_dir
from sonde.cli.output.progress import progress
from sonde.remote.pull import pull
from sonde.remote.storage import is_url


@click.command(
    epilog="""\b
Example: sonde pull s3://bucket/runs/job-42
Example: sonde pull file:///mnt/share/runs/job-42 /data/runs"""
)
@click.argument("url")
@click.argument("dir", required=False, type=click.Path(file_okay=False))
def command(url: str, dir: str | None) -> None:
    """Fetch a run from a URL.

    The processes of all hosts are put into one run folder in DIR. Pulling again fetches only what is new. DIR is the folder that holds the runs
    (default: the setting `dir`, sonde-runs).
    """
    if not is_url(url):
        raise click.UsageError(f"{url} is not a URL, such as s3://bucket/runs/job-42.")
    with progress("Pulling") as bar:
        done = pull(url, Path(dir) if dir else runs_dir(None), bar)
    for note in done.notes:
        click.echo(f"Note: {note}", err=True)
    new = f"{units.size(done.bytes)} fetched" if done.bytes else "nothing new"
    click.echo(f"{done.path}: {new}.")
