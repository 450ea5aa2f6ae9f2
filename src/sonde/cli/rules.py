"""`sonde rules`: what the diagnosis looks for, and its thresholds; `sonde rules test` tries custom rules."""

from __future__ import annotations

import os

import click

from sonde import units
from sonde.cli.options.choose import choose, directory, one_run, runs_dir
from sonde.diagnosis.custom.process import ask_apart
from sonde.diagnosis.policy import Policy, Threshold
from sonde.diagnosis.rules import RULES, shared_parts


@click.group(
    invoke_without_command=True,
    epilog="""\b
Example: sonde rules
Example: sonde rules --policy my.toml
Example: sonde rules test my_rules.py train-3f2a""",
)
@click.option(
    "--policy",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="TOML file with other thresholds; changed ones are marked with *.",
)
@click.pass_context
def command(context: click.Context, policy: str | None) -> None:
    """List the diagnosis rules and their thresholds.

    docs/reference/rules.md has the same list and explains how the verdict is chosen.
    """
    if context.invoked_subcommand is not None:
        return
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


@command.command("test", epilog="Example: sonde rules test my_rules.py train-3f2a")
@click.argument("file", type=click.Path(dir_okay=False))
@one_run
@directory
@click.pass_context
def test(context: click.Context, file: str, run: str | None, dir: str | None) -> None:
    """Try the rules in FILE on a run, and print what each finds.

    FILE is Python (.py) or TOML (.toml). The exit code is 1 if a rule fails, and 0 otherwise. Default: the newest run.
    """
    path = choose(run, runs_dir(dir))
    found = ask_apart(path, [os.path.abspath(file)])
    for one in found.findings:
        click.echo(f"{click.style(one.kind, bold=True)}  {one.severity}, {units.share(one.confidence)} sure")
        click.echo(f"  {one.why}\n  {one.next}")
    for problem in found.problems:
        click.echo(f"problem: {problem}", err=True)
    click.echo(f"{units.plural(len(found.asked), 'rule')} tried, {units.plural(len(found.findings), 'finding')}.")
    context.exit(1 if found.problems else 0)


def _line(one: Threshold) -> str:
    value = f"{one.value:g}{'*' if one.changed else ''}"
    return f"  {one.name:<36} {value:>7} {one.unit}: {one.doc}"
