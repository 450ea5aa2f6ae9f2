"""`sonde deep`: like `sonde watch`, plus every layer of the model."""

from __future__ import annotations

from typing import Any

import click

from sonde import launch
from sonde.cli.options.program import refuse_unknown
from sonde.cli.watch import WatchCommand, follow, options


@click.command(
    cls=WatchCommand,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="""\b
Example: sonde deep train.py --epochs 1
Example: sonde deep --steps 100:200 train.py     only these steps
Example: sonde deep                              the newest run""",
)
@options
@click.pass_context
def command(
    context: click.Context, /, words: tuple[str, ...], refresh: float | None, plain: bool, web: bool, **given: Any
) -> None:
    """Start a program and watch every layer: forward and backward time, memory.

    The same as `sonde watch --deep`. With RUN it watches that run, with no argument the newest one. Layers are shown if
    they were recorded.
    """
    refuse_unknown(context, words)
    context.exit(follow(words, launch.Options(**given, deep=True), refresh, plain, web=web))
