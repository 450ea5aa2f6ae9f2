"""`sonde show`: where the time of a run went, what was still open, and what was lost."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from sonde.analysis.records.schema import TABLES, unknown
from sonde.analysis.run import open_run
from sonde.cli.options.choose import choose, directory, one_run, runs_dir
from sonde.cli.output.console import out, print_json
from sonde.cli.output.progress import progress
from sonde.errors import RunNotFound
from sonde.terminal.listing import draw_listing
from sonde.terminal.show import draw_show
from sonde.views.listing import Listing, listing
from sonde.views.show import SORTS, Show, show

NAMES, ROWS = 30, 50


@click.command(
    epilog="""\b
Example: sonde show                              the newest run
Example: sonde show train-3f2a --sort p99 --limit 10
Example: sonde show steps                        a table of the newest run
Example: sonde show train-3f2a steps --limit 20
Example: sonde show --json | jq .open"""
)
@one_run
@click.argument("table", required=False)
@directory
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--sort", type=click.Choice(list(SORTS)), default="total", show_default=True, help="Sort the names by this column."
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Maximum number of names (default {NAMES}; all with --json) or rows (default {ROWS}); 0 shows all.",
)
def command(run: str | None, table: str | None, dir: str | None, as_json: bool, sort: str, limit: int | None) -> None:
    """Show where the time of a run went, which spans were open, and what was lost.

    RUN is a path, a run folder's name or any unique part of it. Default: the newest run. It may be running, killed or
    sealed.

    With TABLE, prints the first rows of that table. `sonde tables` lists them.
    """
    if table is None and run in TABLES:
        run, table = None, run
    if table is not None and table not in TABLES:
        raise click.UsageError(unknown(table))
    path = _chosen(run, table, dir)
    with progress("Reading") as bar, open_run(path, progress=bar) as opened:
        view: Listing | Show
        if table is not None:
            view = listing(opened, table, ROWS if limit is None else limit)
        else:
            view = show(opened, sort, (0 if as_json else NAMES) if limit is None else limit)
    if as_json:
        print_json(view)
    elif isinstance(view, Listing):
        draw_listing(view, out())
    else:
        draw_show(view, out())


def _chosen(run: str | None, table: str | None, dir: str | None) -> Path:
    """The run that is meant; a word alone may have been meant for a table."""
    try:
        return choose(run, runs_dir(dir))
    except RunNotFound as error:
        close = difflib.get_close_matches(run or "", TABLES, n=1) if table is None else []
        raise RunNotFound(f"{error} Or did you mean the table {close[0]}?" if close else str(error)) from None
