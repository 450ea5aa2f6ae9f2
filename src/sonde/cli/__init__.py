"""The `sonde` command: an explicit list of commands, each in a file of its own that is loaded only when it is used."""

from __future__ import annotations

import importlib
import sys
import warnings
from keyword import iskeyword
from typing import Any

import click

from sonde.cli.output.encoding import replace_closed, write_what_can_be_shown
from sonde.errors import IncompleteRun, SondeError, nearest
from sonde.store.filesystem import has_working_folder
from sonde.version import __version__

# What a person wants to do: (name, what it does). The file of a command has its name (that of `import` is `import_`), and calls it `command`.
SECTIONS = {
    "Record": (
        ("run", "Run a program and record it, without editing it."),
        ("watch", "Start a program and watch it, or watch a running or finished run."),
        ("deep", "Start a program and watch every layer: forward and backward time, memory."),
        ("deepen", "Record some steps of a running training in depth, then continue as before."),
        ("dump", "Ask a running program to write its last batches now."),
        ("stacks", "Show the current stack of every thread of a running program."),
    ),
    "Diagnose": (
        ("report", "Diagnose a run: problem, evidence, next step."),
        ("ui", "Show runs in the browser, live: from the verdict to the step, item and value."),
        ("blackbox", "Show the last batches before a failure, and what produced the first NaN."),
        ("runs", "List recorded runs, newest first."),
        ("show", "Show where the time of a run went, which spans were open, and what was lost."),
        ("rules", "List the diagnosis rules and their thresholds."),
    ),
    "Compare": (
        ("compare", "Compare runs: time, causes, numbers."),
        ("gate", "Pass or fail a run by limits; without enough data, it does not pass."),
        ("baseline", "Keep summaries of runs as baselines for `sonde gate`."),
    ),
    "Ask": (
        ("query", "Query a run with SQL; prints a table, JSON, CSV or Parquet."),
        ("ask", "Answer a prepared question about a run, such as item-cost or idle-gaps."),
        ("tables", "List the tables of a run: rows and columns."),
        ("flow", "Inspect captured values, compare two traces, rebuild a batch."),
    ),
    "Keep and exchange": (
        ("push", "Send a run, or what is new of it, to a URL such as s3://bucket/runs."),
        ("pull", "Fetch a run from a URL."),
        ("seal", "Compress the raw records of a finished run into tables."),
        ("rm", "Delete runs, after confirmation."),
        ("import", "Import traces of other tools as one run."),
        ("export", "Export a run to the format of another tool."),
    ),
    "With other programs": (
        ("pipeline", "Train, run, test and export a model declared in a TOML file."),
        ("mcp", "Serve runs to a coding agent over MCP (stdio)."),
        ("skill", "Print a page that teaches a coding agent to use Sonde."),
    ),
    "This installation": (
        ("doctor", "Check that recording works on this machine, and how."),
        ("completion", "Print the shell completion script for commands, options and runs."),
    ),
}
COMMANDS = tuple(row for rows in SECTIONS.values() for row in rows)

FAULTS = ("ParserException", "BinderException", "CatalogException")  # of DuckDB: a query of ours is wrong, no file


class Commands(click.Group):
    """A group that knows its commands from the list, so that `sonde --help` loads none of them."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """As click does it, on any terminal."""
        replace_closed()
        write_what_can_be_shown()
        return super().main(*args, **kwargs)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the list."""
        return [name for name, _ in COMMANDS]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Load one command."""
        if name not in self.list_commands(ctx):
            return None
        file = f"{name}_" if iskeyword(name) else name
        command: click.Command = importlib.import_module(f"sonde.cli.{file}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, but a typo is answered with the nearest command."""
        if not ctx.resilient_parsing and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            ctx.fail(f"Unknown command {args[0]!r}. {nearest(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list, without loading what is in it."""
        widest = max(len(name) for name, _ in COMMANDS)
        for title, rows in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), text) for name, text in rows])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an expected failure becomes one message and exit code 1."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", IncompleteRun)
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except SondeError as error:
            raise click.ClickException(str(error)) from None
        except BrokenPipeError:
            raise  # click ends quietly
        except OSError as error:
            raise click.ClickException(_reason(error)) from None
        except _failures() as error:
            if type(error).__name__ in FAULTS:
                raise
            reason = str(error).partition("\n")[0].rstrip(".")
            raise click.ClickException(
                f"Cannot read a table: {reason}. If its file is damaged, restore the run folder from a backup."
            ) from None


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,
    line: str | None = None,
) -> None:
    """Ours in one line; others as Python does it."""
    if issubclass(category, IncompleteRun):
        click.echo(f"Warning: {message}", err=True)
    else:
        click.echo(warnings.formatwarning(message, category, filename, lineno, line), err=True, nl=False)


def _failures() -> tuple[type[Exception], ...]:
    """What DuckDB raises, if it is there."""
    if "duckdb" not in sys.modules:
        return ()
    import duckdb

    return (duckdb.Error,)


def _reason(error: OSError) -> str:
    if isinstance(error, FileNotFoundError) and not has_working_folder():
        return "The current working directory was deleted. Change to another one and try again."
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}."


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExample: sonde run train.py\nHelp for one command: sonde run --help",
)
@click.version_option(__version__, message="sonde %(version)s")
def main() -> None:
    """Sonde: find what makes a training slow, NaN or dead. Records your script unchanged."""
