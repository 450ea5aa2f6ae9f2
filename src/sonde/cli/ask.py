"""`sonde ask`: ready questions about a run."""

from __future__ import annotations

import click

from sonde.analysis.questions.ask import question, questions
from sonde.cli.autoseal import sealed
from sonde.cli.options.choose import choose, directory, runs_dir
from sonde.cli.output.formats import answer_options, print_answer


def _complete(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    return [one.name for one in questions() if one.name.startswith(typed)]


@click.command(
    epilog="""\b
Example: sonde ask --list                        all questions
Example: sonde ask item-cost                     the newest run
Example: sonde ask train-3f2a critical-path --step 340
Example: sonde ask time-per-name --sql           the SQL behind it"""
)
@click.argument("words", nargs=-1, metavar="[RUN] QUESTION", shell_complete=_complete)
@directory
@click.option("--list", "listed", is_flag=True, help="List the questions.")
@click.option("--sql", is_flag=True, help="Print the SQL of the question instead of its answer.")
@click.option("--step", type=int, metavar="N", help="The step to answer the question for.")
@answer_options
def command(
    words: tuple[str, ...], dir: str | None, listed: bool, sql: bool, step: int | None, as_json: bool, as_csv: bool,
    parquet: str | None, limit: int | None,
) -> None:  # fmt: skip
    """Answer a prepared question about a run, such as item-cost or idle-gaps.

    Default: the newest run. For your own SQL, use `sonde query`.
    """
    if listed:
        width = max(len(one.name) for one in questions())
        click.echo("\n".join(f"{one.name:{width}}  {one.about}" for one in questions()))
        return
    if not 1 <= len(words) <= 2:
        raise click.UsageError("Give one question. `sonde ask --list` lists them.")
    names = [one.name for one in questions()]
    if len(words) == 2 and words[0] in names and words[1] not in names:
        raise click.UsageError(f"The run comes first: sonde ask {words[1]} {words[0]}")
    asked = question(words[-1])
    query = asked.query(step)
    if sql:
        click.echo(query.rstrip())
        return
    run = words[0] if len(words) == 2 else None
    print_answer(
        sealed(choose(run, runs_dir(dir))), query, as_json=as_json, as_csv=as_csv, parquet=parquet, limit=limit
    )
