"""What `run`, `watch` and `deep` have in common: options for the program that they start, and an option that none of them has."""

from __future__ import annotations

from typing import Any

import click

from sonde.config import MOST_HZ
from sonde.errors import nearest

PYTHON = ("-m", "-c")  # the options of Python that a program may begin with
BATCHES = 3  # that --blackbox keeps
EVERY = {"--fingerprint": 100, "--learning": 50, "--sample": 50}  # the numbers of options that may have none
ENDED = "sonde.options_ended"  # in the context: `--` stood before the program


class Program(click.Command):
    """A command with a program behind its options, which `--` may end."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does it."""
        given = list(args)
        left = super().parse_args(ctx, self._completed(ctx, args))
        before = given[: len(given) - len(ctx.params["words"])]
        ctx.meta[ENDED] = before[-1:] == ["--"]
        return left

    def _completed(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words, with numbers behind the options of `EVERY` that have none: click would take the program for it."""
        valued = {name for one in self.get_params(ctx) if not getattr(one, "is_flag", False) for name in one.opts}
        words, place = list(args), 0
        while place < len(words) and words[place].startswith("-") and words[place] not in ("--", "-", *PYTHON):
            if words[place] in EVERY and not _number(words[place + 1 :]):
                words[place] += f"={EVERY[words[place]]}"
            place += 2 if words[place] in valued else 1
        return words


def _number(words: list[str]) -> bool:
    return bool(words) and words[0].isdigit()


def program_options(command: Any) -> Any:
    """What is recorded of the program, and where."""
    for option in reversed(
        (
            click.option("--name", metavar="NAME", help="Name of the run (default: the script's name)."),
            click.option("--dir", type=click.Path(file_okay=False), help="Folder that holds the runs."),
            click.option("--steps", metavar="A:B", help="Record phases of these steps only, such as 100:200."),
            click.option(
                "--every", type=click.IntRange(min=1), metavar="N", help="Record phases of every N-th step only."
            ),
            click.option("--ranks", metavar="R,R", help="Record phases of these ranks only, such as 0,3."),
            click.option(
                "--blackbox",
                is_flag=True,
                flag_value=BATCHES,
                default=None,
                help=f"Save the last {BATCHES} batches if training fails.",
            ),
            click.option(
                "--watch-nonfinite",
                is_flag=True,
                flag_value="record",
                default=None,
                help="Find the layer, batch and item that produced the first NaN or infinity.",
            ),
            click.option(
                "--fingerprint",
                type=click.IntRange(min=1),
                metavar="[EVERY]",
                help=f"Fingerprint layers, gradients and parameters every {EVERY['--fingerprint']} (or EVERY) steps, for sonde compare.",
            ),
            click.option(
                "--learning",
                type=click.IntRange(min=1),
                metavar="[EVERY]",
                help=f"Record gradients, updates, activations and batch fields every {EVERY['--learning']} (or EVERY) steps.",
            ),
            click.option(
                "--io", is_flag=True, default=None, help="Record which files each item reads: bytes, calls, time."
            ),
            click.option(
                "--sample",
                type=click.IntRange(1, MOST_HZ),
                metavar="[HZ]",
                help=f"Sample the stacks of all threads {EVERY['--sample']} (or HZ) times a second: which lines take time.",
            ),
        )
    ):
        command = option(command)
    return command


def refuse_unknown(context: click.Context, words: tuple[str, ...]) -> None:
    """Options that are not known go to the program; but no program begins with one."""
    first = words[0] if words else ""
    if not first.startswith("-") or first in PYTHON or context.meta[ENDED]:
        return
    if first == "-":
        line = f"{context.command_path} python - < script.py"
        raise click.UsageError(f"Sonde does not read a program from standard input. Let Python do it: {line}", context)
    known = [name for option in context.command.get_params(context) for name in option.opts if name.startswith("-")]
    raise click.UsageError(f"Unknown option {first}. {nearest(first, [*known, *PYTHON])}", context)
