"""`sonde blackbox`: the last batches before a failure, and the origin of the first non-finite value."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from sonde import units
from sonde.analysis.postmortem.blackbox import BlackBox, black_box
from sonde.analysis.run import open_run
from sonde.cli.options.choose import choose, directory, one_run, runs_dir
from sonde.cli.output.console import out, print_json
from sonde.cli.output.outputfile import page_target
from sonde.cli.output.progress import progress
from sonde.exchange.output import output_file
from sonde.html import box_page
from sonde.terminal.blackbox import draw_page
from sonde.views.blackbox import Page, blackbox, chosen
from sonde.views.items import cases

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    epilog="""\b
Example: sonde blackbox                            the newest run
Example: sonde blackbox train-3f2a --html last.html
Example: sonde blackbox --dump 2
Example: sonde blackbox --json | jq .births"""
)
@one_run
@directory
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--html", metavar="FILE", type=click.Path(), help="Write an HTML page with pictures; works offline.")
@click.option(
    "--dump",
    "number",
    metavar="N",
    type=click.IntRange(min=1),
    help="Show dump N (default: the most informative one).",
)
@click.option("--narrow", is_flag=True, help="Use 60 columns, whatever the terminal width.")
@click.pass_context
def command(
    context: click.Context,
    run: str | None,
    dir: str | None,
    as_json: bool,
    html: str | None,
    number: int | None,
    narrow: bool,
) -> None:
    """Show the last batches before a failure, and what produced the first NaN.

    RUN is a path, a run folder's name or any unique part of it. Default: the newest run.

    Record with `sonde run --blackbox --watch-nonfinite`. For other runs, and for killed ones, this shows what the
    records contain.
    """
    target = None if html is None else page_target(html, "black box")
    path = choose(run, runs_dir(dir))
    with progress("Reading") as bar, open_run(path, progress=bar) as opened:
        box = black_box(opened)
        view = blackbox(opened, box, number)
    if as_json:
        print_json(view)
    elif html is None or sys.stdout.isatty():
        draw_page(view, out(), narrow=narrow)
    if target is not None:
        _write(target, view, box, number)
    context.exit(1 if view.empty else 0)


def _write(path: Path, view: Page, box: BlackBox, number: int | None) -> None:
    with output_file(path, compressed=False) as file:
        file.write(box_page(view, cases(view, chosen(box, number), box)))
    click.echo(f"Written to {path}: {units.size(path.stat().st_size)}.", err=True)
