"""`sonde tables`: the tables of a run, and how many rows each has."""

from __future__ import annotations

import json

import click

from sonde import units
from sonde.analysis.records.schema import COLUMNS
from sonde.analysis.run import open_run
from sonde.cli.options.choose import choose, directory, one_run, runs_dir
from sonde.cli.output.progress import progress


@click.command(
    epilog="""\b
Example: sonde tables                            the newest run
Example: sonde tables train-3f2a --json"""
)
@one_run
@directory
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str | None, dir: str | None, as_json: bool) -> None:
    """List the tables of a run: rows and columns."""
    with progress("Reading") as bar, open_run(choose(run, runs_dir(dir)), progress=bar) as opened:
        rows = {table: int(opened.table(table).aggregate("count(*)").fetchall()[0][0]) for table in COLUMNS}
    if as_json:
        names = {table: [name for name, _ in columns] for table, columns in COLUMNS.items()}
        click.echo(
            json.dumps(
                [{"table": table, "rows": count, "columns": names[table]} for table, count in rows.items()], indent=1
            )
        )
        return
    width = max(map(len, rows))
    for table, count in rows.items():
        click.echo(f"{table:{width}}  {units.count(count):>12} rows  {len(COLUMNS[table]):>2} columns")
    click.echo("\nColumns: sonde query --schema. First rows: sonde show RUN TABLE.")
