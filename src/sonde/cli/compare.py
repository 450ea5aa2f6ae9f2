"""`sonde compare`: did the change help, what else differs, and whether it is the same training."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import click

from sonde import units
from sonde.analysis.run import Run
from sonde.cli.autoseal import sealed
from sonde.cli.options.choose import choose, complete, directory, runs_dir
from sonde.cli.output.console import out, print_json
from sonde.cli.output.outputfile import page_target
from sonde.cli.output.progress import progress
from sonde.compare.ranks import compare_ranks
from sonde.compare.runs import METRICS, compare_runs, rank_runs, restarts_of
from sonde.exchange.output import output_file
from sonde.html import comparison_page
from sonde.terminal.compare import draw_comparison, draw_ranking, draw_restarts

THREADS = 1  # of the database: as in `sonde report`


@click.command(
    epilog="""\b
Example: sonde compare before after
Example: sonde compare before after --json | jq .step_time
Example: sonde compare before after --html change.html
Example: sonde compare baseline lr-1 lr-2 lr-3 --by mean
Example: sonde compare ddp-run --ranks all"""
)
@click.argument("runs", nargs=-1, required=True, metavar="A [B] [C]...", shell_complete=complete)
@directory
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--html", metavar="FILE", type=click.Path(), help="Write an HTML page about two runs; works offline.")
@click.option(
    "--by",
    type=click.Choice(METRICS),
    default="p50",
    show_default=True,
    help="Rank three or more runs by this metric.",
)
@click.option(
    "--ranks",
    metavar="all|N,N",
    help="Check whether these ranks of one run hold the same parameters and gradients (needs --fingerprint).",
)
def command(
    runs: tuple[str, ...], dir: str | None, as_json: bool, html: str | None, by: str, ranks: str | None
) -> None:
    """Compare runs: time, causes, numbers.

    A is the baseline. Each is a path, a run folder name or any unique part of it. With three or more
    runs you get a table, ranked; with one run, a check of its restarts.

    The verdict is faster, slower, same, mixed, inconclusive or not_comparable. Ratios are B / A, with 95 % confidence
    intervals. The exit code is 0 for every verdict, and 1 if a run cannot be read.
    """
    if html is not None and len(runs) != 2:
        raise click.UsageError("--html takes two runs: sonde compare A B --html FILE")
    if ranks is not None and len(runs) != 1:
        raise click.UsageError("--ranks takes one run: sonde compare RUN --ranks all")
    chosen = None if ranks is None else _numbers(ranks)
    target = None if html is None else page_target(html, "comparison")
    paths = [sealed(choose(run, runs_dir(dir))) for run in runs]
    with ExitStack() as stack, progress("Reading") as bar:
        opened = [stack.enter_context(Run([path], threads=THREADS, progress=bar)) for path in paths]
        if chosen is not None:
            return _ranks(opened[0], chosen, as_json)
        if len(opened) == 1:
            return _restarts(opened[0], as_json)
        if len(opened) > 2:
            ranking = rank_runs(opened, by)
            return print_json(ranking) if as_json else draw_ranking(ranking, out())
        view = compare_runs(opened[0], opened[1])
    if target is not None:
        _write(target, comparison_page(view))
    if as_json:
        print_json(view)
    elif target is None or sys.stdout.isatty():
        draw_comparison(view, out())
    return None


def _restarts(run: Run, as_json: bool) -> None:
    """One run: only its restarts can be checked."""
    view = restarts_of(run)
    if not view.resume:
        raise click.UsageError(f"{run.id} has no restarts to check. Name two runs: sonde compare A B")
    if as_json:
        print_json(view)
    else:
        draw_restarts(view, out())


def _numbers(ranks: str) -> list[int]:
    """The ranks that were named; none for `all`."""
    if ranks == "all":
        return []
    try:
        return [int(one) for one in ranks.split(",")]
    except ValueError:
        raise click.UsageError(f"--ranks takes all, or numbers such as 0,3; not {ranks!r}.") from None


def _ranks(run: Run, ranks: list[int], as_json: bool) -> None:
    """One run: its ranks against the first of them."""
    view = compare_ranks(run, ranks)
    if as_json:
        print_json(view)
    else:
        click.echo(view.text)


def _write(path: Path, page: str) -> None:
    with output_file(path, compressed=False) as file:
        file.write(page)
    click.echo(f"Written to {path}: {units.size(path.stat().st_size)}.", err=True)
