"""`sonde skill`: a page that teaches a coding agent to use Sonde."""

from __future__ import annotations

from importlib.resources import files

import click


@click.command(epilog="Example: sonde skill > .agents/sonde.md")
def command() -> None:
    """Print a page that teaches a coding agent to use Sonde."""
    click.echo(files("sonde.mcp").joinpath("skill.md").read_text(encoding="utf-8").rstrip())
