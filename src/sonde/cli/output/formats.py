"""How the answer to a query is printed or written: a table, JSON, CSV or a Parquet file."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonde.analysis.records.schema import COLUMNS
from sonde.analysis.run import Run
from sonde.cli.output.console import finite, out
from sonde.cli.output.progress import progress
from sonde.errors import FolderRefused, nearest
from sonde.terminal.listing import draw_listing
from sonde.views.listing import Listing

if TYPE_CHECKING:
    import duckdb

ROWS = 50
PIECE = 10_000  # rows that are held at once


def answer_options(command: Any) -> Any:
    """The options `--json`, `--csv`, `--parquet` and `--limit`."""
    for option in (
        click.option(
            "--limit",
            type=click.IntRange(min=0),
            metavar="N",
            help=f"Maximum number of rows (default {ROWS} in a table, otherwise all); 0 shows all.",
        ),
        click.option("--parquet", metavar="FILE", type=click.Path(dir_okay=False), help="Write a Parquet file."),
        click.option("--csv", "as_csv", is_flag=True, help="Print CSV, with a line of column names."),
        click.option("--json", "as_json", is_flag=True, help="Print a JSON list with one object per row."),
    ):
        command = option(command)
    return command


def print_answer(
    path: Path, query: str, *, as_json: bool, as_csv: bool, parquet: str | None, limit: int | None
) -> None:
    """Ask a run, and print or write what it answers."""
    if as_json + as_csv + (parquet is not None) > 1:
        raise click.UsageError("Choose one of --json, --csv and --parquet.")
    target = None if parquet is None else _target(parquet)
    with progress("Reading") as bar, Run([path], progress=bar, output=_part(target)) as run, _sentences():
        found = run.sql(query)
        shown = limit if limit is not None else 0 if as_json or as_csv or target else ROWS
        if target is not None:
            _write_parquet(found.limit(shown) if shown else found, target)
        elif as_json:
            _print_json(_cut(found, shown), found.columns)
        elif as_csv:
            _print_csv(_cut(found, shown), found.columns)
        else:
            draw_listing(_listing(found, shown, run.started), out())


def _listing(found: duckdb.DuckDBPyRelation, shown: int, started: int | None) -> Listing:
    rows = list(_cut(found, shown))
    total = len(rows) if not shown or len(rows) < shown else found.aggregate("count(*)").fetchall()[0][0]
    return Listing("", list(found.columns), [list(row) for row in rows], total, started)


def _cut(found: duckdb.DuckDBPyRelation, shown: int) -> Iterator[tuple[Any, ...]]:
    """The first rows, or all, a piece at a time."""
    found = found.limit(shown) if shown else found
    yield from found.iter_rows(PIECE)


def _print_json(rows: Iterator[tuple[Any, ...]], columns: list[str]) -> None:
    """One object a line, so that a long answer is never held whole."""
    before = "["
    for row in rows:
        one = {column: finite(value) for column, value in zip(columns, row, strict=True)}
        click.echo(f"{before}\n {json.dumps(one, allow_nan=False, default=str)}", nl=False)
        before = ","
    click.echo("[]" if before == "[" else "\n]")


def _print_csv(rows: Iterator[tuple[Any, ...]], columns: list[str]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)


def _target(given: str) -> Path:
    """A file that may be written: a new one, or an old Parquet file."""
    path = Path(given).absolute()
    if not path.parent.is_dir():
        raise FolderRefused(f"There is no folder {path.parent}. Create it, or choose another path with --parquet.")
    if path.exists():
        with path.open("rb") as file:
            if file.read(4) != b"PAR1":
                raise FolderRefused(f"{path} exists and is not a Parquet file. Choose another name with --parquet.")
    return path


def _part(target: Path | None) -> Path | None:
    return None if target is None else target.with_name(f".{target.name}.part")


def _write_parquet(found: duckdb.DuckDBPyRelation, target: Path) -> None:
    part = target.with_name(f".{target.name}.part")
    try:
        found.write_parquet(str(part))
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    click.echo(f"Written to {target}.", err=True)


@contextmanager
def _sentences() -> Iterator[None]:
    """What DuckDB says of a wrong query becomes one message and exit code 2; Ctrl-C ends it quietly."""
    import duckdb

    try:
        yield
    except duckdb.InterruptException:
        raise click.Abort from None
    except (
        duckdb.ParserException,
        duckdb.BinderException,
        duckdb.CatalogException,
        duckdb.ConversionException,
    ) as error:
        raise click.UsageError(_reason(str(error))) from None


def _reason(said: str) -> str:
    """What DuckDB said; of a table that is not there, the nearest one of a run."""
    missing = re.match(r"Catalog Error: Table with name (.+) does not exist!", said)
    if missing is not None:
        return f"There is no table {missing[1]!r}. {nearest(missing[1], list(COLUMNS))}"
    return f"{said}\n\n`sonde query --schema` lists tables and columns."
