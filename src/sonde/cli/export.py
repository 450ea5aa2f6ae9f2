"""`sonde export`: write a run in the format of another tool."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sonde import units
from sonde.analysis.run import open_run
from sonde.cli.choose import choose, directory, one_run, runs_dir
from sonde.cli.console import progress
from sonde.errors import FolderRefused, nearest
from sonde.exchange import chrome, pfw

# (format, the end of its file's name, the function that writes it). DFTracer's own tools read gzip only.
FORMATS = (
    ("chrome", ".json", chrome.export),
    ("pfw", ".pfw.gz", pfw.export),
)
GZ = ".gz"
OTHER_NAMES = {"perfetto": "chrome", "json": "chrome", "trace": "chrome", "dftracer": "pfw", "dfanalyzer": "pfw"}
STDOUT = "-"


class Format(click.Choice[str]):
    """The format to write; another one is answered with that which is meant."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """As click does it, with a better answer."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            names = [name for name, _, _ in FORMATS]
            meant = OTHER_NAMES.get(value.lower())
            hint = f"Did you mean {meant!r}? Valid: {', '.join(names)}." if meant else nearest(value, names)
            self.fail(f"Unknown format {value!r}. {hint}", param, ctx)


@click.command(
    epilog="""\b
Example: sonde export --to chrome                     the newest run, for ui.perfetto.dev
Example: sonde export train-3f2a --to pfw -o trace.pfw.gz
Example: sonde export --to pfw -o - | head"""
)
@one_run
@directory
@click.option(
    "--to",
    required=True,
    type=Format([name for name, _, _ in FORMATS]),
    help="chrome: JSON for Perfetto and chrome://tracing. pfw: DFTracer trace lines.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Output file; - for standard output. Default: <run>.json or <run>.pfw.gz in the current directory.",
)
@click.option(
    "--gzip/--no-gzip", default=None, help="Compress the output or not. Default: if the file name ends in .gz."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def command(run: str | None, dir: str | None, to: str, output: str | None, gzip: bool | None, force: bool) -> None:
    """Export a run to the format of another tool.

    RUN is a path, a run folder's name or any unique part of it. Default: the newest run.
    """
    path = choose(run, runs_dir(dir))
    _, suffix, write = next(one for one in FORMATS if one[0] == to)
    if output == STDOUT:
        with open_run(path) as opened:
            write(opened, sys.stdout.buffer, bool(gzip))
        return
    if gzip is not None:
        suffix = suffix.removesuffix(GZ) + (GZ if gzip else "")
    target = Path(output or path.resolve().name + suffix)
    _check(target, force)
    with open_run(path) as opened, progress(f"Writing {target}") as told:
        count = write(opened, target, target.suffix == GZ if gzip is None else gzip, told)
    size = units.size(target.stat().st_size)
    click.echo(f"Wrote {target}: {units.plural(count, 'event')}, {size}.")


def _check(target: Path, force: bool) -> None:
    if target.is_dir():
        raise FolderRefused(f"{target} is a folder. Give a file name with -o.")
    if target.exists() and not force:
        raise FolderRefused(f"{target} exists. Overwrite it with --force, or choose another name with -o.")
    if not target.parent.is_dir():
        raise FolderRefused(f"There is no folder {target.parent}. Create it, or choose another path with -o.")
