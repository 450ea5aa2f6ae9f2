"""Where commands draw: to the terminal, or as plain text to a pipe."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import sys

import click
from rich.console import Console

from sonde.exchange import jsonvalues

PIPE_COLUMNS = 100


class Group(click.Group):
    """A group whose list of commands has the whole first sentence of each."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does it, without cutting."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(limit=1000)) for name, one in found if one is not None])


def out() -> Console:
    """Standard output. Colours only on a terminal that wants them (NO_COLOR is honoured)."""
    width = None if sys.stdout.isatty() else shutil.get_terminal_size((PIPE_COLUMNS, 25)).columns
    return Console(width=width, highlight=False, emoji=False, markup=False)


def stderr() -> Console:
    """The error channel, for progress and what a command says beside its output."""
    return Console(stderr=True, highlight=False, emoji=False, markup=False)


def print_json(view: object) -> None:
    """A view as JSON on standard output: ASCII, and without NaN."""
    click.echo(json.dumps(finite(dataclasses.asdict(view)), indent=1, allow_nan=False))  # type: ignore[call-overload]


def finite(value: object) -> object:
    """The same, with numbers that JSON does not have as texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return jsonvalues.nonfinite(value)
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    return [finite(one) for one in value] if isinstance(value, list) else value
