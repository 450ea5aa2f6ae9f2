"""`sonde query`: query a run with SQL."""

from __future__ import annotations

import sys

import click

from sonde.analysis.records.schema import COLUMNS
from sonde.cli.autoseal import sealed
from sonde.cli.options.choose import choose, directory, runs_dir
from sonde.cli.output.formats import answer_options, print_answer

STARTS = ("(", "--", "/*")  # of a query without a space, such as one with line breaks only


@click.command(
    epilog="""\b
Example: sonde query "select step, dur_ns, loss from steps order by dur_ns desc limit 5"
Example: sonde query train-3f2a "from items where step = 340" --csv > items.csv
Example: sonde query train-3f2a - --parquet steps.parquet < steps.sql
Example: sonde query --schema                    tables and columns"""
)
@click.argument("words", nargs=-1, metavar="[RUN] [SQL | -]")
@directory
@click.option("--schema", is_flag=True, help="Print the tables and their columns instead.")
@answer_options
def command(
    words: tuple[str, ...],
    dir: str | None,
    schema: bool,
    as_json: bool,
    as_csv: bool,
    parquet: str | None,
    limit: int | None,
) -> None:
    """Query a run with SQL; prints a table, JSON, CSV or Parquet.

    SQL is one SELECT over the tables of the run; `-` reads it from standard input. It can only read this run. Default:
    the newest run.
    """
    if schema:
        _print_schema()
        return
    run, query = _meant(words)
    print_answer(
        sealed(choose(run, runs_dir(dir))), query, as_json=as_json, as_csv=as_csv, parquet=parquet, limit=limit
    )


def _meant(words: tuple[str, ...]) -> tuple[str | None, str]:
    """The run and the query; one word is the query."""
    if not words:
        raise click.UsageError(
            'Give a query: sonde query "select * from steps". `sonde query --schema` lists the tables.'
        )
    if len(words) > 2:
        raise click.UsageError("Give the query as one argument, in quotes.")
    run, query = words if len(words) == 2 else (None, words[0])
    if query == "-":
        query = sys.stdin.read()
    if not query.strip():
        raise click.UsageError("The query is empty.")
    if len(query.split()) == 1 and not query.lower().startswith(STARTS):
        raise click.UsageError(f"{query!r} is not a query. Give SQL after the run, in quotes.")
    return run, query


def _print_schema() -> None:
    for table, columns in COLUMNS.items():
        click.echo(table)
        width = max(len(name) for name, _ in columns)
        for name, type in columns:
            click.echo(f"  {name:{width}}  {type}")
