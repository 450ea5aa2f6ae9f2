"""`sonde completion`: print the script that completes commands, options and runs in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog="""\b
Example, in ~/.bashrc (the same with zsh in ~/.zshrc):
  eval "$(sonde completion bash)"
Example, once, for fish:
  sonde completion fish > ~/.config/fish/completions/sonde.fish"""
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the shell completion script for commands, options and runs."""
    kind = get_completion_class(shell)
    assert kind is not None, shell  # SHELLS are click's own
    click.echo(kind(context.find_root().command, {}, "sonde", "_SONDE_COMPLETE").source())
