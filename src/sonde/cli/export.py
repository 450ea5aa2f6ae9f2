"""`sonde export`: write a run in the format of another tool."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

import click

from sonde import environment, units
from sonde.analysis.run import Run, open_run
from sonde.cli.autoseal import sealed
from sonde.cli.options.choose import choose, directory, one_run, runs_dir
from sonde.cli.output.progress import progress
from sonde.errors import FolderRefused, nearest
from sonde.exchange import chrome, collapsed, otlp, parquet, perfetto, pfw, prometheus, speedscope, stacks
from sonde.exchange.collector import Collector
from sonde.exchange.output import Progress
from sonde.views.outcome import read_outcome

GZ = ".gz"
STDOUT = "-"
OTLP = "otlp"  # no file: it is sent


class Format(NamedTuple):
    """A format: the end of its file's name (none: a folder), the function that writes it, and what that counts."""

    name: str
    suffix: str
    write: Callable[..., int]
    counts: tuple[str, ...]
    help: str


def _metrics(run: Run, path: Path | BinaryIO, gzip: bool = False, bar: Progress | None = None) -> int:
    kept = read_outcome(run.path)
    return prometheus.export(run, path, gzip, bar, None if kept is None else kept.verdict)


# DFTracer's own tools read gzip only.
FORMATS = (
    Format("perfetto", ".pftrace", perfetto.export, ("event",), "protobuf for ui.perfetto.dev, with arrows"),
    Format("chrome", ".json", chrome.export, ("event",), "JSON for Perfetto and chrome://tracing"),
    Format("pfw", ".pfw.gz", pfw.export, ("event",), "DFTracer trace lines"),
    Format("speedscope", ".speedscope.json", speedscope.export, ("span",), "flame graphs for speedscope.app"),
    Format("collapsed", ".folded", collapsed.export, ("stack",), "collapsed stacks for flame graph tools"),
    Format(
        "stacks", ".folded", stacks.export, ("stack",), "sampled stacks (--sample), collapsed, for flame graph tools"
    ),
    Format("parquet", "", parquet.export, ("row",), "a folder with one Parquet file per table"),
    Format("prometheus", ".prom", _metrics, ("value",), "metrics for the textfile collector of node_exporter"),
)
NAMES = (*(one.name for one in FORMATS), OTLP)
HELP = (
    *(f"{one.name}: {one.help}." for one in FORMATS),
    f"{OTLP}: spans and metrics, sent to an OpenTelemetry collector.",
)
COLLECTOR = "http://localhost:4318"
OTHER_NAMES = {
    "json": "chrome", "trace": "chrome", "pftrace": "perfetto", "protobuf": "perfetto", "dftracer": "pfw", "dfanalyzer": "pfw",
    "flamegraph": "collapsed", "folded": "collapsed", "arrow": "parquet", "metrics": "prometheus", "prom": "prometheus",
    "opentelemetry": "otlp", "otel": "otlp", "jaeger": "otlp", "tempo": "otlp",
}  # fmt: skip


class Chosen(click.Choice[str]):
    """The format to write; another one is answered with that which is meant."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """As click does it, with a better answer."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            names = list(NAMES)
            meant = OTHER_NAMES.get(value.lower())
            hint = f"Did you mean {meant!r}? Valid: {', '.join(names)}." if meant else nearest(value, names)
            self.fail(f"Unknown format {value!r}. {hint}", param, ctx)


@click.command(
    epilog="""\b
Example: sonde export --to perfetto                   the newest run, for ui.perfetto.dev
Example: sonde export train-3f2a --to pfw -o trace.pfw.gz
Example: sonde export --to parquet -o tables
Example: sonde export --to collapsed -o - | flamegraph.pl > flame.svg
Example: sonde export --to otlp -o http://localhost:4318"""
)
@one_run
@directory
@click.option(
    "--to",
    required=True,
    type=Chosen(NAMES),
    help=" ".join(HELP),
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Output file; - for standard output. Default: the name of the run in the current directory. With otlp, the collector's "
    f"base URL. Default: OTEL_EXPORTER_OTLP_ENDPOINT, or {COLLECTOR}.",
)
@click.option("--gzip/--no-gzip", default=None, help="Compress the output (default: if the file name ends in .gz).")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def command(run: str | None, dir: str | None, to: str, output: str | None, gzip: bool | None, force: bool) -> None:
    """Export a run to the format of another tool.

    RUN is a path, a run folder's name or any unique part of it. Default: the newest run.
    """
    path = sealed(choose(run, runs_dir(dir)))
    if to == OTLP:
        _send(path, output, gzip, force)
        return
    form = next(one for one in FORMATS if one.name == to)
    if not form.suffix:
        _write_folder(path, form, output, gzip, force)
    elif output == STDOUT:
        with open_run(path) as opened:
            form.write(opened, sys.stdout.buffer, bool(gzip))
    else:
        _write_file(path, form, output, gzip, force)


def _write_file(path: Path, form: Format, output: str | None, gzip: bool | None, force: bool) -> None:
    suffix = form.suffix
    if gzip is not None:
        suffix = suffix.removesuffix(GZ) + (GZ if gzip else "")
    target = Path(output or path.resolve().name + suffix)
    if target.is_dir():
        raise FolderRefused(f"{target} is a folder. Give a file name with -o.")
    _check(target, force)
    with open_run(path) as opened, progress(f"Writing {target}") as bar:
        count = form.write(opened, target, target.suffix == GZ if gzip is None else gzip, bar)
    _say(target, count, form, target.stat().st_size)


def _write_folder(path: Path, form: Format, output: str | None, gzip: bool | None, force: bool) -> None:
    if output == STDOUT or gzip is not None:
        raise click.UsageError(f"--to {form.name} writes a folder of files. Give its name with -o.")
    target = Path(output or f"{path.resolve().name}-{form.name}")
    _check(target, force)
    with open_run(path, files=True) as opened, progress(f"Writing {target}") as bar:
        count = form.write(opened, target, bar)
    _say(target, count, form, sum(one.stat().st_size for one in target.iterdir()))


def _send(path: Path, url: str | None, gzip: bool | None, force: bool) -> None:
    if gzip is not None or force:
        raise click.UsageError(f"--to {OTLP} sends the run over HTTP: --gzip and --force have no effect.")
    collector = Collector(url or environment.otlp_endpoint() or COLLECTOR, environment.otlp_headers())
    kept = read_outcome(path)
    with open_run(path) as opened, collector, progress(f"Sending to {collector.shown}") as bar:
        sent = otlp.export(opened, collector, bar, None if kept is None else kept.verdict)
    counted = f"{units.plural(sent.spans, 'span')} and {units.plural(sent.values, 'value')}"
    click.echo(f"Sent {counted} to {collector.shown}.")
    if sent.rejected or sent.why:
        click.echo(
            f"Warning: the collector rejected {sent.rejected:,} of them: {sent.why or 'no reason given'}", err=True
        )


def _say(target: Path, count: int, form: Format, size: int) -> None:
    click.echo(f"Wrote {target}: {units.plural(count, *form.counts)}, {units.size(size)}.")


def _check(target: Path, force: bool) -> None:
    if target.exists() and not force:
        raise FolderRefused(f"{target} exists. Overwrite it with --force, or choose another name with -o.")
    if not target.parent.is_dir():
        raise FolderRefused(f"There is no folder {target.parent}. Create it, or choose another path with -o.")
