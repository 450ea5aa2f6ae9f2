"""`sonde pipeline`: train, infer, test, to-onnx and engine of a pipeline that a TOML file declares."""

from __future__ import annotations

import os
import sys
import time
import tomllib
from types import TracebackType
from typing import Any, Self

import click
from rich import progress as bars
from rich.console import Console

from sonde.capture.result import TraceResult
from sonde.cli.output.console import Group, stderr
from sonde.errors import ConfigError, MissingExtra
from sonde.pipeline.config import Config
from sonde.pipeline.verbs import VERBS

INTERRUPTED = 130  # as a shell says it of a program that Ctrl-C has ended
LIBRARIES = ("torch", "ignite", "lance", "onnx", "onnxruntime", "onnxscript", "tomlkit")
SHORTEST = 0.1  # seconds between two changes of the bar


@click.group(
    cls=Group,
    epilog="""\b
Example: sonde pipeline train -c my.toml
Example: sonde pipeline infer -c my.toml --trace 2
Example: sonde pipeline train -c my.toml --set train.epochs=3""",
)
def command() -> None:
    """Train, run, test and export a model declared in a TOML file."""


def _verb(name: str, help: str) -> None:
    """Add the command of one verb."""

    @command.command(name, help=help, epilog=f"Example: sonde pipeline {name} -c my.toml")
    @click.option(
        "-c",
        "--config",
        required=True,
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="TOML file: model, data_request, and any changes to the defaults.",
    )
    @click.option(
        "--set",
        "changes",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override one key of the file, such as train.epochs=3. Repeatable.",
    )
    @click.pass_context
    def run(context: click.Context, config: str, changes: tuple[str, ...], trace: int | None = None) -> None:
        context.exit(_run(name, config, changes, trace))

    if name != "to-onnx":
        words = "Run on N items, print the captured values and write no results."
        run.params.append(click.Option(["--trace"], type=click.IntRange(min=1), metavar="N", help=words))


for _name, _help in (
    ("train", "Train the model on the group `train`. Prints the run folder."),
    ("infer", "Run the model on the group `infer`. Prints the results folder."),
    ("test", "Test the model on the group `test`. Prints the metrics."),
    ("to-onnx", "Export the model to ONNX and verify it. Prints the folder of model.onnx."),
    ("engine", "Run the exported model on the group `infer`, without torch. Prints the results folder."),
):
    _verb(_name, _help)


def _run(name: str, file: str, changes: tuple[str, ...], trace: int | None) -> int:
    """The exit code."""
    sys.path.insert(0, os.getcwd())  # classes by import path, as `python -m` finds them
    config = Config.load(file)
    for change in changes:
        config.set(*_change(change))
    with Bar(stderr()) as bar:
        try:
            found = VERBS[name](config, trace=trace, progress=bar)
        except KeyboardInterrupt:
            bar.say("Interrupted. Finished parts are saved.")
            return INTERRUPTED
        except ImportError as error:
            if error.name is None or error.name.split(".")[0] not in LIBRARIES:
                raise
            raise MissingExtra.of(error.name, "pipeline", f"sonde pipeline {name}") from error
    for line in _output_lines(found):
        click.echo(line)
    return 0


def _output_lines(found: Any) -> list[str]:
    if isinstance(found, TraceResult):
        return [str(found)]
    if isinstance(found, dict):
        return [f"{name} {value:.6g}" for name, value in found.items()]
    return [str(found)]


def _change(given: str) -> tuple[str, Any]:
    """KEY=VALUE, where the value is one of TOML, or else a text."""
    key, separator, text = given.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"--set {given!r} is not KEY=VALUE. Example: --set train.epochs=3")
    try:
        return key.strip(), tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), text.strip()


# ── the bar ──


class Bar:
    """How far a verb is, on a terminal; elsewhere only what it says, line by line."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bars = bars.Progress(
            bars.TextColumn("{task.description}"),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TimeRemainingColumn(),
            bars.TextColumn("{task.fields[numbers]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task: bars.TaskID | None = None
        self._waiting = 0
        self._shown = 0.0

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.bars.stop()

    def start(self, total: int | None, label: str) -> None:
        """A new bar, in the place of one that was not stopped."""
        self.stop()
        self.task = self.bars.add_task(label, total=total, numbers="")

    def advance(self, count: int = 1, **numbers: float) -> None:
        """Move the bar, not more often than one can see."""
        self._waiting += count
        if self.task is None or time.monotonic() - self._shown < SHORTEST:
            return
        shown = "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        self.bars.update(self.task, advance=self._waiting, numbers=shown)
        self._waiting, self._shown = 0, time.monotonic()

    def say(self, line: str) -> None:
        """A line above the bar."""
        self.console.print(line, soft_wrap=True)

    def stop(self) -> None:
        """Take the bar away."""
        if self.task is not None:
            self.bars.remove_task(self.task)
        self.task, self._waiting = None, 0
