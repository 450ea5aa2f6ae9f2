"""`sonde stacks`: where every thread of a running program is."""

from __future__ import annotations

import click

from sonde.analysis.live.stacks import WAIT_SECONDS, ask, named, running
from sonde.cli.options.choose import choose, directory, one_run, runs_dir, waiting


@click.command(
    epilog="""\b
Example: sonde stacks                            the newest run
Example: sonde stacks train-3f2a --wait 10"""
)
@one_run
@directory
@waiting(WAIT_SECONDS, "How long to wait for each process.")
@click.pass_context
def command(context: click.Context, run: str | None, dir: str | None, wait: float) -> None:
    """Show the current stack of every thread of a running program.

    Asks each training and loader process of the run on this machine. They respond even when they hang inside a library,
    and continue afterwards. Stacks are saved in the run folder as stacks-<host>-<pid>.txt. Linux only.
    """
    path = choose(run, runs_dir(dir), remote=False)
    found = running(path)
    answered = False
    for info in found:
        stacks = ask(path, info.host, info.pid, wait)
        answered |= stacks.file is not None
        click.echo(f"{named(info)}: {stacks.problem or stacks.file}")
        if stacks.file is not None:
            click.echo(f"{stacks.text()}\n")
    context.exit(0 if answered else 1)
