"""`sonde run`: start a program, and record it without an edit."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import click

from sonde import launch
from sonde.cli.program import Program, program_options, refuse_unknown
from sonde.errors import CommandRefused, SettingError


@click.command(
    cls=Program,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="""\b
Example: sonde run train.py --epochs 3
Example: sonde run --name try-2 -m package.train
Example: sonde run torchrun --nproc-per-node 2 train.py
Example: sonde run --blackbox --watch-nonfinite train.py
Example: sonde run --steps 100:200 -- bash start.sh""",
)
@program_options
@click.option("--deep", is_flag=True, default=None, help="Also record each layer of the model.")
@click.option("--disable", is_flag=True, help="Run the program without Sonde.")
@click.option("-q", "--quiet", is_flag=True, help="Suppress output except errors.")
@click.argument("words", nargs=-1, required=True, metavar="PROGRAM [ARGUMENT]...", type=click.UNPROCESSED)
@click.pass_context
def command(
    context: click.Context,
    /,
    words: tuple[str, ...],
    disable: bool,
    quiet: bool,
    **given: str | int | bool | None,
) -> None:
    """Run a program and record it, without editing it.

    PROGRAM is a script (run by this Python), `-m` and a module, or any command: torchrun, accelerate launch, bash.
    Everything after PROGRAM belongs to it; `--` ends Sonde's options.

    The exit code is the program's own; 128 + n after signal n.
    """
    refuse_unknown(context, words)
    context.exit(run(words, launch.Options(**given), disable, quiet))  # type: ignore[arg-type]  # click knows the types


def run(words: tuple[str, ...], options: launch.Options, disable: bool, quiet: bool) -> int:
    """Start the program, wait for its end, and return its exit code."""
    try:
        line = launch.command_of(words)
        if disable or not launch.wanted(options):
            sys.stdout.flush()
            launch.replace(line)
        with launch.blocked() as before:
            launched = launch.start(line, options, mask=before)
            told = _greet(launched, quiet)
            code = launch.attend(launched)
            _part(launched, quiet, told, before)
    except CommandRefused as error:
        print_note(str(error))
        return error.exit_code
    except SettingError as error:
        raise click.UsageError(str(error)) from None
    return code


def _greet(launched: launch.Launched, quiet: bool) -> int:
    """Say where the run is, and what is known to be wrong; returns how many notices were told."""
    if launched.run is not None and not quiet:
        print_note(f"recording to {_short(launched.run)}")
    told = len(launched.notices)
    for notice in launched.notices[:told]:
        print_note(notice)
    return told


def _part(launched: launch.Launched, quiet: bool, told: int, mask: set[int]) -> None:
    for notice in launched.notices[told:]:
        print_note(notice)
    if launched.run is None or quiet:
        return
    drawn = launch.draw_report(launched.run, mask)
    if drawn is False:
        print_note("the report failed; for the reason, run: sonde report")
    print_note(f"recorded. Next: sonde {'show' if drawn is None else 'report'} {_short(launched.run)}")


def _short(path: str) -> str:
    """The path from here, if that is shorter."""
    with suppress(OSError, ValueError):
        return min(path, os.path.relpath(path), key=len)
    return path


def print_note(text: str) -> None:
    """One line on the error channel. If nobody reads it, the program is not to suffer."""
    with suppress(OSError):
        click.echo(f"sonde: {text}", err=True)
