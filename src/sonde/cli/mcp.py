"""`sonde mcp`: let a coding agent ask about runs."""

from __future__ import annotations

import sys

import click

from sonde.cli.options.choose import directory, runs_dir
from sonde.mcp.server import serve


@click.command(
    epilog="""\b
Example: sonde mcp --dir /data/sonde-runs"""
)
@directory
def command(dir: str | None) -> None:
    """Serve runs to a coding agent over MCP (stdio).

    The agent starts this command itself; it speaks the Model Context Protocol on standard input and output. Tools only
    read. Needs: pip install 'sonde-ml[mcp]'.
    """
    if sys.stdin.isatty():
        click.echo("Waiting for an MCP client on standard input. Ctrl-C ends this.", err=True)
    serve(runs_dir(dir))
