"""`sonde flow`: look at captured values, compare two traces, and rebuild a batch of a run."""

from __future__ import annotations

import click

from sonde.cli.flow.diff import diff
from sonde.cli.flow.replay import replay
from sonde.cli.flow.show import show
from sonde.cli.output.console import Group


@click.group(
    cls=Group,
    epilog="""\b
Example: sonde flow show                         the traces of the newest run
Example: sonde flow show t.sonde --html t.html
Example: sonde flow diff before.sonde after.sonde
Example: sonde flow replay train-3f2a train.py:make_dataset --step 340""",
)
def command() -> None:
    """Inspect captured values, compare two traces, rebuild a batch."""


for one in (show, diff, replay):
    command.add_command(one)
