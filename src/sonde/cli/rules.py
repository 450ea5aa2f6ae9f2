"""`sonde rules`: what the diagnosis looks for, and its thresholds."""

from __future__ import annotations

import click

from sonde.diagnosis.policy import Policy, Threshold
from sonde.diagnosis.rules import RULES, shared_parts


@click.command(
    epilog="""\b
Example: sonde rules
Example: sonde rules --policy my.toml"""
)
@click.option(
    "--policy",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="TOML file with other thresholds; changed ones are marked with *.",
)
def command(policy: str | None) -> None:
    """List the diagnosis rules and their thresholds.

    docs/reference/rules.md has the same list and explains how the verdict is chosen.
    """
    table = Policy.load(policy)
    listed: set[str] = set()
    for rule in RULES:
        click.echo(f"{click.style(rule.kind, bold=True)}  {rule.about}")
        if rule.part in listed:
            click.echo(f"  thresholds: [{rule.part}], as above")
        for one in [] if rule.part in listed else table.of(rule.part):
            click.echo(_line(one))
        listed.add(rule.part)
    click.echo(f"{click.style('all rules', bold=True)}  Thresholds shared by several rules.")
    for one in [one for part in shared_parts(table) for one in table.of(part)]:
        click.echo(_line(one))


def _line(one: Threshold) -> str:
    value = f"{one.value:g}{'*' if one.changed else ''}"
    return f"  {one.name:<36} {value:>7} {one.unit}: {one.doc}"
