"""`sonde runs`: list the runs of a folder, the newest first."""

from __future__ import annotations

import click

from sonde.cli.options.choose import directory, runs_dir
from sonde.cli.output.console import out, print_json
from sonde.remote.storage import is_url
from sonde.terminal.runs import draw_runs
from sonde.views.choose import RECORD_ONE
from sonde.views.remote import list_remote
from sonde.views.runs import list_runs, with_outcomes

MOST = 20
SECONDS = 3.0  # of a core, for verdicts that were not kept


@click.command(
    epilog="""\b
Example: sonde runs
Example: sonde runs s3://bucket/runs
Example: sonde runs --dir /data/experiments/sonde-runs --json"""
)
@click.argument("url", required=False)
@directory
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=MOST,
    show_default=True,
    metavar="N",
    help="Maximum number of runs; 0 shows all.",
)
@click.pass_context
def command(context: click.Context, url: str | None, dir: str | None, as_json: bool, limit: int) -> None:
    """List recorded runs, newest first.

    Shows the verdict, how the run ended, its steps, the median step and the last loss. Missing verdicts are computed
    for at most 3 seconds, and saved in the run folders.

    States: running, finished, crashed, interrupted, killed, unknown (no recorded end, or it ran on another host) and
    broken (its files cannot be read). Exit code 1 means that there are no runs.

    With a URL, lists the runs that were pushed there. Only small manifests are fetched, so verdicts are not shown.
    """
    if url is not None and not is_url(url):
        raise click.UsageError(f"{url} is not a URL. For a folder, use: sonde runs --dir {url}")
    found = list_remote(url, limit) if url else with_outcomes(list_runs(runs_dir(dir), limit), SECONDS)
    if as_json:
        print_json(found)
    elif found.runs:
        draw_runs(found, out())
    else:
        hint = RECORD_ONE if url is None else f"Push one with: sonde push RUN {found.dir}"
        click.echo(f"No runs in {found.dir}. {hint}")
    context.exit(0 if found.runs else 1)
