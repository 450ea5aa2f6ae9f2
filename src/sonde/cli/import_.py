"""`sonde import`: make a run of the traces of other tools."""

from __future__ import annotations

from pathlib import Path

import click

from sonde import units
from sonde.cli.options.choose import directory, runs_dir
from sonde.cli.output.progress import progress
from sonde.exchange.imports.run import import_traces


@click.command(
    "import",
    epilog="""\b
Example: sonde import trace.json.gz                  from torch.profiler, VizTracer, ...
Example: sonde import rank-*.json.gz -o ddp          several ranks as one run
Example: sonde import app.pfw.gz                     from DFTracer""",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="RUN", type=click.Path(path_type=Path), help="Run folder to create.")
@directory
def command(files: tuple[Path, ...], output: Path | None, dir: str | None) -> None:
    """Import traces of other tools as one run.

    FILE is a trace of torch.profiler, another Chrome JSON trace, or a DFTracer .pfw file; .gz files are read directly.
    """
    with progress("Importing") as bar:
        found = import_traces(files, runs_dir(dir), output, bar)
    counts = f"{units.plural(found.processes, 'process', 'processes')}, {units.plural(found.events, 'event')}"
    steps = f", {units.plural(found.steps, 'step')}" if found.steps else ""
    click.echo(f"Imported {found.path}: {counts}{steps}.")
    for kind, count in sorted(found.left_out.items()):
        click.echo(f"Left out: {units.plural(count, f'{kind} event')}.")
    for problem in found.problems:
        click.echo(problem, err=True)
    click.echo(f"Next: sonde report {found.path}")
