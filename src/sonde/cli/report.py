"""`sonde report`: the verdict on a run with its evidence, as a card, as JSON, or as a page."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sonde import units
from sonde.analysis.run import Run
from sonde.analysis.seal import seal
from sonde.cli.autoseal import sealed
from sonde.cli.options.choose import choose, directory, one_run, runs_dir
from sonde.cli.options.cluster import cluster_options, engine_of
from sonde.cli.output.console import out, print_json
from sonde.cli.output.outputfile import page_target
from sonde.cli.output.progress import progress
from sonde.diagnosis.policy import Policy
from sonde.exchange.output import output_file
from sonde.finding import CRITICAL, SEVERITIES, WARN
from sonde.html import interactive, page
from sonde.mcp.brief import digest
from sonde.terminal.report import draw_card
from sonde.views.charts import charts
from sonde.views.outcome import keep_outcome
from sonde.views.report import Report, report

THREADS = 1  # of the database: its queries are small, and threads take more from a busy machine than they save


@click.command(
    epilog="""\b
Example: sonde report                            the newest run
Example: sonde report train-3f2a --html train.html
Example: sonde report --json | jq -r .verdict.next
Example: sonde report --brief                    for a coding agent
Example: sonde report --policy strict.toml
Example: sonde report --dask tcp://head:8786     seal a large run on a cluster first
Example: sonde report --fail-on critical         for CI"""
)
@one_run
@directory
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--html", metavar="FILE", type=click.Path(), help="Write an HTML page with charts; works offline.")
@click.option("--static", is_flag=True, help="Write the HTML page without a script: charts that cannot be zoomed.")
@click.option(
    "--policy", metavar="FILE", type=click.Path(), help="TOML file with other thresholds (see `sonde rules`)."
)
@click.option(
    "--fail-on", type=click.Choice([WARN, CRITICAL]), help="Exit with 1 if a finding has this severity or a worse one."
)
@click.option("--brief", is_flag=True, help="Print a digest of under 2,000 tokens, for coding agents.")
@click.option("--narrow", is_flag=True, help="Use 60 columns, whatever the terminal width.")
@cluster_options
def command(
    run: str | None, dir: str | None, as_json: bool, html: str | None, static: bool, policy: str | None, fail_on: str | None, brief: bool,
    narrow: bool, dask: str | None, workers_memory: int | None,
) -> None:  # fmt: skip
    """Diagnose a run: problem, evidence, next step.

    RUN is a path, a run folder's name or any unique part of it. Default: the newest run. It may be running, killed or
    sealed.
    """
    if static and html is None:
        raise click.UsageError("--static works only with --html FILE.")
    if brief and as_json:
        raise click.UsageError("Choose one of --brief and --json.")
    thresholds = Policy.load(policy)
    target = None if html is None else page_target(html, "report")
    path = choose(run, runs_dir(dir))
    if dask is not None:
        with progress(f"Sealing {path.name}") as bar:
            seal(path, progress=bar, engine=engine_of(dask, None, workers_memory))
    sealed(path)
    with progress("Reading") as bar, Run([path], threads=THREADS, progress=bar) as opened:
        view = report(opened, thresholds)
        if policy is None:
            keep_outcome(view, path)
        if target is not None:
            _write(target, view, opened, static=static)
    if as_json:
        print_json(view)
    elif brief:
        click.echo(digest(view, commands=True))
    elif html is None or sys.stdout.isatty():
        draw_card(view, out(), narrow=narrow)
    if target is not None:
        click.echo(f"Written to {target}: {units.size(target.stat().st_size)}.", err=True)
    if fail_on is not None and any(one.severity in SEVERITIES[SEVERITIES.index(fail_on) :] for one in view.findings):
        sys.exit(1)


def _write(path: Path, view: Report, run: Run, *, static: bool) -> None:
    with output_file(path, compressed=False) as file:
        file.write(page(view, charts(run), None if static else interactive(run)))
