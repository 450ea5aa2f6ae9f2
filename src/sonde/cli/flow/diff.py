"""`sonde flow diff`: the first value that differs between two traces."""

from __future__ import annotations

import click

from sonde.capture.diff import compare
from sonde.capture.result import load
from sonde.cli.flow.files import one_trace, trace_files
from sonde.cli.options.choose import directory
from sonde.errors import SondeError

DIFFERENT, TROUBLE = 1, 2  # exit codes, as those of the program `diff`


@click.command(
    epilog="""\b
Example: sonde flow diff before.sonde after.sonde
Example: sonde flow diff cpu.sonde gpu.sonde --rtol 1e-5
Example: sonde flow diff train-3f2a train-91c0 && echo the same"""
)
@click.argument("a")
@click.argument("b")
@directory
@click.option(
    "--rtol",
    type=click.FloatRange(min=0, min_open=False),
    default=0.0,
    metavar="SHARE",
    help="Tolerance relative to an array's largest value, such as 1e-5 (default: 0).",
)
def diff(a: str, b: str, dir: str | None, rtol: float) -> None:
    """Show the first value that differs between two traces.

    A and B are files or runs, as for `sonde flow show`. Exit code: 0 for no difference, 1 for a difference, 2 if they
    cannot be compared.
    """
    try:
        left, right = (load(one_trace(trace_files(source, dir))) for source in (a, b))
    except (SondeError, OSError) as error:
        raise _Trouble(str(error)) from None
    found = compare(left, right, rtol=rtol)
    click.echo(f"A: {a}\nB: {b}\n{found}" if found else str(found))
    if found:
        click.get_current_context().exit(DIFFERENT)


class _Trouble(click.ClickException):
    exit_code = TROUBLE
