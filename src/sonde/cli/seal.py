"""`sonde seal`: turn the raw records of finished runs into compact tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sonde import units
from sonde.analysis.run import RECORDING
from sonde.analysis.seal import seal
from sonde.cli.options.choose import choose, directory, one_run, runs_dir
from sonde.cli.options.cluster import cluster_options, engine_of
from sonde.cli.output.progress import progress
from sonde.errors import SondeError
from sonde.views.runs import BROKEN, list_runs

if TYPE_CHECKING:
    from sonde.analysis.sealing.engines import Engine


@click.command(
    epilog="""\b
Example: sonde seal                  the newest run
Example: sonde seal --all
Example: sonde seal train-3f2a --dask tcp://head:8786"""
)
@one_run
@directory
@click.option("--all", "every", is_flag=True, help="Seal all finished runs that are not sealed yet.")
@click.option(
    "--force",
    is_flag=True,
    help="Also seal runs from other hosts that have no recorded end; they may still be recording.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of processes that seal parts at the same time (default: one per core).",
)
@cluster_options
@click.pass_context
def command(
    context: click.Context, run: str | None, dir: str | None, every: bool, force: bool, workers: int | None, dask: str | None,
    workers_memory: int | None,
) -> None:  # fmt: skip
    """Compress the raw records of a finished run into tables.

    A run is sealed in parts of some ranks each. Raw records are deleted only after the tables of their part have been
    read back and compared. Interrupted sealing continues with the next part. Every query gives the same result as before.

    RUN is a path, a run folder's name or any unique part of it. Default: the newest run.
    """
    if run and every:
        raise click.UsageError("Give a run or --all, not both.")
    engine = engine_of(dask, workers, workers_memory)
    folder = runs_dir(dir)
    if not every:
        _seal(choose(run, folder, remote=False), force, engine)
        return
    found = [one for one in list_runs(folder).runs if not one.sealed]
    paths = [Path(one.path) for one in found if one.processes and one.state not in (RECORDING, BROKEN)]
    if not paths:
        click.echo(f"Nothing to seal in {folder}.")
    failed = [path for path in paths if not _tried(path, force, engine)]
    context.exit(1 if failed else 0)


def _tried(path: Path, force: bool, engine: Engine) -> bool:
    """Seal one of several: what fails is reported, and the others have their turn."""
    try:
        _seal(path, force, engine)
    except (SondeError, OSError) as error:
        click.echo(f"Error: {error}", err=True)
        return False
    return True


def _seal(path: Path, force: bool, engine: Engine) -> None:
    with progress(f"Sealing {path.name}") as bar:
        done = seal(path, force=force, progress=bar, engine=engine)
    sizes = f"{units.size(done.before)} -> {units.size(done.after)}"
    click.echo(f"Sealed {path.name}: {units.plural(done.events, 'event')}, {sizes}.")
