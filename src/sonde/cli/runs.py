"""`sonde runs`: list the runs of a folder, the newest first."""

from __future__ import annotations

import click

from sonde.cli.choose import RECORD_ONE, directory, runs_dir
from sonde.cli.console import out, print_json
from sonde.views import terminal
from sonde.views.runs import list_runs


@click.command(
    epilog="""\b
Example: sonde runs
Example: sonde runs --dir /data/experiments/sonde-runs --json"""
)
@directory
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.pass_context
def command(context: click.Context, dir: str | None, as_json: bool) -> None:
    """List the recorded runs, the newest first.

    A run is recording, ended, died (killed or crashed), sealed, empty, unknown (it ran on another host and never said
    that it ended) or broken. The exit code is 1 if there is none.
    """
    found = list_runs(runs_dir(dir))
    if as_json:
        print_json(found)
    elif found.runs:
        terminal.draw_runs(found, out())
    else:
        click.echo(f"There is no run in {found.dir}. {RECORD_ONE}")
    context.exit(0 if found.runs else 1)
