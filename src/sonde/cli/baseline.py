"""`sonde baseline`: keep a summary of a run, to compare later runs with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from sonde import units
from sonde.analysis.run import Run
from sonde.cli.options.choose import choose, directory, one_run, runs_dir
from sonde.cli.output.console import Group
from sonde.cli.output.progress import progress
from sonde.compare import baselines
from sonde.compare.summary import read, summarize


def _folder(command: Any) -> Any:
    option = click.option(
        "--to",
        "folder",
        default=baselines.FOLDER,
        show_default=True,
        type=click.Path(file_okay=False),
        help="The folder with the baselines.",
    )
    return option(command)


@click.group(cls=Group, epilog="Example: sonde baseline save main train-3f2a")
def command() -> None:
    """Keep summaries of runs as baselines for `sonde gate`."""


@command.command(epilog="Example: sonde baseline save main            the newest run")
@click.argument("name")
@one_run
@directory
@_folder
def save(name: str, run: str | None, dir: str | None, folder: str) -> None:
    """Save the summary of a run under a name. It is a few kilobytes, so you can commit it."""
    path = choose(run, runs_dir(dir))
    with progress("Reading") as bar, Run([path], threads=1, progress=bar) as opened:
        kept = summarize(opened)
    target = baselines.save(Path(folder), name, kept)
    click.echo(
        f"Saved {kept.run} as {target}: {units.size(target.stat().st_size)}, {units.count(kept.steps.count)} steps after warm-up."
    )


@command.command("list", epilog="Example: sonde baseline list --json")
@_folder
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def list_(folder: str, as_json: bool) -> None:
    """List the baselines."""
    found = [(path, read(path)) for path in baselines.saved(Path(folder))]
    if as_json:
        rows = [
            {"name": path.stem, "path": str(path), "run": one.run, "steps": one.steps.count, "p50_ns": one.steps.p50_ns}
            for path, one in found
        ]
        click.echo(json.dumps(rows, indent=1))
        return
    if not found:
        click.echo(f"No baseline in {folder}. Save one: sonde baseline save NAME RUN")
        return
    width = max(len(path.stem) for path, _ in found)
    for path, one in found:
        click.echo(
            f"{path.stem:{width}}  median step {units.duration(one.steps.p50_ns):>8}  {units.count(one.steps.count):>7} steps  {one.run}"
        )


@command.command(epilog="Example: sonde baseline rm main")
@click.argument("name")
@_folder
def rm(name: str, folder: str) -> None:
    """Remove a baseline."""
    baselines.remove(Path(folder), name)
    click.echo(f"Removed the baseline {name}.")
